"""Verify delivery certificates: `found = verify_certificate(certificate, keys)`, without asking the service.

The signature needs the package `cryptography`: the extra `certificates` of this client installs it. `keys` is the JWK
set at `/.well-known/waybill/keys` of the service. Fetch it from the address that you know, not from one in a
certificate.
"""

import binascii
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple

from .errors import WaybillError

__all__ = ["CertificateError", "VerifiedCertificate", "verify_certificate", "verify_log"]

ALGORITHM: Final = "Ed25519"  # RFC 9864; no other one is accepted
TYPE: Final = "waybill-delivery-certificate"
VERSION: Final = 1
MAX_CERTIFICATE_BYTES: Final = 4_000_000
CLOCK_DIFFERENCE: Final = timedelta(minutes=5)  # between the hosts of a service, when a key is retired
_base64url = re.compile(r"[A-Za-z0-9_-]*").fullmatch


class CertificateError(WaybillError):
    """A certificate that is not valid, or does not fit the message or the recipient; `reason` is a fixed word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class VerifiedCertificate(NamedTuple):
    """The findings of a verified certificate. `message` is `identical`, or `same` if only other fields were changed."""

    statement: dict[str, Any]
    key: dict[str, Any]  # the JWK that signed
    message: str | None  # None unless a message was given
    recipient: dict[str, Any] | None  # the entry of the given address
    salts: dict[str, Any]  # as far as they are still beside the statement


def verify_certificate(
    certificate: Mapping[str, Any] | str | bytes,
    keys: Mapping[str, Any] | str | bytes,
    *,
    message: bytes | None = None,
    recipient: str | None = None,
) -> VerifiedCertificate:
    """Return what a certificate says if its signature is valid; raise CertificateError.

    `keys` is the JWK set of the service. `message` is the message as a file, as sent or as received: it must be the one
    of the certificate. `recipient` is an address that must be among its recipients. Raises ImportError without
    `cryptography`.
    """
    given = _object(certificate, "certificate")
    protected, payload = _part(given, "protected"), _part(given, "payload")
    header = _object(_decoded(protected), "protected header")
    key = _key(header, _object(keys, "key set"))
    _check_signature(key, f"{protected}.{payload}".encode(), _decoded(_part(given, "signature")))
    statement = _object(_decoded(payload), "payload")
    if statement.get("version") != VERSION:
        raise CertificateError("unsupported_version", f"the statement has version {statement.get('version')!r}")
    _check_retirement(key, statement)
    salts = given["salts"] if isinstance(given.get("salts"), dict) else {}
    fits = None if message is None else _compared(statement, salts, message)
    entry = None if recipient is None else _recipient(statement, salts, recipient)
    return VerifiedCertificate(statement, key, fits, entry, salts)


def verify_log(found: VerifiedCertificate, lines: Iterable[bytes | str]) -> int:
    """Verify that a log export (`GET /v1/audit/export`) holds the events and the end that a certificate names.

    Replays the hash chain over the lines. Returns the number of events of the certificate that the export holds; raises
    CertificateError with reason `log_mismatch` if the log is another one, or was changed since.
    """
    salt, end = _salt(found.salts, "log"), found.statement["log"]
    wanted = {one["seq"]: one["hashSha256"] for one in found.statement["events"] if one["hashSha256"] is not None}
    certified = {**wanted, end["seq"]: end["hashSha256"]}
    last, before, held = 0, None, 0
    for row in filter(_is_entry, map(json.loads, lines)):
        _check_link(row, last, before)
        last, before = row["seq"], row["hash"]
        if last in certified and certified[last] != _digest(salt, bytes.fromhex(before)):
            raise CertificateError("log_mismatch", f"event {last} of the log is not the one in the certificate")
        held += last in wanted
    if last < end["seq"]:
        raise CertificateError("log_mismatch", f"the log ends before event {end['seq']}, which the certificate names")
    return held


def _is_entry(row: Mapping[str, Any]) -> bool:
    return {"seq", "hash", "prevHash", "payload"} <= row.keys()


def _check_link(row: Mapping[str, Any], last: int, before: str | None) -> None:
    """Check an entry of a log against the one before it; an erased entry has no payload."""
    text = f"{row['prevHash']}\n{row['seq']}\n{row['occurredAt']}\n{row['payload']}"
    if row["payload"] is not None and sha256(text.encode()).hexdigest() != row["hash"]:
        raise CertificateError("log_mismatch", f"event {row['seq']} of the log was changed")
    if before is not None and (row["prevHash"] != before or row["seq"] != last + 1):
        raise CertificateError("log_mismatch", f"event {row['seq']} of the log does not follow the one before it")


def _key(header: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JWK that a header names. The algorithm is fixed: what the header says can only be refused."""
    if header.get("alg") != ALGORITHM:
        raise CertificateError("unsupported_algorithm", f"`alg` is {header.get('alg')!r}, not {ALGORITHM!r}")
    if header.get("typ") != TYPE or "crit" in header:
        raise CertificateError("malformed_certificate", "the signature is of something else than a certificate")
    listed = keys.get("keys")
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict) and isinstance(one.get("kid"), str) and one["kid"] == header.get("kid"):
            if (one.get("kty"), one.get("crv"), one.get("alg", ALGORITHM)) != ("OKP", "Ed25519", ALGORITHM):
                break
            return one
    raise CertificateError("unknown_key", f"the key set has no {ALGORITHM} key {header.get('kid')!r}")


