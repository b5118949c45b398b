"""Render the public status page: HTML without script, in the style of the documentation."""

from base64 import b64encode
from collections.abc import Sequence
from datetime import date, datetime
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Final

from msgspec import Struct

STYLE: Final = (Path(__file__).parent / "status_page.css").read_text("utf-8")
STYLESHEET: Final = "/docs-files/docs.css"
_MARKS: Final = {"up": "✓", "degraded": "!", "down": "✕"}
_WORDS: Final = {"up": "Operational", "degraded": "Degraded", "down": "Down"}
_HEADINGS: Final = {
    "up": "All components work",
    "degraded": "Some components are degraded",
    "down": "Some components are down",
}


class StatusDay(Struct, frozen=True, rename="camel"):
    """A day (UTC) of a component; `state` is null if nothing was measured."""

    date: date
    state: str | None
    uptime: float | None


class ShownComponent(Struct, frozen=True, rename="camel"):
    """A component as the page shows it; `uptime` is a percentage of the measured time, null without any."""

    name: str
    title: str
    state: str
    detail: str
    uptime: float | None
    days: list[StatusDay]


class ShownUpdate(Struct, frozen=True, rename="camel"):
    """A message about an incident."""

    written_at: datetime
    message: str


class ShownIncident(Struct, frozen=True, rename="camel"):
    """An incident with its messages, the newest first; `closedAt` is null while it is open."""

    title: str
    opened_at: datetime
    closed_at: datetime | None
    updates: list[ShownUpdate]


class StatusReport(Struct, frozen=True, rename="camel"):
    """The body of `/status.json`; `historyKnown` is false if the history can't be read and none is remembered."""

    status: str
    measured_at: datetime
    history_known: bool
    components: list[ShownComponent]
    incidents: list[ShownIncident]


@cache
def policy() -> str:
    """Return the Content-Security-Policy: the two styles and the icon, nothing else."""
    digest = b64encode(sha256(STYLE.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'self' 'sha256-{digest}'; img-src 'self'; form-action 'none'; base-uri 'none';"
        " frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def html_of(report: StatusReport, prefix: str) -> str:
    """Return the page; `prefix` is the path of the public URL."""
    current = [one for one in report.incidents if one.closed_at is None]
    past = [one for one in report.incidents if one.closed_at is not None]
    heading = _HEADINGS[report.status]
    lead = f"Measured at {_time(report.measured_at)}. Reload the page for the present state."
    history = "" if report.history_known else '<p class="note">The history can\'t be read just now.</p>\n'
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n'
        f"<title>{heading} · Status</title>\n"
        f'<link rel="icon" href="{prefix}/docs-files/icon.svg" type="image/svg+xml">\n'
        f'<link rel="stylesheet" href="{prefix}{STYLESHEET}">\n<style>{STYLE}</style>\n</head>\n<body>\n'
        f'<header class="bar"><a class="brand" href="{prefix}/status">Waybill <span>Status</span></a>'
        f'<a href="{prefix}/docs">Documentation</a></header>\n<main class="status">\n'
        f'<h1 class="{report.status}">{_mark(report.status)} {heading}</h1>\n<p class="lead">{lead}</p>\n'
        f"{_incidents('Current incidents', current)}"
        f"<h2>Components</h2>\n{history}{''.join(map(_component, report.components))}"
        '<p class="note">Each mark is a day (UTC) of the last 90. Uptime is the share of measured quarter hours in'
        " which a component was not down.</p>\n"
        f"{_incidents('Past incidents', past) or '<h2>Past incidents</h2><p>None in the last 90 days.</p>'}"
        f'<p class="note"><a href="{prefix}/status.json">This page as JSON</a></p>\n</main>\n</body>\n</html>\n'
    )


def _component(one: ShownComponent) -> str:
    title = escape(one.title)
    known = "not measured yet" if one.uptime is None else f"{_percent(one.uptime)} uptime in 90 days"
    return (
        f'<section class="component" aria-labelledby="{one.name}"><h3 id="{one.name}">{title}</h3>'
        f'<p class="state {one.state}">{_mark(one.state)} {_WORDS[one.state]}</p><p>{escape(one.detail)}</p>\n'
        f'<div class="days" role="img" aria-label="{title}, last 90 days: {escape(_days_in_words(one.days))}">'
        f"{''.join(map(_day, one.days))}</div>\n"
        f'<p class="note ends"><span>90 days ago</span><span>{known}</span><span>Today</span></p>\n'
        f"{_bad_days(one.days)}</section>\n"
    )


def _day(one: StatusDay) -> str:
    said = "not measured" if one.state is None or one.uptime is None else f"{one.state}, {_percent(one.uptime)} uptime"
    return f'<i class="{one.state or "unknown"}" title="{one.date}: {said}"></i>'


def _days_in_words(days: Sequence[StatusDay]) -> str:
    counts = [(state, sum(one.state == state for one in days)) for state in ("up", "degraded", "down", None)]
    return ", ".join(f"{number} {state or 'not measured'}" for state, number in counts if number)


def _bad_days(days: Sequence[StatusDay]) -> str:
    """Return the days with a fault as text, for readers who don't see the marks."""
    rows = "".join(
        f"<li>{one.date}: {_WORDS[one.state]}, {_percent(one.uptime)} uptime</li>"
        for one in reversed(days)
        if one.state in {"degraded", "down"} and one.uptime is not None
    )
    return f"<details><summary>Days with a fault</summary><ul>{rows}</ul></details>\n" if rows else ""


def _incidents(title: str, incidents: Sequence[ShownIncident]) -> str:
    return f"<h2>{title}</h2>\n{''.join(map(_incident, incidents))}" if incidents else ""


def _incident(one: ShownIncident) -> str:
    closed = "open" if one.closed_at is None else f"closed {_time(one.closed_at)}"
    updates = "".join(
        f'<li><p class="note">{_time(update.written_at)}</p><p class="text">{escape(update.message)}</p></li>'
        for update in one.updates
    )
    return (
        f'<section class="incident"><h3>{escape(one.title)}</h3>'
        f'<p class="note">Opened {_time(one.opened_at)}, {closed}</p><ul>{updates}</ul></section>\n'
    )


def _mark(state: str) -> str:
    return f'<span class="mark" aria-hidden="true">{_MARKS[state]}</span>'


def _percent(value: float) -> str:
    """Return a percentage, never rounded up to 100."""
    return "100%" if value >= 100 else f"{min(value, 99.99):.2f}%"


def _time(at: datetime) -> str:
    return f'<time datetime="{at:%Y-%m-%dT%H:%M:%SZ}">{at:%Y-%m-%d %H:%M} UTC</time>'
