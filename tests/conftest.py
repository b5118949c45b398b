"""Shared fixtures: real servers per worker, a migrated database, and the API on a real socket."""

import asyncio
import contextlib
import gc
import importlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import hypothesis
import pytest
import uvloop

from engine.base.settings import Settings
from engine.store.migrate import migrate
from engine.store.postgres import open_pool
from ops.embedded import Temporary, temporary_servers
from tests.harness import canaries, memory, selection
from tests.harness.accounts import PEPPER
from tests.harness.api import Api, serving

TEMPLATE = "waybill_template"
JOURNEYS = selection.TESTS / "journeys"
DELIVERY = {selection.TESTS / "shards", selection.TESTS / "mta"}

# Examples take as long as the machine needs: a deadline, or a check for slow data, would fail on a busy one.
hypothesis.settings.register_profile(
    "waybill", deadline=None, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("waybill")

_NUMBERS = itertools.count(1)
NewDatabase = Callable[[], Awaitable[str]]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return uvloop, which the processes use too."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks `rules` and `quick` and the summary of tests left out."""
    config.pluginmanager.register(selection, "selection")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the tests that drive a browser unless they are asked for, as `ops test --browser` does."""
    return (collection_path == selection.BROWSER_TESTS and not selection.drives_browsers(config)) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let each worker of a whole run import another part of the test modules first, and then collect all of them.

    pytest compiles a module when it is first imported, 8 to 14 s of CPU for all of them, and the other workers find it
    on disk: in a fresh checkout, workers in the same order would each compile every module.
    """
    worker: dict[str, Any] | None = getattr(session.config, "workerinput", None)
    if worker is None or session.config.option.file_or_dir:
        return
    modules = sorted(
        ".".join(path.relative_to(selection.TESTS.parent).with_suffix("").parts)
        for path in selection.TESTS.rglob("test_*.py")
        if selection.BROWSER_TESTS not in path.parents
    )
    number, workers = int(worker["workerid"].removeprefix("gw")), int(worker["workercount"])
    for name in modules[number::workers]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # the collection imports it again, and reports why
            importlib.import_module(name)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests so that at any time some workers wait while the others compute.

    `--dist worksteal` gives each worker a part of equal length. The journeys come first, and the tests of delivery and
    of shards begin the part of the worker in the middle: from the start, one worker runs the ones, another the others.
    Both mostly wait. At the end of the list, delivery kept four workers waiting for the last 110 s of 465, with 45% of
    two cores idle.
    """
    workers = int(getattr(config, "workerinput", {}).get("workercount", 1))
    first = [item for item in items if JOURNEYS in item.path.parents]
    delivery = [item for item in items if not DELIVERY.isdisjoint(item.path.parents)]
    placed = {id(item) for item in (*first, *delivery)}
    rest = [item for item in items if id(item) not in placed]
    before = max(len(items) * (workers // 2) // workers - len(first), 0)
    items[:] = [*first, *rest[:before], *delivery, *rest[before:]]


def pytest_collection_finish() -> None:
    """Exclude collected tests and their imports from garbage collection, which saves time in every later cycle."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def servers() -> Iterator[Temporary]:
    """Run PostgreSQL and Valkey for this worker; they end with it, even after a crash."""
    with temporary_servers(memory.folder()) as running:
        yield running


@pytest.fixture(scope="session")
async def template(servers: Temporary) -> str:
    """Return the name of a migrated database that serves as template.

    It may exist already, because session fixtures are set up again for tests without an event loop."""
    connection = await asyncpg.connect(servers.database_url)
    try:
        if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", TEMPLATE):
            await connection.execute(f"CREATE DATABASE {TEMPLATE}")
    finally:
        await connection.close()
    await migrate(_url(servers, TEMPLATE))
    return TEMPLATE


@pytest.fixture(scope="session")
def lasting_database(servers: Temporary, template: str) -> NewDatabase:
    """Return a function that makes a migrated database for the tests of a module and returns its URL."""

    async def make() -> str:
        name = f"waybill_{next(_NUMBERS)}"
        await _say(servers, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return _url(servers, name)

    return make


@pytest.fixture
async def new_database(servers: Temporary, lasting_database: NewDatabase) -> AsyncIterator[NewDatabase]:
    """Yield a function that makes a migrated database for one test, dropped afterwards: each has 800 files."""
    made: list[str] = []

    async def make() -> str:
        made.append(await lasting_database())
        return made[-1]

    yield make
    for url in made:
        await _say(servers, f"DROP DATABASE {urlsplit(url).path[1:]} WITH (FORCE)")


@pytest.fixture(scope="session")
async def database_url(lasting_database: NewDatabase) -> str:
    """The database that the tests of this worker share: each makes its own accounts in it."""
    return await lasting_database()


@pytest.fixture(scope="session")
def redis_url(servers: Temporary) -> str:
    """The Valkey of this worker."""
    return servers.redis_url


@pytest.fixture(scope="session")
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    """Connections to the shared database; after the last test no table of it may show a secret."""
    opened = await open_pool(database_url, name="tests", largest=8)
    yield opened
    leaks = await canaries.in_database(opened)
    await opened.close()
    if leaks:
        pytest.fail(f"secrets in the database: {leaks[:20]}")


@pytest.fixture(scope="module")
async def disposable_servers() -> AsyncIterator[Temporary]:
    """Start a migrated PostgreSQL and a Valkey for one module; a test that kills one starts it again."""
    with temporary_servers() as running:
        await migrate(running.database_url)
        yield running


@pytest.fixture(scope="session")
def settings(database_url: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings on this worker's servers; `msgspec.structs.replace` makes variants."""
    return Settings(
        state=tmp_path_factory.mktemp("state"),
        database_url=database_url,
        redis_url=redis_url,
        key_pepper=PEPPER,
        shards=16,
        unauthenticated_rate=100_000,  # every test comes from one address
        sign_in_rate=100_000,
        dns_servers=(),
    )


@pytest.fixture(scope="session")
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """Yield an HTTP client without a limit on connections."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=60),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
    ) as session:
        yield session


@pytest.fixture(scope="session")
def api_url(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of the application, served by Granian in a process of its own."""
    with serving(settings, tmp_path_factory.mktemp("api") / "api.log") as url:
        yield url


@pytest.fixture(scope="session")
def api(api_url: str, http: aiohttp.ClientSession) -> Api:
    """A client of the running API."""
    return Api(api_url, http)


@pytest.fixture(scope="session", autouse=True)
def no_secret_shows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail after the last test of this worker if a log holds a secret that the tests handed out."""
    yield
    leaks = list(canaries.in_logs(tmp_path_factory.getbasetemp()))
    if leaks:
        pytest.fail(f"secrets in logs: {leaks[:20]}")


@pytest.fixture
def api_log(tmp_path: Path) -> Path:
    """Return the log file for a test's own API process: `with serving(settings, api_log) as url`."""
    return tmp_path / "api.log"


def _url(servers: Temporary, database: str) -> str:
    return servers.database_url.replace("/postgres?", f"/{database}?", 1)


async def _say(servers: Temporary, statement: str) -> None:
    connection = await asyncpg.connect(servers.database_url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
async def own_database(new_database: NewDatabase) -> str:
    """A migrated database for one test."""
    return await new_database()


@pytest.fixture
async def own_pool(own_database: str) -> AsyncIterator[asyncpg.Pool]:
    """Connections to the database of one test."""
    pool = await open_pool(own_database, name="own pool", largest=2)
    yield pool
    await pool.close()
