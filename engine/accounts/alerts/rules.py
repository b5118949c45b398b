"""Check the fields of alert rules, and decide when an alert fires, is told, and ends. Pure."""

import math
from datetime import datetime, timedelta
from typing import Final

from msgspec import structs

from engine.accounts.alerts.types import (
    BELOW_TO_END,
    DEFAULT_COOLDOWN_MINUTES,
    MAX_COOLDOWN_MINUTES,
    MAX_WINDOW_DAYS,
    MIN_COOLDOWN_MINUTES,
    MIN_SETTLED,
    RATES,
    TERMS,
    AlertKind,
    AlertReading,
    AlertRule,
    AlertRuleFields,
    FiringState,
    FiringStep,
    UnknownReason,
)
from engine.base.errors import ErrorType, Refusal, invalid

WHAT: Final = "alert rule"
MEASURED_EVERY: Final = timedelta(seconds=55)  # a rule is due again after this; with the worker's step about a minute
TESTED_EVERY: Final = timedelta(minutes=1)  # per rule: a test mails people


def step(state: FiringState, value: float | None, threshold: float, cooldown: timedelta, at: datetime) -> FiringStep:
    """Return what the measurement `value` (None: unknown) at `at` changes.

    A notice waits for the end of the cooldown, and goes out with a later measurement that still reaches the threshold.
    """
    if value is None:
        return FiringStep(state)
    if value < threshold:
        return _below(state)
    begins = state.firing_since is None
    waits = state.noticed_at is not None and at < state.noticed_at + cooldown
    notifies = not waits and (begins or not state.notified)
    after = FiringState(
        firing_since=state.firing_since or at,
        notified=notifies or (state.notified and not begins),
        noticed_at=at if notifies else state.noticed_at,
    )
    return FiringStep(after, begins=begins, notifies=notifies)


def _below(state: FiringState) -> FiringStep:
    if state.firing_since is None:
        return FiringStep(state)
    if state.below + 1 < BELOW_TO_END:
        return FiringStep(structs.replace(state, below=state.below + 1))
    return FiringStep(FiringState(noticed_at=state.noticed_at), ends=True)


def state_of(rule: AlertRule) -> FiringState:
    """Return what the state machine remembers of a rule."""
    return FiringState(rule.firing_since, rule.below, rule.notified, rule.noticed_at)


def rate(kind: AlertKind, settled: int, bounced: int, complained: int) -> AlertReading:
    """Return the rate of bounces or complaints; unknown for fewer than MIN_SETTLED recipients."""
    if settled < MIN_SETTLED:
        return AlertReading(None, {"settled": settled}, UnknownReason.FEW_SETTLED)
    if kind is AlertKind.BOUNCE_RATE:
        return AlertReading(bounced / settled, {"settled": settled, "bounced": bounced})
    return AlertReading(complained / settled, {"settled": settled, "complained": complained})


def usage(sent: int, limit: int, month: str) -> AlertReading:
    """Return the share of the month's allowance that is used; all of one that allows nothing."""
    detail = {"sent": sent, "limit": limit, "month": month}
    return AlertReading(sent / limit if limit else 1.0, detail)


def drift(drifted: int, unanswered: int, threshold: float) -> AlertReading:
    """Return the number of drifted records; unknown if those without an answer from DNS decide."""
    if drifted < threshold <= drifted + unanswered:
        return AlertReading(None, {"unanswered": unanswered}, UnknownReason.NO_ANSWER)
    return AlertReading(float(drifted))


def defaults(kind: AlertKind) -> AlertRuleFields:
    """Return the fields of a rule of the default set."""
    terms = TERMS[kind]
    return AlertRuleFields(
        threshold=terms.threshold,
        window_days=terms.window_days or 1,
        cooldown_minutes=DEFAULT_COOLDOWN_MINUTES,
        notify_email=True,
        notify_webhook=True,
        enabled=True,
    )


def check(kind: AlertKind, fields: AlertRuleFields) -> None:
    """Raise the 400 for an unusable field, the 422 for a rate above the one that suspends accounts."""
    _check_threshold(kind, fields.threshold)
    _check_range("windowDays", fields.window_days, 1, MAX_WINDOW_DAYS, "days")
    _check_range("cooldownMinutes", fields.cooldown_minutes, MIN_COOLDOWN_MINUTES, MAX_COOLDOWN_MINUTES, "minutes")


def _check_threshold(kind: AlertKind, threshold: float) -> None:
    terms = TERMS[kind]
    if not math.isfinite(threshold) or threshold <= 0:
        raise invalid("threshold", f"`threshold` is {threshold:g}; it must be above 0.")
    if threshold > terms.maximum and kind in RATES:
        raise Refusal(
            ErrorType.THRESHOLD_REFUSED,
            f"`threshold` is {threshold:g}, but accounts are suspended at a {kind.replace('_', ' ')} of"
            f" {terms.maximum:g}: the alert would come too late. Choose at most {terms.maximum:g}.",
            limit=terms.maximum,
        )
    if threshold > terms.maximum:
        raise invalid("threshold", f"`threshold` is {threshold:g}; for {kind.value} it is at most {terms.maximum:g}.")
    if terms.is_count and threshold != int(threshold):
        raise invalid(
            "threshold", f"`threshold` is {threshold:g}; for {kind.value} it is a whole number of {terms.unit}."
        )


def _check_range(name: str, value: int, least: int, most: int, unit: str) -> None:
    if not least <= value <= most:
        raise invalid(name, f"`{name}` is {value}; it must be from {least} to {most} {unit}.")
