"""Prepare the installation for `ops up` in a process of its own, so that the supervisor needs no database driver.

`python -m ops.host.prepare database` brings the schema up to date and compares this host's settings with the
installation's. `… welcome` makes the first account in local mode and reads what the start tells: warnings, the console.
Both print JSON lines: `{"say": TEXT}` at once, and as the last one `{"done": {…}}` or `{"failed": TEXT}`.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import structlog

from engine.base.settings import FRONT, BadSetting, Settings, load, variable
from engine.cells.directory import Directory
from engine.store import clock_schema, service_time
from engine.store import redis as redis_store
from engine.store.database_errors import BehindPooler, DatabaseError, DatabaseUnavailable, ServerUntrusted
from engine.store.migrate import MigrationError, migrate
from engine.store.postgres import connect
from engine.store.replica_pool import StrangerReplica, refuse_strangers
from mta.outbound.source_ips.addresses import check_sources
from ops.host.cluster_check import ClusterMismatch, agree
from ops.host.process_specs import runs_local_peers
from ops.host.smtp_access import smtp_lines

REDIS_TIMEOUT_S: Final = 2.0
STORE_WAIT_S: Final = 60.0  # for PostgreSQL; a failover or the recovery of some gigabytes of WAL take less
_STORE_POLL_S: Final = 0.5
Done = TypeVar("Done")


class NotPrepared(RuntimeError):  # noqa: N818 - named for what it says
    """The database can't be used; the text says why."""


def main() -> int:
    """Run one step and return the exit status."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    step, *flags = sys.argv[1:]
    settings = load(os.environ).settings
    try:
        done = asyncio.run(_database(settings) if step == "database" else _welcome(settings, "--terminal" in flags))
    except (BadSetting, NotPrepared, MigrationError, ClusterMismatch, RuntimeError) as error:
        _print({"failed": str(error)})
        return 1
    _print({"done": done})
    return 0


async def _database(settings: Settings) -> dict[str, Any]:
    if FRONT in settings.processes:
        await patiently(lambda: _open_directory(settings))
        return {}
    check_sources(settings)
    assert settings.redis_url is not None
    await redis_store.refuse_old(settings.redis_url)
    await patiently(lambda: _migrate(settings))
    for sentence in await patiently(lambda: agree(settings)):
        _say(sentence)
    try:
        await patiently(lambda: refuse_strangers(settings))
    except StrangerReplica as error:
        raise NotPrepared(str(error)) from None
    await patiently(lambda: _follow_clock(settings))
    return {}


async def _welcome(settings: Settings, terminal: bool) -> dict[str, Any]:  # noqa: FBT001 - private
    if FRONT in settings.processes:
        return {"firstRun": {}, "warnings": [], "ways": []}
    # Imported here: the database is brought up to date while the project is still being imported.
    from ops.host import first_run  # noqa: PLC0415
    from ops.host.console_access import console_lines  # noqa: PLC0415

    service_time.join(settings)
    warning = await redis_warning(settings)
    made = await patiently(lambda: first_run.ensure(settings, settings.state)) if runs_local_peers(settings) else {}
    ways = smtp_lines(settings)
    if "api" in settings.processes:
        ways += await console_lines(settings, made, terminal=terminal)
    return {"firstRun": made, "warnings": [warning] if warning else [], "ways": ways}


async def patiently(step: Callable[[], Awaitable[Done]]) -> Done:
    """Run a step of the start, which is repeatable; repeat it while PostgreSQL does not answer, such as during a
    failover or its recovery after a crash. Raises NotPrepared for other errors of the database, and after STORE_WAIT_S.
    """
    ends = time.monotonic() + STORE_WAIT_S
    told = False
    while True:
        try:
            return await step()
        except DatabaseError as error:
            words = str(error) or type(error).__name__
            if isinstance(error, BehindPooler | ServerUntrusted):
                raise NotPrepared(words) from error
            if not isinstance(error, DatabaseUnavailable) or time.monotonic() > ends:
                raise NotPrepared(
                    f"The database can't be used: {words}."
                    " If WAYBILL_DATABASE_URL is set, check that it is reachable and that its user may create tables."
                ) from error
            if not told:
                _say(f"PostgreSQL can't be used now ({words}): trying again for up to {STORE_WAIT_S:.0f} s")
                told = True
            await asyncio.sleep(_STORE_POLL_S)


async def _migrate(settings: Settings) -> list[str]:
    assert settings.database_url is not None
    try:
        return await migrate(settings.database_url)
    except MigrationError as error:
        raise NotPrepared(f"The database can't be brought up to date: {error}") from error


async def _open_directory(settings: Settings) -> None:
    """Raise MigrationError unless the directory has the tables of this version."""
    assert settings.directory_url is not None
    directory = await Directory.open(settings.directory_url, name="start")
    await directory.close()


async def _follow_clock(settings: Settings) -> None:
    """In local mode, follow the clock of the database, which may be another one than at the last start; in live mode,
    warn if it was moved."""
    assert settings.database_url is not None
    connection = await connect(settings.database_url, name="clock", timeout_s=30)
    try:
        ahead_us = await clock_schema.ahead_us(connection)
    finally:
        connection.terminate()
    follower = service_time.join(settings)
    if follower is not None:
        follower.shared.begin(ahead_us)
    if ahead_us:
        days = f"{ahead_us / 86_400e6:.1f} days"
        _say(
            f"The clock of this installation is {days} ahead; see `ops clock`"
            if follower is not None
            else f"In local mode, the clock of this database was moved {days} ahead. Live mode does not follow it, and"
            " records from then have dates in the future"
        )


async def redis_warning(settings: Settings) -> str | None:
    """Return a warning if Redis does not answer, else None. The service starts without Redis."""
    assert settings.redis_url is not None
    client = redis_store.connect(settings.redis_url, timeout_s=REDIS_TIMEOUT_S)
    try:
        async with asyncio.timeout(2 * REDIS_TIMEOUT_S):
            await client.ping()
    except (redis_store.RedisUnavailable, TimeoutError) as error:
        return (
            f"Warning: Redis does not answer ({str(error) or type(error).__name__}). Mail is accepted and delivered"
            f" without it, up to {settings.fresh_due_s:g} s later ({variable('fresh_due_s')}), and each process counts"
            f" request rates for itself. Check {variable('redis_url')}; Redis is used as soon as it answers."
        )
    finally:
        await client.aclose()
    return None


def _say(text: str) -> None:
    _print({"say": text})


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
