"""Bound the disk that reports may fill: those that wait and those that have been read, together.

Anybody can send reports. The MX measures what is stored and refuses reports beyond the limit for now; the worker
deletes the oldest reports that it has read beyond half of it, so that only waiting ones can use up the rest. Those that
were applied count too: a recipient may repeat a complaint as often as strangers may send junk.
"""

import time
from collections.abc import Sequence
from typing import Final

import asyncpg
import structlog

from engine.receiving.reports import store
from engine.receiving.reports.types import ReportMail, ReportPurpose
from engine.store.jobs import Job

MEASURED_EVERY_S: Final = 1.0
SHARE: Final = 0.05  # of the time, that measuring may take

_log = structlog.get_logger("reports")


async def make(pool: asyncpg.Pool, limit: int) -> None:
    """Delete the oldest reports that have been read beyond half of `limit`, which is that of all reports."""
    gone = await store.forget_beyond(pool, limit // 2)
    if gone:
        _log.warning("reports deleted early: there were too many", reports=gone)


# Reads all reports.
JOB = Job("report room", every_s=15, run=lambda pool, settings: make(pool, settings.reports_max_bytes), share=0.05)


class ReportsFull(RuntimeError):  # noqa: N818 - named for what the store is
    """The stored reports use all the room that they may have."""


class ReportRoom:
    """The octets that the stored reports use, as one process knows them: measured, and its own since then."""

    def __init__(self, pool: asyncpg.Pool, limit: int) -> None:
        self._pool = pool
        self._limit = limit
        self._used = 0
        self._measure_at = 0.0

    async def take(self, mails: Sequence[ReportMail]) -> None:
        """Count reports that are about to be stored. Raises ReportsFull beyond the limit.

        Mail to a genuine unsubscribe address is never refused: it is small, and each link counts once.
        """
        counted = [one for one in mails if one.purpose is not ReportPurpose.UNSUBSCRIBE or not one.is_genuine]
        if not counted:
            return
        if time.monotonic() >= self._measure_at:
            await self._measure()
        size = sum(store.ROW_BYTES + len(store.kept_octets(one) or b"") for one in counted)
        if self._used + size > self._limit:
            raise ReportsFull
        self._used += size

    async def _measure(self) -> None:
        began = time.monotonic()
        self._measure_at = began + MEASURED_EVERY_S  # other messages go on with the last figure meanwhile
        self._used = await store.used(self._pool)
        took = time.monotonic() - began
        self._measure_at = began + max(MEASURED_EVERY_S, took / SHARE)
