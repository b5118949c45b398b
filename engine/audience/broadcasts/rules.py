"""Decide how a broadcast moves from state to state, when it stops, and how long it waits. Pure."""

from datetime import datetime, timedelta

from engine.audience.broadcasts.types import (
    MAX_NAME,
    MAX_UNFINISHED,
    MAX_UNFINISHED_BYTES,
    BroadcastCounts,
    BroadcastStatus,
    BroadcastSummary,
    PauseReason,
    StopReason,
    UnfinishedBroadcasts,
)
from engine.base import clock
from engine.base.errors import ErrorType, Refusal
from engine.base.text import checked_line

WHAT = "broadcast"
FULL = "full"  # the `status` of a refusal: no more broadcasts may wait

# The stop rule: after so many outcomes, more than these shares of bounces or complaints.
MIN_SETTLED = 200
MAX_BOUNCED, MAX_COMPLAINED = 0.10, 0.003

MAX_BATCH = 100  # messages in one transaction: other mail of the account waits for it
MAX_CHUNK = 1_000  # recipients in one turn of a broadcast
PACE_STEP_S = 5  # with `perMinute`, a turn accepts the messages of about this time
RESUME_JITTER = timedelta(minutes=10)  # after midnight UTC, so that not all accounts resume at once
RECHECK_S = (45.0, 75.0)  # between two looks at a suspended account, an unverified domain, or a deleted stream
LIMIT_RECHECK_S = (240.0, 360.0)  # between two looks at a limit that a larger plan may have lifted
PLATFORM_RECHECK_S = (20.0, 40.0)

_RUNNING = frozenset({BroadcastStatus.SENDING, BroadcastStatus.PAUSED})
_ENDED = frozenset({BroadcastStatus.SENT, BroadcastStatus.STOPPED})


def checked_name(name: str) -> str:
    """Return the name without surrounding blanks; raise the 400 for an unusable one."""
    return checked_line(name, "name", MAX_NAME)


def check_room(found: UnfinishedBroadcasts) -> None:
    """Raise the 409 if the account's broadcasts that have not ended are too many or too large."""
    if found.broadcasts > MAX_UNFINISHED:
        raise Refusal(
            ErrorType.INVALID_STATE,
            f"You have {MAX_UNFINISHED} unfinished broadcasts, the maximum. Send, cancel or delete one first.",
            state=FULL,
        )
    if found.content_bytes > MAX_UNFINISHED_BYTES:
        raise Refusal(
            ErrorType.INVALID_STATE,
            f"Your unfinished broadcasts would have {found.content_bytes:,} bytes of content; the limit is "
            f"{MAX_UNFINISHED_BYTES:,}. Send, cancel or delete one, or attach smaller files.",
            state=FULL,
        )


def check_editable(row: BroadcastSummary) -> None:
    """Raise the 409 unless the broadcast is a draft."""
    if row.status != BroadcastStatus.DRAFT:
        raise _invalid_state(row, "Only a draft can be changed. Create a new broadcast.")


def check_sendable(row: BroadcastSummary) -> None:
    """Raise the 409 unless `send` may start the broadcast, or move the time of a scheduled one."""
    if row.status not in {BroadcastStatus.DRAFT, BroadcastStatus.SCHEDULED}:
        raise _invalid_state(row, "Only a draft or a scheduled broadcast can be sent.")


def pauses(row: BroadcastSummary) -> bool:
    """Return True if pausing changes the broadcast; raise the 409 if it can't be paused."""
    if row.status not in _RUNNING:
        raise _invalid_state(row, "Only a broadcast that is sending can be paused.")
    return row.status == BroadcastStatus.SENDING or row.paused_because != PauseReason.USER


def resumes(row: BroadcastSummary) -> bool:
    """Return True if resuming changes the broadcast; raise the 409 if it can't be resumed."""
    if row.status not in _RUNNING:
        raise _invalid_state(row, "Only a paused broadcast can be resumed.")
    return row.status == BroadcastStatus.PAUSED


