"""Complaints that arrive as mail: whom they are about, and which of them count."""

from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.mail import feedback_headers
from engine.mail.return_path import WHOLE_MESSAGE, WHOLE_MESSAGE_FOR, shared_place
from engine.receiving.reports import read_reports
from engine.receiving.reports.types import Reporter, ReportPurpose
from engine.sending.settle import Settler
from tests.harness.accounts import PEPPER, TestAccount
from tests.harness.report_mails import add, arf, mail, message_id_field, stored
from tests.harness.sending import DELIVERED, Process, attempt_at, rows_of
from tests.harness.stored_messages import day_counts, events, sent, status, statuses, suppressed
from tests.receiving.test_late_bounce import ANN, come, delivered, token

LISTED = Reporter("feedback@arf.mail.yahoo.com", "arf.mail.yahoo.com")  # in the default of the setting


async def at_fbl(
    pool: asyncpg.Pool,
    settings: Settings,
    raw: bytes,
    reporter: Reporter | None = None,
) -> tuple[str, str | None]:
    """Let a complaint with a text of its own arrive at `fbl@` and be read; return its state and result."""
    host = f"{ids.uuid7().hex}.test"
    raw = raw.replace(b"This is a complaint.", f"The complaint of {host}.".encode())
    await add(pool, mail(raw, local="fbl", host=host, purpose=ReportPurpose.FEEDBACK, reporter=reporter))
    await read_reports.read_due(pool, settings)
    row = await pool.fetchrow("SELECT state, result FROM report_mails WHERE host = $1", host)
    assert row is not None
    return row["state"], row["result"]


def cfbl_token(message: UUID) -> str:
    """The CFBL-Feedback-ID of a message."""
    return feedback_headers.cfbl_feedback_id(feedback_headers.cfbl_key(PEPPER), message)


async def reasons(pool: asyncpg.Pool, account: TestAccount) -> dict[str, str]:
    rows = await pool.fetch("SELECT address, reason FROM suppressions WHERE account_id = $1", account.id)
    return {row["address"]: row["reason"] for row in rows}


@pytest.mark.parametrize("kind", ["abuse", "fraud"])
async def test_a_complaint_at_the_return_path_counts_and_suppresses_for_good(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings, kind: str
) -> None:
    account, message = await delivered(door, settler, pool)
    assert await come(pool, settings, message, arf(kind)) == ("applied", "recorded")

    assert await status(pool, message) == "complained"
    assert (await events(pool, message))[-1] == (
        "complained",
        {
            "recipient": ANN, "feedback_type": kind, "user_agent": "Provider/1.0", "source_ip": "192.0.2.7",
            "suppressed": True,
        },
    )  # fmt: skip
    assert await reasons(pool, account) == {ANN: "complaint"}
    assert await day_counts(pool, account) == {"delivered": 1, "complained": 1}


@pytest.mark.parametrize("way", ["return path", "token", "message id"])
async def test_a_complaint_at_fbl_is_found_by_what_it_quotes(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings, way: str
) -> None:
    account, message = await delivered(door, settler, pool)
    raw = {
        "return path": arf(fields=f"Original-Mail-From: <{token(message)}@bounces.mail.test>\r\n"),
        "token": arf(headers=f"CFBL-Feedback-ID: {cfbl_token(message)}\r\n"),
        "message id": arf(headers=message_id_field(account, message)),
    }[way]
    reporter = {"token": Reporter("fbl@people.test", None), "message id": LISTED}.get(way)
    assert await at_fbl(pool, settings, raw, reporter) == ("applied", "recorded")
    assert await status(pool, message) == "complained"


