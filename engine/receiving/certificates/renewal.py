"""Get certificates for MTA-STS policy hosts whose DNS leads here, and renew them at two thirds of their life.

Only with WAYBILL_ACME_DIRECTORY: otherwise a proxy in front has the certificates and asks which hosts it may get them
for. Each host is claimed by one worker, for longer than an order may take; a failure waits from five minutes to a day.
"""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Final

import asyncpg
import structlog

from engine.base import clock
from engine.base.secrets import derived, seal, unseal
from engine.base.settings import Settings
from engine.receiving.certificates import rules, store
from engine.receiving.certificates.acme_client import (
    AcmeAccountUnknown,
    AcmeClient,
    AcmeFailed,
    AcmeUnavailable,
    new_account_key,
)
from engine.receiving.certificates.types import DueCertificate, IssuedCertificate, StoredAcmeAccount
from engine.store.jobs import Job
from engine.store.queries import Queries

MAX_HOSTS: Final = 10  # in one round
CLAIMED_FOR: Final = timedelta(minutes=30)
CHALLENGE_S: Final = timedelta(minutes=10)
CHALLENGE_PATH: Final = "/.well-known/acme-challenge/"

_SQL = Queries.beside(__file__, "renewal.sql")
_WANTED = _SQL.command("wanted_hosts")
_log = structlog.get_logger("certificates")


async def get_due(pool: asyncpg.Pool, settings: Settings) -> int:
    """Get a certificate for every host that needs one now; return how many were issued."""
    if settings.acme_directory is None:
        return 0
    await _want(pool)
    issued = 0
    client: AcmeClient | None = None
    for _ in range(MAX_HOSTS):
        at = clock.now()
        due = await store.CLAIM_DUE.first(pool, at, at + CLAIMED_FOR)
        if due is None:
            break
        try:
            client = client or await _client(pool, settings)
            issued += await _get(pool, settings, client, due)
        except AcmeAccountUnknown as error:
            assert client is not None
            await store.FORGET_ACCOUNT.execute(pool, settings.acme_directory, client.url)
            client = None
            await _failed(pool, due, str(error))
        except (AcmeFailed, AcmeUnavailable) as error:
            await _failed(pool, due, str(error))
    return issued


JOB = Job("certificates", every_s=20, run=get_due)


async def _want(pool: asyncpg.Pool) -> None:
    at = clock.now()
    for row in await _WANTED.records(pool, MAX_HOSTS):
        await store.WANT.execute(pool, f"mta-sts.{row['name']}", row["id"], at)


async def _get(pool: asyncpg.Pool, settings: Settings, client: AcmeClient, due: DueCertificate) -> int:
    """Get and store the certificate of a host; return 1. Raises AcmeFailed."""
    loop = asyncio.get_running_loop()

    def publish(token: str, text: str) -> None:
        """Store the answer to a challenge; runs in the thread of the order."""
        stored = store.PUT_CHALLENGE.execute(pool, token, text, clock.now() + CHALLENGE_S)
        asyncio.run_coroutine_threadsafe(stored, loop).result(timeout=CHALLENGE_S.total_seconds())

    issued = await asyncio.to_thread(client.issue, due.host, publish)
    await save(pool, settings, due.host, issued)
    _log.info("certificate issued", host=due.host, until=clock.iso(rules.ends_at(issued.chain)))
    return 1


async def save(pool: asyncpg.Pool, settings: Settings, host: str, issued: IssuedCertificate) -> None:
    """Store a certificate, its key sealed and bound to the host."""
    sealed = seal(derived(settings.pepper, rules.SEALING), issued.key_pem, host.encode())
    chain = issued.chain
    await store.SAVE.execute(pool, host, sealed, chain, rules.ends_at(chain), rules.renew_at(chain))


async def _failed(pool: asyncpg.Pool, due: DueCertificate, why: str) -> None:
    _log.warning("certificate not issued", host=due.host, error=why)
    again = clock.now() + rules.retry_after(due.failures + 1)
    await store.SAVE_FAILURE.execute(pool, due.host, why, again)


async def _client(pool: asyncpg.Pool, settings: Settings) -> AcmeClient:
    """Return a client with the account that all workers share; registers it if that has not been done."""
    assert settings.acme_directory is not None
    directory, sealing = settings.acme_directory, derived(settings.pepper, rules.SEALING)
    account = await _account(pool, directory, sealing)
    key = unseal(sealing, account.sealed_key, directory.encode())
    make = partial(AcmeClient, directory, key, url=account.url, authorities=settings.acme_authorities)
    client = await asyncio.to_thread(make)
    if account.url is None:
        await asyncio.to_thread(client.register, settings.acme_email)
        await store.SAVE_ACCOUNT.execute(pool, directory, client.url)
    return client


async def _account(pool: asyncpg.Pool, directory: str, sealing: bytes) -> StoredAcmeAccount:
    known = await store.READ_ACCOUNT.first(pool, directory)
    if known is None:
        sealed = seal(sealing, new_account_key(), directory.encode())
        await store.INSERT_ACCOUNT.execute(pool, directory, sealed)
        known = await store.READ_ACCOUNT.first(pool, directory)
        assert known is not None
    return known
