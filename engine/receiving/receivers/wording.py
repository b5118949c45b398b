"""Put the judgement of a receiver into a sentence for people. Pure."""

from datetime import datetime, timedelta
from typing import Final

from engine.receiving.analytics.mailbox_providers import MailboxProvider
from engine.receiving.receivers.types import DomainForecast, ForecastBasis, ReceiverReport, ReceiverState

_CLAUSES: Final = {
    ReceiverState.NORMAL: "Mail to {name} arrives as usual",
    ReceiverState.SLOW: "Mail to {name} has been slower than usual since {since}",
    ReceiverState.DEFERRING: "Mail to {name} has been deferred since {since}",
    ReceiverState.REFUSING: "Mail to {name} has been refused since {since}",
    ReceiverState.UNKNOWN: "Little mail goes to {name} at present",
}
_SAME_DAY: Final = timedelta(hours=20)  # an older time needs its date


def report_text(report: ReceiverReport, since: datetime | None, at: datetime) -> str:
    """Return how a receiver treats mail, and how long mail takes."""
    if report.state is ReceiverState.UNKNOWN and report.sample is None:
        return f"Too little mail went to {_name(report)} lately to tell how long it takes."
    clause = _clause(report, since, at)
    if report.state is ReceiverState.REFUSING:
        return f"{clause}; {report.first_attempt_share or 0:.0%} of first attempts are accepted."
    if report.p90_s is None:
        return f"{clause}; more than 10% of emails wait without a known end."
    usually = " usually" if report.basis is ForecastBasis.WEEK else ""
    return f"{clause}; 90% of emails{usually} arrive within {span(report.p90_s)}."


def waiting_text(report: DomainForecast, since: datetime | None, at: datetime, waited_s: float) -> str:
    """Return the same for an email that has waited for `waited_s`."""
    if report.p90_s is None or report.sample is None or report.state is ReceiverState.REFUSING:
        return report_text(report, since, at)
    clause = _clause(report, since, at)
    return f"{clause}; 90% of emails that waited as long arrive within {span(report.p90_s - waited_s)} more."


def missed_text(report: ReceiverReport, left_s: float, share: float) -> str:
    """Return the warning that a message will probably not arrive by its `deliverBy`."""
    if left_s <= 0:
        return "`deliverBy` has passed."
    return (
        f"`deliverBy` leaves {span(left_s)}; at present {share:.0%} of emails to {_name(report)} arrive in that time."
    )


def span(seconds: float) -> str:
    """Return a time rounded to what matters: `0.8 s`, `40 s`, `22 min`, `3 h`."""
    if seconds < 9.5:
        return f"{max(seconds, 0.1):.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def _clause(report: ReceiverReport, since: datetime | None, at: datetime) -> str:
    return _CLAUSES[report.state].format(name=_name(report), since="" if since is None else _moment(since, at))


def _name(report: ReceiverReport) -> str:
    """Return the receiver's name within a sentence."""
    return report.name if report.site or report.provider is not MailboxProvider.OTHER else "other providers"


def _moment(since: datetime, at: datetime) -> str:
    return since.strftime("%H:%M UTC" if at - since < _SAME_DAY else "%-d %b %H:%M UTC")
