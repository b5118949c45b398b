"""The verifiers of both clients, against certificates that the service's own parts signed and others changed."""

import json
import subprocess
from base64 import urlsafe_b64encode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from api.sdk.javascript import FILES
from engine.accounts.delivery_certificates import signing
from engine.accounts.delivery_certificates.statement import address_digest, content_of
from engine.accounts.delivery_certificates.types import (
    CertifiedLog,
    CertifiedRecipient,
    KeyRow,
    Statement,
)
from engine.base.secrets import Pepper

PEPPER = Pepper("the pepper of a test, of no use elsewhere")
AT = datetime(2026, 11, 29, 12, tzinfo=UTC)
SALT = bytes(range(16))
MIME = (
    "From: Shop <shop@shop.test>\r\nTo: ann@people.test\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n  folded\there\r\n"
    "Date: Sun, 29 Nov 2026 12:00:00 +0000\r\nMessage-ID: <a@shop.test>\r\n\r\n"
    "Hello  you \r\n\r\nBye \u00e9\r\n\r\n\r\n"
).encode()
HEAD, _, BODY = MIME.partition(b"\r\n\r\n")
TRACE = b"Return-Path: <x@y.test>\r\nReceived: from a\r\n\tby b; now\r\n"


def key(retired_at: datetime | None = None) -> KeyRow:
    kid, public, sealed = signing.new_key(PEPPER)
    return KeyRow(kid, public, sealed, AT, retired_at)


KEY, OTHER = key(), key()


def made() -> dict[str, Any]:
    """A certificate about a message to two people, one of them erased."""
    kept = CertifiedRecipient("to", address_digest(SALT, "ann@people.test"), "delivered", None, None, False, None)
    gone = CertifiedRecipient("cc", None, "delivered", None, None, False, None)
    statement = Statement(
        version=1, installation="https://mail.example.com", issued_at="2026-11-29T12:00:00.000Z", account="acc_1",
        message="msg_1", accepted_at="2026-11-29T11:59:00.000Z", delivered_at=None,
        content=content_of(MIME, SALT), recipients=[kept, gone], events=[], log=CertifiedLog(7, "0" * 64),
        missing=["recipients[1].addressSha256"],
    )  # fmt: skip
    salts = signing.salts_of(SALT, [SALT, SALT], ["ann@people.test", None], SALT)
    signed = signing.signed(statement, salts, key=signing.opened(KEY, PEPPER), kid=KEY.kid)
    return {
        "payload": signed.payload, "protected": signed.protected, "signature": signed.signature,
        "salts": {"content": salts.content, "recipients": salts.recipients, "log": salts.log},
    }  # fmt: skip


def signed_as(header: object, statement: object) -> dict[str, Any]:
    """Return parts with a genuine signature, whatever they say."""
    protected, payload = encoded(header), encoded(statement)
    private = signing.opened(KEY, PEPPER)
    return {
        "protected": protected, "payload": payload,
        "signature": encoded(private.sign(f"{protected}.{payload}".encode())),
    }  # fmt: skip


def encoded(value: object) -> str:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(content).rstrip(b"=").decode()


