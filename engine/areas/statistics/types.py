"""Counts of messages by day, and what one month has used."""

from datetime import date, datetime

from msgspec import Struct


class Day(Struct, frozen=True):
    """A calendar day of some zone and the moment it begins (aware, UTC)."""

    date: date
    starts_at: datetime


class Days(Struct, frozen=True):
    """Consecutive calendar days, oldest first, and the moment the last of them ends."""

    days: list[Day]
    ends_at: datetime


class Counts(Struct, kw_only=True):
    """Messages by their present status. `accepted` are those taken for delivery, whatever became of them."""

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
        """All messages; each has one status."""
        return (
            self.queued + self.sending + self.delivered + self.bounced + self.complained + self.failed
            + self.rejected + self.scheduled + self.canceled
        )  # fmt: skip

    @property
    def settled(self) -> int:
        """Messages that a mail server, or its silence, has decided on: what rates are of."""
        return self.delivered + self.bounced + self.complained + self.failed

    def plus(self, other: "Counts") -> "Counts":
        """The sum."""
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


class DayCounts(Struct):
    """Counts of the messages made on one day; `place` is its number among the days asked for, from 1."""

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
    """One UTC day's use: messages accepted on it, recipients whose outcome came on it."""

    day: date
    accepted: int
    delivered: int
    bounced: int
    complained: int
    failed: int