async def test_the_same_complaint_counts_once(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    account, message = await delivered(door, settler, pool)
    first = arf(headers=message_id_field(account, message))
    assert await at_fbl(pool, settings, first, LISTED) == ("applied", "recorded")
    assert await come(pool, settings, message, arf()) == ("applied", "known")

    assert await day_counts(pool, account) == {"delivered": 1, "complained": 1}


async def test_an_opt_out_suppresses_without_a_complaint(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    account, message = await delivered(door, settler, pool)
    for number in range(2):
        raw = arf("opt-out", headers=message_id_field(account, message), fields=f"Incidents: {number}\r\n")
        assert await at_fbl(pool, settings, raw, LISTED) == ("applied", "opted_out")

    assert await status(pool, message) == "delivered"
    assert await reasons(pool, account) == {ANN: "unsubscribe"}
    kinds = await pool.fetch("SELECT type FROM events WHERE account_id = $1 ORDER BY seq", account.id)
    assert [row["type"] for row in kinds] == ["accepted", "attempted", "delivered", "suppression.added"]


@pytest.mark.parametrize("kind", ["not-spam", "auth-failure", "virus", "other", "miscategorized"])
async def test_other_types_are_recorded_only(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings, kind: str
) -> None:
    account, message = await delivered(door, settler, pool)
    assert await come(pool, settings, message, arf(kind)) == ("ignored", "recorded")

    assert await status(pool, message) == "delivered"
    assert await suppressed(pool, account) == []
    assert (await stored(pool, token(message)))[0]["raw"] is not None


async def test_of_several_recipients_the_report_must_name_one(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    account, message = await delivered(door, settler, pool, ANN, "Bob@people.test")
    unnamed = arf(headers=message_id_field(account, message))
    assert await come(pool, settings, message, unnamed, shared_place(0)) == ("ignored", "unknown_message")
    both = arf(headers=f"To: {ANN}, bob@people.test\r\n")  # quoted from the message, so neither is meant
    assert await come(pool, settings, message, both, shared_place(0)) == ("ignored", "unknown_message")
    named = arf(fields="Original-Rcpt-To: <bob@people.test>\r\n", headers=message_id_field(account, message))
    assert await at_fbl(pool, settings, named, LISTED) == ("applied", "recorded")

    assert await statuses(pool, message) == {ANN: "delivered", "Bob@people.test": "complained"}


async def test_a_token_that_all_recipients_read_speaks_for_those_of_the_reporters_domain(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    bob = "bob@far.test"
    _, message = await delivered(door, settler, pool, ANN, bob, "cleo@mail.far.test")
    quoted, far = f"CFBL-Feedback-ID: {cfbl_token(message)}\r\n", Reporter("fbl@far.test", None)

    async def reported(address: str, reporter: Reporter | None) -> tuple[str, str | None]:
        """Let a complaint about the address arrive."""
        return await at_fbl(pool, settings, arf(headers=quoted, fields=f"Original-Rcpt-To: {address}\r\n"), reporter)

    assert await reported(ANN, far) == ("ignored", "recorded")
    assert await reported(bob, None) == ("ignored", "recorded")
    assert await reported(bob, Reporter("fbl@sub.far.test", "far.test")) == ("ignored", "recorded")
    assert await reported(bob, far) == ("applied", "recorded")
    assert await reported("cleo@mail.far.test", far) == ("applied", "recorded")
    assert await reported(ANN, LISTED) == ("applied", "recorded")

    assert set((await statuses(pool, message)).values()) == {"complained"}


async def test_the_complaint_token_of_a_message_to_one_needs_an_author_of_the_recipients_domain(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    account, message = await delivered(door, settler, pool)
    outsiders = (None, Reporter("eve@evil.test", "evil.test"), Reporter("fbl@sub.people.test", "people.test"))
    for kind in ("abuse", "opt-out"):
        raw = arf(kind, headers=f"CFBL-Feedback-ID: {cfbl_token(message)}\r\n")
        for reporter in outsiders:
            assert await at_fbl(pool, settings, raw, reporter) == ("ignored", "recorded")
    assert await suppressed(pool, account) == []

    raw = arf(headers=f"CFBL-Feedback-ID: {cfbl_token(message)}\r\n")
    assert await at_fbl(pool, settings, raw, Reporter("fbl@people.test", "people.test")) == ("applied", "recorded")
    assert await status(pool, message) == "complained"


@pytest.mark.parametrize("kind", ["abuse", "opt-out"])
async def test_a_shared_return_path_needs_an_author_of_the_recipients_domain(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings, kind: str
) -> None:
    account, message = await delivered(door, settler, pool, ANN, "eve@people.test")
    path = token(message, shared_place(0))
    named = f"Original-Rcpt-To: {ANN}\r\n"
    ways = [named + f"Original-Mail-From: <{path}@bounces.mail.test>\r\n", named + f"Source: {path}\r\n"]
    for reporter in (None, Reporter("eve@evil.test", "evil.test")):
        for fields in ways:
            assert await at_fbl(pool, settings, arf(kind, fields=fields), reporter) == ("ignored", "recorded")
    assert await come(pool, settings, message, arf(kind, fields=named), shared_place(0)) == ("ignored", "recorded")
    assert await suppressed(pool, account) == []
    assert await statuses(pool, message) == {ANN: "delivered", "eve@people.test": "delivered"}

    reporter = Reporter("fbl@people.test", None)
    result = "recorded" if kind == "abuse" else "opted_out"
    assert await at_fbl(pool, settings, arf(kind, fields=ways[0]), reporter) == ("applied", result)
    assert await suppressed(pool, account) == [ANN]


async def test_a_token_of_mail_that_was_under_way_still_leads_to_it_for_sixty_days(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    raw = {}
    for way in ("in time", "late"):
        _, message = await delivered(door, settler, pool)
        raw[way] = message, arf(headers=f"CFBL-Feedback-ID: {token(message, WHOLE_MESSAGE)[2:]}\r\n")
    now = clock.now()
    late = now + WHOLE_MESSAGE_FOR + timedelta(minutes=1)

    reporter = Reporter("fbl@people.test", "people.test")
    assert await at_fbl(pool, settings, raw["in time"][1], reporter) == ("applied", "recorded")
    await add(pool, mail(raw["late"][1], local="fbl", host="late.test", purpose=ReportPurpose.FEEDBACK, at=late))
    await pool.execute("UPDATE report_mails SET due_at = $1 WHERE host = 'late.test'", now)
    await read_reports.read_due(pool, settings)
    row = await pool.fetchrow("SELECT state, result FROM report_mails WHERE host = 'late.test'")
    assert row is not None
    assert tuple(row) == ("ignored", "unknown_message")
    assert await status(pool, raw["late"][0]) == "delivered"


async def test_what_names_no_message_of_ours_has_no_effect(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    account, message = await delivered(door, settler, pool)
    forged = token(message)[:-1] + ("0" if token(message)[-1] != "0" else "1")
    for raw in (
        arf(),
        arf(headers="Message-ID: <hello@example.test>\r\n"),
        arf(headers=f"Message-ID: <{ids.encode(message)}@other.test>\r\n"),
        arf(headers=message_id_field(account, ids.uuid7())),
        arf(fields=f"Original-Mail-From: <{forged}@bounces.mail.test>\r\n"),
    ):
        assert await at_fbl(pool, settings, raw, LISTED) == ("ignored", "unknown_message")
    assert await at_fbl(pool, settings, b"Subject: hi\r\n\r\nRemove me!\r\n") == ("unreadable", "no_complaint")
    assert await status(pool, message) == "delivered"


async def test_a_complaint_before_the_delivery_is_on_record_is_read_again(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    _, message = await sent(door)
    assert await come(pool, settings, message, arf()) == ("waiting", None)
    [row] = await rows_of(pool, message)
    assert await settler.settle(attempt_at(row, DELIVERED))
    await pool.execute("UPDATE report_mails SET due_at = now() - interval '1 s' WHERE local = $1", token(message))
    await read_reports.read_due(pool, settings)

    assert await status(pool, message) == "complained"
