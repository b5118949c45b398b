"""A replica gets reads while it follows the primary closely, and only then."""

import asyncio
import math
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import asyncpg
import pytest
from msgspec import structs

from engine.base.settings import Settings
from engine.store.database_errors import DatabaseError
from engine.store.postgres import close_pool, open_pool
from engine.store.replica_pool import LaggingSource, StrangerReplica, refuse_strangers
from engine.store.replicas import Replicas
from loadtests.drill.postgres_pair import PairedPostgres
from tests.harness.patience import PATIENCE_S
from tests.harness.replica import Replicated, replicated

MAX_LAG_S = 2.0
ON_REPLICA = "SELECT CASE WHEN pg_is_in_recovery() THEN {} END"


@pytest.fixture(scope="module")
async def here(settings: Settings) -> AsyncIterator[Replicated]:
    async with replicated(settings) as servers:
        yield servers


@asynccontextmanager
async def following(url: str, primary: asyncpg.Pool, max_lag_s: float = MAX_LAG_S) -> AsyncIterator[Replicas]:
    """Run the probes of a process, and wait until it reads from a replica."""
    replicas = Replicas(url, primary, max_lag_s)
    probes = asyncio.create_task(replicas.run())
    try:
        await until(lambda: replicas.any_able, probes)
        yield replicas
    finally:
        probes.cancel()
        await asyncio.gather(probes, return_exceptions=True)


async def until(true: Callable[[], bool], probes: "asyncio.Task[None] | None" = None) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            if probes is not None and probes.done():
                probes.result()
            await asyncio.sleep(0.05)


def chosen(replicas: Replicas, since: float = -math.inf) -> LaggingSource:
    found = replicas.choose(since)
    assert found is not None
    return found


async def test_a_replica_that_lags_too_much_gets_no_reads_until_it_has_caught_up(here: Replicated) -> None:
    async with following(str(here.settings.database_read_url), here.pool) as replicas:
        await here.on_replica("SELECT pg_wal_replay_pause()")
        try:
            await here.pool.execute("CREATE TABLE IF NOT EXISTS replayed (n int)")
            await until(lambda: not replicas.any_able)
        finally:
            await here.on_replica("SELECT pg_wal_replay_resume()")
        await until(lambda: replicas.any_able)


async def test_a_caller_who_has_written_waits_for_the_delay_of_the_replica(here: Replicated) -> None:
    async with following(str(here.settings.database_read_url), here.pool, max_lag_s=600.0) as replicas:
        await here.delay(3_000)
        try:
            wrote_at = time.monotonic()
            await here.pool.execute("CREATE TABLE late (n int)")
            assert replicas.any_able
            assert replicas.choose(since=wrote_at) is None
            await until(lambda: replicas.choose(since=wrote_at) is not None)
            assert await chosen(replicas, wrote_at).fetchval("SELECT to_regclass('late') IS NOT NULL")
        finally:
            await here.delay(0)
            await here.pool.execute("DROP TABLE late")


async def test_a_session_of_a_replica_writes_nothing(here: Replicated) -> None:
    async with (
        following(str(here.settings.database_read_url), here.pool) as replicas,
        chosen(replicas).acquire() as session,
    ):
        with pytest.raises(DatabaseError, match="read-only"):
            await session.execute("CREATE TABLE never (n int)")


async def test_a_query_that_replay_cancels_is_repeated_on_the_primary(here: Replicated) -> None:
    await here.on_replica("ALTER SYSTEM SET max_standby_streaming_delay = 0")
    await here.on_replica("SELECT pg_reload_conf()")
    await here.pool.execute("CREATE TABLE rows (n int)")
    await here.pool.execute("INSERT INTO rows SELECT generate_series(1, 1000)")
    await here.caught_up()
    try:
        async with following(str(here.settings.database_read_url), here.pool, max_lag_s=600.0) as replicas:
            long = ON_REPLICA.format("pg_sleep(600)") + ", (SELECT count(*) FROM rows)"
            reading = asyncio.create_task(chosen(replicas).fetchrow(long))
            await here.until(
                "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%'"
                " AND pid <> pg_backend_pid())"
            )
            # In one transaction: the statement is repeated as soon as it is cancelled.
            await here.pool.execute("DROP TABLE rows; CREATE TABLE rows AS SELECT 1 AS n")
            assert (await reading)[1] == 1
    finally:
        await here.on_replica("ALTER SYSTEM RESET max_standby_streaming_delay")
        await here.on_replica("SELECT pg_reload_conf()")
        await here.pool.execute("DROP TABLE rows")


async def test_a_replica_that_dies_fails_no_read_and_gets_them_again_after_its_restart(here: Replicated) -> None:
    async with following(str(here.settings.database_read_url), here.pool) as replicas:
        pool = chosen(replicas)
        reading = [asyncio.create_task(pool.fetchval(ON_REPLICA.format("pg_sleep(600)"))) for _ in range(4)]
        await here.until(
            "SELECT count(*) = 4 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()"
        )
        await asyncio.to_thread(here.replica.kill)
        await asyncio.wait_for(asyncio.gather(*reading), PATIENCE_S)
        assert await pool.fetchval("SELECT 7") == 7
        await until(lambda: not replicas.any_able)
        await asyncio.to_thread(here.replica.start)
        await until(lambda: replicas.any_able)


async def test_a_replica_that_hangs_fails_no_read(here: Replicated) -> None:
    async with following(str(here.settings.database_read_url), here.pool, max_lag_s=600.0) as replicas:
        pool = chosen(replicas)
        reading = asyncio.create_task(pool.fetchval(ON_REPLICA.format("pg_sleep(600)")))
        await here.until(
            "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()"
        )
        try:
            here.signal(signal.SIGSTOP)
            await asyncio.wait_for(reading, PATIENCE_S)
            await until(lambda: not replicas.any_able)
        finally:
            here.signal(signal.SIGCONT)
        await until(lambda: replicas.any_able)


