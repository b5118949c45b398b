"""Define the kinds of alerts, rules with their state, and what a measurement gives."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from engine.base import ids

MIN_COOLDOWN_MINUTES: Final = 5
MAX_COOLDOWN_MINUTES: Final = 43_200  # 30 days
DEFAULT_COOLDOWN_MINUTES: Final = 1_440
MAX_WINDOW_DAYS: Final = 30
MIN_SETTLED: Final = 50  # recipients; a rate of fewer is not significant
BELOW_TO_END: Final = 2  # measurements in a row
MAX_NAMED: Final = 20  # domains, records and listings that the detail of an alert names


class AlertKind(StrEnum):
    """Name what a rule measures."""

    COMPLAINT_RATE = "complaint_rate"
    BOUNCE_RATE = "bounce_rate"
    QUOTA_USAGE = "quota_usage"
    DNS_DRIFT = "dns_drift"
    BLOCKLIST = "blocklist"
    WEBHOOK_FAILING = "webhook_failing"


DEFAULT_SET: Final = (
    AlertKind.COMPLAINT_RATE, AlertKind.BOUNCE_RATE, AlertKind.QUOTA_USAGE, AlertKind.DNS_DRIFT, AlertKind.BLOCKLIST,
)  # fmt: skip
RATES: Final = frozenset({AlertKind.COMPLAINT_RATE, AlertKind.BOUNCE_RATE})


class AlertTerms(Struct, frozen=True):
    """The unit of a kind, its default threshold and window, and its largest threshold."""

    unit: str
    threshold: float
    window_days: int | None
    maximum: float

    @property
    def is_count(self) -> bool:
        """Return True if thresholds are whole numbers."""
        return self.unit in {"records", "lists", "endpoints"}


TERMS: Final[dict[AlertKind, AlertTerms]] = {
    AlertKind.COMPLAINT_RATE: AlertTerms("fraction", 0.001, 1, 0.005),
    AlertKind.BOUNCE_RATE: AlertTerms("fraction", 0.05, 1, 0.15),
    AlertKind.QUOTA_USAGE: AlertTerms("fraction", 0.8, None, 1),
    AlertKind.DNS_DRIFT: AlertTerms("records", 1, None, 1_000),
    AlertKind.BLOCKLIST: AlertTerms("lists", 1, None, 100),
    AlertKind.WEBHOOK_FAILING: AlertTerms("endpoints", 1, None, 100),
}


class UnknownReason(StrEnum):
    """Why a measurement gives no value."""

    FEW_SETTLED = "few_settled"
    NO_ANSWER = "no_answer"
    NOT_MEASURED = "not_measured"
    NO_ALLOWANCE = "no_allowance"


class AlertChannel(StrEnum):
    """The ways by which a notice goes out."""

    EMAIL = "email"
    WEBHOOK = "webhook"


class AlertReading(Struct, frozen=True):
    """The value of one measurement with its detail; or, with `value` None, why it is unknown."""

    value: float | None
    detail: dict[str, Any] = {}
    why: UnknownReason | None = None


class AlertRuleFields(Struct, frozen=True, kw_only=True):
    """The fields of a rule that its owner writes."""

    threshold: float
    window_days: int
    cooldown_minutes: int
    notify_email: bool
    notify_webhook: bool
    enabled: bool


class AlertRule(Struct, frozen=True):
    """A rule with its state and its last measurement."""

    id: UUID
    account_id: UUID
    kind: str  # an AlertKind
    threshold: float
    window_days: int
    cooldown_minutes: int
    notify_email: bool
    notify_webhook: bool
    enabled: bool
    firing_since: datetime | None
    below: int
    event_id: UUID | None
    notified: bool
    noticed_at: datetime | None
    last_value: float | None
    unknown_because: str | None
    last_measured_at: datetime | None
    created_at: datetime
    updated_at: datetime

    @property
    def public_id(self) -> str:
        """Return the id that clients see."""
        return ids.format_id(ids.Kind.ALERT_RULE, self.id)

    @property
    def state(self) -> str:
        """Return `firing`, `unknown` or `ok`; a firing that can't be measured goes on."""
        if self.firing_since is not None:
            return "firing"
        return "unknown" if self.last_value is None else "ok"


class AlertEvent(Struct, frozen=True):
    """An alert that fired; `detail` is JSON text."""

    id: UUID
    account_id: UUID
    rule_id: UUID
    kind: str
    value: float
    threshold: float
    window_days: int
    channels: list[str]
    detail: str
    fired_at: datetime
    ended_at: datetime | None

    @property
    def public_id(self) -> str:
        """Return the id that clients see."""
        return ids.format_id(ids.Kind.ALERT_EVENT, self.id)


class FiringState(Struct, frozen=True):
    """Keep what the state machine of one alert rule remembers between measurements.

    `below` counts measurements in a row below the threshold, `notified` says whether the notice of the present firing
    went out, `noticed_at` when the last notice did, of whatever firing.
    """

    firing_since: datetime | None = None
    below: int = 0
    notified: bool = False
    noticed_at: datetime | None = None


class FiringStep(Struct, frozen=True):
    """The state after a measurement, and what has to be told."""

    state: FiringState
    begins: bool = False
    notifies: bool = False
    ends: bool = False
