"""Create and change the drafts of broadcasts, with the checks that `send` repeats."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
from msgspec import UNSET, Struct, UnsetType, structs

from engine.audience.broadcasts import checks as broadcast_checks
from engine.audience.broadcasts import rules, service, store
from engine.audience.broadcasts.content import attachments_text
from engine.audience.broadcasts.types import Broadcast, BroadcastAudience, BroadcastDraft, BroadcastStatus
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.events import AccountEvent
from engine.base.plans import Caps
from engine.ledger.plan_limits import locked_caps
from engine.sending.accept import Acceptor
from engine.sending.emails.recipients import sender_of
from engine.sending.emails.types import AttachmentIn, SendRequest
from engine.sending.images import in_mail
from engine.sending.preparation import Origin
from engine.sending.streams import store as streams
from engine.sending.streams.service import open_stream
from engine.sending.streams.store import TRANSACTIONAL
from engine.store.database_clock import new_time

_NEW = BroadcastDraft(name="", audience=BroadcastAudience(), stream="", sender="", from_domain="")


class BroadcastFields(Struct, kw_only=True):
    """The fields of a request that creates or changes a draft: UNSET for an absent one, None for a removed value."""

    name: str | UnsetType = UNSET
    list_id: UUID | UnsetType | None = UNSET
    segment_id: UUID | UnsetType | None = UNSET
    stream: str | UnsetType | None = UNSET
    sender: str | UnsetType = UNSET
    reply_to: str | UnsetType | None = UNSET
    template: str | UnsetType | None = UNSET
    subject: str | UnsetType | None = UNSET
    html: str | UnsetType | None = UNSET
    text: str | UnsetType | None = UNSET
    blocks: str | UnsetType | None = UNSET
    attachments: list[AttachmentIn] | UnsetType | None = UNSET
    per_minute: int | UnsetType | None = UNSET

    def given(self) -> dict[str, Any]:
        """Return the fields that the request gives."""
        return {name: value for name, value in structs.asdict(self).items() if value is not UNSET}


async def create(
    pool: asyncpg.Pool, acceptor: Acceptor, fields: BroadcastFields, origin: Origin, *, actor: str
) -> Broadcast:
    """Create a draft. Raises the refusal of the first failed check."""
    account = origin.account_id
    caps = await broadcast_checks.caps_of(pool, account)
    draft = merged(_NEW, fields, caps)
    is_stream_new = await _lacks_default(pool, draft, fields, origin, caps)
    await broadcast_checks.check(pool, acceptor, _row_of(account, draft), origin, caps, is_stream_new=is_stream_new)
    if is_stream_new:
        await _make_default(pool, account, actor)
    async with pool.acquire() as connection, connection.transaction():
        await locked_caps(connection, account)
        await in_mail.check_owned(connection, account, draft.blocks)
        at = await new_time(connection)
        broadcast = ids.uuid7_at(at)
        await store.insert(connection, account, broadcast, draft, clock.whole_milliseconds(at))
        rules.check_room(await store.unfinished(connection, account))
        row = await service.locked(connection, account, broadcast)
        await service.record(connection, row, AccountEvent.BROADCAST_CREATED, actor)
    return row


async def change(
    pool: asyncpg.Pool,
    acceptor: Acceptor,
    broadcast: UUID,
    fields: BroadcastFields,
    origin: Origin,
    *,
    actor: str,
) -> Broadcast:
    """Change the given fields of a draft. Raises the 404, the 409 for another status, and the refusals of `create`."""
    account = origin.account_id
    before = await service.read(pool, account, broadcast)
    rules.check_editable(before)
    caps = await broadcast_checks.caps_of(pool, account)
    draft = merged(_draft_of(before), fields, caps)
    await broadcast_checks.check(pool, acceptor, _row_of(account, draft), origin, caps)
    async with pool.acquire() as connection, connection.transaction():
        row = await service.locked(connection, account, broadcast)
        rules.check_editable(row)
        await store.change(connection, account, broadcast, merged(_draft_of(row), fields, caps))
        await service.record(connection, row, AccountEvent.BROADCAST_UPDATED, actor, fields=sorted(fields.given()))
        # Under the lock of the account's head, which the event has taken:
        rules.check_room(await store.unfinished(connection, account))
        if fields.blocks is not UNSET:
            await in_mail.check_owned(connection, account, fields.blocks)
    return await service.read(pool, account, broadcast)


async def _lacks_default(
    pool: asyncpg.Pool, draft: BroadcastDraft, fields: BroadcastFields, origin: Origin, caps: Caps
) -> bool:
    """Return True if the draft uses the default stream, which the account does not have and has room for.

    A key that is limited to domains or streams makes none.
    """
    if fields.stream not in {UNSET, None} or draft.stream != broadcast_checks.DEFAULT_STREAM:
        return False
    if origin.reach is not None and (origin.reach.domains, origin.reach.streams) != (None, None):
        return False
    known = await streams.READ_SLUG.first(pool, origin.account_id, draft.stream)
    if known is not None and known.deleted_at is None:
        return False
    limit = caps.streams
    return limit is None or await streams.count(pool, origin.account_id) < limit


async def _make_default(pool: asyncpg.Pool, account: UUID, actor: str) -> None:
    try:
        slug = broadcast_checks.DEFAULT_STREAM
        await open_stream(pool, account, slug=slug, name=slug.capitalize(), actor=actor)
    except Refusal as refusal:
        if refusal.kind is not ErrorType.CONFLICT:  # another request has just made it
            raise


def merged(draft: BroadcastDraft, fields: BroadcastFields, caps: Caps) -> BroadcastDraft:
    """Return the draft with the fields of a request; raise the 400 for values that are wrong by themselves."""
    given = fields.given()
    plain = ("reply_to", "template", "subject", "html", "text", "blocks", "per_minute")
    changes: dict[str, Any] = {name: given[name] for name in plain if name in given}
    if "name" in given:
        changes["name"] = rules.checked_name(given["name"])
    if "attachments" in given:
        changes["attachments"] = attachments_text(given["attachments"])
    if "sender" in given:
        sender = sender_of(SendRequest(from_=given["sender"], to=broadcast_checks.SAMPLE.email))
        changes |= {"sender": given["sender"], "from_domain": sender.domain}
    if "stream" in given or not draft.stream:
        default = TRANSACTIONAL if broadcast_checks.has_one_stream(caps) else broadcast_checks.DEFAULT_STREAM
        changes["stream"] = given.get("stream") or default
    return structs.replace(draft, audience=_chosen(draft.audience, given), **changes)


def _chosen(before: BroadcastAudience, given: dict[str, Any]) -> BroadcastAudience:
    """Return the list or segment of a request: naming one replaces the other."""
    list_id, segment_id = given.get("list_id"), given.get("segment_id")
    if list_id is not None and segment_id is not None:
        raise invalid("segment", "`list` and `segment` can't be combined. Give one of the two.")
    if list_id is None and segment_id is None:
        kept = BroadcastAudience(
            None if "list_id" in given else before.list_id, None if "segment_id" in given else before.segment_id
        )
        if kept == BroadcastAudience():
            raise invalid("list", "The broadcast has no recipients. Give a `list` or a `segment`.")
        return kept
    return BroadcastAudience(list_id, segment_id)


def _draft_of(row: Broadcast) -> BroadcastDraft:
    kept = {name: getattr(row, name) for name in BroadcastDraft.__struct_fields__ if name != "audience"}
    return BroadcastDraft(audience=row.audience, **kept)


def _row_of(account: UUID, draft: BroadcastDraft) -> Broadcast:
    """Return a draft as if it were stored, for checks."""
    at = datetime.fromtimestamp(0, UTC)
    kept = {name: getattr(draft, name) for name in BroadcastDraft.__struct_fields__ if name != "audience"}
    return Broadcast(
        id=UUID(int=0), account_id=account, status=BroadcastStatus.DRAFT, created_at=at, updated_at=at,
        list_id=draft.audience.list_id, segment_id=draft.audience.segment_id, template_version=None,
        paused_because=None, stopped_because=None, waits_for=None, review_note=None, scheduled_at=None,
        started_at=None, finished_at=None, resumes_at=None, removed_files=None, **kept,
    )  # fmt: skip
