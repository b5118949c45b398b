"""Check what accepting mail depends on, for `/readyz` and the operator: PostgreSQL, Redis, queue, partitions, disk."""

import asyncio
import os
import shutil
from collections.abc import Awaitable
from typing import Any, Literal

from msgspec import Struct

from api.http.services import ApiServices
from engine.base import clock
from engine.base.settings import MIN_DISK_BYTES, Settings
from engine.delivery import queue
from engine.store import partitions
from engine.store import redis as redis_store
from engine.store.database_errors import DatabaseUnavailable

OVERDUE_S = 120.0  # a queue row overdue for longer means that no mta process delivers its shard
CHECK_S = 2.0
_NEEDED = ("postgres", "disk")  # without Redis mail is found by its due time; a writer makes a missing partition


class ReadinessReport(Struct, frozen=True):
    """The checks of one API process by name, each with `ok` and what it found; `unready` if it can't accept mail."""

    status: Literal["ready", "unready"]
    checks: dict[str, dict[str, Any]]

    @property
    def is_ready(self) -> bool:
        """Return True if this process can accept mail."""
        return self.status == "ready"


async def check(services: ApiServices) -> ReadinessReport:
    """Run all checks at once, each within `CHECK_S`."""
    named = {
        "postgres": _postgres(services),
        "redis": _redis(services),
        "queue": _queue(services),
        "partitions": _partitions(services),
        "disk": asyncio.to_thread(_disk, services.settings),
    }
    found = await asyncio.gather(*map(_bounded, named.values()))
    checks = dict(zip(named, found, strict=True))
    return ReadinessReport("ready" if all(checks[name]["ok"] for name in _NEEDED) else "unready", checks)


async def _postgres(services: ApiServices) -> dict[str, Any]:
    try:
        await services.pool.fetchval("SELECT 1")
    except DatabaseUnavailable as error:
        return {"ok": False, "detail": _short(error)}
    return {"ok": True}


async def _redis(services: ApiServices) -> dict[str, Any]:
    try:
        await services.redis.ping()
    except redis_store.RedisUnavailable as error:
        effect = "mail is accepted, and delivered seconds later than usual"
        return {"ok": False, "detail": _short(error), "effect": effect}
    return {"ok": True}


async def _queue(services: ApiServices) -> dict[str, Any]:
    try:
        oldest = await queue.oldest_due(services.pool, services.settings.shards)
    except DatabaseUnavailable as error:
        return {"ok": False, "detail": _short(error)}
    overdue = 0.0 if oldest is None else max(0.0, (clock.now() - oldest).total_seconds())
    return {"ok": overdue < OVERDUE_S, "oldestDueSeconds": round(overdue, 1)}


async def _partitions(services: ApiServices) -> dict[str, Any]:
    try:
        async with services.pool.acquire() as connection:
            ahead = await partitions.weeks_ahead(connection, clock.now())
    except DatabaseUnavailable as error:
        return {"ok": False, "detail": _short(error)}
    if ahead >= partitions.MIN_WEEKS_AHEAD:
        return {"ok": True, "weeksAhead": ahead}
    effect = "the first write of a week without partitions creates them; check why the worker does not"
    return {"ok": False, "weeksAhead": ahead, "effect": effect}


def _disk(settings: Settings) -> dict[str, Any]:
    folder = settings.state
    if not folder.exists():
        return {"ok": True, "detail": "no state folder on this host"}
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return {"ok": False, "detail": f"the file system of {folder} is read-only"}
    free = shutil.disk_usage(folder).free
    return {"ok": free > MIN_DISK_BYTES, "freeBytes": free}


async def _bounded(work: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """Return the check's result, or a failure if it takes longer than `CHECK_S`."""
    try:
        async with asyncio.timeout(CHECK_S):
            return await work
    except TimeoutError:
        return {"ok": False, "detail": f"no response within {CHECK_S:g} s"}


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]
