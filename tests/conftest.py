"""Shared fixtures: real servers per worker, a migrated database, and the API on a real socket."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import hypothesis
import pytest
import uvloop

from engine.base.settings import Settings
from engine.cells.directory import migrate_directory
from engine.sending.settle import Settler
from engine.store import service_time
from engine.store.migrate import migrate
from engine.store.postgres import open_pool
from engine.store.service_time import Follower
from ops.host.temporary_servers import Temporary, temporary_servers
from ops.local.dns import Responder
from tests.harness import canaries, fork_server, limits, memory, prepared, sampling, selection, workers
from tests.harness.accounts import PEPPER, TestAccount, make_account
from tests.harness.api import Api, serving
from tests.harness.people import TestPerson, make_person
from tests.harness.prepared import TEMPLATE
from tests.harness.sending import Process, member, process, settler_of

# Examples take as long as the machine needs: a deadline, or a check for slow data, would fail on a busy one. They are
# the same in every run, so that a run tells of the change and not of its luck; `--hypothesis-seed N` looks for others.
for _name, _examples in (("few", 15), ("all", 100)):
    hypothesis.settings.register_profile(
        _name,
        max_examples=_examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )

_NUMBERS = itertools.count(1)
NewDatabase = Callable[[], Awaitable[str]]
ServeApi = Callable[[Settings], Api]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return uvloop, which the processes use too."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--workers` and `--all`, which `ops test` sets."""
    group = parser.getgroup("waybill")
    group.addoption(workers.OPTION, type=int, default=0, metavar="N", help="run the tests in N forked processes")
    group.addoption("--seed", type=int, metavar="N", help="choose the same samples as a run that printed this seed")
    group.addoption("--postgres", metavar="FOLDER", help="test with the PostgreSQL whose programs are in this folder")
    group.addoption("--redis", metavar="PROGRAM", help="test with this Redis or Valkey")
    group.addoption("--all", action="store_true", dest="everything", help="also tests that many inputs make long")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks, the summary of tests left out, and the processes that run the tests."""
    given = config.getoption("seed")
    sampling.seed = random.randrange(1_000_000) if given is None else given
    sampling.everything = config.getoption("everything")
    hypothesis.settings.load_profile("all" if sampling.everything else "few")
    if config.getoption("--hypothesis-seed") is not None:  # other examples than those of every run
        hypothesis.settings.register_profile("other", hypothesis.settings(), derandomize=False)
        hypothesis.settings.load_profile("other")
    prepared.use_servers(config.getoption("postgres"), config.getoption("redis"))
    config.pluginmanager.register(selection, "selection")
    if workers.count(config):
        config.pluginmanager.register(workers.Pool(config, selection.grouped), "pool")


def pytest_report_header() -> str:
    """Show the seed of the samples."""
    return f"seed: {sampling.seed} (--seed {sampling.seed} chooses the same samples)"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the tests that drive a browser unless they are asked for."""
    below = selection.BROWSER_TESTS in (collection_path, *collection_path.parents)
    return (below and not selection.drives_browsers(config)) or None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Set the time limit of a test."""
    limits.apply(item)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin what all workers use: the server of forked processes, and the data of the databases."""
    if workers.count(session.config):
        fork_server.begin()
        prepared.begin(session.config._tmp_path_factory.getbasetemp())  # type: ignore[attr-defined]


def pytest_sessionfinish() -> None:
    """Remove the data of the databases."""
    prepared.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failure the logs that the service wrote to during the test."""
    report = yield
    if report.failed:
        base: Path = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        report.sections.extend(workers.logs_since(base, call.duration + 1))
    return report


@pytest.fixture(scope="session")
def servers() -> Iterator[Temporary]:
    """Run PostgreSQL and Valkey for this worker; they end with it, even after a crash."""
    with temporary_servers(memory.folder(), model=prepared.model()) as running:
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
async def new_directory(servers: Temporary) -> NewDatabase:
    """Return a function that makes an empty directory of cells and returns its URL."""

    async def make() -> str:
        name = f"directory_{next(_NUMBERS)}"
        await _say(servers, f"CREATE DATABASE {name}")
        await migrate_directory(_url(servers, name))
        return _url(servers, name)

    return make


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
    with temporary_servers(model=prepared.model()) as running:
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


@pytest.fixture(scope="module")
def serve(http: aiohttp.ClientSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeApi]:
    """Return a function that runs an API with these settings until the module ends, and returns a client of it."""
    with contextlib.ExitStack() as started:

        def run(settings: Settings) -> Api:
            log = tmp_path_factory.mktemp("own-api") / "api.log"
            return Api(started.enter_context(serving(settings, log)), http)

        yield run


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


@pytest.fixture(autouse=True)
def no_followed_clock() -> Iterator[None]:
    """After each test this process follows no clock, though an operator's command that ran in it joined one."""
    yield
    service_time.leave()


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    """This process follows the clock of a state folder until the test ends."""
    return service_time.join_at(tmp_path)


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


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    """Return an account of the test's own."""
    return await make_account(pool)


@pytest.fixture
async def owner(pool: asyncpg.Pool, account: TestAccount) -> TestPerson:
    """Return the owner of the account."""
    return await make_person(pool, account.id, "owner")


@pytest.fixture
async def admin(pool: asyncpg.Pool, account: TestAccount) -> TestPerson:
    """Return an administrator of the account."""
    return await make_person(pool, account.id, "admin")


@pytest.fixture
async def stranger(pool: asyncpg.Pool) -> TestAccount:
    """Return an account that has nothing to do with `account`."""
    return await make_account(pool)


@pytest.fixture
async def zone() -> AsyncIterator[Responder]:
    """Run an empty DNS server on loopback."""
    async with Responder() as responder:
        yield responder


@pytest.fixture
async def door(settings: Settings) -> AsyncIterator[Process]:
    """Provide an acceptor on the shared database, as one process has it."""
    async with process(settings) as one:
        yield one


@pytest.fixture
async def doors(settings: Settings) -> AsyncIterator[tuple[Process, Process]]:
    """Two processes on the shared database."""
    async with process(settings) as one, process(settings) as two:
        yield one, two


@pytest.fixture
async def settler(pool: asyncpg.Pool) -> Settler:
    """Return a settler of a live member."""
    return settler_of(pool, await member(pool))
