"""Run broadcasts: workers claim those that are due, in turns, and accept their messages in batches.

claimed for some seconds → started, or looked whether a pause has ended → up to 1,000 waiting recipients read → skipped
ones marked → up to 100 messages rendered and accepted in one transaction → … → due again. Postgres holds all progress:
the transaction that accepts a message marks its recipient. A worker that dies loses its claim, and another one goes on.
"""

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID, uuid4

import asyncpg
import structlog
from msgspec import Struct

from engine.audience.broadcasts import checks as broadcast_checks
from engine.audience.broadcasts import pauses as broadcast_pauses
from engine.audience.broadcasts import rules, service, store
from engine.audience.broadcasts.batch import (
    BatchOutcome,
    BroadcastSender,
    WaitingRecipient,
    largest_batch,
    next_recipients,
    skip_unrenderable,
)
from engine.audience.broadcasts.content import CompiledBroadcast
from engine.audience.broadcasts.pace import BatchPace
from engine.audience.broadcasts.start import may_start, start
from engine.audience.broadcasts.store import ClaimedWork
from engine.audience.broadcasts.types import BroadcastStatus, BroadcastSummary, PauseReason, WaitReason
from engine.base import ids
from engine.base.errors import ErrorType, Refusal
from engine.base.processor_wait import ProcessorWait
from engine.base.settings import Settings
from engine.mail.unsubscribe_links import UnsubscribeLinks
from engine.mail.unsubscribe_token import key_of
from engine.sending.job_acceptor import JobAcceptor
from engine.store.database_errors import DatabaseUnavailable
from engine.store.jobs import Job

LEASE: Final = timedelta(seconds=10)  # after which another worker takes over a broadcast whose worker died
KEEP_EVERY_S: Final = 3.0
LANES: Final = 4  # broadcasts that one worker runs at once
AGAIN: Final = timedelta(seconds=2)  # after a refusal of the service's own, or beside another worker
MAX_HELD: Final = 16  # compiled broadcasts that a worker holds

_log = structlog.get_logger("broadcasts")


class TurnEnd(Struct, frozen=True):
    """The wait of a broadcast for its next turn, and its reason if there is one."""

    wait: timedelta = timedelta(0)
    waits_for: WaitReason | None = None


class HeldBroadcast(Struct, frozen=True):
    """The compiled content of a broadcast, and the pace of its batches in this process."""

    content: CompiledBroadcast
    pace: BatchPace


