"""Signatures that an independent verifier accepts, and that break when what they cover changes."""

import base64
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from types import SimpleNamespace

import dkim as verifier
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as generate_ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from engine.authentication.canonicalization import relaxed_body, relaxed_body_hash
from engine.authentication.dkim_signing import (
    BadKey,
    SigningKey,
    generate_ed25519,
    generate_rsa,
    load,
    public_txt,
    sign,
)
from engine.mail.compose import Draft, compose
from tests.mail.drafts import THOROUGH, drafts

AT = 1_795_000_000
RSA_DER = generate_rsa()
ED_DER = generate_ed25519()
RSA = load("shop.test", "wb1", RSA_DER)
ED = load("shop.test", "wb2", ED_DER)
RECORDS = {
    b"wb1._domainkey.shop.test.": public_txt(RSA_DER).encode(),
    b"wb2._domainkey.shop.test.": public_txt(ED_DER).encode(),
}


class _BadSignatureError(Exception):
    """Stands where PyNaCl's error of that kind does."""


class _VerifyKey:
    """The one class of PyNaCl that dkimpy uses to verify Ed25519, on OpenSSL's Ed25519 instead."""

    def __init__(self, key: bytes, encoder: object) -> None:
        self._key = Ed25519PublicKey.from_public_bytes(base64.b64decode(key))

    def verify(self, message: bytes, signature: bytes) -> None:
        try:
            self._key.verify(signature, message)
        except InvalidSignature as error:
            raise _BadSignatureError from error


@pytest.fixture(autouse=True, scope="module")
def ed25519_for_the_verifier() -> Iterator[None]:
    """dkimpy takes Ed25519 from PyNaCl, an optional package; RFC 8463's own example below shows that this does."""
    with pytest.MonkeyPatch.context() as patch:
        stand_in = SimpleNamespace(
            signing=SimpleNamespace(VerifyKey=_VerifyKey),
            encoding=SimpleNamespace(Base64Encoder=None),
            exceptions=SimpleNamespace(BadSignatureError=_BadSignatureError, ValueError=ValueError),
        )
        patch.setattr(verifier, "nacl", stand_in, raising=False)
        yield


def verifies(mime: bytes, index: int = 0) -> bool:
    """What dkimpy says of signature `index`, with our own TXT records as the DNS."""
    found = verifier.DKIM(mime).verify(idx=index, dnsfunc=lambda name, timeout: RECORDS[name])
    assert isinstance(found, bool)
    return found


def signed(mime: bytes, *keys: SigningKey) -> bytes:
    return sign(mime, keys or (RSA,), at=AT) + mime


def broken(mime: bytes) -> bool:
    try:
        return not verifies(mime)
    except verifier.ValidationError:
        return True


# The verifier accepts -------------------------------------------------------------------------------


@THOROUGH
@given(drafts(utf8=True))
def test_composed_messages_verify(draft: Draft) -> None:
    mime = signed(compose(draft).mime, RSA, ED)

    assert verifies(mime, 0)
    assert verifies(mime, 1)


nasty_line = st.sampled_from([
    b"", b" ", b"\t", b"a", b" a", b"a ", b"a\t ", b"  a \t b  ", b"\t\t", b".", b"From a", b"\xff\xfe",
    b"a" * 2000,
    b"a\x0bb",
    b"a \x0c b", b"\0",
])  # fmt: skip
nasty_body = (
    st.lists(nasty_line, max_size=8)
    .map(b"\r\n".join)
    .flatmap(lambda body: st.sampled_from([body, body + b"\r\n", body + b"\r\n\r\n", body + b"\r\n \r\n\t\r\n"]))
)
field_name = st.sampled_from([
    b"From", b"FROM", b"To", b"Cc", b"Subject", b"subject", b"Date", b"Message-ID", b"Reply-To", b"References",
    b"In-Reply-To", b"Content-Type", b"List-Unsubscribe", b"MIME-Version", b"X-Other", b"Received",
])  # fmt: skip
field_value = st.sampled_from([
    b" plain", b"none", b"", b"  two  spaces ", b"\ttab\t", b" folded\r\n value", b" folded\r\n\t \tvalue  ",

    b"\r\n late",
    b" a: b: c", b" caf\xc3\xa9", b" x\r\n y\r\n  z",
])  # fmt: skip
nasty_head = st.lists(st.tuples(field_name, st.sampled_from([b":", b" :", b"\t:"]), field_value), max_size=10).map(
    lambda fields: b"From: a@shop.test\r\n" + b"".join(b"".join(field) + b"\r\n" for field in fields)
)


