"""ARC chains: what we seal is valid for us and for dkimpy, and every change breaks it for both."""

import time
from collections.abc import Callable
from typing import Final

import dkim as dkimpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.authentication import arc_check as arc
from engine.authentication.arc_check import ArcResult
from engine.authentication.arc_seal import seal
from engine.authentication.arc_sets import MAX_SETS, BadArcChain, arc_sets
from engine.authentication.canonicalization import CanonicalHeader, SignedMessage, head_and_body
from engine.authentication.dkim_signing import SigningKey
from engine.authentication.public_keys import UnusableKey, VerificationKey, parse_key
from tests.authentication.signing import ED, RECORDS, RELAY, RSA, comes_over_smtp
from tests.harness.sampling import examples

NOW: Final = int(time.time())
MAIL: Final = b"From: ann@shop.test\r\nTo: bob@x.test\r\nSubject: Hello\r\n\r\nHello Bob,\r\nthe second line.\r\n"
RESULTS: Final = "mx.us.test;\r\n spf=pass smtp.mailfrom=shop.test;\r\n dkim=pass header.d=shop.test"
KEYS: Final = {name: parse_key(record) for name, record in RECORDS.items()}


def sealed(mime: bytes, key: SigningKey = RSA, *, chain: str | None = None) -> bytes:
    """Return the message with one more set, as a forwarder that verified the chain adds it."""
    return seal(mime, key, results=RESULTS, chain=chain or checked(mime).result, at=NOW) + mime


def chained(count: int) -> bytes:
    mime = MAIL
    for number in range(count):
        mime = sealed(mime, (RELAY, RSA)[number % 2])
    return mime


def checked(mime: bytes, keys: dict[str, VerificationKey | UnusableKey] = KEYS) -> ArcResult:
    """Return the result of our verifier."""
    message = SignedMessage(mime)
    found = arc.chain(message)
    if isinstance(found, ArcResult):
        return found
    names = [found.message_signature.key_name, *[one.key_name for one in found.seals]]
    return arc.verify(message, found, {name: keys.get(name, UnusableKey("no key")) for name in names}, at=NOW)


def judged(mime: bytes) -> str | None:
    """Return the result of dkimpy, None if it can't parse the header; a chain that ended counts as failed."""
    try:
        result, _, _ = dkimpy.ARC(mime).verify(lambda name, timeout: RECORDS.get(name.decode().rstrip("."), b""))
    except (dkimpy.MessageFormatError, IndexError):
        return None
    except (dkimpy.DKIMException, ValueError):
        return "fail"
    return "fail" if result is None else result.decode()


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_each_forwarder_extends_the_chain(count: int) -> None:
    mime = chained(count)

    assert checked(mime).result == judged(mime) == ("pass" if count else "none")
    assert len(arc_sets(CanonicalHeader(head_and_body(mime)[0]))) == count


def test_a_changed_body_breaks_the_chain() -> None:
    mime = chained(2).replace(b"second", b"third")

    assert checked(mime).result == judged(mime) == "fail"


def test_a_seal_over_a_failed_chain_says_so_and_ends_it() -> None:
    changed = chained(2).replace(b"second", b"third")
    mime = sealed(changed, chain="fail")

    assert b"cv=fail" in mime
    assert checked(mime).result == judged(mime) == "fail"
    assert seal(mime, RSA, results=RESULTS, chain="fail", at=NOW) == b""


@pytest.mark.parametrize(("count", "chain"), [(0, "pass"), (0, "fail"), (1, "none"), (1, "temperror")])
def test_a_seal_never_claims_what_was_not_verified(count: int, chain: str) -> None:
    assert seal(chained(count), RSA, results=RESULTS, chain=chain, at=NOW) == b""


def test_a_seal_may_use_ed25519() -> None:  # dkimpy accepts only RSA in chains
    assert checked(sealed(chained(1), ED)).result == "pass"


def test_a_full_chain_is_not_extended() -> None:
    mime = chained(MAX_SETS)

    assert checked(mime).result == "pass"
    assert seal(mime, RSA, results=RESULTS, chain="pass", at=NOW) == b""


def test_more_sets_than_the_limit_fail() -> None:
    field = b"ARC-Seal: i=1; cv=none\r\n"

    assert checked(field * (MAX_SETS + 1) + MAIL).result == "fail"


@pytest.mark.parametrize(
    "change",
    [
        lambda mime: mime.replace(b"ARC-Authentication-Results", b"X-Was", 1),
        lambda mime: mime.replace(b"ARC-Seal: i=2", b"ARC-Seal: i=3", 1),
        lambda mime: mime.replace(b"ARC-Seal: i=2", b"ARC-Seal: i=1", 1),
        lambda mime: mime.replace(b"ARC-Seal: i=2", b"ARC-Seal: i=0", 1),
        lambda mime: mime.replace(b"ARC-Seal: i=2;", b"ARC-Seal: i=2; h=from;", 1),
        lambda mime: mime.replace(b"cv=pass", b"cv=none", 1),
        lambda mime: mime.replace(b"cv=none", b"cv=pass", 1),
        lambda mime: mime.replace(b"spf=pass", b"spf=fail", 1),
        lambda mime: mime[: mime.index(b"ARC-Message")] + mime[mime.index(b"ARC-Auth") :],
        lambda mime: b"ARC-Seal: i=1; a=rsa-sha256; cv=none; d=shop.test; s=wb1; b=AAAA\r\n" + mime,
        lambda mime: b"Subject: new\r\n" + mime,
    ],
)
def test_a_broken_chain_fails(change: Callable[[bytes], bytes]) -> None:
    mime = change(chained(2))

    assert mime != chained(2)
    assert checked(mime).result == "fail"
    assert judged(mime) in {"fail", None}


def test_a_key_that_dns_did_not_deliver_is_a_temporary_error() -> None:
    mime = chained(3)

    assert (
        checked(mime, KEYS | {"wb1._domainkey.shop.test": UnusableKey("no answer", temporary=True)}).result
        == "temperror"
    )
    assert checked(mime, {}).result == "fail"


def test_a_malformed_chain_has_no_sets() -> None:
    with pytest.raises(BadArcChain):
        arc_sets(CanonicalHeader(b"ARC-Seal: cv=none\r\n"))


CHAIN: Final = chained(3)


@pytest.mark.exhaustive
@examples(300)
@given(st.integers(0, len(CHAIN) - 1), st.sampled_from(b"aA0 =;:+/\t"), st.integers(0, 2))
def test_both_judge_a_changed_octet_alike(at: int, octet: int, cut: int) -> None:
    mime = CHAIN[:at] + bytes([octet]) + CHAIN[at + cut :]
    judgement = judged(mime) if comes_over_smtp(mime) else None
    if judgement is not None:
        assert checked(mime).result == judgement
