"""Measure the components of the installation, read their history, and write incidents.

The API measures when the page is read, the worker once a minute. The database may be away: that is a state of the page,
not an error.
"""

import asyncio
from datetime import datetime, timedelta
from typing import Final

import asyncpg

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.base.text import checked_line, checked_text
from engine.delivery import queue
from engine.delivery.reply_codes import Category
from engine.sending.status_page import rules, store
from engine.sending.status_page.types import (
    KEPT_DAYS,
    MAX_MESSAGE,
    MAX_SHOWN,
    MAX_TITLE,
    MAX_UPDATES,
    ComponentDay,
    IncidentUpdate,
    StatusComponent,
    StatusFigures,
    StatusReading,
)
from engine.store import process_registry
from engine.store.database_errors import DatabaseUnavailable

MEASURE_S: Final = 3.0  # a database that takes longer for these few rows serves nobody
SAMPLE: Final = 200  # messages: some milliseconds
RECENT: Final = timedelta(minutes=30)
POSTED_S: Final = 120.0
# Outcomes without an answer of a mail server: port 25 is blocked, the resolver is broken, or this host has a fault.
UNREACHED: Final = (Category.LOCAL.value, Category.DNS.value, Category.NETWORK.value)


async def measure(pool: asyncpg.Pool, settings: Settings, kind: str) -> dict[StatusComponent, StatusReading]:
    """Return the present state of each component; never raises because the database is away.

    `kind` is that of this process, which runs though it may not be registered yet.
    """
    try:
        async with asyncio.timeout(MEASURE_S):
            figures = await _figures(pool, settings, kind)
    except (DatabaseUnavailable, OSError):  # OSError includes the TimeoutError of the limit above
        figures = None
    return rules.readings(settings, figures)


async def _figures(pool: asyncpg.Pool, settings: Settings, kind: str) -> StatusFigures:
    at = clock.now()
    async with pool.acquire() as connection:
        oldest = await queue.oldest_due(connection, settings.shards)
        since = ids.floor_of(clock.milliseconds(at - RECENT))
        [attempts] = await store.RECENT_ATTEMPTS.records(connection, since, SAMPLE, list(UNREACHED))
        [webhooks] = await store.LATE_WEBHOOKS.records(connection, at, POSTED_S)
        processes = await process_registry.READ_PROCESSES.fetch(connection)
    return StatusFigures(
        delivery_late_s=0.0 if oldest is None else max(0.0, (at - oldest).total_seconds()),
        attempts=attempts["attempts"],
        failed_share=attempts["share"],
        webhooks_late_s=webhooks["late_s"],
        kinds=frozenset({kind, *(one.kind for one in processes if one.silent_s <= process_registry.GONE_S)}),
    )


async def history(pool: asyncpg.Pool, at: datetime) -> list[ComponentDay]:
    """Return the counts of the days that the page shows."""
    first = at.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=KEPT_DAYS - 1)
    return await store.DAYS.fetch(pool, first)


async def incidents(pool: asyncpg.Pool, at: datetime) -> list[IncidentUpdate]:
    """Return the updates of open and recent incidents, open ones first."""
    return await store.INCIDENTS.fetch(pool, at - timedelta(days=KEPT_DAYS), MAX_SHOWN)


async def open_incident(pool: asyncpg.Pool, title: str, message: str) -> None:
    """Open an incident with its first message. Raises ValueError if an open one has the title, Refusal for bad text."""
    name, text, at = _title(title), _message(message), clock.now()
    incident = ids.uuid7()
    async with pool.acquire() as connection, connection.transaction():
        if not await store.OPEN_INCIDENT.records(connection, incident, name, at):
            raise ValueError(f"An incident with the title {name!r} is open. Use `update`, or choose another title.")
        await store.ADD_UPDATE.execute(connection, ids.uuid7(), incident, at, text)


async def update_incident(pool: asyncpg.Pool, title: str, message: str, *, close: bool = False) -> None:
    """Add a message to the open incident of this title, and close it if asked. Raises ValueError, Refusal."""
    name, text, at = _title(title), _message(message), clock.now()
    async with pool.acquire() as connection, connection.transaction():
        found = await store.FIND_OPEN_INCIDENT.records(connection, name)
        if not found:
            raise ValueError(f"No open incident has the title {name!r}. `ops status-page incident list` shows them.")
        if found[0]["updates"] >= MAX_UPDATES and not close:
            raise ValueError(f"The incident has {MAX_UPDATES} updates. Close it and open another one.")
        await store.ADD_UPDATE.execute(connection, ids.uuid7(), found[0]["id"], at, text)
        if close:
            await store.CLOSE_INCIDENT.execute(connection, found[0]["id"], at)


def _title(title: str) -> str:
    return checked_line(title, "title", MAX_TITLE)


def _message(message: str) -> str:
    if not message.strip():
        raise ValueError("The message is empty. Say what people notice and what they can do.")
    return checked_text(message.strip(), "message", MAX_MESSAGE)
