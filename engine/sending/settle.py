"""Settle delivery attempts: record the outcomes of a batch in one transaction.

lock account heads → check fence and queue rows → recipients → message status → suppressions → events → queue row
deleted or due again. One call of a database function does all of it where the attempts are independent. Outcomes of
concurrent deliveries share transactions, as in acceptance. Settling an attempt twice changes nothing, because the queue
row counts the attempts that were settled.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from uuid import UUID

import asyncpg
import structlog
from msgspec import structs

from engine.base import clock, ids
from engine.base.events import AccountEvent, Status
from engine.delivery.queue import BROADCAST_PRIORITY
from engine.ledger import heads, log, quota_usage
from engine.mail.address import canonical
from engine.sending import settled_rows
from engine.sending.bounces import store as bounces
from engine.sending.forget_content import CONTENT_FORGOTTEN, DELETE_BODIES
from engine.sending.settled_rows import DeliveryAttempt, Result, SettlingPlan, plan
from engine.sending.suppressions import store as suppressions
from engine.store import exemplars
from engine.store.database_errors import (
    AccountMoving,
    BadData,
    ConstraintViolation,
    DatabaseUnavailable,
    MissingPartition,
)
from engine.store.group_commit import GroupCommit
from engine.store.queries import Conn, Queries, columns
from engine.store.traces import TRACES

__all__ = ["DeliveryAttempt", "Fenced", "Result", "Settler", "SettlingPlan", "plan", "write"]

_log = structlog.get_logger("settle")


class Fenced(Exception):  # noqa: N818 - named for what happened
    """Raised when this process has lost its leases; other processes retry the deliveries that it did not settle."""


_SQL = Queries.beside(__file__, "settle.sql")
_UNCHANGED_ROWS = _SQL.command("unchanged_rows")
_IS_MEMBER = _SQL.command("is_member")
_UPDATE_RECIPIENTS = _SQL.wide("update_recipients", settled_rows.RECIPIENT)
_RECIPIENT_STATUSES = _SQL.command("recipient_statuses")
_SETTLE = _SQL.session_function(
    "settle", settled_rows.RECIPIENT, settled_rows.MESSAGE, settled_rows.FOUND, settled_rows.LATER, settled_rows.DAY,
    log.UNSEALED, log.EVENT,
    returns="text",
    types={"low": "uuid", "high": "uuid", "member": "uuid", "accounts": "uuid[]", "counts": "integer[]"},
    content_forgotten=CONTENT_FORGOTTEN, **log.SEALING,
)  # fmt: skip

_RETRY_S = 0.5
# Each flush costs about 1 ms of CPU whatever its size, and locks account heads that acceptance waits for:
# larger flushes are worth 30 ms more between a remote 250 and its commit. Measured: ops/decisions/0040 and 0048.
MIN_INTERVAL_S = 0.03
# Broadcasts have flushes of their own, so that no other outcome waits for them; rarer and smaller ones, because each
# locks the head of an account whose other mail and further broadcast mail wait for it: ops/decisions/0061.
MAX_BROADCASTS = 32
BROADCASTS_INTERVAL_S = 0.1


class Settler:
    """Settles the attempts of one process in shared transactions; retries while Postgres is away.

    The sessions of `pool` should plan statements once (`generic` of open_pool): planning each batch costs 0.3 ms.
    """

    def __init__(
        self, pool: asyncpg.Pool, member: Callable[[], UUID], *, on_flush: Callable[[int, float], None]
    ) -> None:
        self._pool = pool
        self._member = member
        self._on_flush = on_flush
        self._unavailable = asyncio.Event()  # the last flush found no PostgreSQL
        self.submitted = 0  # attempts in the life of this settler
        self._group = self._new_group(128, MIN_INTERVAL_S)
        self._broadcasts = self._new_group(MAX_BROADCASTS, BROADCASTS_INTERVAL_S)

    def _new_group(self, most: int, interval_s: float) -> GroupCommit[DeliveryAttempt, bool]:
        return GroupCommit(
            self._flush,
            max_items=most,
            max_waiting=1_000_000,
            min_interval_s=interval_s,
            bad_data=(BadData, ConstraintViolation),
        )

    @property
    def waiting(self) -> int:
        """Return the number of attempts not yet in a transaction."""
        return self._group.waiting + self._broadcasts.waiting

    def settle(self, attempt: DeliveryAttempt) -> "asyncio.Future[bool]":
        """Return a future of True once committed, or False if another process settled the row; raises Fenced."""
        self.submitted += 1
        is_broadcast = attempt.row.priority >= BROADCAST_PRIORITY
        return (self._broadcasts if is_broadcast else self._group).enqueue(attempt)

    def unsettled(self) -> list[DeliveryAttempt]:
        """Return the attempts that are not committed."""
        return self._group.unfinished() + self._broadcasts.unfinished()

    def is_stalled(self, after_s: float) -> bool:
        """Return True while nothing can be committed: PostgreSQL is away, or a commit has lasted for `after_s`."""
        lasted_s = max(self._group.flushing_s, self._broadcasts.flushing_s)
        return self._unavailable.is_set() or lasted_s >= after_s

    async def until_unavailable(self, timeout_s: float) -> None:
        """Wait until a flush finds no PostgreSQL, at most `timeout_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._unavailable.wait()

    async def idle(self) -> None:
        """Wait until all submitted attempts are committed."""
        await self._group.idle()
        await self._broadcasts.idle()

    async def _flush(self, batch: Sequence[DeliveryAttempt]) -> list[bool | Exception]:
        """Settle a batch. Retries until Postgres is back: without their record the messages would be sent again."""
        started = asyncio.get_running_loop().time()
        try:
            done = await self._transacted(batch)
        finally:
            self._unavailable.clear()
        seconds = asyncio.get_running_loop().time() - started
        self._on_flush(len(batch), seconds)
        if TRACES.tracer is not None:
            for one in batch:
                if one.row.traceparent is not None and TRACES.tracer.samples(one.row.traceparent):
                    exemplars.FLUSHES.offer("settle", seconds, one.row.traceparent)
        return done

    async def _transacted(self, batch: Sequence[DeliveryAttempt]) -> list[bool | Exception]:
        while True:
            try:
                plans = [plan(attempt) for attempt in await _with_repetitions(self._pool, batch)]
                return await self._transact(plans)
            except AccountMoving:
                if len(batch) > 1:
                    raise  # each attempt is settled alone then
                # The move waited for this process no longer: the copy has the delivery as still owed.
                _log.warning("attempt not settled: its account has moved", message=str(batch[0].row.message_id))
                return [False]
            except DatabaseUnavailable as error:
                self._unavailable.set()
                _log.warning("attempts not settled yet", error=repr(error), attempts=len(batch))
                await asyncio.sleep(_RETRY_S)

    async def _transact(self, plans: list[SettlingPlan]) -> list[bool | Exception]:
        sealed = [one for one in plans if one.attempt.row.is_sealed]
        if not sealed or len(sealed) == len(plans):
            return await self._transact_alike(plans)
        # Sealed messages need further statements, and all others should not wait for these. If the second transaction
        # fails, the repetition finds what the first one settled.
        others = [one for one in plans if not one.attempt.row.is_sealed]
        results: dict[int, bool | Exception] = {}
        for part in (sealed, others):
            results |= zip(map(id, part), await self._transact_alike(part), strict=True)
        return [results[id(one)] for one in plans]

    async def _transact_alike(self, plans: list[SettlingPlan]) -> list[bool | Exception]:
        async with self._pool.acquire() as connection:
            await _SETTLE.prepare(connection)
            if _independent(plans) and await _write(connection, plans, member=self._member()):
                return [True] * len(plans)
            async with connection.transaction():
                return await self._settle_unchanged(connection, plans)

    async def _settle_unchanged(self, connection: Conn, plans: Sequence[SettlingPlan]) -> list[bool | Exception]:
        """Settle the attempts whose queue rows are unchanged since the attempt."""
        await heads.lock(connection, {one.attempt.row.account_id for one in plans})
        owed = await self._owed(connection, plans)
        done: list[bool | Exception] = []
        unchanged: list[SettlingPlan] = []
        for one in plans:
            key = one.attempt.row.key
            done.append(key in owed)
            if key in owed:
                owed.remove(key)  # in case the batch contains an attempt twice
                unchanged.append(one)
        if unchanged and not await _write(connection, unchanged):
            raise RuntimeError("a queue row changed under the lock of its account's head")
        return done

    async def _owed(self, connection: Conn, plans: Sequence[SettlingPlan]) -> set[tuple[UUID, str]]:
        member = self._member()
        rows = await _UNCHANGED_ROWS.records(
            connection,
            [one.attempt.row.message_id for one in plans],
            [one.attempt.row.domain for one in plans],
            [one.attempt.row.attempts for one in plans],
            member,
        )
        if not rows and not await _IS_MEMBER.records(connection, member):
            raise Fenced
        return {(row["message_id"], row["domain"]) for row in rows}


async def _with_repetitions(pool: asyncpg.Pool, batch: Sequence[DeliveryAttempt]) -> Sequence[DeliveryAttempt]:
    """Return the attempts; an unexplained bounce suppresses if the address bounced like this a day before."""
    asked = {
        (attempt.row.account_id, result.address.lower())
        for attempt in batch
        if not attempt.simulated and not attempt.row.is_sealed
        for result in attempt.results
        if result.outcome is not None and result.outcome.unexplained
    }
    repeated = await bounces.unexplained_before(pool, asked, clock.now())
    if not repeated:
        return batch
    return [
        structs.replace(one, results=tuple(_repeated(each, one.row.account_id, repeated) for each in one.results))
        for one in batch
    ]


def _repeated(result: Result, account: UUID, repeated: set[tuple[UUID, str]]) -> Result:
    outcome = result.outcome
    if outcome is None or not outcome.unexplained or (account, result.address.lower()) not in repeated:
        return result
    return structs.replace(result, outcome=structs.replace(outcome, suppress=True))


def _independent(plans: Sequence[SettlingPlan]) -> bool:
    """Return True if `settle` alone writes all that the attempts need.

    That is: no message has recipients in other rows or occurs twice, no address is suppressed, and nothing is
    simulated or sealed.
    """
    if len({one.attempt.row.message_id for one in plans}) < len(plans):
        return False
    return not any(
        one.attempt.simulated
        or one.attempt.row.is_sealed
        or len(one.statuses) < one.attempt.row.total
        or any(result.outcome is not None and result.outcome.suppress for result, _ in one.statuses)
        for one in plans
    )


async def write(connection: Conn, plans: list[SettlingPlan]) -> None:
    """Settle within the caller's transaction, which has locked the accounts' heads and checked the queue rows.

    If the week's partition is missing, a savepoint keeps the transaction usable; the second try finds the partition
    made.
    """
    try:
        async with connection.transaction():
            written = await _write(connection, plans)
    except MissingPartition:
        written = await _write(connection, plans)
    if not written:
        raise RuntimeError("a queue row changed under the lock of its account's head")


async def _write(connection: Conn, plans: list[SettlingPlan], *, member: UUID | None = None) -> bool:
    """Return True if all attempts were settled; False, with none settled, if a queue row or an account is gone.

    Raises Fenced if `member` is given and fenced. Attempts that are not independent need the caller's transaction.
    """
    accounts = sorted({one.attempt.row.account_id for one in plans})
    messages = [one.attempt.row.message_id for one in plans]
    low, high = min(messages), max(messages)
    recipients = settled_rows.settled_recipients(plans)
    partial = {one.attempt.row.message_id for one in plans if len(one.statuses) < one.attempt.row.total}
    stored: dict[UUID, list[Status]] = {}
    if partial:  # their status depends on recipients in other rows: write these first, then read all
        await _UPDATE_RECIPIENTS.run(connection, settled_rows.RECIPIENT.of(recipients), low=low, high=high)
        recipients = []
        for row in await _RECIPIENT_STATUSES.records(connection, list(partial), low, high):
            stored[row["message_id"]] = [Status(status) for status in row["statuses"]]
    await _forget_content(connection, plans)
    entries = [entry for one in plans for entry in one.entries]
    entries += await _suppress(connection, plans)
    await quota_usage.count_simulated(connection, settled_rows.simulated(plans))
    events, counts = log.unsealed(accounts, entries)
    outcome = await _SETTLE.run(
        connection,
        settled_rows.RECIPIENT.of(recipients),
        settled_rows.MESSAGE.of(settled_rows.settled_messages(plans, stored)),
        settled_rows.FOUND.of([settled_rows.found(one) for one in plans]),
        settled_rows.LATER.of([settled_rows.retried(one) for one in plans if one.waiting]),
        settled_rows.DAY.of(settled_rows.day_counts(plans)),
        log.UNSEALED.of(events),
        accounts=accounts,
        counts=counts,
        low=low,
        high=high,
        member=member,
    )
    if outcome == "fenced":
        raise Fenced
    return outcome == "done"


async def _forget_content(connection: Conn, plans: Sequence[SettlingPlan]) -> None:
    """Delete the content of sealed messages that end here, within the caller's transaction."""
    ended = [one.attempt.row.message_id for one in plans if one.attempt.row.is_sealed and not one.waiting]
    if ended:
        await DELETE_BODIES.execute(connection, ended, min(ended), max(ended))


async def _suppress(connection: Conn, plans: list[SettlingPlan]) -> list[log.Entry]:
    """Suppress the addresses that proved invalid; return one event for each that was not suppressed, or for a weaker
    reason.
    """
    rows = [
        (
            one.attempt.row.account_id,
            canonical(result.address),
            "bounce",
            one.attempt.row.message_id,
            result.outcome.diagnostic,
        )
        for one in plans
        for result, status in one.statuses
        if status is Status.BOUNCED and result.outcome is not None and result.outcome.suppress
    ]
    if not rows:
        return []
    causes = {(row[0], row[1]): ids.format_id(ids.Kind.MESSAGE, row[3]) for row in rows}
    at = clock.now()
    return [
        log.Entry(
            hit.account_id,
            AccountEvent.SUPPRESSION_ADDED,
            log.detail_text(
                {
                    "address": hit.address,
                    "reason": hit.reason,
                    "source": "delivery",
                    "message_id": causes[hit.account_id, hit.address],
                }
            ),
            at,
        )
        for hit in await suppressions.add(connection, *columns(rows, 5))
    ]
