"""Measure alert rules that are due, and fire and end alerts.

due → rules locked → values read → decided → events, mail, posts and states stored: one transaction for a batch of one
kind. A killed worker leaves nothing behind, and the rules fall due to another one. Rules that one worker has locked are
skipped by others, and a measured rule is not due for a minute: so a firing is told once.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg
import orjson
import structlog
from msgspec import Struct

from engine.accounts import suspend
from engine.accounts.alerts import notices, readings, rules, service, store
from engine.accounts.alerts.notices import AlertNotice
from engine.accounts.alerts.readings import Readings
from engine.accounts.alerts.store import MeasuredRule
from engine.accounts.alerts.types import AlertEvent, AlertKind, AlertReading, AlertRule, FiringStep, UnknownReason
from engine.base import ids
from engine.base.events import AccountEvent
from engine.base.settings import Settings
from engine.ledger import heads, log
from engine.ledger.heads import AccountHead
from engine.store import metrics
from engine.store.database_clock import DatabaseClock, new_time
from engine.store.jobs import Job
from engine.store.queries import Conn

BATCH: Final = 500  # rules of one transaction, which holds the account heads of those that fire or end
SERVICE: Final = "service"
_FIRST = UUID(int=0)
_UNKNOWN = AlertReading(None, why=UnknownReason.NOT_MEASURED)

_log = structlog.get_logger("alerts")


class AlertRound(Struct):
    """The numbers of rules measured, alerts fired, notices sent, and alerts ended, by kind."""

    measured: int = 0
    fired: int = 0
    noticed: int = 0
    ended: int = 0


class Measurement(Struct, frozen=True):
    """A rule, its reading, and what the state machine makes of it."""

    rule: AlertRule
    reading: AlertReading
    step: FiringStep


async def measure_due(pool: asyncpg.Pool, settings: Settings, at: datetime) -> dict[AlertKind, AlertRound]:
    """Measure all rules that were not measured within a minute before `at`; return what happened, by kind.

    Several workers may run it.
    """
    before = at - rules.MEASURED_EVERY
    if not await store.any_due(pool, before):
        return {}
    await suspend.count_outcomes(pool, at)
    return {kind: await _measure_kind(pool, settings, kind, before, at) for kind in AlertKind}


async def _measure_and_count(pool: asyncpg.Pool, settings: Settings) -> None:
    at = (await DatabaseClock.read(pool)).now()
    for kind, done in (await measure_due(pool, settings, at)).items():
        metrics.ALERTS_FIRED.labels(kind.value).inc(done.fired)
        metrics.ALERTS_ENDED.labels(kind.value).inc(done.ended)
        metrics.ALERT_NOTICES.labels(kind.value).inc(done.noticed)


JOB = Job("alerts", every_s=5, run=_measure_and_count, share=0.5)  # each rule every minute


async def _measure_kind(
    pool: asyncpg.Pool, settings: Settings, kind: AlertKind, before: datetime, at: datetime
) -> AlertRound:
    done = AlertRound()
    after = _FIRST
    while True:
        async with pool.acquire() as connection, connection.transaction():
            taken = await store.TAKE_DUE.fetch(connection, kind.value, before, after, BATCH)
            if taken:
                await _measure(connection, settings, kind, taken, at, done)
        if len(taken) < BATCH:
            return done
        after = taken[-1].account_id


async def _measure(
    connection: Conn, settings: Settings, kind: AlertKind, taken: Sequence[AlertRule], at: datetime, done: AlertRound
) -> None:
    """Measure locked rules, each of another account, and store the result."""
    found = await readings.read(connection, kind, taken, at)
    measured = [_decide(rule, found.get(rule.account_id, _UNKNOWN), at) for rule in taken]
    told = [one for one in measured if one.step.begins or one.step.notifies or one.step.ends]
    begun: dict[UUID, AlertEvent] = {}
    if told:
        locked = await heads.lock(connection, {one.rule.account_id for one in told})
        begun = await _begin(connection, settings, told, found, at)
        done.noticed += await _notify(connection, locked, told, begun, at)
        await _end(connection, locked, told, at)
    await store.save_measured(connection, [_row(one, begun.get(one.rule.id)) for one in measured], at)
    done.measured += len(measured)
    done.fired += len(begun)
    done.ended += sum(one.step.ends for one in told)


def _decide(rule: AlertRule, reading: AlertReading, at: datetime) -> Measurement:
    cooldown = timedelta(minutes=rule.cooldown_minutes)
    return Measurement(rule, reading, rules.step(rules.state_of(rule), reading.value, rule.threshold, cooldown, at))


async def _begin(
    connection: Conn, settings: Settings, told: Sequence[Measurement], found: Readings, at: datetime
) -> dict[UUID, AlertEvent]:
    """Store an alert event for each firing that begins; return them by rule."""
    begins = [one for one in told if one.step.begins]
    if not begins:
        return {}
    accounts = [one.rule.account_id for one in begins]
    details = {account: found[account].detail for account in accounts}
    if begins[0].rule.kind == AlertKind.DNS_DRIFT:
        details = await readings.with_records(connection, settings, found, accounts)
    made = ids.uuid7s(len(begins), await _list_time(connection))
    events = {one.rule.id: event_of(one, next(made), details[one.rule.account_id], at) for one in begins}
    await store.insert_events(connection, list(events.values()))
    _log.info("alerts fired", kind=begins[0].rule.kind, alerts=len(events))
    return events


def event_of(measurement: Measurement, event: UUID, detail: dict[str, object], at: datetime) -> AlertEvent:
    """Return the alert event of a measurement, with the value and the threshold of the moment."""
    rule, value = measurement.rule, measurement.reading.value
    assert value is not None
    return AlertEvent(
        event, rule.account_id, rule.id, rule.kind, value, rule.threshold, rule.window_days, [],
        orjson.dumps(detail).decode(), at, None,
    )  # fmt: skip


async def _list_time(connection: Conn) -> int:
    """Return the milliseconds of ids for a list by id; the caller holds the account heads."""
    return int((await new_time(connection)).timestamp() * 1000)


async def _notify(
    connection: Conn, locked: dict[UUID, AccountHead], told: Sequence[Measurement], begun: dict[UUID, AlertEvent],
    at: datetime,
) -> int:  # fmt: skip
    """Send the notices that go out with this measurement; return how many."""
    going = [one.rule for one in told if one.step.notifies]
    earlier = await store.events_of(
        connection, [one.event_id for one in going if one.id not in begun and one.event_id is not None]
    )
    pairs = [(one, begun.get(one.id) or earlier.get(one.event_id or _FIRST)) for one in going]
    sent = [AlertNotice(rule, event) for rule, event in pairs if event is not None]
    await store.set_channels(connection, await notices.tell(connection, locked, sent, at, actor=SERVICE))
    return len(sent)


async def _end(connection: Conn, locked: dict[UUID, AccountHead], told: Sequence[Measurement], at: datetime) -> None:
    """End the events of alerts that have ended; those whose notice went out are told."""
    ends = {one.rule.event_id: one for one in told if one.step.ends and one.rule.event_id is not None}
    events = await store.events_of(connection, list(ends))
    await store.end_events(connection, list(ends), at)
    noticed = [(ends[event.id], event) for event in events.values() if ends[event.id].rule.notified]
    entries = [
        log.Entry(
            event.account_id,
            AccountEvent.ALERT_ENDED,
            log.detail_text(service.ended_detail(event, at, one.reading.value) | {"actor": SERVICE}),
            at,
        )
        for one, event in noticed
    ]
    silent = [event.account_id for one, event in noticed if not one.rule.notify_webhook]
    if entries:
        await notices.append(connection, locked, entries, silent=silent)


def _row(one: Measurement, begun: AlertEvent | None) -> MeasuredRule:
    state, reading = one.step.state, one.reading
    event = begun.id if begun is not None else one.rule.event_id
    return MeasuredRule(
        one.rule.id, state.firing_since, state.below, None if state.firing_since is None else event, state.notified,
        state.noticed_at, reading.value, None if reading.why is None else reading.why.value,
    )  # fmt: skip
