"""What our DKIM verifier says of signatures that are unusual, refused or hostile."""

import base64
import time
from collections.abc import Sequence
from typing import Final

import dkim as dkimpy
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from engine.authentication import dkim_check as dkim
from engine.authentication import public_keys
from engine.authentication.canonicalization import SignedMessage
from engine.authentication.dkim_check import MAX_CLOCK_SKEW_S, MAX_SIGNATURES
from engine.authentication.dkim_signing import sign
from engine.authentication.public_keys import UnusableKey, VerificationKey, parse_key
from tests.authentication.signing import ED, RECORDS, RSA, RSA_PEM, verified
from tests.authentication.test_dkim_signing import RFC_8463_MAIL, RFC_8463_TXT

MAIL: Final = b"From: ann@shop.test\r\nTo: bob@x.test\r\nSubject: Hello\r\n\r\nHello Bob,\r\nthe second line.\r\n"
NAME: Final = "wb1._domainkey.shop.test"
KEY_DATA: Final = RECORDS[NAME].decode().rpartition("p=")[2]
NOW: Final = int(time.time())


def by_dkimpy(mime: bytes = MAIL, **options: object) -> bytes:
    """Return a message signed by dkimpy with rsa-sha256, simple/simple."""
    field = dkimpy.DKIM(mime).sign(
        b"wb1", b"shop.test", RSA_PEM, **({"canonicalize": (b"simple", b"simple")} | options)
    )
    assert isinstance(field, bytes)
    return field + mime


def with_tags(tags: dict[str, str], *, without: Sequence[str] = ()) -> bytes:
    """Return a message with a signature field of these tags beside usual ones; its b= is not valid."""
    usual = {"v": "1", "a": "rsa-sha256", "d": "shop.test", "s": "wb1", "h": "from", "bh": "AAAA", "b": "AAAA"} | tags
    text = "; ".join(f"{name}={value}" for name, value in usual.items() if name not in without)
    return f"DKIM-Signature: {text}\r\n".encode() + MAIL


def test_both_algorithms_of_our_own_signer_pass() -> None:
    results = verified(sign(MAIL, (RSA, ED), at=NOW) + MAIL)

    assert [(one.result, one.domain) for one in results] == [("pass", "shop.test"), ("pass", "shop.test")]


def test_the_example_of_rfc_8463_passes() -> None:
    records = {"brisbane._domainkey.football.example.com": RFC_8463_TXT.encode()}

    assert verified(RFC_8463_MAIL, records)[0].result == "pass"
    assert verified(RFC_8463_MAIL.replace(b"ready?", b"over?"), records)[0].result == "fail"


@pytest.mark.parametrize(
    ("tags", "without", "result"),
    [
        ({"a": "rsa-sha1"}, [], "permerror"),  # RFC 8301 3.1
        ({"a": "rsa-sha512"}, [], "permerror"),
        ({"v": "2"}, [], "permerror"),
        ({"h": "to:subject"}, [], "permerror"),  # RFC 6376 5.4: From must be signed
        ({"c": "relaxed/strict"}, [], "permerror"),
        ({"i": "@other.test"}, [], "permerror"),
        ({"i": "@evilshop.test"}, [], "permerror"),
        ({"l": "many"}, [], "permerror"),
        ({"x": "soon"}, [], "permerror"),
        ({"q": "http"}, [], "permerror"),
        ({"d": "shop..test"}, [], "permerror"),
        ({"d": "shop.test(.evil.test"}, [], "permerror"),
        ({"d": "shop.test\0.evil.test"}, [], "permerror"),
        ({"s": "a b"}, [], "permerror"),
        ({"b": "not base64!"}, [], "permerror"),
        ({"d": "x" * 20_000}, [], "permerror"),
        ({}, ["bh"], "permerror"),
        ({}, ["s"], "permerror"),
        ({"d": "shop.test; d=bank.test"}, [], "neutral"),
        ({"z": "a; nonsense"}, [], "neutral"),
        ({"s": "unknown"}, [], "permerror"),
        ({}, [], "fail"),
    ],
)
def test_a_signature_that_can_not_be_verified_has_a_reason(
    tags: dict[str, str], without: list[str], result: str
) -> None:
    (found,) = verified(with_tags(tags, without=without))

    assert found.result == result
    assert found.detail


def test_content_appended_behind_the_length_does_not_pass() -> None:
    signed = by_dkimpy(length=True)

    assert verified(signed)[0].result == "pass"
    assert verified(signed + b"Pay here: http://evil.test\r\n")[0].result == "policy"


def test_a_length_beyond_the_body_does_not_pass() -> None:
    shortened = by_dkimpy(length=True).replace(b"\r\nthe second line.\r\n", b"\r\n")

    assert verified(shortened)[0].result == "fail"


