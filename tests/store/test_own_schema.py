"""Installations of users without rights, each in a schema of its own of one database, do not touch one another."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from msgspec import Struct, structs

from engine.accounts import platform_account
from engine.accounts.delivery_certificates import store as certificates
from engine.base import clock
from engine.base.settings import Settings
from engine.delivery import splits
from engine.retention import erase, purge
from engine.store import own_schema, partitions
from engine.store.migrate import MigrationError, migrate, pending, require_at
from engine.store.own_schema import DEFAULT_SEARCH_PATH, LOCK_SCHEMA, search_path
from engine.store.postgres import clock_settings, connect, open_pool
from mta.outbound.sites import site_stats
from ops.backup import restore
from ops.backup.dump import dump
from ops.commands import trace
from ops.doctor import database as doctor
from ops.host.temporary_servers import Temporary
from shards import rebalancer
from tests.conftest import NewDatabase
from tests.harness import history
from tests.harness.accounts import PEPPER, make_account
from tests.harness.patience import PATIENCE_S
from tests.harness.sending import process

NAMES = ("north", "south")
# As ops/runbooks/stores.md has it: nobody but its owner uses the schema `public`, and each role owns one schema.
SET_UP = """
CREATE ROLE {name} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS NOREPLICATION;
GRANT CONNECT, TEMPORARY ON DATABASE {database} TO {name};
CREATE SCHEMA {name} AUTHORIZATION {name};
"""


class Shared(Struct, frozen=True):
    """A database with an installation of the superuser in `public`, and the URLs of two others in it."""

    public: str
    urls: tuple[str, ...]


def quiet(*_: object) -> None:
    """Nobody listens."""


async def say(url: str, *statements: str) -> None:
    """Run statements as the superuser."""
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def of(url: str, user: str, schema: str) -> str:
    """Return the URL of a user and a schema in the same database."""
    return url.replace("//postgres@", f"//{user}@", 1) + f"&options=-csearch_path%3D{schema}"


@pytest.fixture(scope="module")
async def shared(servers: Temporary, lasting_database: NewDatabase) -> AsyncIterator[Shared]:
    """One database for these tests."""
    public = await lasting_database()
    name = urlsplit(public).path[1:]
    await say(public, f"REVOKE ALL ON DATABASE {name} FROM PUBLIC")
    for one in NAMES:
        await say(public, SET_UP.format(name=one, database=name))
    urls = tuple(of(public, one, one) for one in NAMES)
    for url in urls:
        await migrate(url)
    yield Shared(public, urls)
    await say(servers.database_url, f"DROP DATABASE {name} WITH (FORCE)", *(f"DROP ROLE {one}" for one in NAMES))


@contextlib.asynccontextmanager
async def sessions(*urls: str) -> AsyncIterator[list[asyncpg.Connection]]:
    """Open a session for each URL."""
    opened = [await connect(url, name="test") for url in urls]
    try:
        yield opened
    finally:
        for one in opened:
            one.terminate()


async def test_each_schema_has_its_own_tables_and_partitions(shared: Shared) -> None:
    for url in shared.urls:
        assert await pending(url) == []
        await require_at(url)
    counted = "SELECT relnamespace::regnamespace::text AS name, count(*) FROM pg_class GROUP BY 1"
    async with sessions(shared.public) as [connection]:
        found = {row["name"]: row["count"] for row in await connection.fetch(counted)}
    assert found["north"] == found["south"] == found["public"]


async def test_a_partition_is_made_and_dropped_in_one_schema_only(shared: Shared) -> None:
    early = clock.now() - timedelta(weeks=30)
    async with sessions(*shared.urls) as [north, south]:
        for session in (north, south):
            await partitions.ensure(session, early, ahead=0)
        both = await partitions.weeks(south, "messages")
        assert partitions.week_of(early) in both

        dropped = await partitions.drop_before(north, "messages", early + timedelta(weeks=2))
        assert partitions.partition_name("messages", partitions.week_of(early)) in dropped
        assert await partitions.weeks(south, "messages") == both

        await partitions.make(north, "messages", partitions.week_of(early))
        assert partitions.week_of(early) in await partitions.weeks(north, "messages")


async def test_mail_is_accepted_and_purged_by_users_who_see_their_own_schema_only(
    shared: Shared, settings: Settings
) -> None:
    for url in shared.urls:
        pool = await open_pool(url, name="test", largest=4)
        account = await make_account(pool)
        await history.write(pool, account, clock.now() - timedelta(days=400))
        async with process(structs.replace(settings, database_url=url)) as door:
            await door.send(account)
        assert await pool.fetchval("SELECT count(*) FROM messages") == 2
        purged = await purge.purge(pool, clock.now(), everyone=True)
        assert purged is not None
        assert await pool.fetchval("SELECT count(*) FROM messages") == 1
        await pool.close()
    async with sessions(*shared.urls) as [north, _]:
        assert not await north.fetchval("SELECT has_schema_privilege('south', 'USAGE')")
        assert not await north.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")


async def test_a_lock_of_one_schema_is_free_in_the_other(shared: Shared) -> None:
    number = 0x57617962
    taken = f"SELECT pg_try_advisory_lock({number}::bigint # {LOCK_SCHEMA})"
    async with sessions(shared.public, *shared.urls, *shared.urls) as [public, north, south, north_too, _]:
        for session in (public, north, south):
            assert await session.fetchval(taken)
        assert not await north_too.fetchval(taken)
        # The keys of `public` are those of earlier versions, which may run beside this one during an upgrade.
        assert await public.fetchval(f"SELECT pg_advisory_unlock({number})")


async def test_every_advisory_lock_is_of_one_schema() -> None:
    queries = (
        purge._TRY_LOCK, purge._UNLOCK, erase._TRY_LOCK, erase._UNLOCK, splits._LOCK, certificates._LOCK,
        platform_account._LOCK, rebalancer._TRY_LOCK,
    )  # fmt: skip
    assert all(own_schema.LOCK_SCHEMA in one.sql for one in queries)


async def test_migrations_of_two_schemas_do_not_wait_for_each_other(shared: Shared) -> None:
    async with sessions(shared.urls[0]) as [north]:
        assert await north.fetchval(f"SELECT pg_try_advisory_lock({0x57617962}::bigint # {LOCK_SCHEMA})")
        async with asyncio.timeout(PATIENCE_S):
            assert await migrate(shared.urls[1]) == []
        with pytest.raises(MigrationError, match="another migration of this database"):
            await migrate(shared.urls[0], max_wait_s=0)


async def test_a_trace_hears_its_own_schema_only(shared: Shared) -> None:
    heard: list[tuple[str, str]] = []
    async with sessions(shared.public, *shared.urls) as opened:
        for name, session in zip(("public", *NAMES), opened, strict=True):
            channel = await session.fetchval(trace._CHANNEL_NAME)
            assert (channel == trace.CHANNEL) == (name == "public")
            await session.add_listener(channel, lambda *told, name=name: heard.append((name, str(told[3]))))
        for name, session in zip(("public", *NAMES), opened, strict=True):
            await site_stats._TELL.execute(session, [f"from {name}"])
        async with asyncio.timeout(PATIENCE_S):
            while len(heard) < 3:
                await asyncio.sleep(0.02)
    assert sorted(heard) == [(name, f"from {name}") for name in ("north", "public", "south")]


async def test_a_backup_of_one_schema_comes_back_in_another_beside_running_processes(
    shared: Shared, tmp_path: Path
) -> None:
    name = urlsplit(shared.public).path[1:]
    await say(shared.public, SET_UP.format(name="west", database=name))
    west = of(shared.public, "west", "west")
    pool = await open_pool(shared.urls[0], name="api", largest=1)
    try:
        account = await make_account(pool)
        await history.write(pool, account, clock.now())
        made = await dump(shared.urls[0], tmp_path / "backup", PEPPER, say=quiet)
        done = await restore.restore(
            west, tmp_path / "backup", made, hold=False, say=quiet, stage=quiet, committed=quiet
        )
        assert done.broken == []
        async with sessions(west) as [session]:
            assert await session.fetchval("SELECT count(*) FROM messages WHERE account_id = $1", account.id) == 1
    finally:
        await pool.close()
        await say(shared.public, "DROP OWNED BY west CASCADE", "DROP ROLE west")


async def test_the_doctor_is_content_with_a_user_without_rights(shared: Shared, settings: Settings) -> None:
    found = {one.check: one for one in await doctor.database(structs.replace(settings, database_url=shared.urls[0]))}
    for check in ("postgres", "replicas", "connections", "migrations", "partitions", "queue"):
        assert found[check].ok, found[check]
    async with sessions(shared.public, shared.public) as [superuser, _]:
        counted = "SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend'"
        async with sessions(shared.urls[0]) as [north]:
            facts = await doctor._FACTS.first(north)
            assert facts is not None
            assert facts.used >= 3  # also sessions of others
            assert abs(facts.used - await superuser.fetchval(counted)) <= 2  # those of other tests come and go


# -- rights that are missing -----------------------------------------------------------------------


async def test_missing_rights_are_named_before_anything_is_written(new_database: NewDatabase) -> None:
    public = await new_database()
    name = urlsplit(public).path[1:]
    await say(
        public, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public", f"REVOKE ALL ON DATABASE {name} FROM PUBLIC",
        "CREATE ROLE poor LOGIN", f"GRANT CONNECT ON DATABASE {name} TO poor", "GRANT USAGE ON SCHEMA public TO poor",
    )  # fmt: skip
    try:
        for schema, words in (
            (
                "absent",
                r"no schema of the search path \(absent\) exists that user poor may use. Create it: CREATE",
            ),
            ("public", r"user poor may not create tables in schema public.* ALTER SCHEMA public OWNER TO poor"),
        ):
            with pytest.raises(MigrationError, match=words):
                await migrate(of(public, "poor", schema))
        await say(public, "ALTER SCHEMA public OWNER TO poor")
        with pytest.raises(MigrationError, match=rf"GRANT TEMPORARY ON DATABASE {name} TO poor"):
            await migrate(of(public, "poor", "public"))
        async with sessions(public) as [session]:
            assert await session.fetchval("SELECT to_regclass('public.schema_migrations') IS NULL")
    finally:
        await say(public, "DROP OWNED BY poor CASCADE", "DROP ROLE poor")


# -- the search path -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("", DEFAULT_SEARCH_PATH),
        ("?options=-csearch_path%3Dnorth", "north"),
        ("?options=-c%20search_path%3Dnorth", "north"),
        ("?options=-c%20jit%3Doff%20--search_path%3Dnorth,public", "north,public"),
        ("?options=-csearch_path%3D%22a%5C%20b%22", '"a b"'),
        ("?sslmode=require&search_path=north", "north"),
    ],
)
def test_the_search_path_of_a_url_is_found(query: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"postgresql://waybill@db.test/waybill{query}"
    assert search_path(url) == path
    assert clock_settings(url) == {}
    monkeypatch.setattr(clock, "can_move", lambda: True)
    assert clock_settings(url) == {"search_path": f"{path}, clock, pg_catalog"}
