"""Accept one batch of a broadcast's messages: render each, store all in one transaction, mark what can't be sent.

A refusal of one message skips its contact; one that concerns the account puts the rest of the batch back.
"""

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct, structs

from engine.audience.broadcasts import content as broadcast_content
from engine.audience.broadcasts.checks import SOURCE
from engine.audience.broadcasts.content import CompiledBroadcast, MergeContact
from engine.audience.broadcasts.types import BroadcastSummary
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.mail.unsubscribe_links import UnsubscribeLinks
from engine.sending.accept import Acceptor
from engine.sending.accept_store import MAX_CALL_BYTES
from engine.sending.broadcast_copies import RecipientMark, RecipientState, claim_copies, mark_copies
from engine.sending.emails.recipients import sender_of
from engine.sending.emails.types import Accepted, BroadcastCopy, Prepared, SendRequest
from engine.sending.preparation import Composer, Origin
from engine.sending.unsubscribes.store import IS_OPTED_OUT, StoredLink
from engine.store.large_mail import run_sized
from engine.store.queries import Queries, Source

# Of content in one transaction: composed, up to 4/3 of it, so that one call of the database stores it. A larger batch
# would hold the account's head while its content is written.
MAX_BATCH_BYTES: Final = MAX_CALL_BYTES * 3 // 4
MAX_BUSY_S: Final = 0.002  # of composing, after which other tasks of the process get a turn

# These concern one contact: it is skipped, and the others get their message.
SKIPPING: Final = frozenset({
    ErrorType.INVALID_REQUEST, ErrorType.INVALID_ADDRESS, ErrorType.TEMPLATE_ERROR, ErrorType.PAYLOAD_TOO_LARGE,
    ErrorType.ATTACHMENT_BLOCKED,
})  # fmt: skip

_SQL = Queries.beside(__file__, "batch.sql")
_log = structlog.get_logger("broadcasts")


class WaitingRecipient(Struct, frozen=True):
    """A recipient who still waits; `email` is None if the contact was deleted."""

    contact_id: UUID
    address: str
    email: str | None
    name: str | None
    fields: str | None
    is_confirmed: bool
    suppressed: str | None
    is_opted_out: bool

    @property
    def obstacle(self) -> RecipientState | None:
        """Return why the recipient is skipped before anything is rendered, or None."""
        if self.email is None:
            return RecipientState.REMOVED
        if self.suppressed is not None:
            return RecipientState.SUPPRESSED
        if self.is_opted_out:
            return RecipientState.UNSUBSCRIBED
        return None if self.is_confirmed else RecipientState.UNCONFIRMED

    @property
    def contact(self) -> MergeContact:
        """Return the values of the contact."""
        return MergeContact(self.email or "", self.name, self.fields or "{}")


class BatchOutcome(Struct, frozen=True):
    """The result of a batch of `composed` messages, and the times for composing and storing them.

    `refusal` concerns the whole broadcast; `is_stale`: it was paused, or another process accepted some of the messages.
    """

    accepted: int
    at: datetime
    refusal: Refusal | None = None
    is_stale: bool = False
    composed: int = 0
    composed_s: float = 0.0
    stored_s: float = 0.0


_NEXT = _SQL.wide("next_recipients", is_opted_out=IS_OPTED_OUT)


async def next_recipients(source: Source, broadcast: UUID, limit: int) -> list[WaitingRecipient]:
    """Return at most `limit` recipients that still wait, in the order of their contacts."""
    return [WaitingRecipient(*row) for row in await _NEXT.run(source, broadcast=broadcast, most=limit)]


