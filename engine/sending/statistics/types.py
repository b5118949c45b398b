"""Define counts of messages by day and usage by month."""

from datetime import date, datetime
from enum import StrEnum

from msgspec import Struct


class Bucket(StrEnum):
    """Name the parts of a period that messages are counted by."""

    DAY = "day"
    HOUR = "hour"


class Day(Struct, frozen=True):
    """A calendar day of a zone and its start, or that of an hour in it (aware, UTC)."""

    date: date
    starts_at: datetime


class Days(Struct, frozen=True):
    """Consecutive calendar days or hours, oldest first, and the end of the last one."""

    days: list[Day]
    ends_at: datetime


class Counts(Struct, kw_only=True):
    """Count messages by current status. `accepted` counts all accepted for delivery, whatever their status."""

    accepted: int = 0
    queued: int = 0
    sending: int = 0
    delivered: int = 0
    bounced: int = 0
    complained: int = 0
    failed: int = 0
    rejected: int = 0
    scheduled: int = 0
    canceled: int = 0

    @property
    def total(self) -> int:
        """Return the number of all messages; each has one status."""
        return (
            self.queued + self.sending + self.delivered + self.bounced + self.complained + self.failed
            + self.rejected + self.scheduled + self.canceled
        )  # fmt: skip

    @property
    def settled(self) -> int:
        """Return the number of messages with a final delivery result, the base of all rates."""
        return self.delivered + self.bounced + self.complained + self.failed

    def plus(self, other: "Counts") -> "Counts":
        """Return the sum of both counts."""
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


class DayCounts(Struct):
    """Counts of the messages created on one day; `place` is the number of the day, from 1."""

    place: int
    accepted: int
    queued: int
    sending: int
    delivered: int
    bounced: int
    complained: int
    failed: int
    rejected: int
    scheduled: int
    canceled: int


class UsedOn(Struct):
    """The usage of one UTC day: messages accepted and recipients settled on it."""

    day: date
    accepted: int
    delivered: int
    bounced: int
    complained: int
    failed: int
