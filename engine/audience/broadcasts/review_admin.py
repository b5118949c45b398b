"""The operator's reviews of broadcasts: list those that wait, show what recipients would get, approve or reject."""

from typing import Final
from uuid import UUID

import asyncpg
import msgspec
from msgspec import Struct, structs

from engine.audience.broadcasts import audience as broadcast_audience
from engine.audience.broadcasts import checks as broadcast_checks
from engine.audience.broadcasts import service, store
from engine.audience.broadcasts.rules import WHAT
from engine.audience.broadcasts.types import Broadcast, BroadcastSummary
from engine.base import clock, ids
from engine.base.errors import existing
from engine.base.text import checked_line
from engine.ledger.platform_log import OPERATOR
from engine.store.queries import Queries

MAX_NOTE: Final = 500
MAX_SHOWN: Final = 20_000  # characters of each body


class ReviewedBroadcast(Struct, frozen=True, rename="camel"):
    """A broadcast that waits for review, or was just reviewed; `recipients` is null if counting took too long."""

    id: str
    account: str
    account_id: str
    name: str
    status: str
    sender: str = msgspec.field(name="from")
    subject: str | None
    template: str | None
    recipients: int | None
    scheduled_at: str | None
    review_note: str | None


class ReviewPage(Struct, frozen=True, rename="camel"):
    """Broadcasts that wait for review, the oldest first. `nextCursor` is null on the last page."""

    data: list[ReviewedBroadcast]
    next_cursor: str | None


class BroadcastReview(ReviewedBroadcast, frozen=True, rename="camel", kw_only=True):
    """A broadcast with its content, the figures of its account in 30 days, and the consents of its recipients."""

    text: str | None
    html: str | None
    attachments: list[str]
    plan: str
    account_since: str
    delivered_30_days: int = msgspec.field(name="delivered30Days")
    bounced_30_days: int = msgspec.field(name="bounced30Days")
    complained_30_days: int = msgspec.field(name="complained30Days")
    consents: dict[str, int]


class _BroadcastContent(Struct, frozen=True):
    subject: str | None
    text: str | None
    html: str | None
    attachments: list[str]


_SQL = Queries.beside(__file__, "review_admin.sql")
_FACTS = _SQL.command("review_facts")
_CONSENTS = _SQL.command("consents_of_list")


async def waiting(pool: asyncpg.Pool, *, after: UUID | None, limit: int) -> ReviewPage:
    """Return a page of the broadcasts that wait for review."""
    rows = await store.REVIEWS.fetch(pool, after, limit + 1)
    data = [await _reviewed(pool, row) for row in rows[:limit]]
    return ReviewPage(data, data[-1].id if len(rows) > limit else None)


async def show(pool: asyncpg.Pool, broadcast: UUID) -> BroadcastReview:
    """Return a broadcast with what its review needs; raises 404."""
    found = existing(await store.FIND.first(pool, broadcast), WHAT)
    row = await service.read(pool, found.account_id, found.id)
    facts = (await _FACTS.records(pool, row.id))[0]
    consents = [] if row.list_id is None else await _CONSENTS.records(pool, row.list_id)
    shown = structs.asdict(await _reviewed(pool, row)) | structs.asdict(await _content(pool, row))
    return BroadcastReview(
        **shown,
        plan=facts["plan"],
        account_since=clock.iso(facts["account_since"]),
        delivered_30_days=int(facts["delivered"]),
        bounced_30_days=int(facts["bounced"]),
        complained_30_days=int(facts["complained"]),
        consents={one["consent"]: one["contacts"] for one in consents},
    )


async def approve(pool: asyncpg.Pool, broadcast: UUID, *, actor: str = OPERATOR) -> ReviewedBroadcast:
    """Let a broadcast that waits for review go out; raises 404, or 409 if it does not wait."""
    return await _reviewed(pool, await service.approve(pool, broadcast, clock.now(), actor=actor))


async def reject(pool: asyncpg.Pool, broadcast: UUID, note: str, *, actor: str = OPERATOR) -> ReviewedBroadcast:
    """Cancel a broadcast that waits for review; its author reads the note. Raises as `approve` does."""
    words = checked_line(note, "note", MAX_NOTE)
    return await _reviewed(pool, await service.reject(pool, broadcast, words, actor=actor))


async def _reviewed(pool: asyncpg.Pool, row: BroadcastSummary) -> ReviewedBroadcast:
    facts = (await _FACTS.records(pool, row.id))[0]
    try:
        recipients = await broadcast_audience.count(pool, row.account_id, row.audience)
    except TimeoutError:
        recipients = None
    return ReviewedBroadcast(
        id=row.public_id,
        account=facts["account"],
        account_id=ids.format_id(ids.Kind.ACCOUNT, row.account_id),
        name=row.name,
        status=row.status,
        sender=row.sender,
        subject=row.subject,
        template=row.template,
        recipients=recipients,
        scheduled_at=clock.iso_or_none(row.scheduled_at),
        review_note=row.review_note,
    )


async def _content(pool: asyncpg.Pool, row: Broadcast) -> _BroadcastContent:
    """Return all that recipients will see, from its template if it has one: most mail programs show the HTML alone."""
    template = await broadcast_checks.template_of(pool, row)
    content = row if template is None else template
    files = [] if row.attachments is None else msgspec.json.decode(row.attachments)
    return _BroadcastContent(
        subject=row.subject or content.subject,
        text=_shown(content.text),
        html=_shown(content.html),
        attachments=[one["filename"] for one in files],
    )


def _shown(body: str | None) -> str | None:
    """Return the beginning of a body, and how much is left out."""
    if body is None or len(body) <= MAX_SHOWN:
        return body
    return f"{body[:MAX_SHOWN]}\n[{len(body) - MAX_SHOWN} more characters]"