@THOROUGH
@given(nasty_head.filter(lambda head: b" :" not in head and b"\t:" not in head), nasty_body)
def test_any_head_and_body_verify(head: bytes, body: bytes) -> None:
    mime = head + b"\r\n" + body
    if not mime.endswith(b"\r\n"):
        mime += b"\r\n"  # as SMTP carries it

    both = signed(mime, RSA, ED)

    assert verifies(both, 0)
    assert verifies(both, 1)


@THOROUGH
@given(nasty_head, nasty_body)
def test_signing_takes_any_octets(head: bytes, body: bytes) -> None:
    field = sign(head + b"\r\n" + body, (ED,), at=AT)

    assert field.startswith(b"DKIM-Signature: v=1; a=ed25519-sha256; c=relaxed/relaxed;")
    assert field.endswith(b"\r\n")
    assert all(len(line) <= 78 for line in field.split(b"\r\n"))


@given(st.binary(max_size=200))
def test_signing_takes_octets_that_are_no_mail(mime: bytes) -> None:
    assert sign(mime, (ED,), at=AT).endswith(b"\r\n")


def reference_body(body: bytes) -> bytes:
    """RFC 6376 3.4.4, line by line."""
    lines = [re.sub(rb"[ \t]+", b" ", line.rstrip(b" \t")) for line in body.split(b"\r\n")]
    while lines and lines[-1] == b"":
        lines.pop()
    return b"".join(line + b"\r\n" for line in lines)


@THOROUGH
@given(
    st.lists(st.sampled_from([b" ", b"\t", b"a", b"\r\n", b"\r", b"\n", b"\r\n\r\n", b"b c"]), max_size=20).map(
        b"".join
    )
)
def test_the_relaxed_body_is_what_the_rfc_says(body: bytes) -> None:
    assert relaxed_body(body) == reference_body(body)


LONG = [b"c" * 17_000, (b"d" * 76 + b"\r\n") * 300, b" e" * 9_000]  # beyond what is canonicalized at a time


@THOROUGH
@given(
    st.lists(
        st.sampled_from([b" ", b"\t", b"\r\n", b"\r\n\r\n", b"\r", b"\n", b"b c", *LONG]),
        max_size=20,
    ).map(b"".join)
)
def test_the_body_hash_is_that_of_the_relaxed_body(body: bytes) -> None:
    for head in (b"", b"Subject: Hi\r\n\r\n"):
        assert relaxed_body_hash(head + body, len(head)) == sha256(reference_body(body)).digest()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", b""),
        (b"\r\n", b""),
        (b"\r\n\r\n\r\n", b""),
        (b" \t\r\n \r\n", b""),
        (b" C \r\nD \t E\r\n\r\n\r\n", b" C\r\nD E\r\n"),  # RFC 6376 3.4.5
        (b"no end", b"no end\r\n"),
        (b"end \t", b"end\r\n"),
        (b"a\r\r\n\r\n", b"a\r\r\n"),
    ],
)
def test_relaxed_body_examples(body: bytes, expected: bytes) -> None:
    assert relaxed_body(body) == expected


@pytest.mark.parametrize(
    "mime",
    [
        b"From: a@shop.test\r\n",
        b"From: a@shop.test\r\n\r\n",
        b"From: a@shop.test\r\n\r\n\r\n\r\n",
        b"From: a@shop.test\r\nSubject: 1\r\nSubject: 2\r\nSubject: 3\r\n\r\nx\r\n",
        b"From: a@shop.test\r\nsUbJeCt:no blank\r\nTo:\r\n\t folded\r\n \tvery \r\n far\r\n\r\nx\r\n",
    ],
)
def test_awkward_messages_verify(mime: bytes) -> None:
    assert verifies(signed(mime))


def test_blanks_before_the_colon_do_not_count() -> None:
    loose = sign(b"From : a@shop.test\r\n\r\nx\r\n", (ED,), at=AT)

    assert loose == sign(b"From: a@shop.test\r\n\r\nx\r\n", (ED,), at=AT)


