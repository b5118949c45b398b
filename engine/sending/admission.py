"""Decide on one prepared message on its account's locked head: duplicate, refused, accepted or scheduled. Pure."""

from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from engine.base import ids
from engine.base.errors import ErrorType, Refusal
from engine.ledger import quota
from engine.ledger.heads import AccountHead
from engine.ledger.plan_limits import limit_reached
from engine.sending.emails.types import Accepted, Prepared
from engine.sending.suppressions.types import Reason
from engine.store.queries import Conn


class TiedRows(Protocol):
    """Rows of a caller that are stored in the transaction that accepts their message, or not at all."""

    async def check(self, connection: Conn, head: AccountHead, payer: AccountHead, at: datetime) -> None:
        """Raise a Refusal to refuse the message; write nothing.

        The heads of the account and of `payer`, its parent if it has one, are locked.
        """
        ...

    async def write(
        self, connection: Conn, message: Prepared, head: AccountHead, payer: AccountHead, at: datetime
    ) -> None:
        """Write the rows of a message that is accepted."""
        ...


class Pending(Struct):
    """A prepared message in the group commit, with the result of its suppression check."""

    message: Prepared
    suppressed: tuple[str, str] | None = None  # (address, reason)
    tied: TiedRows | None = None
    is_claimed: bool = False  # a copy of a broadcast whose recipient this transaction has locked
    whole: UUID | None = None  # shared by messages that are accepted together or not at all


Decision = Accepted | Refusal
Replays = dict[tuple[UUID, str], tuple[UUID, bytes]]


def decide(
    item: Pending,
    head: AccountHead,
    replays: Replays,
    *,
    room: int,
    at: datetime,
    parent: AccountHead | None = None,
    reserve: float = 0.0,
) -> Decision:
    """Decide on one message; count it on its head, and on the parent's, if it is accepted.

    `room` is the rest of the platform's ceiling, `reserve` the share of every allowance that broadcasts leave unused.
    """
    message = item.message
    if message.copy is not None:
        refusal = _refused_copy(item, head, at, parent, reserve)
        if refusal is not None:
            return refusal
    if message.idempotency_key is not None:
        earlier = replays.get((message.account_id, message.idempotency_key))
        if earlier is not None:
            return replayed(*earlier, message.request_digest)
    if message.scheduled_at is not None:
        too_far = beyond_window(head, message.scheduled_at, at)
        if too_far is not None:
            return too_far
    if item.suppressed is not None:
        return _suppressed(*item.suppressed)
    if message.scheduled_at is not None:
        return _schedule(head, at, message.scheduled_at, parent) or Accepted(message.public_id, "scheduled")
    refusal = quota.take(head, at, parent)
    if refusal is not None:
        return refusal
    if room <= 0:
        quota.untake(head, parent)
        return quota.platform_refusal()
    return Accepted(message.public_id, "queued")


def _refused_copy(
    item: Pending, head: AccountHead, at: datetime, parent: AccountHead | None, reserve: float
) -> Refusal | None:
    """Return why a message of a broadcast is not accepted now, for reasons that concern no other mail."""
    if not item.is_claimed:
        return Refusal(ErrorType.CONFLICT, "The broadcast is not sending, or this recipient has had its message.")
    if head.status != "active":
        return Refusal(ErrorType.ACCOUNT_SUSPENDED, "Your account is suspended. Read the reason in GET /v1/me.")
    return quota.used_up(head, at, parent=parent, reserve=reserve) if reserve else None


def _suppressed(address: str, reason: str) -> Refusal:
    """Return the refusal of the whole message; the sentence offers lifting the suppression unless it is a
    complaint's.
    """
    way_out = "Remove it." if reason == Reason.COMPLAINT else "Remove it, or delete the suppression."
    return Refusal(
        ErrorType.SUPPRESSED,
        f"{address} is on your suppression list ({reason}), so the message was sent to nobody. {way_out}",
        address=address,
        reason=reason,
    )


def is_suppressed(decision: Accepted | Exception) -> bool:
    """Return True for the refusal of a message to a suppressed recipient."""
    return isinstance(decision, Refusal) and decision.kind is ErrorType.SUPPRESSED


def beyond_window(head: AccountHead, wanted: datetime, at: datetime) -> Refusal | None:
    """Return the 400 for a time beyond the plan's schedule window, or None."""
    days = head.caps.schedule_days
    if wanted <= at + timedelta(days=days):
        return None
    ahead = "1 day" if days == 1 else f"{days} days"
    return Refusal(
        ErrorType.INVALID_REQUEST,
        f"`scheduledAt` is more than {ahead} ahead, the limit of your plan. Send it closer to the date, or upgrade "
        "your plan.",
        field="scheduledAt",
        limit=days,
    )


def _schedule(head: AccountHead, at: datetime, wanted: datetime, parent: AccountHead | None) -> Refusal | None:
    """Count a message as scheduled, or return the refusal.

    Messages count as sent at their release. Scheduled messages have a limit too, and one cannot be scheduled for a day
    or a month that is already used up.
    """
    refusal = quota.used_up(head, at, of=wanted, parent=parent)
    if refusal is not None:
        return refusal
    allowance = quota.monthly_cap(head, parent)
    if head.scheduled >= allowance:
        return limit_reached("scheduled_messages", "scheduled messages", allowance, head.scheduled)
    head.scheduled += 1
    return None


def replayed(message_id: UUID, digest: bytes, now: bytes) -> Accepted:
    """Return the answer to a repeated key: the first message's id, and whether the request's body differs."""
    return Accepted(ids.format_id(ids.Kind.MESSAGE, message_id), "duplicate", body_differs=digest != now)
