"""Check source addresses and verified domains against DNS blocklists.

Safe with any number of worker processes: a worker claims due targets by postponing them, so the targets of a worker
that dies become due again. Fails closed: without an answer that can be trusted, listings stay as they are.
"""

import random
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

import asyncpg
import structlog

from engine.base import clock
from engine.base.settings import Settings
from engine.delivery import sources_store
from engine.sending.blocklists import lookups, store
from engine.sending.blocklists.rules import family_of, measured_until, next_check_at
from engine.sending.blocklists.source_addresses import public_sources
from engine.sending.blocklists.store import CheckedTarget
from engine.sending.blocklists.types import DueTarget, ListAnswer, ListFamily, ListToAsk, ListVerdict
from engine.store.jobs import Job
from engine.store.resolver import Resolver

MAX_CLAIMED: Final = 100
CLAIMED_FOR: Final = timedelta(minutes=5)  # a round takes lookups.ROUND_S at most
RETRY_S: Final = 300.0  # after a check to which no list had an answer

_log = structlog.get_logger("blocklists")


async def check_due(pool: asyncpg.Pool, settings: Settings) -> int:
    """Check every target that is due against all lists that can be trusted; return their number."""
    done, complete = 0, True
    if settings.blocklist_ip_zones or settings.blocklist_domain_zones:
        complete = await _report_sources(pool, settings)
        while checked := await _check_batch(pool, settings):
            done += checked
            if checked < MAX_CLAIMED:
                break
    await store.forget(pool, clock.now(), keep_addresses=not complete)
    return done


JOB = Job("blocklists", every_s=60, run=check_due)


def lists_of(settings: Settings, families: Collection[ListFamily]) -> list[ListToAsk]:
    """Return the lists of the settings for these families of targets."""
    found = []
    for family in ListFamily:
        zones = settings.blocklist_domain_zones if family is ListFamily.DOMAIN else settings.blocklist_ip_zones
        found += [ListToAsk(one.name, one.zone, family) for one in zones if family in families]
    return found


async def _report_sources(pool: asyncpg.Pool, settings: Settings) -> bool:
    """Report the addresses that mail leaves from; return False if DNS did not tell all of them."""
    if not settings.blocklist_ip_zones:
        return True
    book = await sources_store.read(pool)
    pooled = {*book.warmups, *(member.ip for named in book.pools.values() for member in named.members)}
    async with lookups.resolver_for_round(settings) as resolver:
        found = await public_sources(resolver, settings, pooled)
    await store.report_addresses(pool, found.ips, measured_until(clock.now(), every_s=settings.blocklist_check_s))
    return found.complete


async def _check_batch(pool: asyncpg.Pool, settings: Settings) -> int:
    """Test the lists, then check at most MAX_CLAIMED due targets; return their number."""
    at = clock.now()
    lists = lists_of(settings, await store.due_families(pool, at))
    if not lists:
        return 0
    async with lookups.resolver_for_round(settings) as resolver:
        trusted = await _tested(pool, settings, resolver, lists, at)
        claimed = await store.claim(pool, trusted.keys(), at=at, limit=MAX_CLAIMED, until=at + CLAIMED_FOR)
        questions = [(one.target, asked) for one in claimed for asked in trusted[_family(one)]]
        verdicts = await lookups.ask(resolver, questions)
    now = clock.now()
    checked = _checked(claimed, verdicts, now, settings.blocklist_check_s)
    for one in await store.save_checks(pool, checked, verdicts, now):
        _log.warning("blocklist " + one.change, kind=one.kind, target=one.target, list=one.zone)
    return len(claimed)


async def _tested(
    pool: asyncpg.Pool, settings: Settings, resolver: Resolver, lists: Sequence[ListToAsk], at: datetime
) -> dict[ListFamily, list[ListToAsk]]:
    """Test the lists and store what was found; return those that can be trusted by family."""
    judged = await lookups.judge(resolver, lists)
    known_until = measured_until(at, every_s=settings.blocklist_check_s)
    await store.save_zones(pool, judged, at=clock.now(), known_until=known_until)
    trusted = defaultdict(list)
    for one, found in judged.items():
        if found.trusted:
            trusted[one.family].append(one)
        else:
            _log.debug("blocklist not trusted", list=one.name, family=one.family.value, detail=found.detail)
    return trusted


def _checked(
    claimed: Sequence[DueTarget], verdicts: Sequence[ListVerdict], at: datetime, every_s: float
) -> list[CheckedTarget]:
    """Return the next checks: at the usual time after an answer, sooner without any."""
    answered = {(one.kind, one.target) for one in verdicts if one.answer is not ListAnswer.UNKNOWN}
    found = []
    for one in claimed:
        known = (_family(one).kind, one.target) in answered
        wait_s = every_s if known else min(RETRY_S, every_s)
        check_at = next_check_at(at, every_s=wait_s, jitter=random.uniform(-1, 1))
        found.append(CheckedTarget(one, check_at, measured_until(at, every_s=every_s) if known else None))
    return found


def _family(one: DueTarget) -> ListFamily:
    return family_of(one.target) if one.domain_id is None else ListFamily.DOMAIN
