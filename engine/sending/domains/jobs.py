"""Run background work for domains: due checks, retiring keys, purging removed domains.

Safe with any number of worker processes: a worker claims due domains by postponing them, so the domains of a worker
that dies become due again.
"""

import asyncio
from datetime import timedelta
from typing import Final

import asyncpg
import structlog

from engine.base import clock
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.sending.domains import lookups, store
from engine.sending.domains.lookups import RecordLookup
from engine.sending.domains.service import make_key
from engine.sending.domains.types import DomainRow
from engine.sending.domains.verification import verify
from engine.store.database_errors import DatabaseUnavailable
from engine.store.jobs import Job

MAX_AT_ONCE: Final = 10
MAX_CLAIMED: Final = 50
CLAIMED_FOR: Final = timedelta(minutes=5)  # MAX_CLAIMED checks, MAX_AT_ONCE at a time, take less
MAX_RETIRED: Final = 20
MAX_FORGOTTEN: Final = 100

_log = structlog.get_logger("domains")


async def check_due(pool: asyncpg.Pool, settings: Settings) -> int:
    """Check every domain that is due; return their number."""
    done = 0
    while claimed := await _claim(pool):
        resolver = lookups.for_checks(settings)
        try:
            await _check_all(pool, settings, claimed, resolver)
        finally:
            await resolver.close()
        done += len(claimed)
        if len(claimed) < MAX_CLAIMED:
            break
    return done


async def retire_keys(pool: asyncpg.Pool, settings: Settings) -> int:
    """Replace each key whose retirement is due with a new standby key; return their number."""
    due = await store.DUE_TO_RETIRE.fetch(pool, clock.now(), MAX_RETIRED)
    for old in due:
        fresh = await make_key(old.domain_id, old.selector, old.algorithm)
        sealed = store.seal_key(old.domain_id, fresh, pepper=settings.pepper)
        await store.REPLACE_RETIRED.execute(pool, old.domain_id, old.selector, old.public_txt, sealed, fresh.public_txt)
    return len(due)


async def forget_removed(pool: asyncpg.Pool, settings: Settings) -> int:
    """Delete removed domains and their keys once no accepted message needs them; return their number.

    That is after the retry schedule ends, and if the queue has no mail from the domain.
    """
    before = clock.now() - timedelta(seconds=settings.give_up_s)
    rows = await store.FORGET_REMOVED.records(pool, before, MAX_FORGOTTEN)
    return len(rows)


JOBS = (
    Job("domains", every_s=5, run=check_due),
    Job("domain keys", every_s=600, run=retire_keys),
    Job("removed domains", every_s=600, run=forget_removed),
)


async def _claim(pool: asyncpg.Pool) -> list[DomainRow]:
    at = clock.now()
    return await store.CLAIM_DUE.fetch(pool, at, MAX_CLAIMED, at + CLAIMED_FOR)


async def _check_all(pool: asyncpg.Pool, settings: Settings, claimed: list[DomainRow], asked: RecordLookup) -> None:
    slots = asyncio.Semaphore(MAX_AT_ONCE)

    async def check(domain: DomainRow) -> None:
        async with slots:
            try:
                found = await verify(pool, settings, domain, asked)
                if found.domain.status != domain.status:
                    _log.info(
                        "domain status changed", domain=domain.name, status=found.domain.status, was=domain.status
                    )
            except Refusal:  # removed in the meantime
                return
            except DatabaseUnavailable as error:
                _log.warning("domain not checked", domain=domain.name, error=repr(error))
            except Exception:  # noqa: BLE001 - process loop: an error of one domain must not stop the others
                _log.exception("domain not checked", domain=domain.name)

    async with asyncio.TaskGroup() as tasks:
        for domain in claimed:
            tasks.create_task(check(domain))
