"""Judge all receivers every quarter minute, and delete what is too old for any forecast.

Several workers may do so at once: they come to the same judgement, and the newest one stays.
"""

import asyncio
from datetime import datetime, timedelta
from typing import Final

import asyncpg

from engine.base import clock
from engine.base.settings import Settings
from engine.receiving.analytics.mailbox_providers import MailboxProvider
from engine.receiving.receivers import rules, store
from engine.receiving.receivers.types import Cohort, ReceiverFigures, ReceiverKey, ReceiverRow, ReceiverState
from engine.store import metrics
from engine.store.jobs import Job

FORGET_EVERY: Final = timedelta(hours=1)


class ReceiverJudge:
    """The usual figures of the present hour, which this process computes once an hour."""

    def __init__(self) -> None:
        self._hour: datetime | None = None
        self._usual: dict[ReceiverKey, ReceiverFigures | None] = {}
        self._forgot: datetime | None = None

    async def run(self, pool: asyncpg.Pool, _: Settings) -> None:
        """Judge the receivers that mail went to lately, and the providers."""
        at = clock.now()
        await self._compute_usual(pool, at)
        recent = _by_receiver(await store.recent_cohorts(pool, at))
        before = {one.key: one for one in await store.LIST.fetch(pool)}
        judged: list[ReceiverRow] = []
        for key in sorted({*map(ReceiverKey, MailboxProvider), *recent, *before}):
            judged.append(rules.judged(key, recent.get(key, ()), self._usual.get(key), before.get(key), at))
            await asyncio.sleep(0)  # each takes some milliseconds of the event loop, which other jobs share
        await store.write_receivers(pool, [one for one in judged if _matters(one, before.get(one.key))])
        _measure(judged)
        if self._forgot is None or at - self._forgot >= FORGET_EVERY:
            await store.forget(pool, at)
            self._forgot = at

    async def _compute_usual(self, pool: asyncpg.Pool, at: datetime) -> None:
        hour = at.replace(minute=0, second=0, microsecond=0)
        if hour == self._hour:
            return
        usual: dict[ReceiverKey, ReceiverFigures | None] = {}
        for key, cohorts in _by_receiver(await store.cohorts_of_week(pool, at)).items():
            usual[key] = rules.usual_figures(cohorts)
            await asyncio.sleep(0)
        self._usual, self._hour = usual, hour


def _by_receiver(cohorts: list[Cohort]) -> dict[ReceiverKey, list[Cohort]]:
    found: dict[ReceiverKey, list[Cohort]] = {}
    for one in cohorts:
        found.setdefault(ReceiverKey(MailboxProvider(one.provider), one.site), []).append(one)
    return found


def _matters(now: ReceiverRow, before: ReceiverRow | None) -> bool:
    """Return False for a receiver without figures, now and before: an idle service writes nothing, and the rows of
    sites are left to be deleted."""
    return now.has_figures or (not now.site if before is None else before.has_figures)


def _measure(judged: list[ReceiverRow]) -> None:
    """Export the state of each provider; sites would be an unbounded label."""
    for one in judged:
        if not one.site:
            for state in ReceiverState:
                metrics.RECEIVER_STATE.labels(one.provider, state.value).set(one.state == state.value)


JOB = Job("receivers", every_s=15, run=ReceiverJudge().run, share=0.2)
