"""Our DKIM verifier agrees with dkimpy on messages of two signers, changed on the way in many manners."""

from collections.abc import Callable
from typing import Final

import dkim as dkimpy
from hypothesis import given
from hypothesis import strategies as st

from engine.authentication.dkim_signing import sign
from tests.authentication.signing import ED, ED_SEED, RSA, RSA_PEM, comes_over_smtp, judged, verified
from tests.mail.drafts import THOROUGH

line = st.sampled_from(
    [b"", b" ", b"\t", b"a", b" a", b"a ", b"a\t ", b"  a \t b  ", b"\t\t", b"\xff\xfe", b"a" * 500, b"a\x0bb", b"\0"]
)
body = st.lists(line, max_size=8).map(lambda lines: b"".join(one + b"\r\n" for one in lines))
field_name = st.sampled_from([b"From", b"FROM", b"To", b"Subject", b"subject", b"Received", b"X-Other", b"Date"])
field_value = st.sampled_from(
    [b" plain", b"none", b"", b"  two  spaces ", b"\ttab\t", b" folded\r\n value", b" folded\r\n\t \tvalue  ",
     b" a: b: c", b" caf\xc3\xa9", b" x\r\n y\r\n  z"]
)  # fmt: skip
head = st.lists(st.tuples(field_name, field_value), max_size=8).map(
    lambda fields: b"From: a@shop.test\r\n" + b"".join(name + b":" + value + b"\r\n" for name, value in fields)
)
message = st.builds(lambda fields, text: fields + b"\r\n" + text, head, body)
canonical = st.sampled_from([b"simple", b"relaxed"])
Signer = Callable[[bytes], bytes]


def by_dkimpy(header: bytes, text: bytes, ed25519: bool, length: bool, extra: list[str]) -> Signer:
    """Return a signer of dkimpy with these options."""
    algorithm, selector, key = (b"ed25519-sha256", b"wb2", ED_SEED) if ed25519 else (b"rsa-sha256", b"wb1", RSA_PEM)

    def signed(mime: bytes) -> bytes:
        names = ["From", "Subject", "To", *extra]
        field = dkimpy.DKIM(mime, signature_algorithm=algorithm).sign(
            selector, b"shop.test", key, canonicalize=(header, text), include_headers=names, length=length
        )
        assert isinstance(field, bytes)
        return field + mime

    return signed


ours = st.sampled_from([(RSA,), (ED,)]).map(lambda keys: lambda mime: sign(mime, keys, at=1_700_000_000) + mime)
theirs = st.builds(
    by_dkimpy, canonical, canonical, st.booleans(), st.booleans(),
    st.lists(st.sampled_from(["From", "Subject", "X-Other", "X-Absent"]), max_size=3),
)  # fmt: skip


def flipped(mime: bytes, at: int, octet: int) -> bytes:
    at %= len(mime)
    return mime[:at] + bytes([octet]) + mime[at + 1 :]


def inserted(mime: bytes, at: int, piece: bytes) -> bytes:
    at %= len(mime) + 1
    return mime[:at] + piece + mime[at:]


def removed(mime: bytes, at: int, size: int) -> bytes:
    at %= len(mime)
    return mime[:at] + mime[at + size :]


PIECES: Final = [
    b" ", b"\t", b"\r\n ", b"\r\n\t", b"a", b"=", b";", b":", b"From: x@evil.test\r\n", b"Subject: new\r\n",
    b"X-Other: new\r\n", b"\r\n", b"\r\n\r\n", b"more\r\n",
]  # fmt: skip
place = st.integers(0, 4_000)
change = st.one_of(
    st.just(lambda mime: mime),
    st.builds(lambda at, octet: lambda mime: flipped(mime, at, octet), place, st.sampled_from(b"aA0 =;:+/\t")),
    st.builds(lambda at, piece: lambda mime: inserted(mime, at, piece), place, st.sampled_from(PIECES)),
    st.builds(lambda at, size: lambda mime: removed(mime, at, size), place, st.integers(1, 3)),
    st.sampled_from([b"more\r\n", b"\r\n", b"\r\n\r\n"]).map(lambda piece: lambda mime: mime + piece),
    st.sampled_from(PIECES[8:11]).map(lambda piece: lambda mime: piece + mime),
    st.just(lambda mime: mime.replace(b"From:", b"FROM :", 1)),
    st.just(lambda mime: mime.replace(b"Subject", b"SUBJECT", 1)),
)


@THOROUGH
@given(message, st.one_of(ours, theirs), change)
def test_both_accept_the_same_messages(mime: bytes, signer: Signer, changed: Callable[[bytes], bytes]) -> None:
    received = changed(signer(mime))
    judgement = judged(received)
    if judgement is None or not comes_over_smtp(received):
        return

    results = verified(received)

    assert judgement == bool(results and accepted(results[0].result, results[0].detail)), results


def accepted(result: str, detail: str) -> bool:
    """Return True for a valid signature; one that leaves the end of the body unsigned counts for dkimpy, not for us."""
    return result == "pass" or (result == "policy" and "octets of the body" in detail)


@THOROUGH
@given(message, st.one_of(ours, theirs))
def test_unchanged_messages_pass(mime: bytes, signer: Signer) -> None:
    signed = signer(mime)
    if judged(signed):
        assert verified(signed)[0].result == "pass"
