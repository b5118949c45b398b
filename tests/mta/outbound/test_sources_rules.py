"""Source addresses without a server: settings, pools and their order, plans by day, and what counts as a refusal."""

import os
import socket
import subprocess
import sys
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import pytest

from engine.base import ids
from engine.base.settings import BadSetting, Settings, SourceIp, load, to_environ
from engine.delivery.outcome import classify
from engine.delivery.routes import MailHost, Route
from engine.delivery.sites import Family
from engine.delivery.sources import (
    SHIPPED,
    Assignment,
    Pool,
    PoolMember,
    Warmup,
    book,
    checked_members,
    checked_plan,
    next_midnight,
    ordered,
)
from engine.mail.replies import Answer, Phase, Reply
from mta.outbound.source_ips.addresses import SourceAddress, check_sources, sources_of
from mta.outbound.source_ips.assignment import reachable
from mta.outbound.source_ips.health import blocks
from mta.smtp.client.source_address import connect_from

NEVER_OURS = "203.0.113.9"  # RFC 5737


# -- settings ----------------------------------------------------------------------------------


def test_sources_are_addresses_with_or_without_a_name() -> None:
    given = {"WAYBILL_SOURCE_IPS": "192.0.2.1=MTA1.mail.example.com, 2001:DB8::1=mta2.mail.example.com,[2001:db8::2]"}
    settings = load(given).settings

    assert settings.source_ips == (
        SourceIp("192.0.2.1", "mta1.mail.example.com"),
        SourceIp("2001:db8::1", "mta2.mail.example.com"),
        SourceIp("2001:db8::2"),
    )
    assert sources_of(settings)[2] == SourceAddress("2001:db8::2", settings.mail_host)
    assert load(to_environ(settings)).settings.source_ips == settings.source_ips


@pytest.mark.parametrize("text", ["mta1.example.com", "192.0.2.1,192.0.2.1=other.example.com", "192.0.2.300", "=x.y"])
def test_what_is_no_list_of_different_addresses_is_refused(text: str) -> None:
    with pytest.raises(BadSetting, match="WAYBILL_SOURCE_IPS"):
        load({"WAYBILL_SOURCE_IPS": text})


def test_a_source_greets_with_a_host_name() -> None:
    with pytest.raises(BadSetting, match=r"192\.0\.2\.1 'mta 1'"):
        load({"WAYBILL_SOURCE_IPS": "192.0.2.1=mta 1"})


def test_a_source_that_is_no_address_of_this_host_is_refused_by_name() -> None:
    check_sources(Settings(source_ips=(SourceIp("127.0.0.7"),)))
    with pytest.raises(BadSetting, match=rf"WAYBILL_SOURCE_IPS names {NEVER_OURS}"):
        check_sources(Settings(source_ips=(SourceIp("127.0.0.7"), SourceIp(NEVER_OURS))))


# -- pools -------------------------------------------------------------------------------------


def test_the_same_account_and_provider_always_have_the_same_order() -> None:
    members = [PoolMember(f"192.0.2.{number}") for number in range(8)]
    assert ordered(members, "google.com/*\nann") == ordered(reversed(members), "google.com/*\nann")
    assert sorted(ordered(members, "x")) == sorted(one.ip for one in members)


def test_an_address_that_goes_moves_no_others_mail() -> None:
    members = [PoolMember(f"192.0.2.{number}") for number in range(5)]
    for number in range(300):
        before = ordered(members, f"key {number}")
        assert ordered(members[1:], f"key {number}") == [ip for ip in before if ip != "192.0.2.0"]


def test_weights_share_mail_in_their_proportion() -> None:
    members = [PoolMember("192.0.2.1", 1), PoolMember("192.0.2.2", 3)]
    first = Counter(ordered(members, f"key {number}")[0] for number in range(4_000))
    assert 0.7 < first["192.0.2.2"] / 4_000 < 0.8


def test_an_accounts_own_word_goes_before_everybodys_and_a_stream_before_its_kind() -> None:
    account, other = ids.uuid7(), ids.uuid7()
    pools = [Pool(name, (PoolMember(f"192.0.2.{place}"),)) for place, name in enumerate(("a", "b", "c", "d"))]

    def assigned(*lines: tuple[str, UUID | None, str]) -> str | None:
        found = book(pools, [Assignment(*line) for line in lines], []).pool_of(account, "news", "broadcast")
        return None if found is None else found.name

    assert assigned() is None
    assert assigned(("other", None, "a"), ("*", other, "b")) is None
    assert assigned(("*", None, "a")) == "a"
    assert assigned(("*", None, "a"), ("broadcast", None, "b")) == "b"
    assert assigned(("broadcast", None, "b"), ("news", None, "c")) == "c"
    assert assigned(("news", None, "c"), ("*", account, "d")) == "d"