def test_a_long_domain_and_selector_verify() -> None:
    domain = ".".join(["d" * 60] * 4)
    key = load(domain, "s" * 60, RSA_DER)
    mime = sign(b"From: a@b.test\r\n\r\nx\r\n", (key,), at=AT) + b"From: a@b.test\r\n\r\nx\r\n"

    assert verifier.verify(mime, dnsfunc=lambda name, timeout: public_txt(RSA_DER).encode())


# What it covers -------------------------------------------------------------------------------------

MAIL = (
    b"From: Shop <a@shop.test>\r\nTo: b@mail.test\r\nSubject: Hi\r\nDate: Fri, 20 Nov 2026 08:09:10 +0000\r\n"
    b"Message-ID: <1@shop.test>\r\nList-Unsubscribe: <https://shop.test/u>\r\n"
    b"List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\nMIME-Version: 1.0\r\nContent-Type: text/plain\r\n"
    b"Content-Transfer-Encoding: 7bit\r\nX-Own: 1\r\n\r\nHello\r\n"
)


# RFC 5322 3.6 and the RFCs named in engine/authentication/dkim_signing.py: fields that may occur once.
ONCE = (
    "From", "Sender", "Reply-To", "To", "Cc", "Subject", "Date", "Message-ID", "In-Reply-To", "References",
    "MIME-Version", "Content-Type", "Content-Transfer-Encoding", "Content-Disposition", "Content-ID",
    "Content-Description", "List-Id", "List-Unsubscribe", "List-Unsubscribe-Post", "Feedback-ID",
    "Disposition-Notification-To",
)  # fmt: skip
REPEATABLE = (
    "List-Post", "List-Help", "CFBL-Address", "CFBL-Feedback-ID", "Auto-Submitted", "X-Priority", "Comments",
    "Resent-From",
)  # fmt: skip


@pytest.mark.parametrize("field", ONCE)
@pytest.mark.parametrize("mail", [MAIL, b"From: a@shop.test\r\n\r\nHello\r\n"], ids=["full", "bare"])
def test_a_field_that_may_occur_once_cannot_be_added(mail: bytes, field: str) -> None:
    for added in (
        signed(mail).replace(b"\r\n\r\nHello", f"\r\n{field}: forged\r\n\r\nHello".encode()),
        f"{field}: forged\r\n".encode() + signed(mail),
    ):
        assert broken(added)


@pytest.mark.parametrize("field", ONCE[1:] + REPEATABLE)
def test_a_field_that_is_present_cannot_be_changed_or_taken_out(field: str) -> None:
    line = f"{field}: mine\r\n".encode()
    mime = signed(b"From: a@shop.test\r\n" + line + b"\r\nHello\r\n")

    assert verifies(mime)
    assert broken(mime.replace(line, f"{field}: forged\r\n".encode()))
    assert broken(mime.replace(line, b""))


@pytest.mark.parametrize("field", REPEATABLE)
def test_a_field_that_may_repeat_can_be_added_on_the_way(field: str) -> None:
    assert verifies(f"{field}: theirs\r\n".encode() + signed(MAIL))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Shop <a@", b"Evil <a@"),
        (b"To: b@", b"To: c@"),
        (b"shop.test/u>", b"evil.test/u>"),
        (b"=One-Click", b"=Two-Click"),
        (b"text/plain", b"text/html"),
        (b": 7bit", b": base64"),
        (b"Hello", b"Hullo"),
        (b"Hello\r\n", b"Hello\r\nmore\r\n"),
        (b"Version: 1.0", b"Version: 2.0"),
    ],
)
def test_a_change_breaks_the_signature(old: bytes, new: bytes) -> None:
    mime = signed(MAIL)

    assert old in mime
    assert broken(mime.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"X-Own: 1\r\n", b""),
        (b"Subject: Hi", b"SUBJECT:\r\n  Hi "),
        (b"Hello\r\n", b"Hello \t\r\n\r\n\r\n"),
        (b"X-Own", b"Received: by x\r\nX-Own"),
    ],
)
def test_what_servers_rightly_change_does_not_break_it(old: bytes, new: bytes) -> None:
    assert verifies(signed(MAIL).replace(old, new))