def _check_signature(key: Mapping[str, Any], signed: bytes, signature: bytes) -> None:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - only those who verify need the package
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    public = _decoded(_part(key, "x"))
    if len(public) != 32:
        raise CertificateError("unknown_key", "the key does not have 32 bytes")
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, signed)
    except (InvalidSignature, ValueError):
        raise CertificateError("signature_mismatch", "the signature does not fit the certificate and the key") from None


def _check_retirement(key: Mapping[str, Any], statement: Mapping[str, Any]) -> None:
    """Refuse a certificate that was made after the service deleted the private half of its key."""
    retired = key.get("retiredAt")
    if retired is None:
        return
    try:
        late = datetime.fromisoformat(statement["issuedAt"]) > datetime.fromisoformat(retired) + CLOCK_DIFFERENCE
    except (KeyError, TypeError, ValueError):
        raise CertificateError("malformed_certificate", "`issuedAt` or `retiredAt` is not a time") from None
    if late:
        raise CertificateError("retired_key", f"the certificate was issued after its key was retired at {retired}")


# -- the message ----------------------------------------------------------------------------------


def _compared(statement: Mapping[str, Any], salts: Mapping[str, Any], message: bytes) -> str:
    content = statement.get("content")
    if not isinstance(content, dict):
        raise CertificateError("not_in_certificate", "the certificate has no digest of the content any more")
    mime = re.sub(rb"\r\n|\r|\n", b"\r\n", message)
    if _holds(mime, content["sha256"], content["sizeBytes"]):
        return "identical"
    salt = _salt(salts, "content")
    head, _, body = mime.partition(b"\r\n\r\n")
    if _digest(salt, sha256(_relaxed_body(body)).digest()) != content["bodySha256"]:
        raise CertificateError("message_mismatch", "the body is not that of the certified message")
    fields = _relaxed_fields(head)
    for name, digest in content["headerSha256"].items():
        values = [value for own, value in fields if own == name.encode()]
        if (_digest(salt, values[-1]) if values else None) != digest:
            raise CertificateError("message_mismatch", f"the field `{name}` is not that of the certified message")
    return "same"


def _holds(mime: bytes, digest: str, size: int) -> bool:
    """Return True if a message ends with the certified octets: mail servers write their fields in front of them.

    Programs that save mail may add or take a line break at the end.
    """
    for whole in (mime, mime + b"\r\n", mime.removesuffix(b"\r\n")):
        start = len(whole) - size
        is_field_start = start == 0 or (start > 0 and whole[:start].endswith(b"\r\n"))
        if is_field_start and sha256(memoryview(whole)[start:]).hexdigest() == digest:
            return True
    return False


def _relaxed_body(body: bytes) -> bytes:
    """Return a body in the relaxed form of DKIM (RFC 6376 3.4.4)."""
    lines = [re.sub(rb"[ \t]+", b" ", line).rstrip(b" ") for line in body.split(b"\r\n")]
    while lines and not lines[-1]:
        lines.pop()
    return b"".join(line + b"\r\n" for line in lines)


def _relaxed_fields(head: bytes) -> list[tuple[bytes, bytes]]:
    unfolded = re.sub(rb"\r\n(?=[ \t])", b"", head)
    pairs = [line.partition(b":")[::2] for line in unfolded.split(b"\r\n")]
    return [(name.strip(b" \t").lower(), re.sub(rb"[ \t]+", b" ", value).strip(b" ")) for name, value in pairs]


# -- the recipient --------------------------------------------------------------------------------


def _recipient(statement: Mapping[str, Any], salts: Mapping[str, Any], address: str) -> dict[str, Any]:
    """Return the entry of an address; its salt proves it."""
    given = salts.get("recipients")
    wanted = address.strip().lower().encode("utf-8", "surrogatepass")
    for entry, salt in zip(statement["recipients"], given if isinstance(given, list) else [], strict=False):
        if isinstance(salt, str) and entry["addressSha256"] == _digest(_hex(salt), wanted):
            found: dict[str, Any] = entry
            return found
    raise CertificateError("recipient_mismatch", "no recipient of the certificate has this address, as far as it tells")


# -- reading --------------------------------------------------------------------------------------


def _object(given: Mapping[str, Any] | str | bytes, what: str) -> dict[str, Any]:
    if isinstance(given, str | bytes):
        if len(given) > MAX_CERTIFICATE_BYTES:
            raise CertificateError("malformed_certificate", f"the {what} is too large")
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise CertificateError("malformed_certificate", f"the {what} is not JSON") from None
    if not isinstance(given, Mapping):
        raise CertificateError("malformed_certificate", f"the {what} is not a JSON object")
    return dict(given)


def _part(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise CertificateError("malformed_certificate", f"`{name}` is missing")
    return value


def _decoded(text: str) -> bytes:
    """Decode base64url without padding, strictly: each value has one form."""
    try:
        content = urlsafe_b64decode(text + "=" * (-len(text) % 4)) if _base64url(text) else None
    except (binascii.Error, ValueError):
        content = None
    if content is None or urlsafe_b64encode(content).rstrip(b"=").decode() != text:
        raise CertificateError("malformed_certificate", "a part of the certificate is not base64url")
    return content


def _salt(salts: Mapping[str, Any], name: str) -> bytes:
    """Return a salt; the holder may have taken it away."""
    salt = salts.get(name)
    if not isinstance(salt, str):
        raise CertificateError("not_in_certificate", f"the salt `{name}` was taken out of the certificate")
    return _hex(salt)


def _digest(salt: bytes, value: bytes) -> str:
    return sha256(salt + value).hexdigest()


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise CertificateError("malformed_certificate", "a salt is not hexadecimal") from None