@pytest.mark.parametrize("text", ["", "192.0.2.1,192.0.2.1", "192.0.2.1*0", "192.0.2.1*many", "192.0.2.1*2.5", "host"])
def test_what_is_no_list_of_members_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|weight|twice"):
        checked_members(text)


def test_members_may_have_weights() -> None:
    assert checked_members("192.0.2.1, [2001:DB8::1]*3") == (PoolMember("192.0.2.1"), PoolMember("2001:db8::1", 3))


# -- families ----------------------------------------------------------------------------------


def route(*addresses: str) -> Route:
    return Route("mx.test", tuple(MailHost(f"mx{n}.test", (ip,)) for n, ip in enumerate(addresses)), 25)


@pytest.mark.parametrize(
    ("addresses", "family", "last", "expected"),
    [
        (("192.0.2.1", "2001:db8::1"), Family.IPV4, "", "46"),
        (("192.0.2.1", "2001:db8::1"), Family.IPV6, "", "64"),
        (("192.0.2.1", "2001:db8::1"), Family.IPV4, "4", "64"),
        (("192.0.2.1", "2001:db8::1"), Family.IPV4_ONLY, "4", "4"),
        (("2001:db8::1",), Family.IPV4, "", "6"),
        (("2001:db8::1",), Family.IPV4_ONLY, "", ""),
    ],
)  # fmt: skip
def test_a_site_is_reached_over_the_families_of_its_hosts(
    addresses: tuple[str, ...], family: Family, last: str, expected: str
) -> None:
    assert reachable(route(*addresses), family, last) == expected


# -- warm-up -----------------------------------------------------------------------------------


def test_a_plan_counts_days_and_ends_warm() -> None:
    first = date(2026, 3, 28)
    warmup = Warmup("192.0.2.1", first, (50, 100, 400))
    days = [warmup.allowance(first + timedelta(days=number)) for number in range(-1, 5)]

    assert days == [0, 50, 100, 400, None, None]
    assert warmup.day(first) == 1


def test_the_shipped_plan_rises_day_by_day_and_names_its_source() -> None:
    assert list(SHIPPED.plan) == sorted(set(SHIPPED.plan))
    assert len(SHIPPED.plan) >= 14
    assert "https://" in SHIPPED.source
    assert checked_plan(SHIPPED.plan) == SHIPPED.plan


@pytest.mark.parametrize("plan", [[], [0], [50, -1], [1] * 1_000])
def test_what_is_no_plan_is_refused(plan: list[int]) -> None:
    with pytest.raises(ValueError, match="a plan has"):
        checked_plan(plan)


def test_the_day_ends_at_midnight_utc() -> None:
    assert next_midnight(datetime(2026, 12, 31, 23, 59, 59, 999_000, UTC)) == datetime(2027, 1, 1, tzinfo=UTC)
    assert next_midnight(datetime(2027, 1, 1, tzinfo=UTC)) == datetime(2027, 1, 2, tzinfo=UTC)


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "code", "text", "expected"),
    [
        (Phase.GREETING, 554, "5.7.1 Client host [192.0.2.1] blocked using zen.spamhaus.org", True),
        (Phase.RCPT, 550, "5.7.1 Client host [192.0.2.1] blocked using bl.spamcop.net", True),
        (Phase.MAIL, 421, "4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to user complaints", True),
        (Phase.RCPT, 550, "5.1.1 no such user", False),
        (Phase.MAIL, 421, "4.3.2 too many connections", False),
        (Phase.BODY, 550, "5.7.1 message looks like spam", False),
        (Phase.BODY, 250, "2.0.0 ok", False),
    ],
)  # fmt: skip
def test_an_answer_about_the_sending_address_is_a_refusal_of_it(
    phase: Phase, code: int, text: str, expected: bool
) -> None:
    enhanced, _, words = text.partition(" ")
    assert blocks(classify(Answer(phase, Reply(code, f"{enhanced} {words}", enhanced)))) is expected


def test_a_delivering_process_says_in_a_line_which_source_is_wrong() -> None:
    environ = {name: text for name, text in os.environ.items() if not name.startswith("WAYBILL_")}
    done = subprocess.run(
        [sys.executable, "-m", "mta.process"],
        env=environ | {"WAYBILL_SOURCE_IPS": NEVER_OURS}, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(f"WAYBILL_SOURCE_IPS names {NEVER_OURS}")
    assert "no address of this host" in done.stderr


# -- binding -----------------------------------------------------------------------------------


async def test_a_connection_comes_from_its_source() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        await connect_from("127.0.0.4", server.getsockname()) as made,
    ):
        accepted, peer = server.accept()
        accepted.close()

        assert peer == made.getsockname()
        assert peer[0] == "127.0.0.4"


async def test_a_source_that_this_host_does_not_have_gives_an_error_and_leaves_no_socket() -> None:
    with pytest.raises(OSError, match="assign"):
        await connect_from(NEVER_OURS, ("127.0.0.1", 9))
