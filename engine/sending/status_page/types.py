"""Define the components of the public status page, their states, and incidents."""

from datetime import date, datetime
from enum import IntEnum, StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct

KEPT_DAYS: Final = 90  # of quarter hours and of closed incidents
MAX_TITLE: Final = 120
MAX_MESSAGE: Final = 2_000
MAX_SHOWN: Final = 20  # incidents
MAX_UPDATES: Final = 100  # of one incident


class StatusComponent(StrEnum):
    """The parts of the service that people notice, in the order of the page."""

    ACCEPTING = "accepting"
    DELIVERING = "delivering"
    WEBHOOKS = "webhooks"
    RECEIVING = "receiving"


class ComponentState(IntEnum):
    """The state of a component; a larger number is worse. The numbers are stored."""

    UP = 0
    DEGRADED = 1
    DOWN = 2

    @property
    def word(self) -> str:
        """Return the name of the state in JSON."""
        return self.name.lower()


class StatusReading(Struct, frozen=True):
    """The present state of a component, with a sentence for people."""

    state: ComponentState
    detail: str


class StatusFigures(Struct, frozen=True):
    """The measured figures that decide the states; seconds are how long the oldest item has been due."""

    delivery_late_s: float
    attempts: int
    failed_share: float  # of recent attempts that reached no mail server, the mean of the accounts' shares
    webhooks_late_s: float
    kinds: frozenset[str]  # of running processes


class ComponentDay(Struct, frozen=True):
    """The quarter hours of one component on a day (UTC): how many were measured, degraded and down."""

    component: str
    day: date
    measured: int
    degraded: int
    down: int


class IncidentUpdate(Struct, frozen=True):
    """A message about an incident, with the incident's title and times."""

    incident_id: UUID
    title: str
    opened_at: datetime
    closed_at: datetime | None
    written_at: datetime
    message: str
