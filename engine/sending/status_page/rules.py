"""Decide the states of the status page's components, and count their uptime. Pure."""

from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import Final

from engine.base.settings import Settings
from engine.sending.status_page.types import (
    KEPT_DAYS,
    ComponentDay,
    ComponentState,
    StatusComponent,
    StatusFigures,
    StatusReading,
)

QUARTER: Final = timedelta(minutes=15)
LATE_S: Final = 120.0  # as in `/readyz`: no process handles what has been due for longer
STOPPED_S: Final = 900.0
MIN_ATTEMPTS: Final = 20  # fewer say nothing about this side
MAX_FAILED: Final = 0.5  # one unreachable provider is less; a blocked port 25 or a broken resolver is all
_UP, _DEGRADED, _DOWN = ComponentState.UP, ComponentState.DEGRADED, ComponentState.DOWN
_AWAY: Final = {
    StatusComponent.ACCEPTING: "The database does not respond. Sends get 503; retry them later.",
    StatusComponent.DELIVERING: "The database does not respond. Accepted emails are safe and wait.",
    StatusComponent.WEBHOOKS: "The database does not respond. Webhook deliveries wait.",
    StatusComponent.RECEIVING: "The database does not respond. Other mail servers retry their emails.",
}


def components(settings: Settings) -> tuple[StatusComponent, ...]:
    """Return the components that this installation has: all, without receiving if it runs no mx process."""
    return tuple(one for one in StatusComponent if one is not StatusComponent.RECEIVING or _runs_mx(settings))


def readings(settings: Settings, figures: StatusFigures | None) -> dict[StatusComponent, StatusReading]:
    """Return the state of each component; `figures` is None while the database does not respond."""
    if figures is None:
        return {one: StatusReading(_DOWN, _AWAY[one]) for one in components(settings)}
    found = {
        StatusComponent.ACCEPTING: _accepting(settings, figures),
        StatusComponent.DELIVERING: _delivering(figures),
        StatusComponent.WEBHOOKS: _by_lateness(figures.webhooks_late_s, "Webhook deliveries"),
        StatusComponent.RECEIVING: _receiving(figures),
    }
    return {one: found[one] for one in components(settings)}


def overall(states: Iterable[ComponentState]) -> ComponentState:
    """Return the worst of the states."""
    return max(states, default=_UP)


def quarter_of(at: datetime) -> datetime:
    """Return the beginning of the quarter hour that contains `at` (aware, UTC)."""
    return at.replace(minute=at.minute - at.minute % 15, second=0, microsecond=0)


def day_state(day: ComponentDay | None) -> ComponentState | None:
    """Return the worst state of a day; None if nothing was measured."""
    if day is None or not day.measured:
        return None
    return _DOWN if day.down else _DEGRADED if day.degraded else _UP


def uptime(days: Iterable[ComponentDay]) -> float | None:
    """Return the percentage of measured quarter hours that were not down; None without any."""
    measured = down = 0
    for one in days:
        measured, down = measured + one.measured, down + one.down
    return 100.0 * (measured - down) / measured if measured else None


def shown_days(today: date) -> list[date]:
    """Return the days that the page shows, the oldest first."""
    return [today - timedelta(days=ago) for ago in range(KEPT_DAYS - 1, -1, -1)]


def confirmed(
    before: Mapping[StatusComponent, ComponentState], now: Mapping[StatusComponent, ComponentState]
) -> dict[StatusComponent, ComponentState]:
    """Return the states that two measurements in a row agree on, so that the restart of a process is no outage.

    Without an earlier measurement a component counts only if it is up.
    """
    known = {one: min(state, before[one]) for one, state in now.items() if one in before}
    return known | {one: state for one, state in now.items() if one not in before and state is _UP}


def _accepting(settings: Settings, figures: StatusFigures) -> StatusReading:
    if "api" not in figures.kinds:
        return StatusReading(_DOWN, "The API does not respond.")
    if "relay" in figures.kinds:
        return StatusReading(_UP, "The API and SMTP submission accept emails.")
    if _runs_relay(settings):
        return StatusReading(_DEGRADED, "The API accepts emails. SMTP submission does not respond.")
    return StatusReading(_UP, "The API accepts emails.")


def _delivering(figures: StatusFigures) -> StatusReading:
    found = _by_lateness(figures.delivery_late_s, "Emails")
    if found.state is _UP and figures.attempts >= MIN_ATTEMPTS and figures.failed_share >= MAX_FAILED:
        return StatusReading(_DEGRADED, "Most recent attempts reached no mail server. Waybill retries these emails.")
    return found


def _receiving(figures: StatusFigures) -> StatusReading:
    if "mx" in figures.kinds:
        return StatusReading(_UP, "Incoming emails are accepted.")
    return StatusReading(_DOWN, "Incoming emails are not accepted. Other mail servers retry them.")


def _by_lateness(seconds: float, subject: str) -> StatusReading:
    if seconds < LATE_S:
        return StatusReading(_UP, f"{subject} leave on time.")
    late = f"{subject} are up to {seconds / 60:.0f} minutes late. None are lost."
    return StatusReading(_DOWN if seconds >= STOPPED_S else _DEGRADED, late)


def _runs_mx(settings: Settings) -> bool:
    return "mx" in settings.processes and settings.mx_workers > 0


def _runs_relay(settings: Settings) -> bool:
    """Return True if this host runs SMTP submission; in live mode it needs a certificate."""
    has_tls = settings.delivery == "local" or bool(settings.tls_cert)
    return "relay" in settings.processes and settings.relay_workers > 0 and has_tls
