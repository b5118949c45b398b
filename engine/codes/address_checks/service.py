"""Check addresses and charge for those whose result is certain.

The charge is reserved before DNS is asked, so that parallel calls can't exceed the month, and corrected afterwards. A
reservation whose process died is given back after a minute.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg

from engine.base import clock, ids
from engine.base.errors import existing
from engine.base.plans import caps_of
from engine.codes.address_checks import rules
from engine.codes.address_checks.routes import routes_of
from engine.codes.address_checks.types import AddressVerdict, CheckedBatch, PayerRow
from engine.store.jobs import Job
from engine.store.queries import Queries
from engine.store.resolver import Resolver

_SQL = Queries.beside(__file__)
_PAYER = _SQL.rows("read_payer", PayerRow)
_RESERVE = _SQL.command("reserve_checks")
_CHARGE = _SQL.command("charge_checks")
_GIVE_BACK = _SQL.command("give_back_expired")
_SUPPRESSED = _SQL.command("suppressed_of")


async def check(
    pool: asyncpg.Pool, resolver: Resolver, account: UUID, texts: Sequence[str], at: datetime
) -> CheckedBatch:
    """Return one result per text; raise the 403 if the month has not enough checks left for all of them."""
    given = await asyncio.to_thread(lambda: [rules.parsed(text) for text in texts])  # IDNs take up to 0.6 ms each
    distinct = {one.key: one for one in given}
    reservation = await _reserve(pool, account, len(distinct), at)
    charged = 0
    try:
        routes = await routes_of(resolver, {one.domain for one in given if one.normalized is not None})
        rows = await _SUPPRESSED.records(pool, account, [one.key for one in given if one.normalized is not None])
        suppressed = {row["address"]: row["reason"] for row in rows}
        results = [rules.judge(one, routes, suppressed) for one in given]
        certain = {
            one.key for one, result in zip(given, results, strict=True) if result.verdict is not AddressVerdict.UNKNOWN
        }
        charged = len(certain)
    finally:
        await asyncio.shield(_CHARGE.execute(pool, reservation, charged))
    return CheckedBatch(results, charged)


async def give_back_expired(pool: asyncpg.Pool) -> None:
    """Give back what processes reserved that died before they charged it."""
    await _GIVE_BACK.execute(pool)


JOB = Job("address checks", every_s=20, run=lambda pool, _: give_back_expired(pool))


async def _reserve(pool: asyncpg.Pool, account: UUID, count: int, at: datetime) -> UUID:
    month = clock.first_of_month(at.date())
    payer = existing(await _PAYER.first(pool, account, month), "account")
    limit = caps_of(payer.plan, payer.agreed_caps).monthly_address_checks
    reservation = ids.uuid7()
    if not await _RESERVE.records(pool, reservation, payer.id, month, count, limit):
        now = await _PAYER.first(pool, account, month)
        used = payer.used if now is None else now.used
        raise rules.month_used(limit, used, count, retry_after_s=clock.seconds_until_next_month(at))
    return reservation
