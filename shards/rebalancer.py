"""Split and merge busy domains, and balance shards by load, as the rules of `shards.split_policy` decide.

The worker processes run this as a periodic job; an advisory lock lets one of them do it at a time. A decision is
written to the tables that operator commands write too, with its reason.
"""

from collections.abc import Mapping
from datetime import datetime

import asyncpg
import structlog
from msgspec import Struct

from engine.base.settings import Settings
from engine.delivery import splits
from engine.delivery.splits import SplitAuthor
from engine.store import process_registry
from engine.store.jobs import Job
from engine.store.own_schema import LOCK_SCHEMA
from engine.store.queries import Conn, Queries, columns
from shards import lease, load, placement
from shards.split_policy import SplitThresholds, ThresholdState, decide_balance, decide_split

BALANCE = ""  # the key, among domain names, of the state of the balance between members

_SQL = Queries.beside(__file__, "rebalancer.sql", lock_schema=LOCK_SCHEMA)
_TRY_LOCK = _SQL.command("try_lock")
_WRITE = _SQL.command("write_states")
_DELETE = _SQL.command("delete_states")

_log = structlog.get_logger("shards")


class _StateRow(Struct, frozen=True):
    domain: str
    over_since: datetime | None
    under_since: datetime | None


_READ = _SQL.rows("read_states", _StateRow)


async def run_once(pool: asyncpg.Pool, settings: Settings) -> None:
    """Delete outdated processes and rates, then apply the rules to the current rates once.

    Raises DatabaseUnavailable.
    """
    await process_registry.forget(pool)
    await load.delete_old(pool)
    if settings.shard_rules == "manual":
        return
    async with pool.acquire() as connection, connection.transaction():
        [row] = await _TRY_LOCK.records(connection)
        if row["locked"]:
            await _apply_rules(connection, settings, row["at"])


JOB = Job("shards", every_s=5, run=run_once, quiet_s=30, machine=True)


async def _apply_rules(connection: Conn, settings: Settings, at: datetime) -> None:
    before = {row.domain: ThresholdState(row.over_since, row.under_since) for row in await _READ.fetch(connection)}
    thresholds = thresholds_of(settings)
    after = await _split_domains(connection, settings, thresholds, before, at)
    after[BALANCE] = await _balance(connection, settings, thresholds, before.get(BALANCE, ThresholdState()), at)
    kept = {domain: state for domain, state in after.items() if state != ThresholdState()}
    changed = sorted(domain for domain, state in kept.items() if state != before.get(domain))
    if changed:
        rows = [(domain, kept[domain].over_since, kept[domain].under_since) for domain in changed]
        await _WRITE.execute(connection, *columns(rows, 3))
    if removed := sorted(before.keys() - kept.keys()):
        await _DELETE.execute(connection, removed)


async def _split_domains(
    connection: Conn,
    settings: Settings,
    thresholds: SplitThresholds,
    before: Mapping[str, ThresholdState],
    at: datetime,
) -> dict[str, ThresholdState]:
    """Split and merge domains as the rules decide; return the states to store by domain."""
    members = await lease.MEMBERS.fetch(connection)
    known = {one.domain: one for one in await splits.ALL.fetch(connection)}
    rates = {one.domain: one.rate for one in await load.DOMAIN_RATES.fetch(connection, load.MAX_AGE_S)}
    total = sum(one.rate for one in await load.SHARD_RATES.fetch(connection, load.MAX_AGE_S))
    states: dict[str, ThresholdState] = {}
    for domain in sorted(rates.keys() | {one.domain for one in known.values() if one.parts > 1}):
        split, rate = known.get(domain), rates.get(domain, 0.0)
        decision = decide_split(
            before.get(domain, ThresholdState()), rate=rate, share=min(1.0, rate / total) if total > 0 else 0.0,
            parts=1 if split is None else split.parts, whose=None if split is None else split.whose,
            members=len(members), at=at, thresholds=thresholds,
        )  # fmt: skip
        states[domain] = decision.state
        if decision.parts is not None:
            parts, why = decision.parts, decision.why
            await splits.change(connection, domain, parts, shards=settings.shards, whose=SplitAuthor.RULE, why=why)
            _log.info("domain split" if parts > 1 else "domain merged", domain=domain, parts=parts, why=why)
    return states


async def _balance(
    connection: Conn, settings: Settings, thresholds: SplitThresholds, state: ThresholdState, at: datetime
) -> ThresholdState:
    """Balance shards by load if the rule decides so; return the state to store."""
    rules, members = await placement.read(connection), await lease.MEMBERS.fetch(connection)
    owners = await lease.OWNERS.fetch(connection, settings.shards)
    rates = {one.shard: one.rate for one in await load.SHARD_RATES.fetch(connection, load.MAX_AGE_S)}
    decision = decide_balance(
        state, shards=settings.shards, weights=placement.weights_of(members, rules),
        owners={row.shard: str(row.owner) for row in owners if row.alive}, pins=placement.pins_of(members, rules),
        rates=rates, at=at, thresholds=thresholds,
    )  # fmt: skip
    if decision.by_load:
        await placement.write_load_plan(connection, rates, whose=SplitAuthor.RULE, why=decision.why)
        _log.info("shards balanced by load", why=decision.why)
    return decision.state


def thresholds_of(settings: Settings) -> SplitThresholds:
    """Return the thresholds that the settings hold."""
    return SplitThresholds(
        split_rate=settings.split_rate, split_share=settings.split_share, split_after_s=settings.split_after_s,
        merge_after_s=settings.merge_after_s, balance_rate=settings.balance_rate,
        balance_after_s=settings.balance_after_s,
    )  # fmt: skip