async def test_an_operation_that_has_read_from_the_primary_does_not_return_to_the_replica(here: Replicated) -> None:
    async with following(str(here.settings.database_read_url), here.pool) as replicas:
        source = chosen(replicas)
        assert await source.fetchval("SELECT pg_is_in_recovery()")
        assert (
            await source.fetchval(ON_REPLICA.format("1 / (pg_is_in_recovery()::int - 1)")) is None
        )  # repeated on the primary
        assert not await source.fetchval("SELECT pg_is_in_recovery()")
        assert await chosen(replicas).fetchval("SELECT pg_is_in_recovery()")  # of the next operation


async def test_a_replica_that_shows_less_after_a_crash_gets_no_reads_of_what_it_had_shown(here: Replicated) -> None:
    async with following(str(here.settings.database_read_url), here.pool, max_lag_s=600.0) as replicas:
        await here.on_replica("CHECKPOINT")
        await here.pool.execute("CREATE TABLE shown (n int)")
        wrote_at = time.monotonic()
        try:
            await until(lambda: replicas.choose(wrote_at) is not None)
            await here.on_replica("ALTER SYSTEM SET recovery_min_apply_delay = '10 min'")
            await asyncio.to_thread(here.replica.kill)
            await until(lambda: not replicas.any_able)
            await asyncio.to_thread(here.replica.start)
            assert not await here.on_replica("SELECT to_regclass('shown') IS NOT NULL")
            for _ in range(50):  # longer than a replica needs to get reads again
                assert replicas.choose(wrote_at) is None
                await asyncio.sleep(0.1)
        finally:
            await here.delay(0)
            await here.pool.execute("DROP TABLE shown")
        await until(lambda: replicas.choose(wrote_at) is not None)


@pytest.mark.parametrize("thing", ["DATABASE", "SCHEMA"])
async def test_a_url_that_leads_to_other_tables_of_the_replica_is_refused_and_gets_no_reads(
    here: Replicated, thing: str
) -> None:
    """Several installations may have one server, each with its own marks."""

    def other(url: str) -> str:
        return url.replace("/postgres?", "/other?") if thing == "DATABASE" else f"{url}&options=-csearch_path%3Dother"

    await here.pool.execute(f"CREATE {thing} other")
    session = await asyncpg.connect(other(here.servers.database_url))
    probes = None
    try:
        await session.execute("CREATE TABLE replica_marks (timeline int, marked_at timestamptz)")
        await session.execute("INSERT INTO replica_marks VALUES (1, now() + interval '1 hour')")
        await here.caught_up()
        url = other(str(here.settings.database_read_url))
        with pytest.raises(StrangerReplica, match=r" reads \S*other\S*, not postgres\.public\."):
            await refuse_strangers(structs.replace(here.settings, database_read_url=url))
        replicas = Replicas(url, here.pool, MAX_LAG_S)
        [replica] = replicas._all
        probes = asyncio.create_task(replicas.run())
        await until(lambda: replica._problem.startswith("reads "), probes)
        assert not replicas.any_able
    finally:
        if probes is not None:
            probes.cancel()
            await asyncio.gather(probes, return_exceptions=True)
        await session.close()
        await here.pool.execute(f"DROP {thing} other {'CASCADE' if thing == 'SCHEMA' else 'WITH (FORCE)'}")


async def test_a_server_of_another_system_is_refused_in_words(here: Replicated, own_database: str) -> None:
    await refuse_strangers(here.settings)
    with pytest.raises(StrangerReplica, match="belongs to another database system"):
        await refuse_strangers(structs.replace(here.settings, database_read_url=own_database))
    nowhere = "postgresql://postgres@/postgres?host=/nonexistent"
    await refuse_strangers(structs.replace(here.settings, database_read_url=nowhere))


async def test_after_a_promotion_only_replicas_of_the_new_primary_get_reads(settings: Settings) -> None:
    async with replicated(settings) as here:
        follower = PairedPostgres(here.servers.folder / "follower", here.servers.postgres, durable=False)
        primaries = f"{here.servers.postgres.socket_folder()},{here.replica.sockets}"
        pool = await open_pool(f"postgresql://postgres@/postgres?host={primaries}", name="tests")
        read_url = f"postgresql://postgres@/postgres?host={here.replica.sockets},{follower.sockets}"
        try:
            await asyncio.to_thread(follower.start)
            async with following(read_url, pool) as replicas:
                by_name = {one.name.partition(":")[0]: one for one in replicas._all}
                promoted, left = by_name[str(here.replica.sockets)], by_name[str(follower.sockets)]
                await until(lambda: promoted.pool is not None and left.pool is not None)

                await asyncio.to_thread(here.servers.postgres.kill)
                await asyncio.to_thread(here.replica.promote)
                await until(lambda: promoted.pool is None and left.pool is None)
                await asyncio.sleep(3)  # several probes: the follower is as far in the log as the new primary was
                assert replicas.choose(-math.inf) is None

                await asyncio.to_thread(
                    follower.query,
                    f"ALTER SYSTEM SET primary_conninfo = 'host={here.replica.sockets} user=postgres'",
                )
                await asyncio.to_thread(follower.query, "SELECT pg_reload_conf()")
                await until(lambda: left.pool is not None)
                assert promoted.pool is None
                assert await chosen(replicas).fetchval("SELECT pg_is_in_recovery()")
        finally:
            await close_pool(pool)
            follower.end()
            shutil.rmtree(follower.paths.base, ignore_errors=True)
