"""The decision on one prepared message under its account's lock: replayed, refused, accepted or put off. Pure."""

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from engine.areas.emails.types import Accepted, Prepared
from engine.areas.suppressions.types import Reason
from engine.base import ids
from engine.base.errors import ErrorType, Refusal
from engine.base.plans import CAPS, Plan
from engine.ledger import quota
from engine.ledger.heads import Head
from engine.ledger.plan_limits import limit_reached


class Pending(Struct):
    """A prepared message on its way through the group commit, with what its transaction decides."""

    message: Prepared
    suppressed: tuple[str, str] | None = None  # (address, reason)


Decision = Accepted | Refusal
Replays = dict[tuple[UUID, str], tuple[UUID, bytes]]


def decide(
    item: Pending, head: Head, replays: Replays, *, room: int, at: datetime, parent: Head | None = None
) -> Decision:
    """One message's decision; counts it on the head, and on its parent's, when it is accepted.

    `room` is what the platform has left.
    """
    message = item.message
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


def _suppressed(address: str, reason: str) -> Refusal:
    """The refusal of the whole message, with what to do about it: only a complaint can't be lifted."""
    way_out = "Leave it out." if reason == Reason.COMPLAINT else "Leave it out, or lift the suppression."
    return Refusal(
        ErrorType.SUPPRESSED,
        f"{address} is on the suppression list ({reason}); nothing was sent to anyone. {way_out}",
        address=address,
        reason=reason,
    )


def beyond_window(head: Head, wanted: datetime, at: datetime) -> Refusal | None:
    """The 400 of a time that lies farther ahead than the account's plan lets messages wait."""
    days = CAPS[Plan(head.plan)].schedule_days
    if wanted <= at + timedelta(days=days):
        return None
    ahead = "1 day" if days == 1 else f"{days} days"
    return Refusal(
        ErrorType.INVALID_REQUEST,
        f"`scheduledAt` may lie {ahead} ahead at the most on this plan.",
        field="scheduledAt",
        limit=days,
    )


def _schedule(head: Head, at: datetime, wanted: datetime, parent: Head | None) -> Refusal | None:
    """Give a message its place among those that wait, or say why it has none.

    Nothing is counted as sent before the release. What waits is bounded all the same, and a day or a month that is
    used up already can't be waited for.
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
    """The answer to a key used before: the first message's id, and whether the request came with another body."""
    return Accepted(ids.format_id(ids.Kind.MESSAGE, message_id), "duplicate", body_differs=digest != now)