def largest_batch(content: CompiledBroadcast) -> int:
    """Return how many messages one transaction may have."""
    return max(1, MAX_BATCH_BYTES // max(1, content.size_bytes))


async def skip_unrenderable(pool: asyncpg.Pool, broadcast: UUID, recipients: Sequence[WaitingRecipient]) -> None:
    """Skip recipients of a broadcast whose content is gone."""
    copies = [BroadcastCopy(broadcast, one.contact_id) for one in recipients]
    await mark(pool, [RecipientMark(copy, RecipientState.TEMPLATE_ERROR) for copy in copies])


async def mark(pool: asyncpg.Pool, marks: Sequence[RecipientMark]) -> None:
    """Skip recipients that still wait, in a transaction of its own."""
    if not marks:
        return
    async with pool.acquire() as connection, connection.transaction():
        claimed = await claim_copies(connection, [one.copy for one in marks])
        await mark_copies(connection, [one for one in marks if one.copy in claimed])


class BroadcastSender:
    """Renders and accepts the messages of broadcasts for one process."""

    def __init__(self, pool: asyncpg.Pool, acceptor: Acceptor, links: UnsubscribeLinks) -> None:
        self._pool = pool
        self._acceptor = acceptor
        self._links = links

    async def composer(self, row: BroadcastSummary) -> Composer:
        """Return the function that composes this broadcast's messages; raise the refusal of its domain or stream."""
        sender = sender_of(SendRequest(from_=row.sender, to=row.sender))
        return await self._acceptor.preparer.composer(Origin(row.account_id, SOURCE), sender, row.stream)

    async def skip_unreachable(
        self, row: BroadcastSummary, chunk: Sequence[WaitingRecipient]
    ) -> list[WaitingRecipient]:
        """Mark the recipients that get no message; return the others."""
        obstacles = [(one, one.obstacle) for one in chunk]
        marks = [RecipientMark(BroadcastCopy(row.id, one.contact_id), why) for one, why in obstacles if why is not None]
        await mark(self._pool, marks)
        return [one for one, why in obstacles if why is None]

    async def send_batch(
        self, row: BroadcastSummary, content: CompiledBroadcast, ready: Sequence[WaitingRecipient], most: int
    ) -> tuple[BatchOutcome, list[WaitingRecipient]]:
        """Accept the messages of the first recipients, at most `most`, in one transaction; return the outcome and those
        left.
        """
        began = time.monotonic()
        try:
            compose = await self.composer(row)
        except Refusal as refusal:
            return BatchOutcome(0, clock.now(), refusal), list(ready)
        messages, marks = await self._composed(row, content, ready[:most], compose)
        await mark(self._pool, marks)
        composed = time.monotonic()
        outcome = await self._accept(messages)
        outcome = structs.replace(
            outcome, composed=len(messages), composed_s=composed - began, stored_s=time.monotonic() - composed
        )
        return outcome, list(ready[most:])

    async def _composed(
        self, row: BroadcastSummary, content: CompiledBroadcast, batch: Sequence[WaitingRecipient], compose: Composer
    ) -> tuple[list[Prepared], list[RecipientMark]]:
        """Compose the messages, and the marks of recipients whose values don't fit the content."""
        messages: list[Prepared] = []
        marks: list[RecipientMark] = []
        began = time.monotonic()
        for one in batch:
            if time.monotonic() - began > MAX_BUSY_S:
                await asyncio.sleep(0)  # let other requests run
                began = time.monotonic()
            try:
                work = partial(self._message, row, content, one, compose)
                messages.append(await run_sized(content.size_bytes, work))
            except Refusal as refusal:
                marks.append(_unrendered(row, one, refusal))
        return messages, marks

    def _message(
        self, row: BroadcastSummary, content: CompiledBroadcast, one: WaitingRecipient, compose: Composer
    ) -> Prepared:
        message = ids.uuid7()
        link = self._links.of(message)
        made = broadcast_content.rendered(content, one.contact, link)
        request = broadcast_content.request_to(content, one.contact, made, link)
        stored = StoredLink(
            id=message, account_id=row.account_id, address=one.address, broadcast_id=row.id, list_id=row.list_id
        )
        prepared = compose(request, made, BroadcastCopy(row.id, one.contact_id), message)
        return structs.replace(prepared, extras=(stored,))

    async def _accept(self, messages: Sequence[Prepared]) -> BatchOutcome:
        """Accept composed messages, and skip those that can't be stored."""
        try:
            decisions = await self._acceptor.accept_set(messages)
        except Refusal as refusal:
            return BatchOutcome(0, clock.now(), refusal)
        accepted, marks = 0, []
        refused: Refusal | None = None
        is_stale = False
        for message, decision in zip(messages, decisions, strict=True):
            assert message.copy is not None
            if isinstance(decision, Accepted):
                accepted += 1
            elif decision.kind in SKIPPING:
                marks.append(RecipientMark(message.copy, RecipientState.TEMPLATE_ERROR))
            elif decision.kind is ErrorType.CONFLICT:
                is_stale = True
            elif decision.kind is not ErrorType.SUPPRESSED:  # its transaction has marked that
                refused = decision
        await mark(self._pool, marks)
        return BatchOutcome(accepted, clock.now(), refused, is_stale)


def _unrendered(row: BroadcastSummary, one: WaitingRecipient, refusal: Refusal) -> RecipientMark:
    _log.info(
        "contact skipped", broadcast=row.public_id, contact=ids.format_id(ids.Kind.CONTACT, one.contact_id),
        why=refusal.kind.value,
    )  # fmt: skip
    return RecipientMark(BroadcastCopy(row.id, one.contact_id), RecipientState.TEMPLATE_ERROR)
