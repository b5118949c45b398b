"""The recipients of the broadcasts whose copies a batch holds: claimed before it is decided, marked with its result."""

from collections.abc import Sequence

from engine.areas.broadcasts import store as broadcasts
from engine.areas.broadcasts.store import RecipientMark
from engine.areas.broadcasts.types import BroadcastCopy, RecipientState
from engine.areas.emails.types import Accepted
from engine.areas.unsubscribes.store import StoredLink
from engine.flows.sending.admission import Pending, is_suppressed
from engine.store.queries import Conn


async def claim(connection: Conn, batch: Sequence[Pending]) -> None:
    """Lock the recipients of the batch's copies of broadcasts, before the heads, and note which of them still wait.

    So a broadcast has one message for each contact, whatever process dies when, and a pause holds at its commit. A copy
    that is twice in the batch, as two tasks of the process worked on one broadcast, is claimed for the first only.
    """
    copies = [BroadcastCopy(*item.message.copy) for item in batch if item.message.copy is not None]
    if not copies:
        return
    claimed = await broadcasts.claim_copies(connection, copies)
    for item in batch:
        item.is_claimed = item.message.copy in claimed
        if item.is_claimed and item.message.copy is not None:
            claimed.remove(BroadcastCopy(*item.message.copy))


def accepted_marks(batch: Sequence[Pending]) -> list[RecipientMark]:
    """Return the marks of a batch of which every message is accepted; fewer than messages if a copy is there twice."""
    copies = {item.message.copy: item.message.id for item in batch}
    return [
        RecipientMark(BroadcastCopy(*copy), RecipientState.ACCEPTED, message)
        for copy, message in copies.items()
        if copy is not None
    ]


def links_of(batch: Sequence[Pending]) -> list[StoredLink] | None:
    """Return the unsubscribe links of the batch; None if it has rows of other kinds."""
    links = [row for item in batch for row in item.message.extras if isinstance(row, StoredLink)]
    return links if len(links) == sum([len(item.message.extras) for item in batch]) else None


async def mark(connection: Conn, batch: Sequence[Pending], decisions: Sequence[Accepted | Exception]) -> None:
    """Mark the recipients of a decided batch whose message is stored, and those that are suppressed."""
    marks = []
    for item, decision in zip(batch, decisions, strict=True):
        if item.message.copy is None:
            continue
        copy = BroadcastCopy(*item.message.copy)
        if isinstance(decision, Accepted):
            marks.append(RecipientMark(copy, RecipientState.ACCEPTED, item.message.id))
        elif is_suppressed(decision):
            marks.append(RecipientMark(copy, RecipientState.SUPPRESSED))
    await broadcasts.mark_copies(connection, marks)
