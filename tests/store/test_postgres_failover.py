"""Sessions go to the PostgreSQL server that accepts writes, and follow a failover."""

import asyncio
import contextlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from engine.base.settings import load
from engine.store import postgres
from engine.store.database_errors import BehindPooler, DatabaseUnavailable
from engine.store.migrate import migrate, pending
from engine.store.postgres import open_pool
from engine.store.postgres_hosts import Hosts, NoPrimary, hosts_of, url_without_hosts
from loadtests.ports import reserve_port
from ops.doctor.database import database
from ops.host import launch
from ops.host.prepare import NotPrepared, patiently
from ops.host.temporary_servers import Temporary
from tests.harness.patience import PATIENCE_S, until
from tests.harness.tcp import accepts

NewDatabase = Callable[[], Awaitable[str]]
READ_ONLY = "ALTER DATABASE {} SET default_transaction_read_only = {}"


@pytest.fixture
async def own(new_database: NewDatabase) -> str:
    """A database that the test may close to writing."""
    return await new_database()


@pytest.fixture
async def outside(servers: Temporary) -> AsyncIterator[asyncpg.Connection]:
    """A session on another database of the same server."""
    connection = await asyncpg.connect(servers.database_url)
    yield connection
    await connection.close()


def name_of(url: str) -> str:
    return urlsplit(url).path.strip("/")


def url_of(url: str, name: str) -> str:
    """The URL of another database of the same server."""
    return url.replace(f"/{name_of(url)}?", f"/{name}?", 1)


def beside_a_dead_one(url: str) -> str:
    """The same database, behind a server that is not there."""
    return url.replace("?host=", "?host=/nonexistent,", 1)


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://u:p@a,b:5433/waybill", [("a", "5432"), ("b", "5433")]),
        ("postgresql://u@[::1]:5433,b/waybill?sslmode=require", [("::1", "5433"), ("b", "5432")]),
        ("postgresql://u@a,[::1]:5433/waybill", [("a", "5432"), ("::1", "5433")]),
        ("postgresql://postgres@/postgres?host=/run/a,/run/b&port=1,2", [("/run/a", "1"), ("/run/b", "2")]),
        ("postgresql://postgres@/postgres?host=/run/a,/run/b&port=1", [("/run/a", "1"), ("/run/b", "1")]),
        ("postgresql://a/waybill", [("a", "5432")]),
        ("postgresql:///waybill", []),
    ],
)
def test_a_url_names_its_servers(url: str, hosts: list[tuple[str, str]]) -> None:
    assert hosts_of(url) == hosts


def test_asyncpg_is_given_one_server_at_a_time() -> None:
    assert url_without_hosts("postgresql://u:p@a,[::1]:5433/waybill?sslmode=require") == (
        "postgresql://u:p@/waybill?sslmode=require"
    )


async def test_a_server_that_is_away_is_passed_over(own: str) -> None:
    pool = await open_pool(beside_a_dead_one(own), name="tests", largest=3)
    try:
        found = await asyncio.gather(*[pool.fetchval("SELECT 1") for _ in range(3)])
    finally:
        await pool.close()

    assert found == [1, 1, 1]
    assert await pending(beside_a_dead_one(own)) == []


async def test_no_session_opens_on_a_server_that_takes_no_writes(own: str, outside: asyncpg.Connection) -> None:
    await outside.execute(READ_ONLY.format(name_of(own), "on"))
    for url in (own, beside_a_dead_one(own)):
        with pytest.raises(NoPrimary, match="accepts no writes"):
            await postgres.connect(url, name="tests")

    await outside.execute(READ_ONLY.format(name_of(own), "off"))
    await (await postgres.connect(own, name="tests")).close()


@pytest.mark.parametrize("arguments", [(), (1,)])
async def test_a_session_whose_server_turns_read_only_is_thrown_away(own: str, arguments: tuple[int, ...]) -> None:
    """With arguments and without them a statement goes two ways through the driver."""
    pool = await open_pool(own, name="tests", largest=1)
    write = "CREATE TABLE t (a int)" if not arguments else "UPDATE stamps SET version = version + $1"
    try:
        before = await pool.fetchval("SELECT pg_backend_pid()")
        await pool.execute("SELECT set_config('default_transaction_read_only', 'on', false)")
        with pytest.raises(DatabaseUnavailable):
            await pool.execute(write, *arguments)
        after = await pool.fetchval("SELECT pg_backend_pid()")
        await pool.execute("CREATE TABLE u (a int)")
    finally:
        await pool.close()

    assert after != before


