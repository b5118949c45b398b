"""`ops status-page`: incidents that operators write for the public status page."""

from typing import Any

import asyncpg
import click

from engine.base import clock
from engine.sending.status_page import service
from ops.commands.base import as_json, in_database, reported, show_rows

_title = click.argument("title", metavar="TITLE", help='What people notice, such as "Sending is slow".')
_message = click.argument("message", metavar="MESSAGE", help="What people can do, and when you write again.")
_COLUMNS = ["title", "openedAt", "closedAt", "writtenAt", "message"]


@click.group("status-page")
def status_page() -> None:
    """Write incidents for the public status page (WAYBILL_STATUS_PAGE)."""


@status_page.group()
def incident() -> None:
    """Open, update, close and list incidents. The title names an open incident."""


@incident.command("open")
@_title
@_message
@as_json
@reported
def open_incident(*, title: str, message: str, as_json: bool) -> None:
    """Open an incident. The status page shows it within seconds."""
    in_database(service.open_incident, title, message)
    _show(title, as_json=as_json)


@incident.command("update")
@_title
@_message
@as_json
@reported
def update_incident(*, title: str, message: str, as_json: bool) -> None:
    """Add MESSAGE to the open incident TITLE."""
    in_database(service.update_incident, title, message)
    _show(title, as_json=as_json)


@incident.command("close")
@_title
@_message
@as_json
@reported
def close_incident(*, title: str, message: str, as_json: bool) -> None:
    """Close the open incident TITLE with a last MESSAGE. The page shows it for 90 more days."""
    in_database(service.update_incident, title, message, close=True)
    _show(title, as_json=as_json)


@incident.command("list")
@as_json
@reported
def list_incidents(*, as_json: bool) -> None:
    """List open and recent incidents with their messages, the newest first."""
    show_rows(in_database(listed), _COLUMNS, as_json=as_json)


def _show(title: str, *, as_json: bool) -> None:
    """Print the messages of the incidents with this title."""
    found = [one for one in in_database(listed) if one["title"] == title.strip()]
    show_rows(found, _COLUMNS, as_json=as_json)


async def listed(pool: asyncpg.Pool) -> list[dict[str, Any]]:
    """Return the messages of the incidents that the page shows."""
    return [
        {
            "title": one.title,
            "openedAt": clock.iso(one.opened_at),
            "closedAt": clock.iso_or_none(one.closed_at),
            "writtenAt": clock.iso(one.written_at),
            "message": one.message,
        }
        for one in await service.incidents(pool, clock.now())
    ]
