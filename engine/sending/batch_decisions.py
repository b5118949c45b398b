"""Decide a batch of prepared messages in order, on heads that the caller read or locked. Pure, but for these heads."""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from datetime import datetime
from itertools import groupby
from uuid import UUID

from msgspec import Struct

from engine.base.errors import ErrorType, Refusal, not_found
from engine.ledger import log
from engine.ledger.heads import AccountHead
from engine.sending import accepted_rows
from engine.sending.accepted_rows import goes_now
from engine.sending.admission import Pending, Replays, decide, is_suppressed
from engine.sending.emails.types import Accepted, Prepared
from engine.store.database_errors import AccountMoving


class BatchResult(Struct):
    """The decisions on a batch, one per message, and the rows to write."""

    decisions: list[Accepted | Exception] = []
    stored: list[Prepared] = []
    entries: list[log.Entry] = []

    def add(self, more: "BatchResult") -> None:
        """Append the result of the messages that follow."""
        self.decisions += more.decisions
        self.stored += more.stored
        self.entries += more.entries


def decide_batch(
    batch: Sequence[Pending],
    held: dict[UUID, AccountHead],
    replays: Replays,
    at: datetime,
    *,
    room: int,
    reserve: float,
) -> BatchResult:
    """Decide the messages in order, counting them on the heads, and add their idempotency keys to `replays`.

    `room`: messages that the platform's ceiling still allows; `reserve`: the part of an account's limits, 0 to 1, that
    copies of broadcasts leave to other mail.
    """
    result = BatchResult()
    for item in batch:
        message = item.message
        head = held.get(message.account_id)
        if head is None or head.status == "closing":  # the erasure began after authentication
            result.decisions.append(not_found("account"))
            continue
        if head.status == "moving":
            result.decisions.append(AccountMoving("the account is moving to another cell"))
            continue
        parent = None if head.parent_id is None else held.get(head.parent_id)
        decision = decide(item, head, replays, room=room, at=at, parent=parent, reserve=reserve)
        if isinstance(decision, Accepted) and decision.status != "duplicate":
            room -= goes_now(message)
            result.stored.append(message)
            result.entries.append(accepted_rows.first_entry(message, at))
            if message.idempotency_key is not None:
                key = (message.account_id, message.idempotency_key)
                replays[key] = (message.id, message.request_digest)
        elif message.copy is None and item.suppressed and is_suppressed(decision):
            result.entries.append(accepted_rows.suppressed_entry(message, item.suppressed, at))
        result.decisions.append(decision)
    return result


def decide_together(
    items: Sequence[Pending],
    held: dict[UUID, AccountHead],
    replays: Replays,
    at: datetime,
    *,
    room: int,
    reserve: float,
) -> BatchResult:
    """Decide as `decide_batch` does; of a whole set with a refusal, accept no message and count none."""
    is_whole = items[0].whole is not None
    before = {account: copy(head) for account, head in held.items()} if is_whole else {}
    made = decide_batch(items, held, replays, at, room=room, reserve=reserve)
    if is_whole and any(isinstance(one, Exception) for one in made.decisions):
        held |= before
        return _undone(made, replays)
    return made


def sets_of(batch: Iterable[Pending]) -> Iterator[list[Pending]]:
    """Split a batch into what is decided together: a whole set, a message with tied rows, or messages with neither."""
    for _, items in groupby(batch, lambda item: item.whole or (item.tied and id(item.tied))):
        yield list(items)


def _undone(made: BatchResult, replays: Replays) -> BatchResult:
    """Return the result of a whole set of which no message is accepted; the refused ones keep their reasons.

    Removes the set's idempotency keys from `replays`. Events about suppressed recipients stay.
    """
    for message in made.stored:
        if message.idempotency_key is not None:
            del replays[message.account_id, message.idempotency_key]
    accepted = {message.id for message in made.stored}
    return BatchResult(
        [one if isinstance(one, Exception) else left_out() for one in made.decisions],
        [],
        [entry for entry in made.entries if entry.message_id not in accepted],
    )


def left_out() -> Refusal:
    """Return the refusal of a message whose batch is sent as a whole or not at all."""
    return Refusal(
        ErrorType.CONFLICT,
        "Not sent, because another message of this batch was refused. Correct that one, then send the batch again.",
    )
