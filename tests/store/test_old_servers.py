"""A server that is too old is refused before anything is written to it: by commands, at the start, by the doctor."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
import redis as client
from asyncpg.types import ServerVersion
from msgspec import structs

from engine.base.server_versions import UnsupportedServer
from engine.base.settings import Settings, load
from engine.store import redis as redis_store
from engine.store.migrate import migrate, open_current, pending
from engine.store.postgres import DatabaseSession, connect
from engine.store.redis import RedisTooOld, RedisUnavailable
from loadtests.kit.service import make_folder
from loadtests.ports import reserve_port
from ops.host import prepare, store_servers
from ops.host.valkey_server import ValkeyServer
from ops.processes import worker
from tests.conftest import NewDatabase
from tests.harness.own_servers import InstalledPostgres
from tests.harness.patience import PATIENCE_S
from tests.harness.service import run_ops
from tests.harness.tcp import listening
from tests.ops.installation import environ, examined
from tests.store.redis_servers import unhurried

OLD_POSTGRES, OLD_REDIS = "PostgreSQL 14", "Redis 6.2"
_HELLO = b"*6\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n6.2.5\r\n$5\r\nproto\r\n:2\r\n"


def fetched(title: str) -> Path:
    program = store_servers.find(title)
    if program is None:
        pytest.skip(f"{title} was not fetched (`ops test --stores`)")
    return program


@pytest.fixture
def old_postgres() -> Iterator[str]:
    """The URL of a PostgreSQL 14."""
    program, folder = fetched(OLD_POSTGRES), make_folder("waybill-old-")
    server = InstalledPostgres(folder, program.parent)
    try:
        server.start()
        yield server.url
    finally:
        server.end()
        shutil.rmtree(server.paths.base, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


class OldRedis(ValkeyServer):
    """A Redis 6.2."""

    def prepare(self) -> None:
        super().prepare()
        self._program = fetched(OLD_REDIS)


@pytest.fixture
def old_redis() -> Iterator[str]:
    """The URL of a Redis 6.2."""
    fetched(OLD_REDIS)
    folder = make_folder("waybill-old-")
    server = OldRedis(folder, durable=False)
    try:
        server.start()
        yield server.url
    finally:
        server.end()
        shutil.rmtree(server.paths.base, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """A server that answers late on a busy machine is not away."""
    with unhurried():
        yield


async def objects(url: str) -> int:
    """Count what is in the database besides PostgreSQL's own."""
    connection = await asyncpg.connect(url)
    try:
        own = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        return int(await connection.fetchval(own))
    finally:
        await connection.close()


# -- PostgreSQL ------------------------------------------------------------------------------------


async def test_an_old_postgresql_is_refused_before_anything_is_written(old_postgres: str) -> None:
    for work in (migrate, pending, lambda url: connect(url, name="test"), lambda url: open_current(url, name="test")):
        with pytest.raises(UnsupportedServer, match=r"PostgreSQL 14\.\d+ is too old: Waybill needs PostgreSQL 15"):
            await work(old_postgres)
    assert await objects(old_postgres) == 0


async def test_commands_and_the_start_refuse_an_old_postgresql(
    old_postgres: str, redis_url: str, tmp_path: Path
) -> None:
    given = environ(tmp_path, WAYBILL_DATABASE_URL=old_postgres, WAYBILL_REDIS_URL=redis_url)
    for words in (("migrate",), ("up",)):
        ended = await asyncio.to_thread(run_ops, given, *words)
        assert ended.status == 1
        assert "PostgreSQL 14.23 is too old: Waybill needs PostgreSQL 15 or newer." in ended.err
    found = (await examined(given))["postgres"]
    assert (found.ok, found.found) == (False, "PostgreSQL 14.23 is too old: Waybill needs PostgreSQL 15 or newer")
    assert (found.mend or "").startswith("Upgrade the server")
    assert await objects(old_postgres) == 0


async def test_a_postgresql_that_reports_an_old_version_is_refused(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await new_database()
    beside_another = url.replace("?host=", "?host=/nonexistent,", 1)
    monkeypatch.setattr(DatabaseSession, "get_server_version", lambda _: ServerVersion(13, 0, 2, "final", 0))

    for one in (url, beside_another):
        with pytest.raises(UnsupportedServer, match=r"PostgreSQL 13\.2 is too old"):
            await migrate(one)


# -- Redis -----------------------------------------------------------------------------------------


class Reported:
    """A server that reports to be Redis 6.2.5, and the commands that it received."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.received = bytearray()


@pytest.fixture(params=["HELLO", "no HELLO"])
async def reported(request: pytest.FixtureRequest) -> AsyncIterator[Reported]:
    """One whose commands are kept; before Redis 6 there was no HELLO."""
    found = Reported("")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(4096):
            found.received += piece
            for _ in range(piece.count(b"CLIENT\r\n")):
                writer.write(b"+OK\r\n")
            if b"HELLO" in piece:
                writer.write(_HELLO if request.param == "HELLO" else b"-ERR unknown command `HELLO`\r\n")

    async with listening(serve) as (host, port):
        found.url = f"redis://{host}:{port}"
        yield found


async def test_nothing_is_sent_to_a_redis_that_is_too_old(reported: Reported) -> None:
    redis = redis_store.connect(reported.url, timeout_s=PATIENCE_S)
    try:
        with pytest.raises(RedisTooOld, match=r"Redis \S+( or older)? is too old: Waybill needs Redis 7\.0"):
            await redis.one("SET", "a-key", "a value")
    finally:
        await redis.aclose()
    assert b"HELLO" in reported.received
    assert b"a-key" not in reported.received


async def test_the_start_refuses_a_redis_that_is_too_old(
    reported: Reported, settings: Settings, new_database: NewDatabase
) -> None:
    own = structs.replace(settings, redis_url=reported.url, database_url="postgresql://nobody@127.0.0.1:1/none")
    for start in (prepare._database, worker.run):
        with pytest.raises(UnsupportedServer, match="is too old"):
            await start(own)


@pytest.mark.parametrize("reply", [b"+OK\r\n", b":1\r\n", b"*1\r\n+server\r\n", b"*2\r\n$6\r\nserver\r\n:1\r\n"])
async def test_a_server_that_is_no_redis_counts_as_unavailable(reply: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(4096):
            writer.write(b"+OK\r\n" * piece.count(b"CLIENT\r\n") + reply * piece.count(b"HELLO"))

    async with listening(serve) as (host, port):
        redis = redis_store.connect(f"redis://{host}:{port}", timeout_s=PATIENCE_S)
        with pytest.raises(RedisUnavailable, match="not as Redis does"):
            await redis.ping()
        await redis.aclose()


async def test_a_redis_that_does_not_answer_is_not_refused() -> None:
    await redis_store.refuse_old(f"redis://127.0.0.1:{reserve_port()}")


async def test_an_old_redis_is_refused_before_anything_is_written(
    old_redis: str, own_database: str, tmp_path: Path
) -> None:
    given = environ(tmp_path, WAYBILL_DATABASE_URL=own_database, WAYBILL_REDIS_URL=old_redis)
    with pytest.raises(UnsupportedServer, match=r"Redis 6\.2\.5 is too old: Waybill needs Redis 7\.0, Valkey 7\.2, or"):
        await prepare._database(load(given).settings)

    found = (await examined(given))["redis"]
    assert (found.ok, found.found) == (
        False,
        "Redis 6.2.5 is too old: Waybill needs Redis 7.0, Valkey 7.2, or newer",
    )
    with contextlib.closing(client.Redis.from_url(old_redis)) as direct:
        assert direct.dbsize() == 0
