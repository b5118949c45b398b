"""Define the rows and values of the webhooks area."""

from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

from msgspec import Struct

FAILING: Final = 3  # failed posts in a row; a delivery that was given up counts as so many
HealthState = Literal["healthy", "failing", "disabled", "idle"]
Fields = tuple[Any, ...]  # one row inside a row, in the order of its Struct's fields


class EndpointRow(Struct, frozen=True):
    """An endpoint without its secret."""

    id: UUID
    url: str
    event_types: list[str]
    status: str
    description: str
    domains: list[str]
    streams: list[str]
    header_names: list[str]
    include_metadata: bool
    signatures: list[str]
    honor_retry_after: bool
    created_at: datetime


class HealthRow(Struct, frozen=True):
    """How an endpoint responds: failures in a row, posts of the last 24 hours, the last response, and the next post."""

    id: UUID
    status: str
    failures: int = 0
    failing_since: datetime | None = None
    posts: int = 0
    delivered: int = 0
    last_at: datetime | None = None
    last_status: int | None = None
    last_error: str | None = None
    last_milliseconds: int | None = None
    next_attempt_at: datetime | None = None

    @property
    def state(self) -> HealthState:
        """Return the state that people see."""
        if self.status != "active":
            return "disabled"
        if self.failures >= FAILING:
            return "failing"
        return "healthy" if self.posts else "idle"

    @property
    def success_rate(self) -> float | None:
        """Return the share of posts that were delivered; None without posts."""
        return self.delivered / self.posts if self.posts else None


class HeadersRow(Struct, frozen=True):
    """The names of an endpoint's own headers, and the sealed JSON object with their values; None without any."""

    header_names: list[str]
    sealed_headers: bytes | None


class SecretRow(Struct, frozen=True):
    """The sealed signing secret of an endpoint."""

    sealed_secret: bytes


class DeliveryRow(Struct, frozen=True):
    """The delivery of one event to one endpoint; `due_at` is None if nothing is pending.

    Type and time are None if the event was purged; recipient and subject also for a sealed message.
    """

    event_id: UUID
    due_at: datetime | None
    type: str | None
    occurred_at: datetime | None
    message_id: UUID | None
    recipient: str | None
    subject: str | None
    answer: str | None  # to the last attempt
    attempts: list[Fields]  # of AttemptRow, in their order


class CandidateRow(Struct, frozen=True):
    """A delivery of an endpoint with what filters compare. `type` is None if the event was purged."""

    event_id: UUID
    seq: int
    state: str
    type: str | None


class ExchangeRow(Struct, frozen=True):
    """The request and the answer of one attempt; None where it was made before these were stored."""

    attempt: int
    url: str | None
    signature: str | None
    signature_previous: str | None
    signature_standard: str | None
    status_code: int | None
    answer_headers: str | None
    answer: str | None


class StoredEventRow(Struct, frozen=True):
    """The event of a delivery, from which its body is made; tags and metadata are JSON, None if the body has none."""

    seq: int
    occurred_at: datetime
    payload: str
    tags: str | None
    metadata: str | None


class AttemptRow(Struct, frozen=True):
    """An attempt, or with `milliseconds` None the end of a delivery without an attempt."""

    attempt: int
    started_at: datetime
    milliseconds: int | None
    delivered: bool
    status_code: int | None
    error: str | None


class Claimed(Struct, frozen=True):
    """A claimed post: queue row, event and endpoint. Event or endpoint may have been removed.

    Tags and metadata are JSON, None if the body has none.
    """

    webhook_id: UUID
    event_id: UUID
    account_id: UUID
    seq: int
    attempts: int
    ladder_from: int
    occurred_at: datetime | None
    payload: str | None
    url: str | None
    sealed_secret: bytes | None
    sealed_previous: bytes | None
    sealed_headers: bytes | None
    tags: str | None
    metadata: str | None
    signs_standard: bool = False
    honors_retry_after: bool = False
    late_s: int = 0  # by which Retry-After made this attempt later than the retry schedule

    @property
    def attempt(self) -> int:
        """Return the number of the next attempt."""
        return self.attempts + 1


class DueRow(Struct, frozen=True):
    """An endpoint with due posts, and the earliest due time."""

    webhook_id: UUID
    due_at: datetime


class Recorded(Struct, frozen=True):
    """The record of a claimed post.

    `wait_s` None ends the delivery; `milliseconds` None means that no attempt was made.
    """

    post: Claimed
    id: UUID
    started_at: datetime
    milliseconds: int | None
    delivered: bool
    status_code: int | None
    answer: str | None
    error: str | None
    wait_s: float | None
    url: str | None = None
    signature: str | None = None
    signature_previous: str | None = None
    signature_standard: str | None = None
    late_s: int | None = None
    answer_headers: str | None = None