def test_threading_fields_are_covered_when_present() -> None:
    reply = b"In-Reply-To: <0@shop.test>\r\nReferences: <0@shop.test>\r\n" + MAIL

    assert broken(signed(reply).replace(b"References: <0", b"References: <9"))
    assert broken(signed(reply).replace(b"In-Reply-To: <0", b"In-Reply-To: <9"))


def test_the_time_is_stated() -> None:
    assert f"t={AT};".encode() in sign(MAIL, (RSA,), at=AT)


def test_each_key_signs_in_the_given_order() -> None:
    fields = sign(MAIL, (ED, RSA), at=AT)

    assert re.findall(rb"a=([a-z0-9-]+)", fields) == [b"ed25519-sha256", b"rsa-sha256"]
    assert sign(MAIL, (), at=AT) == b""


# Keys -----------------------------------------------------------------------------------------------

# RFC 8463 appendix A
RFC_8463_SEED = base64.b64decode("nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=")
RFC_8463_TXT = "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
RFC_8463_MAIL = b"""\
DKIM-Signature: v=1; a=ed25519-sha256; c=relaxed/relaxed;
 d=football.example.com; i=@football.example.com;
 q=dns/txt; s=brisbane; t=1528637909; h=from : to :
 subject : date : message-id : from : subject : date;
 bh=2jUSOH9NhtVGCQWNr9BrIAPreKQjO6Sn7XIkfJVOzv8=;
 b=/gCrinpcQOoIfuHNQIbq4pgh9kyIK3AQUdt9OdqQehSwhEIug4D11Bus
 Fa3bT3FY5OsU7ZbnKELq+eXdp1Q1Dw==
From: Joe SixPack <joe@football.example.com>
To: Suzie Q <suzie@shopping.example.net>
Subject: Is dinner ready?
Date: Fri, 11 Jul 2003 21:00:37 -0700 (PDT)
Message-ID: <20030712040037.46341.5F8J@football.example.com>

Hi.

We lost the game.  Are you hungry yet?

Joe.
""".replace(b"\n", b"\r\n")


def raw_der(private: object) -> bytes:
    found = private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())  # type: ignore[attr-defined]
    assert isinstance(found, bytes)
    return found


def test_the_public_record_is_the_one_of_rfc_8463() -> None:
    assert public_txt(raw_der(Ed25519PrivateKey.from_private_bytes(RFC_8463_SEED))) == RFC_8463_TXT


def test_the_verifier_accepts_the_example_of_rfc_8463() -> None:
    def dns(name: bytes, timeout: int) -> bytes:
        return RFC_8463_TXT.encode()

    assert verifier.DKIM(RFC_8463_MAIL).verify(dnsfunc=dns)
    assert not verifier.DKIM(RFC_8463_MAIL.replace(b"ready?", b"over?")).verify(dnsfunc=dns)


@pytest.mark.parametrize(("generate", "name"), [(generate_rsa, "rsa"), (generate_ed25519, "ed25519")])
def test_a_generated_key_loads_and_says_its_algorithm(generate: Callable[[], bytes], name: str) -> None:
    der = generate()

    key = load("shop.test", "wb1", der)

    assert (key.domain, key.selector, key.algorithm) == ("shop.test", "wb1", f"{name}-sha256")
    assert public_txt(der).startswith(f"v=DKIM1; k={name}; p=")


def test_rsa_keys_have_2048_bits() -> None:
    assert len(base64.b64decode(public_txt(RSA_DER).partition("p=")[2])) == 294


@pytest.mark.parametrize(
    "der",
    [b"", b"no key", RSA_DER[:100], raw_der(generate_ec(SECP256R1()))],
    ids=["empty", "text", "truncated", "other"],
)
def test_what_is_no_signing_key_is_refused(der: bytes) -> None:
    with pytest.raises(BadKey):
        load("shop.test", "wb1", der)
    with pytest.raises(BadKey):
        public_txt(der)


def test_a_damaged_rsa_key_is_refused_on_loading() -> None:
    damaged = bytearray(RSA_DER)
    for at in range(400, 420):  # inside the private exponent and the primes
        damaged[at] ^= 0x55
    for at in range(700, 720):
        damaged[at] ^= 0x55

    with pytest.raises(BadKey):
        load("shop.test", "wb1", bytes(damaged))
