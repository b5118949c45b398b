"""What the webhooks area stores and works with."""

from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct

Fields = tuple[Any, ...]  # one row inside a row, in the order of its Struct's fields


class EndpointRow(Struct, frozen=True):
    """One endpoint without its secret."""

    id: UUID
    url: str
    event_types: list[str]
    status: str
    created_at: datetime


class SecretRow(Struct, frozen=True):
    """The sealed secret of an endpoint."""

    sealed_secret: bytes


class DeliveryRow(Struct, frozen=True):
    """One event at one endpoint; `due_at` is None when nothing is pending. The event may have been purged."""

    event_id: UUID
    due_at: datetime | None
    type: str | None
    occurred_at: datetime | None
    answer: str | None  # to the last attempt
    attempts: list[Fields]  # of AttemptRow, in their order


class AttemptRow(Struct, frozen=True):
    """One attempt, or with `milliseconds` None the end of a delivery without one."""

    attempt: int
    started_at: datetime
    milliseconds: int | None
    delivered: bool
    status_code: int | None
    error: str | None


class Claimed(Struct, frozen=True):
    """A post in hand: the queue row, the event, the endpoint. The latter two may be gone."""

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

    @property
    def attempt(self) -> int:
        """The number of the attempt that is to be made."""
        return self.attempts + 1


class DueRow(Struct, frozen=True):
    """An endpoint that has something to post, and since when."""

    webhook_id: UUID
    due_at: datetime


class Recorded(Struct, frozen=True):
    """What became of a claimed post. `wait_s` None ends the delivery; `milliseconds` None: no attempt was made."""

    post: Claimed
    id: UUID
    started_at: datetime
    milliseconds: int | None
    delivered: bool
    status_code: int | None
    answer: str | None
    error: str | None
    wait_s: float | None