class BroadcastRunner:
    """Runs broadcasts for one process; opens its connections at the first one."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings) -> None:
        self._pool = pool
        self._settings = settings
        self._worker = uuid4().hex
        self._processor_wait = ProcessorWait()
        self._sending = 0  # broadcasts whose messages this process accepts now
        self._mail = JobAcceptor(pool, settings, "broadcasts")
        self._sender: BroadcastSender | None = None
        self._held: OrderedDict[UUID, HeldBroadcast] = OrderedDict()

    def job(self) -> Job:
        """Return the worker's job that sends due broadcasts."""
        return Job("broadcasts", every_s=0.3, run=lambda *_: self.run_due())

    async def run_due(self) -> None:
        """Give every broadcast that is due its turns, until none is due."""
        if not self._mail.is_ready():
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._lane(tasks, LANES - 1))

    async def close(self) -> None:
        """Close the connections."""
        await self._mail.close()

    async def _lane(self, tasks: asyncio.TaskGroup, others: int) -> None:
        """Take turns until no broadcast is due. After an error the claim lapses, and the broadcast is tried again.

        At the first turn, start the next of `others` lanes: while no broadcast is due, one query finds that out.
        """
        try:
            while (work := await store.CLAIM_WORK.first(self._pool, self._worker, LEASE)) is not None:
                if others:
                    tasks.create_task(self._lane(tasks, others - 1))
                    others = 0
                await self._work_on(work)
        except (DatabaseUnavailable, OSError) as error:
            _log.warning("broadcasts delayed", error=repr(error))

    async def _work_on(self, work: ClaimedWork) -> None:
        await self._mail.refresh()
        if self._sender is None:
            links = UnsubscribeLinks(key_of(self._settings.pepper), self._settings.public_url, self._settings.mail_host)
            self._sender = BroadcastSender(self._pool, self._mail.acceptor, links)
        try:
            end = await self._turn(work, self._sender)
        except (DatabaseUnavailable, OSError):
            raise
        except Exception:  # noqa: BLE001 - process loop: one broadcast must not end the others
            _log.exception("broadcast turn failed", broadcast=ids.format_id(ids.Kind.BROADCAST, work.broadcast_id))
            return
        if end is not None:
            await store.end_turn(self._pool, work.broadcast_id, self._worker, end.wait, end.waits_for)

    # -- one turn ------------------------------------------------------------------------------------

    async def _turn(self, work: ClaimedWork, sender: BroadcastSender) -> TurnEnd | None:
        """Do what is due for a broadcast; None if its next turn is set already, or there is none."""
        row = await store.FIND.first(self._pool, work.broadcast_id)
        if row is None:
            await store.DROP_WORK.execute(self._pool, work.broadcast_id, self._worker)
            return None
        if may_start(row, work.at):
            await start(self._pool, row.account_id, row.id, work.at)
            return TurnEnd()
        if row.status == BroadcastStatus.SENDING:
            return await self._send(row, work, sender)
        if row.status == BroadcastStatus.PAUSED and row.paused_because != PauseReason.USER:
            return await self._look(row, work.at, sender)
        if row.status == BroadcastStatus.SCHEDULED and row.scheduled_at is not None:
            return TurnEnd(max(timedelta(0), row.scheduled_at - work.at))
        await store.DROP_WORK.execute(self._pool, work.broadcast_id, self._worker)
        return None

    async def _look(self, row: BroadcastSummary, at: datetime, sender: BroadcastSender) -> TurnEnd | None:
        """Resume a paused broadcast whose reason has ended; else return when to look again."""
        reserve = self._settings.broadcast_reserve
        if not await broadcast_pauses.has_ended(self._pool, sender, row, at, reserve=reserve):
            return TurnEnd(rules.next_look(at, row.resumes_at, jitter=_jitter()) - at)
        why = PauseReason(row.paused_because or "")
        await service.release(self._pool, row.account_id, row.id, why, at)
        _log.info("broadcast resumed", broadcast=row.public_id, because=why.value)
        return None

    async def _send(self, row: BroadcastSummary, work: ClaimedWork, sender: BroadcastSender) -> TurnEnd | None:
        """Accept messages of a broadcast that is sending: a chunk, smaller with a pace."""
        status = await broadcast_pauses.account_status(self._pool, row.account_id)
        if status != broadcast_pauses.ACTIVE:
            await self._hold(row, PauseReason.SUSPENDED, work.at)
            return None
        chunk = await next_recipients(self._pool, row.id, rules.chunk_size(row.per_minute))
        if not chunk:
            ended = await service.finish(self._pool, row.account_id, row.id)
            self._held.pop(row.id, None)
            return TurnEnd(AGAIN) if ended is None else None
        try:
            held = await self._broadcast(row)
        except Refusal as refusal:
            _log.error("broadcast without content", broadcast=row.public_id, error=refusal.message)
            await skip_unrenderable(self._pool, row.id, chunk)
            return TurnEnd()
        return await self._send_chunk(row, held, chunk, sender)

    async def _send_chunk(
        self,
        row: BroadcastSummary,
        held: HeldBroadcast,
        chunk: Sequence[WaitingRecipient],
        sender: BroadcastSender,
    ) -> TurnEnd | None:
        self._sending += 1
        try:
            return await self._send_batches(row, held, chunk, sender)
        finally:
            self._sending -= 1

    async def _send_batches(
        self,
        row: BroadcastSummary,
        held: HeldBroadcast,
        chunk: Sequence[WaitingRecipient],
        sender: BroadcastSender,
    ) -> TurnEnd | None:
        kept_at = time.monotonic()
        ready = await sender.skip_unreachable(row, chunk)
        accepted = 0
        while ready:
            outcome, ready = await sender.send_batch(row, held.content, ready, held.pace.size)
            accepted += outcome.accepted
            if outcome.refusal is not None:
                return await self._after_refusal(row, outcome)
            if outcome.is_stale:  # paused, or another worker has it
                return TurnEnd()
            if time.monotonic() - kept_at > KEEP_EVERY_S:
                if not await store.keep_work(self._pool, row.id, self._worker, LEASE):
                    return None
                kept_at = time.monotonic()
            pause_s = held.pace.pause_after(
                outcome.composed, composed_s=outcome.composed_s, stored_s=outcome.stored_s,
                processor_wait=self._processor_wait.look(), broadcasts=self._sending,
            )  # fmt: skip
            await asyncio.sleep(pause_s)
        wait = rules.pace_wait(row.per_minute, accepted)
        return TurnEnd(wait, WaitReason.PACE if wait else None)

    async def _after_refusal(self, row: BroadcastSummary, outcome: BatchOutcome) -> TurnEnd | None:
        """Pause or wait after a refusal that concerns the whole broadcast."""
        refusal = outcome.refusal
        assert refusal is not None
        why = rules.pause_of(refusal)
        if why is not None:
            await self._hold(row, why, outcome.at)
            return None
        if refusal.kind is ErrorType.PLATFORM_PAUSED:
            wait = rules.within(rules.PLATFORM_RECHECK_S, _jitter())
            return TurnEnd(wait, WaitReason.PLATFORM_PAUSED)
        _log.warning("broadcast delayed", broadcast=row.public_id, error=refusal.kind.value)
        return TurnEnd(AGAIN)

    async def _hold(self, row: BroadcastSummary, why: PauseReason, at: datetime) -> None:
        await service.hold(self._pool, row.account_id, row.id, why, at, jitter=_jitter())
        _log.info("broadcast paused", broadcast=row.public_id, because=why.value)

    async def _broadcast(self, row: BroadcastSummary) -> HeldBroadcast:
        """Return the compiled content, which never changes after `send`, with its pace."""
        held = self._held.get(row.id)
        if held is None:
            whole = await service.read(self._pool, row.account_id, row.id)
            content = await broadcast_checks.compiled(
                self._pool, whole, await broadcast_checks.template_of(self._pool, whole)
            )
            held = HeldBroadcast(content, BatchPace(largest_batch(content)))
            self._held[row.id] = held
        self._held.move_to_end(row.id)
        if len(self._held) > MAX_HELD:
            self._held.popitem(last=False)
        return held


def _jitter() -> float:
    return random.random()
