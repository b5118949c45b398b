"""Record the states of the components once a minute, and delete what is older than the page shows.

Several workers may record at once: the worse state of a quarter hour stays. States of the time in which the database
was away wait in memory until it is back.
"""

from datetime import datetime, timedelta
from typing import Final

import asyncpg

from engine.base import clock
from engine.base.settings import Settings
from engine.sending.status_page import rules, service, store
from engine.sending.status_page.types import KEPT_DAYS, ComponentState, StatusComponent
from engine.store.jobs import Job
from engine.store.queries import columns

MAX_WAITING: Final = 4 * 96 * 7  # rows: a week without the database
_Quarter = tuple[StatusComponent, datetime]


class StatusRecorder:
    """The last measurement of this process, and the states that are not written yet."""

    def __init__(self) -> None:
        self._before: dict[StatusComponent, ComponentState] = {}
        self._waiting: dict[_Quarter, ComponentState] = {}
        self._pruned: datetime | None = None

    async def record(self, pool: asyncpg.Pool, settings: Settings) -> None:
        """Measure, and write the states of this quarter hour. Raises DatabaseUnavailable; nothing is lost then."""
        if not settings.status_page:
            return
        found = await service.measure(pool, settings, "worker")
        now = {one: reading.state for one, reading in found.items()}
        self.note(rules.confirmed(self._before, now), rules.quarter_of(clock.now()))
        self._before = now
        await self.write(pool)

    def note(self, states: dict[StatusComponent, ComponentState], quarter: datetime) -> None:
        """Keep the states of a quarter hour to be written; a worse one that waits already stays."""
        for component, state in states.items():
            key = (component, quarter)
            if key in self._waiting or len(self._waiting) < MAX_WAITING:
                self._waiting[key] = max(state, self._waiting.get(key, state))

    async def write(self, pool: asyncpg.Pool) -> None:
        """Write the states that wait, and once per quarter hour delete old ones."""
        rows = [(component.value, quarter, int(state)) for (component, quarter), state in self._waiting.items()]
        await store.WRITE_QUARTERS.execute(pool, *columns(rows, 3))
        self._waiting.clear()
        quarter = rules.quarter_of(clock.now())
        if quarter != self._pruned:
            oldest = quarter - timedelta(days=KEPT_DAYS)
            await store.FORGET_QUARTERS.execute(pool, oldest)
            await store.FORGET_INCIDENTS.execute(pool, oldest)
            self._pruned = quarter


JOB = Job("status_page", every_s=60, run=StatusRecorder().record)
