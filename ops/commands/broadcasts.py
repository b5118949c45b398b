"""`ops broadcasts` and `ops review`: which broadcasts run, why one waits, and the review of large first ones."""

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg
import click
import msgspec
from msgspec import Struct

from engine.audience.broadcasts import review_admin
from engine.audience.broadcasts.types import BroadcastStatus, PauseReason, WaitReason
from engine.base import clock, ids
from engine.store.queries import Queries
from ops.commands.base import account_filter, as_json, in_database, limit_option, print_json, reported, show_rows
from ops.commands.find_account import find_account

MAX_REVIEWS: Final = 1_000
OVERDUE_S: Final = 5  # a worker that is alive takes a broadcast before that, or keeps its claim on it
_SQL = Queries.beside(__file__, "broadcasts.sql")
_PAUSED: Final = {
    PauseReason.USER: "paused by the account",
    PauseReason.DAILY_LIMIT: "the account's daily limit is used up",
    PauseReason.MONTHLY_LIMIT: "the account's monthly limit is used up",
    PauseReason.SUSPENDED: "the account is suspended",
    PauseReason.DOMAIN: "its domain is not verified",
    PauseReason.STREAM: "its stream was deleted",
}
_WAITS: Final = {
    WaitReason.PLATFORM_PAUSED: "the platform's daily ceiling is reached",
    WaitReason.PACE: "its `perMinute` bounds it",
}


class RunningBroadcast(Struct, frozen=True):
    """A broadcast that has not ended, with its progress and its next turn."""

    id: UUID
    account_id: UUID
    account: str
    name: str
    status: str
    paused_because: str | None
    waits_for: str | None
    scheduled_at: datetime | None
    resumes_at: datetime | None
    recipients: int
    accepted: int
    skipped: int
    due_at: datetime | None
    worker: str | None


_RUNNING = _SQL.rows("broadcasts_in_progress", RunningBroadcast)
_COLUMNS = ["account", "name", "status", "why", "recipients", "accepted", "skipped", "id"]
_REVIEWS = ["account", "name", "from", "recipients", "scheduledAt", "status", "id"]
_broadcast = click.argument("broadcast", metavar="BROADCAST_ID", help="Id of the broadcast (brd_…).")


@click.command()
@account_filter
@limit_option(50, most=10_000)
@as_json
@reported
def broadcasts(*, account: str | None, limit: int, as_json: bool) -> None:
    """List the broadcasts that are in review, scheduled, sending or paused, and why each waits."""
    show_rows(in_database(in_progress, account=account, limit=limit), _COLUMNS, as_json=as_json)


@click.group()
def review() -> None:
    """Review the first broadcast of an account to more than 1,000 people."""


@review.command("list")
@as_json
@reported
def review_list(*, as_json: bool) -> None:
    """List the broadcasts that wait for review, the oldest first."""
    show_rows(in_database(reviews), _REVIEWS, as_json=as_json)


@review.command("show")
@_broadcast
@as_json
@reported
def review_show(*, broadcast: str, as_json: bool) -> None:
    """Show a broadcast (brd_…): its content, the figures of its account, and the consents of its recipients."""
    found = in_database(review_of, broadcast)
    if as_json:
        print_json(found)
        return
    bodies = {kind: found.pop(kind) for kind in ("text", "html")}
    for name, value in found.items():
        click.echo(f"{name}: {visible(str(value))}")
    for kind, body in bodies.items():
        click.echo(f"\n{kind}:\n{'none' if body is None else visible(body)}")


@review.command("approve")
@_broadcast
@as_json
@reported
def review_approve(*, broadcast: str, as_json: bool) -> None:
    """Let a broadcast (brd_…) go out, now or at its time. Its account needs no other review."""
    show_rows([in_database(approve, broadcast)], _REVIEWS, as_json=as_json)


@review.command("reject")
@_broadcast
@click.option("--note", required=True, help="Reason; shown to the author of the broadcast.")
@as_json
@reported
def review_reject(*, broadcast: str, note: str, as_json: bool) -> None:
    """Cancel a broadcast (brd_…) that waits for review."""
    show_rows([in_database(reject, broadcast, note)], [*_REVIEWS, "reviewNote"], as_json=as_json)


def visible(text: str) -> str:
    """Return a customer's text with control characters as `\\u001b`: a terminal would obey them."""
    lines = text.replace("\r\n", "\n")
    return "".join(char if char in "\n\t" or char.isprintable() else f"\\u{ord(char):04x}" for char in lines)


async def in_progress(pool: asyncpg.Pool, *, account: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the broadcasts of one account, or of all (`account` None), that have not ended, and why they wait."""
    owner = None if account is None else await find_account(pool, account)
    now = clock.now()
    return [
        {
            "id": ids.format_id(ids.Kind.BROADCAST, row.id),
            "accountId": ids.format_id(ids.Kind.ACCOUNT, row.account_id),
            "account": row.account,
            "name": row.name,
            "status": row.status,
            "why": why(row, now),
            "recipients": row.recipients,
            "accepted": row.accepted,
            "skipped": row.skipped,
            "nextLookAt": clock.iso_or_none(row.due_at),
        }
        for row in await _RUNNING.fetch(pool, owner, limit)
    ]


def why(row: RunningBroadcast, now: datetime) -> str:
    """Return in words why a broadcast does not accept messages now, or that it does."""
    if row.status == BroadcastStatus.IN_REVIEW:
        return "waits for `ops review`"
    if row.due_at is not None and (now - row.due_at).total_seconds() > OVERDUE_S:
        return "no worker has taken it; is a worker running?"
    if row.status == BroadcastStatus.SCHEDULED:
        return f"waits for its time, {clock.iso_or_none(row.scheduled_at)}"
    if row.status == BroadcastStatus.PAUSED:
        until = "" if row.resumes_at is None else f", until about {clock.iso_or_none(row.resumes_at)}"
        return _PAUSED[PauseReason(row.paused_because or PauseReason.USER)] + until
    if row.waits_for is not None:
        return _WAITS[WaitReason(row.waits_for)]
    return "is sending"


async def reviews(pool: asyncpg.Pool) -> list[dict[str, Any]]:
    """Return the broadcasts that wait for review, the oldest first, at most 1,000."""
    found = await review_admin.waiting(pool, after=None, limit=MAX_REVIEWS)
    return [_plain(one) for one in found.data]


async def review_of(pool: asyncpg.Pool, broadcast: str) -> dict[str, Any]:
    """Return a broadcast with its content, the figures of its account, and the consents of its recipients."""
    return _plain(await review_admin.show(pool, _id(broadcast)))


async def approve(pool: asyncpg.Pool, broadcast: str) -> dict[str, Any]:
    """Let a broadcast that waits for review go out."""
    return _plain(await review_admin.approve(pool, _id(broadcast)))


async def reject(pool: asyncpg.Pool, broadcast: str, note: str) -> dict[str, Any]:
    """Cancel a broadcast that waits for review; its author reads the note."""
    return _plain(await review_admin.reject(pool, _id(broadcast), note))


def _plain(found: Struct) -> dict[str, Any]:
    return dict(msgspec.to_builtins(found))


def _id(text: str) -> UUID:
    try:
        return ids.parse_id(ids.Kind.BROADCAST, text)
    except ids.WrongId as error:
        raise ValueError(f"{text[:100]!r} is not the id of a broadcast: {error}") from None
