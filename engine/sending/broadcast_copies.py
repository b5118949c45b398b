"""The recipients of the broadcasts whose copies a batch holds: claimed before it is decided, marked with its result."""

from collections.abc import Collection, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Final
from uuid import UUID

from msgspec import Struct

from engine.sending.admission import Pending, is_suppressed
from engine.sending.emails.types import Accepted, BroadcastCopy
from engine.sending.unsubscribes.store import LINK, StoredLink
from engine.store.queries import Conn, Queries
from engine.store.row_sets import Arrays, Column, RowSet

_SQL = Queries.beside(__file__, "broadcast_copies.sql")


class RecipientState(StrEnum):
    """The states of a recipient: waiting, accepted, or the reason why it was skipped."""

    WAITING = "waiting"
    ACCEPTED = "accepted"
    SUPPRESSED = "suppressed"
    REMOVED = "removed"
    TEMPLATE_ERROR = "template_error"
    UNCONFIRMED = "unconfirmed"
    UNSUBSCRIBED = "unsubscribed"


class RecipientMark(Struct, frozen=True):
    """The result for one recipient: accepted as a message, or skipped."""

    copy: BroadcastCopy
    state: RecipientState
    message_id: UUID | None = None


_COPY = RowSet("mark", BroadcastCopy, Column("broadcast_id", repeats=True), Column("contact_id"))
MARK: Final = RowSet(
    "mark",
    RecipientMark,
    Column("broadcast_id", "uuid", attrgetter("copy.broadcast_id"), repeats=True),
    Column("contact_id", "uuid", attrgetter("copy.contact_id")),
    Column("state", "text", attrgetter("state.value"), repeats=True),
    Column("message_id"),
)
# For statements that store the copies' messages, too: they require the row set MARK.
COPIES: Final = {name: _SQL.fragment(name) for name in ("copies_claimed", "copies_marked")}
CLAIM_COPIES = _SQL.wide("claim_copies", _COPY)
MARK_COPIES = _SQL.wide("mark_copies", MARK)


async def claim(connection: Conn, batch: Sequence[Pending]) -> None:
    """Lock the recipients of the batch's copies of broadcasts, before the heads, and note which of them still wait.

    So a broadcast has one message for each contact, whatever process dies when, and a pause holds at its commit. A copy
    that is twice in the batch, as two tasks of the process worked on one broadcast, is claimed for the first only.
    """
    copies = [item.message.copy for item in batch if item.message.copy is not None]
    claimed = await claim_copies(connection, copies) if copies else set()
    for item in batch:
        copy = item.message.copy
        item.is_claimed = copy is not None and copy in claimed
        if copy is not None:
            claimed.discard(copy)


def rows_of(batch: Sequence[Pending]) -> tuple[Arrays, Arrays] | None:
    """Return the marks and the unsubscribe links of a batch of which every message is accepted, for the row sets MARK
    and LINK.

    None if a message is no copy, a copy is there twice, or a message has rows of other kinds.
    """
    messages = {item.message.copy: item.message for item in batch}
    extras = [row for item in batch for row in item.message.extras]
    links = [row for row in extras if isinstance(row, StoredLink)]
    if len(messages) < len(batch) or len(links) < len(extras):
        return None
    marks = [
        RecipientMark(copy, RecipientState.ACCEPTED, message.id)
        for copy, message in messages.items()
        if copy is not None
    ]
    return (MARK.of(marks), LINK.of(links)) if len(marks) == len(batch) else None


async def mark(connection: Conn, batch: Sequence[Pending], decisions: Sequence[Accepted | Exception]) -> None:
    """Mark the recipients of a decided batch whose message is stored, and those that are suppressed."""
    marks = []
    for item, decision in zip(batch, decisions, strict=True):
        copy = item.message.copy
        if copy is not None and isinstance(decision, Accepted):
            marks.append(RecipientMark(copy, RecipientState.ACCEPTED, item.message.id))
        elif copy is not None and is_suppressed(decision):
            marks.append(RecipientMark(copy, RecipientState.SUPPRESSED))
    await mark_copies(connection, marks)


async def claim_copies(connection: Conn, copies: Collection[BroadcastCopy]) -> set[BroadcastCopy]:
    """Lock and return those copies whose recipient still waits, in a broadcast that is sending."""
    rows = await CLAIM_COPIES.run(connection, _COPY.of(copies))
    return {BroadcastCopy(row["broadcast_id"], row["contact_id"]) for row in rows}


async def mark_copies(connection: Conn, marks: Sequence[RecipientMark]) -> None:
    """Mark recipients that the caller has claimed, and count them."""
    if marks:
        await MARK_COPIES.run(connection, MARK.of(marks))
