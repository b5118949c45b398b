"""All four checks of a message at once, over a real DNS server: verdicts, time limits, and messages of any octets."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from engine.authentication import dkim_check as dkim
from engine.authentication import spf
from engine.authentication.arc_seal import seal
from engine.authentication.dkim_signing import sign
from engine.authentication.judge import MAX_INLINE, MessageOrigin, authenticate
from engine.authentication.results import AuthenticationVerdicts, results_text
from engine.base.settings import HostPort
from engine.store import large_mail
from engine.store.resolver import Resolver
from ops.local.dns import DnsBehaviour, Responder
from tests.authentication.signing import ED, RECORDS, RELAY, RSA
from tests.harness.patience import PATIENCE_S
from tests.harness.sampling import examples

NOW: Final = int(time.time())
MAIL: Final = b"From: Ann <ann@shop.test>\r\nTo: bob@x.test\r\nSubject: Hello\r\n\r\nHello Bob,\r\nthe second line.\r\n"
ENVELOPE: Final = MessageOrigin("192.0.2.7", "mx.shop.test", "bounce@shop.test", "mx.us.test")
STRANGER: Final = MessageOrigin("198.51.100.9", "mx.evil.test", "x@evil.test", "mx.us.test")


@pytest.fixture(autouse=True)
def shop(zone: Responder) -> None:
    """Publish the records of the sender."""
    zone.set("shop.test", "TXT", ["v=spf1 ip4:192.0.2.0/24 -all"])
    zone.set("mx.shop.test", "TXT", ["v=spf1 ip4:192.0.2.7 -all"])
    zone.set("_dmarc.shop.test", "TXT", ["v=DMARC1; p=reject"])
    for name, record in RECORDS.items():
        zone.set(name, "TXT", [record.decode()])


def words(verdicts: AuthenticationVerdicts) -> tuple[str, str, str, str]:
    return verdicts.spf.result, verdicts.dkim.result, verdicts.dmarc.result, verdicts.arc.result


def signed(mime: bytes = MAIL) -> bytes:
    return sign(mime, (RSA, ED), at=NOW) + mime


async def test_genuine_mail_passes(resolver: Resolver) -> None:
    verdicts = await authenticate(signed(), ENVELOPE, resolver, at=NOW)

    assert words(verdicts) == ("pass", "pass", "pass", "none")
    assert (verdicts.spf.domain, verdicts.dkim.domain, verdicts.dmarc.domain) == ("shop.test",) * 3
    assert verdicts.dmarc_policy == ""


async def test_forged_mail_fails_with_the_policy_of_the_author(resolver: Resolver) -> None:
    verdicts = await authenticate(MAIL, STRANGER, resolver, at=NOW)

    assert words(verdicts) == ("none", "none", "fail", "none")
    assert verdicts.dmarc_policy == "reject"


async def test_forwarded_mail_passes_by_its_signature_and_its_chain(resolver: Resolver) -> None:
    received = await authenticate(signed(), ENVELOPE, resolver, at=NOW)
    results = results_text("mx.us.test", received, null_sender=False)
    forwarded = seal(signed(), RELAY, results=results, chain=received.arc.result, at=NOW) + signed()

    verdicts = await authenticate(forwarded, STRANGER, resolver, at=NOW)

    assert words(verdicts) == ("none", "pass", "pass", "pass")
    assert verdicts.arc.domain == "relay.test"


async def test_a_null_sender_is_judged_by_its_helo_name(resolver: Resolver) -> None:
    envelope = MessageOrigin("192.0.2.7", "mx.shop.test", "", "mx.us.test")

    verdicts = await authenticate(MAIL, envelope, resolver, at=NOW)

    assert (verdicts.spf.result, verdicts.spf.domain) == ("pass", "mx.shop.test")
    assert verdicts.dmarc.result == "pass"  # mx.shop.test belongs to the author's organization


@pytest.mark.parametrize("head", [b"From: b@evil.test\r\n", b"From\0: a\r\n", b"From: x@evil.test,\r\n"])
async def test_an_ambiguous_author_never_passes_dmarc(resolver: Resolver, head: bytes) -> None:
    verdicts = await authenticate(head + signed(), ENVELOPE, resolver, at=NOW)

    assert verdicts.dmarc.result == "permerror"
    assert verdicts.dmarc.domain is None


async def test_a_silent_dns_server_ends_as_temporary_errors_in_time(zone: Responder, resolver: Resolver) -> None:
    zone.behave_under("shop.test", DnsBehaviour(drop=True))
    began = time.monotonic()

    verdicts = await authenticate(signed(), ENVELOPE, resolver, at=NOW, max_seconds=0.5)

    assert words(verdicts) == ("temperror", "temperror", "temperror", "none")
    assert verdicts.dmarc_policy == ""
    assert time.monotonic() - began < PATIENCE_S


async def test_a_passing_signature_is_enough_while_spf_is_unknown(zone: Responder, resolver: Resolver) -> None:
    zone.behave("shop.test", DnsBehaviour(rcode="SERVFAIL"))

    verdicts = await authenticate(signed(), ENVELOPE, resolver, at=NOW)

    assert words(verdicts) == ("temperror", "pass", "pass", "none")


async def test_a_forger_with_broken_dns_of_his_own_fails_dmarc(zone: Responder, resolver: Resolver) -> None:
    zone.behave_under("evil.test", DnsBehaviour(drop=True))
    envelope = MessageOrigin("192.0.2.99", "mx.evil.test", "a@evil.test", "mx.us.test")

    verdicts = await authenticate(MAIL, envelope, resolver, at=NOW, max_seconds=1.0)

    assert (verdicts.spf.result, verdicts.dmarc.result, verdicts.dmarc_policy) == ("temperror", "fail", "reject")


async def test_a_silent_key_server_of_one_signer_leaves_the_other_signatures(
    zone: Responder, resolver: Resolver
) -> None:
    zone.behave_under("relay.test", DnsBehaviour(drop=True))
    mime = sign(MAIL, (RELAY,), at=NOW) + signed()

    verdicts = await authenticate(mime, STRANGER, resolver, at=NOW, max_seconds=2.0)

    assert words(verdicts) == ("none", "pass", "pass", "none")
    assert "relay.test temperror" in (verdicts.dkim.detail or "")


async def test_a_signature_of_the_author_counts_whatever_stands_above_it(resolver: Resolver) -> None:
    above = b"".join(
        b"DKIM-Signature: v=1; a=rsa-sha256; d=x%d.test; s=a; h=from; bh=YQ==; b=YQ==\r\n" % n for n in range(20)
    )
    mime = sign(MAIL, (RELAY,), at=NOW) + above + b"DKIM-Signature: none of them\r\n" + signed()

    verdicts = await authenticate(mime, STRANGER, resolver, at=NOW)

    assert (verdicts.dkim.result, verdicts.dkim.domain, verdicts.dmarc.result) == ("pass", "shop.test", "pass")


async def test_dmarc_says_why_a_valid_signature_is_not_aligned(resolver: Resolver) -> None:
    verdicts = await authenticate(sign(MAIL, (RELAY,), at=NOW) + MAIL, STRANGER, resolver, at=NOW)

    assert verdicts.dkim.result == "pass"
    assert verdicts.dmarc.result == "fail"
    assert "signature of relay.test is not aligned, because it is not within shop.test" in verdicts.dmarc.detail


async def test_an_unreachable_dns_server_is_a_temporary_error() -> None:
    resolver = Resolver((HostPort("127.0.0.1", 1),), query_timeout_s=0.2, budget_s=0.2)

    verdicts = await authenticate(signed(), ENVELOPE, resolver, at=NOW)
    await resolver.close()

    assert words(verdicts) == ("temperror", "temperror", "temperror", "none")


async def test_concurrent_messages_share_their_queries(zone: Responder, resolver: Resolver) -> None:
    judged = await asyncio.gather(*[authenticate(signed(), ENVELOPE, resolver, at=NOW) for _ in range(20)])

    assert {words(verdicts) for verdicts in judged} == {("pass", "pass", "pass", "none")}
    assert set(Counter((question.name, question.rdtype) for question in zone.questions).values()) == {1}


async def test_a_message_whose_records_are_known_is_judged_without_a_wait(resolver: Resolver) -> None:
    received = await authenticate(signed(), ENVELOPE, resolver, at=NOW)
    results = results_text("mx.us.test", received, null_sender=False)
    forwarded = seal(signed(), RELAY, results=results, chain=received.arc.result, at=NOW) + signed()
    first = await authenticate(forwarded, ENVELOPE, resolver, at=NOW)

    with pytest.raises(StopIteration) as ended:
        authenticate(forwarded, ENVELOPE, resolver, at=NOW).send(None)

    assert ended.value.value == first
    assert words(first) == ("pass", "pass", "pass", "pass")


async def test_known_keys_count_while_the_server_of_spf_is_silent(zone: Responder, resolver: Resolver) -> None:
    await authenticate(signed(), STRANGER, resolver, at=NOW)
    zone.behave("shop.test", DnsBehaviour(drop=True))

    verdicts = await authenticate(signed(), ENVELOPE, resolver, at=NOW, max_seconds=0.5)

    assert words(verdicts) == ("temperror", "pass", "pass", "none")


async def test_a_large_message_is_verified_in_a_thread(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = 0
    in_thread = large_mail.in_thread

    async def counted(size_bytes: int, work: Callable[[], object]) -> object:
        nonlocal threads
        threads += 1
        return await in_thread(size_bytes, work)

    monkeypatch.setattr(large_mail, "in_thread", counted)
    small, large = signed(), signed(MAIL + b"line\r\n" * (MAX_INLINE // 6))

    assert words(await authenticate(small, ENVELOPE, resolver, at=NOW)) == ("pass", "pass", "pass", "none")
    assert threads == 0
    assert words(await authenticate(large, ENVELOPE, resolver, at=NOW)) == ("pass", "pass", "pass", "none")
    assert threads > 0


async def test_a_header_beyond_the_limits_never_passes(resolver: Resolver) -> None:
    verdicts = await authenticate(b"X: y\r\n" * 20_000 + signed(), ENVELOPE, resolver, at=NOW)

    assert words(verdicts) == ("pass", "permerror", "permerror", "fail")


async def test_a_bug_is_a_temporary_error(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(dkim, "signatures", broken)
    monkeypatch.setattr(spf, "check_host", broken)

    assert words(await authenticate(signed(), ENVELOPE, resolver, at=NOW)) == (
        "temperror",
        "temperror",
        "temperror",
        "none",
    )


async def test_cancelling_stops_all_checks(zone: Responder, resolver: Resolver) -> None:
    zone.behave_under("test", DnsBehaviour(drop=True))
    for delay_s in (None, 0.05):
        judging = asyncio.create_task(authenticate(signed(), ENVELOPE, resolver, at=NOW))
        await asyncio.sleep(delay_s or 0)
        judging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await judging


line = st.sampled_from(
    [b"From: a@shop.test", b"from:", b"DKIM-Signature: v=1; a=rsa-sha256; d=shop.test; s=wb1; h=from; bh=; b=",
     b"DKIM-Signature: \xff;=;", b"ARC-Seal: i=1; cv=none; a=rsa-sha256; d=shop.test; s=wb1; b=aaaa",
     b"ARC-Message-Signature: i=1; a=rsa-sha256; d=\xc3\xbc.test; s=wb1; h=from; bh=aaaa; b=aaaa",
     b"ARC-Authentication-Results: i=1; x", b"ARC-Seal: i=999", b" folded", b"", b"\0", b":", b"a", b"\r",
     b"\xff: \xfe"]
)  # fmt: skip
octets = st.lists(line | st.binary(max_size=30), max_size=12).map(b"\r\n".join)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@examples(200, suppress_health_check=list(HealthCheck))
@given(octets, text, text, st.sampled_from(["192.0.2.7", "2001:db8::1", "::ffff:192.0.2.7", "not an address"]))
def test_any_octets_have_verdicts(message: bytes, helo: str, sender: str, ip: str) -> None:
    async def judged() -> AuthenticationVerdicts:
        resolver = Resolver((HostPort("127.0.0.1", 1),), query_timeout_s=0.2, budget_s=0.2)
        try:
            return await authenticate(message, MessageOrigin(ip, helo, sender, "mx.us.test"), resolver, at=NOW)
        finally:
            await resolver.close()

    verdicts = asyncio.run(judged())

    assert results_text("mx.us.test", verdicts, null_sender=not sender).isascii()
    assert "pass" not in words(verdicts)
