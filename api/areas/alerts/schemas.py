"""Requests and replies of alert rules and alert events."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from engine.accounts.alerts.types import (
    DEFAULT_COOLDOWN_MINUTES,
    MAX_COOLDOWN_MINUTES,
    MAX_WINDOW_DAYS,
    MIN_COOLDOWN_MINUTES,
    AlertKind,
)

Kind = Annotated[AlertKind, Meta(description="What the rule measures", examples=["bounce_rate"])]
Threshold = Annotated[
    float,
    Meta(
        description="A fraction for rates and quota_usage (0.003 means 0.3%), otherwise a number of records, lists or"
        " endpoints",
        examples=[0.05],
    ),
]
WindowDays = Annotated[
    int,
    Meta(
        ge=1,
        le=MAX_WINDOW_DAYS,
        description="For rates: 1 is the last 24 hours, more are UTC days including today. No effect on other kinds",
    ),
]
CooldownMinutes = Annotated[
    int,
    Meta(
        ge=MIN_COOLDOWN_MINUTES,
        le=MAX_COOLDOWN_MINUTES,
        description=f"Between two notices of the rule; default {DEFAULT_COOLDOWN_MINUTES}",
    ),
]
Channel = Literal["email", "webhook"]


class NewAlertRule(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A new rule, for `POST /v1/alerts/rules`; without a body, the missing rules of the default set.

    `kind` and `threshold` are required in a body.
    """

    kind: Kind | UnsetType = UNSET
    threshold: Threshold | UnsetType = UNSET
    window_days: WindowDays | None = None
    cooldown_minutes: CooldownMinutes | None = None
    notify_email: bool = True
    notify_webhook: bool = True
    enabled: bool = True


class AlertRuleChange(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The fields to change, for `PATCH /v1/alerts/rules/{id}`: an omitted field stays."""

    threshold: Threshold | UnsetType = UNSET
    window_days: WindowDays | UnsetType = UNSET
    cooldown_minutes: CooldownMinutes | UnsetType = UNSET
    notify_email: bool | UnsetType = UNSET
    notify_webhook: bool | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET


class AlertRuleRecord(Struct, rename="camel", kw_only=True):
    """A rule with its live state and last measurement.

    `unknown`: it could not be measured, such as a rate of fewer than 50 settled recipients; this neither fires nor ends
    an alert. A disabled rule is not measured and keeps its state.
    """

    id: str
    kind: str
    threshold: float
    window_days: int
    cooldown_minutes: int
    notify_email: bool
    notify_webhook: bool
    enabled: bool
    state: Literal["ok", "firing", "unknown"]
    firing_since: str | None
    last_value: float | None
    last_measured_at: str | None
    created_at: str
    updated_at: str


class AlertRulesMade(Struct, rename="camel", kw_only=True):
    """The rule that was created; without a body in the request, `data` alone: the default rules that were created."""

    data: list[AlertRuleRecord] | UnsetType = UNSET
    id: str | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    threshold: float | UnsetType = UNSET
    window_days: int | UnsetType = UNSET
    cooldown_minutes: int | UnsetType = UNSET
    notify_email: bool | UnsetType = UNSET
    notify_webhook: bool | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    state: Literal["ok", "firing", "unknown"] | UnsetType = UNSET
    firing_since: str | UnsetType | None = UNSET
    last_value: float | UnsetType | None = UNSET
    last_measured_at: str | UnsetType | None = UNSET
    created_at: str | UnsetType = UNSET
    updated_at: str | UnsetType = UNSET


class AlertRuleDefaults(Struct, rename="camel", kw_only=True):
    """The fields of a kind's rule in the default set; `windowDays` is null for a kind that measures no window."""

    threshold: float
    window_days: int | None
    cooldown_minutes: int
    notify_email: bool
    notify_webhook: bool
    enabled: bool


class AlertVocabularyItem(Struct, kw_only=True):
    """A kind of rule: the unit of its values, its default rule, its largest threshold, and whether it is in the default
    set.
    """

    kind: str
    unit: str
    defaults: AlertRuleDefaults
    maximum: float
    preset: bool


class AlertRulePage(Struct, rename="camel"):
    """Rules, newest first, and the kinds that rules can have. `nextCursor` is null on the last page."""

    data: list[AlertRuleRecord]
    next_cursor: str | None
    vocabulary: list[AlertVocabularyItem]


class AlertEventRecord(Struct, rename="camel", kw_only=True):
    """An alert with the value and threshold when it fired, and the channels on which its notice went out.

    `channels` is empty while the notice waits for the end of the cooldown. `detail` names what the kind knows: counts
    of recipients, messages sent and the limit, domains with their records, lists with the names that they list, or
    failing webhook endpoints.
    """

    id: str
    rule_id: str
    kind: str
    value: float
    threshold: float
    window_days: int
    channels: list[Channel]
    fired_at: str
    ended_at: str | None
    detail: dict[str, Any]


class AlertEventPage(Struct, rename="camel"):
    """Alert events, newest first. `nextCursor` is null on the last page."""

    data: list[AlertEventRecord]
    next_cursor: str | None


class AlertTestReply(Struct, rename="camel", kw_only=True):
    """The result of a test: the value now (null: unknown), whether it reaches the threshold, and the channels that the
    notice went out on.
    """

    rule_id: str
    kind: str
    value: float | None
    threshold: float
    reached: bool | None
    channels: list[Channel]