GOOD = made()
KEYS = {"keys": [signing.public_jwk(OTHER), signing.public_jwk(KEY)]}
RETIRED = {"keys": [signing.public_jwk(KEY) | {"retiredAt": "2026-11-29T12:04:00.000Z"}]}
LONG_RETIRED = {"keys": [signing.public_jwk(KEY) | {"retiredAt": "2026-11-29T11:00:00.000Z"}]}
HEADER = {"alg": "Ed25519", "kid": KEY.kid, "typ": "waybill-delivery-certificate"}
UNSALTED = GOOD | {"salts": {"content": None, "recipients": [None, None]}}
SAME = b"X-Moved: 1\r\n" + HEAD + b"\r\nX-Added: below\r\n\r\n" + BODY
# Certificate, key set, message, recipient; the reason for the refusal, or how the message fits.
Case = tuple[object, object, bytes | None, str | None, str | None]
CASES: dict[str, Case] = {
    "good": (GOOD, KEYS, None, None, None),
    "as JSON": (json.dumps(GOOD), json.dumps(KEYS), None, None, None),
    "without salts": ({name: GOOD[name] for name in ("payload", "protected", "signature")}, KEYS, None, None, None),
    "retired after it signed": (GOOD, RETIRED, None, None, None),
    "retired before it signed": (GOOD, LONG_RETIRED, None, None, "retired_key"),
    "the message as sent": (GOOD, KEYS, MIME, None, "identical"),
    "the message as received": (GOOD, KEYS, TRACE + MIME, None, "identical"),
    "the message with other line breaks": (GOOD, KEYS, (TRACE + MIME).replace(b"\r\n", b"\n"), None, "identical"),
    "the message with a further line": (GOOD, KEYS, MIME + b"\r\n", None, "identical"),
    "the message with a line less": (GOOD, KEYS, MIME.removesuffix(b"\r\n"), None, "identical"),
    "the message with further fields": (GOOD, KEYS, SAME, None, "same"),
    "another blank in the body": (GOOD, KEYS, SAME.replace(b"Hello  you", b"Hello   you"), None, "same"),
    "another body": (GOOD, KEYS, MIME + b"more", None, "message_mismatch"),
    "another subject": (GOOD, KEYS, MIME.replace(b"here", b"there"), None, "message_mismatch"),
    "no subject": (GOOD, KEYS, MIME.replace(b"Subject", b"X-Subject"), None, "message_mismatch"),
    "an empty message": (GOOD, KEYS, b"", None, "message_mismatch"),
    "a message without the salt": (UNSALTED, KEYS, SAME, None, "not_in_certificate"),
    "a recipient": (GOOD, KEYS, None, " Ann@People.test ", None),
    "another recipient": (GOOD, KEYS, None, "bob@people.test", "recipient_mismatch"),
    "a recipient without the salt": (UNSALTED, KEYS, None, "ann@people.test", "recipient_mismatch"),
    "no JSON": ("{", KEYS, None, None, "malformed_certificate"),
    "a list": ("[]", KEYS, None, None, "malformed_certificate"),
    "no signature": (GOOD | {"signature": ""}, KEYS, None, None, "signature_mismatch"),
    "a padded signature": (GOOD | {"signature": GOOD["signature"] + "=="}, KEYS, None, None, "malformed_certificate"),
    "another payload": (GOOD | {"payload": encoded({"version": 1})}, KEYS, None, None, "signature_mismatch"),
    "no payload": (GOOD | {"payload": None}, KEYS, None, None, "malformed_certificate"),
    "alg none": (
        signed_as(HEADER | {"alg": "none"}, {}) | {"signature": ""},
        KEYS,
        None,
        None,
        "unsupported_algorithm",
    ),
    "alg EdDSA": (signed_as(HEADER | {"alg": "EdDSA"}, {}), KEYS, None, None, "unsupported_algorithm"),
    "another kid": (signed_as(HEADER | {"kid": OTHER.kid}, {}), KEYS, None, None, "signature_mismatch"),
    "an unknown kid": (signed_as(HEADER | {"kid": "x"}, {}), KEYS, None, None, "unknown_key"),
    "no kid": (signed_as({**HEADER, "kid": None}, {}), {"keys": [{"kid": None}]}, None, None, "unknown_key"),
    "another typ": (signed_as(HEADER | {"typ": "JWT"}, {}), KEYS, None, None, "malformed_certificate"),
    "a critical extension": (signed_as(HEADER | {"crit": ["b64"]}, {}), KEYS, None, None, "malformed_certificate"),
    "another version": (signed_as(HEADER, {"version": 2}), KEYS, None, None, "unsupported_version"),
    "no keys": (GOOD, {}, None, None, "unknown_key"),
    "a short key": (GOOD, {"keys": [signing.public_jwk(KEY) | {"x": "AAAA"}]}, None, None, "unknown_key"),
    "a key of another kind": (GOOD, {"keys": [signing.public_jwk(KEY) | {"kty": "oct"}]}, None, None, "unknown_key"),
}


def expected(case: Case) -> str:
    return case[4] or "valid"


@pytest.mark.parametrize("name", CASES)
def test_python_verifies_certificates(name: str, waybill_client: Any) -> None:
    certificate, keys, message, recipient, _ = CASES[name]
    try:
        found = waybill_client.verify_certificate(certificate, keys, message=message, recipient=recipient)
        outcome = found.message or "valid"
    except waybill_client.CertificateError as error:
        outcome = error.reason

    assert outcome == expected(CASES[name])


def test_javascript_verifies_certificates(node: str, tmp_path: Path) -> None:
    cases = [
        [certificate, keys, None if message is None else list(message), recipient]
        for certificate, keys, message, recipient, _ in CASES.values()
    ]
    script = (
        f'import {{ verifyCertificate }} from "{(FILES / "certificates.mjs").as_uri()}";\n'
        f"for (const [certificate, keys, message, recipient] of {json.dumps(cases)})\n"
        "  console.log(await verifyCertificate(certificate, keys, { message, recipient })\n"
        "    .then((found) => found.message ?? 'valid', (error) => error.reason ?? error.stack));\n"
    )
    (tmp_path / "run.mjs").write_text(script, "utf-8")
    found = subprocess.run(
        [node, "--no-warnings", "run.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )

    outcomes = dict(zip(CASES, found.stdout.split("\n"), strict=False))
    assert outcomes == {name: expected(case) for name, case in CASES.items()}, found.stderr
