"""Traces of conversations: masked, limited, and without cost while no domain is traced."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.mail.replies import Break, BreakKind, Reply
from mta.outbound.sites.site_stats import MAX_OCTETS, packed
from mta.smtp.client import trace as module
from mta.smtp.client.envelope import Envelope
from mta.smtp.client.session import ClientSession
from mta.smtp.client.trace import MAX_LINES_PER_CONNECTION, SmtpTrace, shown_command

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
ANN = Envelope("b+token@bounces.a.test", ("ann@peer.test",), b"Subject: the code is 4711\r\n\r\nhello\r\n")
EVE = Envelope("b+other@bounces.a.test", ("eve@quiet.test",), b"Subject: s\r\n\r\nhello\r\n")


def watching(*domains: str) -> SmtpTrace:
    made = SmtpTrace(lambda: 0.0, lambda: NOW)
    made.set_domains(dict.fromkeys(domains, NOW + timedelta(seconds=30)))
    return made


def lines(watch: SmtpTrace) -> list[str]:
    return [f"{one['way']} {one['text']}" for one in watch.drain()[0]]


def test_a_session_is_told_line_by_line_and_only_of_the_domain_that_is_watched() -> None:
    watch = watching("peer.test")
    watch.add_hosts("peer.test", ("mx.peer.test",))
    session = ClientSession("client.test", starttls=False, now=0.0)
    session.trace = watch.connection_trace("mx.peer.test", "192.0.2.1")
    session.received(b"220 mx\r\n", 0.1)
    session.received(b"250-mx\r\n250 PIPELINING\r\n", 0.2)
    exchange, _ = session.begin(ANN, 0.2)
    session.received(b"250 ok\r\n250 ok\r\n354 go\r\n", 0.3)
    session.content(EVE, 0.3)
    session.content_written(0.3)
    session.received(b"250 2.0.0 taken\r\n250 ok\r\n550 5.1.1 <eve@quiet.test> unknown\r\n", 0.5)
    assert exchange.done

    assert lines(watch) == [
        "< 220 mx",
        "> EHLO client.test",
        "< 250 mx PIPELINING",
        "> MAIL FROM:<b***@bounces.a.test>",
        "> RCPT TO:<a***@peer.test>",
        "> DATA",
        "< 250 ok",
        "< 250 ok",
        "< 354 go",
        "> (36 octets of content and the final dot)",
        "< 250 2.0.0 taken",
    ]


def test_how_a_conversation_breaks_is_told() -> None:
    watch = watching("peer.test")
    watch.add_hosts("peer.test", ("mx.peer.test",))
    session = ClientSession("client.test", starttls=False, now=0.0)
    session.trace = watch.connection_trace("mx.peer.test", "192.0.2.1")
    session.fail(Break(BreakKind.TIMEOUT, "no complete reply at greeting in time"), 300.0)
    assert lines(watch) == ["* timeout: no complete reply at greeting in time"]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("RCPT TO:<a@b.test>", "RCPT TO:<a@b.test>"),
        ("AUTH PLAIN AGFubgBzZWNyZXQ=", "AUTH ***"),
        ("auth LOGIN", "AUTH ***"),
        ("AGFubgBzZWNyZXQ=", "***"),
        ("XSECRET token", "XSECRET ***"),
        ("DATA", "DATA"),
    ],
)
def test_a_command_that_may_carry_a_secret_shows_its_verb_only(command: str, shown: str) -> None:
    assert shown_command(command) == shown


@pytest.mark.exhaustive
def test_lines_are_bounded_by_conversation_and_by_second() -> None:
    seconds = iter(range(10_000))
    watch = SmtpTrace(lambda: float(next(seconds)), lambda: NOW)
    watch.set_domains({"peer.test": NOW + timedelta(seconds=30)})
    tap = watch.connection_trace("mx.peer.test", "192.0.2.1")
    for _ in range(MAX_LINES_PER_CONNECTION + 50):
        tap.answer(ANN, Reply(250, "x" * 1_000), 0.0)
    told, left_out = watch.drain()
    assert len(told) == MAX_LINES_PER_CONNECTION + 1
    assert told[-1]["text"] == "more of this conversation is not shown"
    assert max(len(one["text"]) for one in told) <= module.MAX_TEXT
    assert left_out == 0

    standing = watching("peer.test")
    for _ in range(10):
        tap = standing.connection_trace("mx.peer.test", "192.0.2.1")
        for _ in range(100):
            tap.answer(ANN, Reply(250, "ok"), 0.0)
    told, left_out = standing.drain()
    assert (len(told), left_out) == (module.MAX_LINES_PER_SECOND, 1_000 - module.MAX_LINES_PER_SECOND)


def test_a_watcher_whose_time_is_over_costs_nothing() -> None:
    watch = watching("peer.test")
    watch.add_hosts("peer.test", ("mx.peer.test",))
    watch.set_domains({"peer.test": NOW})
    assert not watch.domains
    assert watch.domains_of_host("mx.peer.test") == []


def test_lines_are_told_in_notifications_that_postgres_takes() -> None:
    many: list[dict[str, Any]] = [{"text": "x" * 200, "n": n} for n in range(500)]
    texts = packed(many)
    assert all(len(text.encode()) < 8_000 for text in texts)
    assert len(texts) <= 500 * 220 // MAX_OCTETS + 2
    assert sum(text.count('"n":') for text in texts) == 500