def cancels(row: BroadcastSummary) -> bool:
    """Return True if canceling changes the broadcast; raise the 409 if it can't be canceled."""
    if row.status in _ENDED:
        raise _invalid_state(row, "It has ended already.")
    return row.status != BroadcastStatus.CANCELED


def check_deletable(row: BroadcastSummary, counts: BroadcastCounts) -> None:
    """Raise the 409 if anything was accepted, or if the broadcast is in progress."""
    if row.status in _RUNNING:
        raise _invalid_state(row, "Cancel it first.")
    if counts.accepted:
        raise _invalid_state(row, f"{counts.accepted} messages were sent, so its record stays.")


def check_reviewable(row: BroadcastSummary) -> None:
    """Raise the 409 unless the broadcast waits for review."""
    if row.status != BroadcastStatus.IN_REVIEW:
        raise _invalid_state(row, "Only a broadcast that waits for review can be approved or rejected.")


def stop_reason(counts: BroadcastCounts) -> StopReason | None:
    """Return why a broadcast with these outcomes is stopped for good, or None."""
    if counts.settled < MIN_SETTLED:
        return None
    if counts.complained > MAX_COMPLAINED * counts.settled:
        return StopReason.COMPLAINT_RATE
    return StopReason.BOUNCE_RATE if counts.bounced > MAX_BOUNCED * counts.settled else None


def pause_of(refusal: Refusal) -> PauseReason | None:
    """Return the reason to pause for a refused message, None if the refusal concerns the message alone."""
    if refusal.fields.get("field") == "stream":
        return PauseReason.STREAM
    return {
        ErrorType.DAILY_LIMIT_REACHED: PauseReason.DAILY_LIMIT,
        ErrorType.MONTHLY_LIMIT_REACHED: PauseReason.MONTHLY_LIMIT,
        ErrorType.ACCOUNT_SUSPENDED: PauseReason.SUSPENDED,
        ErrorType.DOMAIN_NOT_VERIFIED: PauseReason.DOMAIN,
    }.get(refusal.kind)


def resumes_at(why: PauseReason, at: datetime, *, jitter: float) -> datetime | None:
    """Return when a limit ends: within 10 minutes of midnight UTC, of the next day or month; None if that is unknown.

    `jitter` is a share from 0 to 1.
    """
    if why is PauseReason.DAILY_LIMIT:
        wait_s = clock.seconds_until_next_day(at)
    elif why is PauseReason.MONTHLY_LIMIT:
        wait_s = clock.seconds_until_next_month(at)
    else:
        return None
    return clock.whole_milliseconds(at + timedelta(seconds=wait_s) + RESUME_JITTER * (0.02 + 0.96 * jitter))


def next_look(at: datetime, resumes: datetime | None, *, jitter: float) -> datetime:
    """Return when a worker looks whether the reason of a pause has ended; `jitter` is a share from 0 to 1."""
    look = at + within(RECHECK_S if resumes is None else LIMIT_RECHECK_S, jitter)
    return look if resumes is None else min(look, max(resumes, at))


def within(bounds_s: tuple[float, float], jitter: float) -> timedelta:
    """Return a time between two bounds in seconds, at the share `jitter` of the way."""
    low, high = bounds_s
    return timedelta(seconds=low + (high - low) * jitter)


def chunk_size(per_minute: int | None) -> int:
    """Return how many recipients one turn of a broadcast takes."""
    if per_minute is None:
        return MAX_CHUNK
    return max(1, min(MAX_CHUNK, per_minute * PACE_STEP_S // 60))


def pace_wait(per_minute: int | None, accepted: int) -> timedelta:
    """Return how long to wait after a turn that accepted so many messages."""
    return timedelta(0) if per_minute is None else timedelta(seconds=accepted * 60 / per_minute)


def _invalid_state(row: BroadcastSummary, words: str) -> Refusal:
    why = row.paused_because or row.stopped_because
    state = f"{row.status} ({why})" if why else row.status
    return Refusal(ErrorType.INVALID_STATE, f"The broadcast {row.public_id} is {state}. {words}", state=row.status)
