"""Keeping the live map by rule: hot domains are split and merged, loads are reckoned with when they are uneven.

A job of the workers; of several, one does it at a time. What it decides are rows like those of an operator's command,
with the reason beside them.
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
from engine.store.queries import Conn, Queries, columns
from shards import lease, live_map, load
from shards.hot import Bounds, Watched, judge_balance, judge_domain

BALANCE = ""  # stands for the balance of all members among the watched domains

_SQL = Queries.beside(__file__, "keeper.sql")
_ALONE = _SQL.command("only_one")
_WRITE = _SQL.command("write_watch")
_FORGET = _SQL.command("forget_watch")

_log = structlog.get_logger("shards")


class _WatchRow(Struct, frozen=True):
    domain: str
    over_since: datetime | None
    under_since: datetime | None


_READ = _SQL.rows("read_watch", _WatchRow)


async def keep(pool: asyncpg.Pool, settings: Settings) -> None:
    """Forget who is gone; look at the rates once and change what the rules say. Raises DatabaseUnavailable."""
    await process_registry.forget(pool)
    await load.forget(pool)
    if settings.shard_rules == "manual":
        return
    async with pool.acquire() as connection, connection.transaction():
        [row] = await _ALONE.records(connection)
        if row["alone"]:
            await _look(connection, settings, row["at"])


async def _look(connection: Conn, settings: Settings, at: datetime) -> None:
    before = {row.domain: Watched(row.over_since, row.under_since) for row in await _READ.fetch(connection)}
    bounds = bounds_of(settings)
    after = await _domains(connection, settings, bounds, before, at)
    after[BALANCE] = await _balance(connection, settings, bounds, before.get(BALANCE, Watched()), at)
    kept = {domain: seen for domain, seen in after.items() if seen != Watched()}
    news = sorted(domain for domain, seen in kept.items() if seen != before.get(domain))
    if news:
        rows = [(domain, kept[domain].over_since, kept[domain].under_since) for domain in news]
        await _WRITE.execute(connection, *columns(rows, 3))
    if gone := sorted(before.keys() - kept.keys()):
        await _FORGET.execute(connection, gone)


async def _domains(
    connection: Conn, settings: Settings, bounds: Bounds, before: Mapping[str, Watched], at: datetime
) -> dict[str, Watched]:
    members = await lease.MEMBERS.fetch(connection)
    known = {one.domain: one for one in await splits.ALL.fetch(connection)}
    rates = {one.domain: one.rate for one in await load.DOMAIN_RATES.fetch(connection, load.FRESH_S)}
    total = sum(one.rate for one in await load.SHARD_RATES.fetch(connection, load.FRESH_S))
    found: dict[str, Watched] = {}
    for domain in sorted(rates.keys() | {one.domain for one in known.values() if one.parts > 1}):
        split, rate = known.get(domain), rates.get(domain, 0.0)
        hot = judge_domain(
            before.get(domain, Watched()), rate=rate, share=min(1.0, rate / total) if total > 0 else 0.0,
            parts=1 if split is None else split.parts, whose=None if split is None else split.whose,
            members=len(members), at=at, bounds=bounds,
        )  # fmt: skip
        found[domain] = hot.watched
        if hot.parts is not None:
            await splits.change(
                connection, domain, hot.parts, shards=settings.shards, whose=SplitAuthor.RULE, why=hot.why
            )
            _log.info("split" if hot.parts > 1 else "merged", domain=domain, parts=hot.parts, why=hot.why)
    return found


async def _balance(connection: Conn, settings: Settings, bounds: Bounds, watched: Watched, at: datetime) -> Watched:
    live, members = await live_map.read(connection), await lease.MEMBERS.fetch(connection)
    owners = await lease.OWNERS.fetch(connection, settings.shards)
    rates = {one.shard: one.rate for one in await load.SHARD_RATES.fetch(connection, load.FRESH_S)}
    found = judge_balance(
        watched, shards=settings.shards, weights=live_map.weights_of(members, live),
        owners={row.shard: str(row.owner) for row in owners if row.alive}, pins=live_map.pins_of(members, live),
        rates=rates, at=at, bounds=bounds,
    )  # fmt: skip
    if found.wanted:
        await live_map.write_plan(connection, rates, whose=SplitAuthor.RULE, why=found.why)
        _log.info("balanced by load", why=found.why)
    return found.watched


def bounds_of(settings: Settings) -> Bounds:
    """Those that the operator has set."""
    return Bounds(
        split_rate=settings.split_rate, split_share=settings.split_share, split_after_s=settings.split_after_s,
        merge_after_s=settings.merge_after_s, balance_rate=settings.balance_rate,
        balance_after_s=settings.balance_after_s,
    )  # fmt: skip
