"""The event types of a message and the moves of its status: one table each."""

from enum import StrEnum


class EventType(StrEnum):
    """The thirteen types of the waybill."""

    ACCEPTED = "accepted"
    QUEUED = "queued"
    ATTEMPTED = "attempted"
    DELIVERED = "delivered"
    DEFERRED = "deferred"
    BOUNCED = "bounced"
    COMPLAINED = "complained"
    FAILED = "failed"
    REJECTED = "rejected"
    SUPPRESSED = "suppressed"
    SCHEDULED = "scheduled"
    SCHEDULE_CANCELED = "schedule_canceled"
    SCHEDULE_FAILED = "schedule_failed"


class Status(StrEnum):
    """Where a message, or one of its recipients, stands."""

    QUEUED = "queued"
    SENDING = "sending"
    DELIVERED = "delivered"
    BOUNCED = "bounced"
    COMPLAINED = "complained"
    FAILED = "failed"
    REJECTED = "rejected"
    SCHEDULED = "scheduled"
    CANCELED = "canceled"


# new status -> the statuses it may follow. A message that leaves the queue and settles within one
# transaction passes `sending` inside it, so an outcome may follow `queued` here.
MOVES: dict[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.SCHEDULED}),
    Status.SENDING: frozenset({Status.QUEUED, Status.SENDING}),
    Status.DELIVERED: frozenset({Status.QUEUED, Status.SENDING}),
    Status.BOUNCED: frozenset({Status.QUEUED, Status.SENDING, Status.DELIVERED}),
    Status.FAILED: frozenset({Status.QUEUED, Status.SENDING}),
    # One of several recipients may complain before the others are settled, or after they have bounced: see `complain`.
    Status.COMPLAINED: frozenset({Status.DELIVERED, Status.SENDING, Status.BOUNCED, Status.FAILED, Status.REJECTED}),
    Status.REJECTED: frozenset({Status.QUEUED, Status.SENDING, Status.SCHEDULED}),
    Status.SCHEDULED: frozenset(),
    Status.CANCELED: frozenset({Status.SCHEDULED}),
}

SETTLED: frozenset[Status] = frozenset({
    Status.DELIVERED, Status.BOUNCED, Status.COMPLAINED, Status.FAILED, Status.REJECTED, Status.CANCELED,
})  # fmt: skip

# With several recipients the message takes the worst of theirs; later in the list is worse.
SEVERITY: tuple[Status, ...] = (
    Status.DELIVERED, Status.REJECTED, Status.FAILED, Status.BOUNCED, Status.COMPLAINED,
)  # fmt: skip


def status_of_message(recipients: list[Status]) -> Status:
    """A message's status from those of its recipients: `sending` until every one is settled."""
    if any(status not in SETTLED for status in recipients):
        return Status.SENDING
    return max(recipients, key=SEVERITY.index)
