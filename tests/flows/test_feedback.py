"""Complaints that arrive as mail: whom they are about, and which of them count."""

from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import pytest

from engine.areas.reports.types import ReportPurpose
from engine.base import ids
from engine.base.settings import Settings
from engine.flows.receiving import read_reports
from engine.flows.sending.settle import Settler
from engine.mail.return_path import SHARED
from tests.flows.test_late_bounce import ANN, come, delivered, token
from tests.harness.accounts import TestAccount
from tests.harness.report_mails import add, arf, mail, stored
from tests.harness.sending import DELIVERED, Process, attempt_at, member, process, rows_of, settler_of
from tests.harness.stored_messages import day_counts, events, sent, status, statuses, suppressed


@pytest.fixture
async def door(settings: Settings) -> AsyncIterator[Process]:
    async with process(settings) as one:
        yield one


@pytest.fixture
async def settler(pool: asyncpg.Pool) -> Settler:
    return settler_of(pool, await member(pool))


async def at_fbl(pool: asyncpg.Pool, settings: Settings, raw: bytes) -> tuple[str, str | None]:
    """Let a complaint arrive at `fbl@` and be read; return its state and result."""
    host = f"{ids.uuid7().hex}.test"
    await add(pool, mail(raw, local="fbl", host=host, purpose=ReportPurpose.FEEDBACK))
    await read_reports.read_due(pool, settings)
    row = await pool.fetchrow("SELECT state, result FROM report_mails WHERE host = $1", host)
    assert row is not None
    return row["state"], row["result"]


def message_id(account: TestAccount, message: UUID) -> str:
    """The Message-ID field of a message."""
    return f"Message-ID: <{ids.encode(message)}@{account.domain}>\r\n"


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
        "token": arf(headers=f"CFBL-Feedback-ID: {token(message)[2:]}\r\n"),
        "message id": arf(headers=message_id(account, message)),
    }[way]
    assert await at_fbl(pool, settings, raw) == ("applied", "recorded")
    assert await status(pool, message) == "complained"


async def test_the_same_complaint_counts_once(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    account, message = await delivered(door, settler, pool)
    assert await at_fbl(pool, settings, arf(headers=message_id(account, message))) == ("applied", "recorded")
    assert await come(pool, settings, message, arf()) == ("applied", "known")

    assert await day_counts(pool, account) == {"delivered": 1, "complained": 1}


async def test_an_opt_out_suppresses_without_a_complaint(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    account, message = await delivered(door, settler, pool)
    for number in range(2):
        raw = arf("opt-out", headers=message_id(account, message), fields=f"Incidents: {number}\r\n")
        assert await at_fbl(pool, settings, raw) == ("applied", "opted_out")

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
    assert await come(pool, settings, message, arf(), SHARED) == ("ignored", "unknown_message")
    named = arf(fields="Original-Rcpt-To: <bob@people.test>\r\n", headers=message_id(account, message))
    assert await at_fbl(pool, settings, named) == ("applied", "recorded")

    assert await statuses(pool, message) == {ANN: "delivered", "Bob@people.test": "complained"}


async def test_what_names_no_message_of_ours_has_no_effect(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    account, message = await delivered(door, settler, pool)
    forged = token(message)[:-1] + ("0" if token(message)[-1] != "0" else "1")
    for raw in (
        arf(),
        arf(headers="Message-ID: <hello@example.test>\r\n"),
        arf(headers=f"Message-ID: <{ids.encode(message)}@other.test>\r\n"),
        arf(headers=f"Message-ID: <{ids.encode(ids.uuid7())}@{account.domain}>\r\n"),
        arf(fields=f"Original-Mail-From: <{forged}@bounces.mail.test>\r\n"),
    ):
        assert await at_fbl(pool, settings, raw) == ("ignored", "unknown_message")
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