async def test_a_refusal_inside_a_transaction_costs_the_session_too(own: str) -> None:
    pool = await open_pool(own, name="tests", largest=1)

    async def write() -> None:
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute("SET TRANSACTION READ ONLY")
            await connection.fetch("CREATE TABLE t (a int)")

    try:
        before = await pool.fetchval("SELECT pg_backend_pid()")
        with pytest.raises(DatabaseUnavailable):
            await write()
        assert await pool.fetchval("SELECT pg_backend_pid()") != before
    finally:
        await pool.close()


async def test_a_server_on_a_timeline_that_was_left_gets_no_session(own: str) -> None:
    hosts = Hosts(beside_a_dead_one(own))
    await (await hosts.connect(timeout=PATIENCE_S)).close()
    hosts._state.timeline += 1  # as after a promotion elsewhere, seen by any pool of the process

    for any_pool in (hosts, Hosts(beside_a_dead_one(own))):
        with pytest.raises(NoPrimary, match="is older than"):
            await any_pool.connect(timeout=PATIENCE_S)


async def test_a_pool_leaves_a_server_whose_successor_another_pool_has_seen(own: str) -> None:
    url = beside_a_dead_one(own)
    pool = await open_pool(url, name="tests", largest=1)
    try:
        before = await pool.fetchval("SELECT pg_backend_pid()")
        assert await pool.fetchval("SELECT pg_backend_pid()") == before
        Hosts(url)._state.timeline += 1

        with pytest.raises(DatabaseUnavailable, match="is older than"):
            await pool.fetchval("SELECT 1")
    finally:
        await pool.close()


DROPPED = "lock_timeout,statement_timeout,idle_in_transaction_session_timeout,synchronous_commit,jit"


@contextlib.asynccontextmanager
async def pooler(servers: Temporary, name: str, ignored: str) -> AsyncIterator[str]:
    """A database behind a pgbouncer that leaves out the settings `ignored`, and refuses others that it does not
    know."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    folder = Path(tempfile.mkdtemp(prefix="waybill-test-pooler-"))
    identity = servers.postgres.paths.identity
    port = reserve_port()
    (folder / "users").write_text('"postgres" ""\n')
    (folder / "pooler.ini").write_text(
        f"[databases]\n* = host={servers.postgres.socket_folder()} port=5432 user=postgres\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\nunix_socket_dir =\n"
        f"ignore_startup_parameters = {ignored}\n"
    )
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755)
    words = launch.command([program, str(folder / "pooler.ini")], identity=identity, death_signal=signal.SIGKILL)
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await until(lambda: accepts(port))
        yield f"postgresql://postgres@127.0.0.1:{port}/{name}?sslmode=disable"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


@pytest.mark.parametrize(("ignored", "found"), [("", "unsupported startup parameter"), (DROPPED, "it drops")])
async def test_a_pooler_is_refused_before_it_changes_the_database(
    servers: Temporary, own: str, outside: asyncpg.Connection, ignored: str, found: str
) -> None:
    name = f"{name_of(own)}_pooled"
    await outside.execute(f"CREATE DATABASE {name}")
    try:
        async with pooler(servers, name, ignored) as url:
            for opening in (migrate(url), open_pool(url, name="tests")):
                with pytest.raises(BehindPooler, match=f"{found}.*Connect directly to PostgreSQL: poolers are not"):
                    await opening
            told = await database(load({"WAYBILL_DATABASE_URL": url}).settings)
            with pytest.raises(NotPrepared, match="WAYBILL_DATABASE_URL points to a connection pooler"):
                await patiently(lambda: migrate(url))
        direct = await asyncpg.connect(url_of(own, name))
        assert await direct.fetchval("SELECT count(*) FROM pg_class WHERE relname = 'schema_migrations'") == 0
        await direct.close()
    finally:
        await outside.execute(f"DROP DATABASE {name} WITH (FORCE)")
    assert [(one.check, one.ok) for one in told] == [("postgres", False)]
    assert told[0].mend == "Connect directly to PostgreSQL: poolers are not supported."