def test_a_second_from_field_does_not_pass() -> None:
    signed = by_dkimpy(include_headers=["From", "To"])

    assert verified(signed)[0].result == "pass"
    assert verified(b"From: ceo@bank.test\r\n" + signed)[0].result == "policy"


def test_an_oversigned_field_can_not_be_added() -> None:
    signed = sign(MAIL, (RSA,), at=NOW) + MAIL

    assert verified(b"Subject: Urgent\r\n" + signed)[0].result == "fail"
    assert verified(signed.replace(b"\r\n\r\n", b"\r\nReply-To: x@evil.test\r\n\r\n", 1))[0].result == "fail"


def test_an_expired_signature_fails_after_the_tolerated_clock_skew() -> None:
    field = dkimpy.DKIM(MAIL).sign(b"wb1", b"shop.test", RSA_PEM)
    signed_at = int(field.partition(b" t=")[2].partition(b";")[0])
    signed = with_expiry(signed_at + 60)

    assert verified(signed, at=signed_at)[0].result != "permerror"
    assert verified(signed, at=signed_at + 60 + MAX_CLOCK_SKEW_S + 1)[0].detail == "the signature has expired"
    assert verified(field + MAIL, at=signed_at - MAX_CLOCK_SKEW_S - 1)[0].result == "permerror"


def with_expiry(at: int) -> bytes:
    return with_tags({"x": str(at)})


def test_only_the_topmost_signatures_are_verified() -> None:
    field = sign(MAIL, (ED,), at=NOW)

    results = verified(field * (MAX_SIGNATURES + 2) + MAIL)

    assert [one.result for one in results] == ["pass"] * MAX_SIGNATURES


def test_a_key_may_forbid_identities_of_subdomains() -> None:
    below, same = by_dkimpy(identity=b"ann@eu.shop.test"), by_dkimpy()
    strict = {NAME: RECORDS[NAME] + b"; t=s"}

    assert verified(below)[0].result == "pass"
    assert verified(below, strict)[0].result == "permerror"
    assert verified(same, strict)[0].result == "pass"


@pytest.mark.parametrize(
    "record",
    [
        "v=DKIM1; k=rsa; p=", "k=rsa; v=DKIM1; p={key}", "p={key}; v=DKIM1", "v=DKIM1; k=rsa", "v=DKIM2; p={key}",
        "k=dsa; p={key}", "h=sha1; p={key}",
        "s=tlsrpt; p={key}", "p=AAAA", "p=?", "v=spf1 -all", "", "k=ed25519; p={key}", "p={key}; p={key}",
    ],
)  # fmt: skip
def test_an_unusable_key_is_a_permanent_error(record: str) -> None:
    signed = sign(MAIL, (RSA,), at=NOW) + MAIL

    (found,) = verified(signed, {NAME: record.replace("{key}", KEY_DATA).encode()})

    assert found.result == "permerror"
    assert found.detail


@pytest.mark.parametrize("record", ["p={key}", "s=email:x; h=sha1:sha256; p={key}", "v=DKIM1; t=y; n=note; p={key};"])
def test_optional_tags_of_a_key_record_are_optional(record: str) -> None:
    assert isinstance(parse_key(record.replace("{key}", KEY_DATA).encode()), VerificationKey)


@pytest.mark.parametrize(("bits", "usable"), [(1_023, False), (1_024, True), (4_096, True), (4_097, False)])
def test_rsa_keys_have_1024_to_4096_bits(bits: int, usable: bool) -> None:
    assert isinstance(parse_key(record_of(bits, 65_537)), VerificationKey if usable else UnusableKey)


def test_a_key_whose_exponent_makes_verifying_slow_is_refused() -> None:
    assert isinstance(parse_key(record_of(2_048, 2**2_000 + 1)), UnusableKey)


def record_of(bits: int, exponent: int) -> bytes:
    """Return the record of an RSA key with an arbitrary odd modulus."""
    public = RSAPublicNumbers(exponent, 2 ** (bits - 1) + 1).public_key()
    return b"p=" + base64.b64encode(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def test_a_key_that_dns_did_not_deliver_is_a_temporary_error() -> None:
    message = SignedMessage(sign(MAIL, (RSA,), at=NOW) + MAIL)
    found = dkim.signatures(message)

    results = dkim.verify_all(message, found, {NAME: UnusableKey("no answer", temporary=True)}, at=NOW)

    assert [one.result for one in results] == ["temperror"]


def test_key_names_are_a_labels_and_valid() -> None:
    assert public_keys.key_name("bücher.test", "wb1") == "wb1._domainkey.xn--bcher-kva.test"
    assert public_keys.key_name("shop.test", "2024.mail") == "2024.mail._domainkey.shop.test"
    assert public_keys.key_name("shop.test", "a..b") is None
    assert public_keys.key_name("shop.test", "*") is None
    assert public_keys.key_name("x" * 250, "wb1") is None
