"""The whole service on servers of the operator's own: TLS, passwords, users without rights, a schema of its own.

`ops test --stores` runs it with each PostgreSQL and Redis.
"""

import shutil
from collections.abc import Iterator

import aiohttp
import pytest

from engine.store import redis as redis_store
from loadtests.kit.accounts import ApiAccess
from loadtests.kit.service import Service
from tests.harness.api import Api
from tests.harness.own_servers import ENCODED, PASSWORD, SecureServers, secure_servers
from tests.harness.patience import PATIENCE_S
from tests.harness.service import arrived, command, new_access, running, send, steps, until, until_status, verifies
from tests.store.redis_servers import unhurried

pytestmark = pytest.mark.journey

USER, DATABASE, SCHEMA = "waybill", "company", "mail"
OTHER = "archive"  # a user with a schema of the same name in the same database
# The statements of ops/runbooks/stores.md for a schema in a database with other tables.
RIGHTS = (
    f"CREATE DATABASE {DATABASE}",
    f"REVOKE ALL ON DATABASE {DATABASE} FROM PUBLIC",
    f"GRANT CONNECT, TEMPORARY ON DATABASE {DATABASE} TO {USER}, {OTHER}",
)
CHECKS = ("postgres", "replicas", "connections", "migrations", "partitions", "redis", "redis memory")
FEW = {"API_WORKERS": "1", "MTA_WORKERS": "1"}


def url_of(servers: SecureServers, user: str, schema: str) -> str:
    return servers.database_url(user, DATABASE, more=f"&options=-csearch_path%3D{schema}")


@pytest.fixture(scope="module")
def servers() -> Iterator[SecureServers]:
    """Servers with TLS."""
    with secure_servers() as started:
        yield started


@pytest.fixture(scope="module")
async def prepared(servers: SecureServers) -> SecureServers:
    """The same with two users, each of whom has a schema."""
    for user in (USER, OTHER):
        await servers.make_user(user)
    await servers.superuser(*RIGHTS)
    await servers.superuser(
        f"CREATE SCHEMA {SCHEMA} AUTHORIZATION {USER}",
        f"CREATE SCHEMA {OTHER} AUTHORIZATION {OTHER}",
        database=DATABASE,
    )
    return servers


@pytest.fixture(scope="module")
def secured(prepared: SecureServers) -> Iterator[Service]:
    """`ops up` on them."""
    given = {"DATABASE_URL": url_of(prepared, USER, SCHEMA), "REDIS_URL": prepared.redis.tls_url()}
    with running(FEW | given) as started:
        yield started


@pytest.fixture
async def access(secured: Service) -> ApiAccess:
    """An account of the test's own."""
    return await new_access(secured)


async def test_mail_is_accepted_delivered_purged_and_backed_up(
    secured: Service, prepared: SecureServers, access: ApiAccess, http: aiohttp.ClientSession
) -> None:
    api = Api(secured.base_url, http)
    id_ = await send(api, access, "ann@people.test")
    found = await until_status(api, access, id_, "delivered")
    assert steps(found) == ["accepted", "attempted", "delivered"]
    [mail] = arrived(secured, "ann@people.test")
    assert mail.file is not None
    assert verifies((secured.sink / mail.file).read_bytes(), secured)

    with unhurried():
        redis = redis_store.connect(prepared.redis.tls_url(), timeout_s=PATIENCE_S)
        try:
            assert b"db0:keys=" in await redis.one("INFO", "keyspace")  # of the service
        finally:
            await redis.aclose()

    assert command(secured, "purge").status == 0
    checks: dict[str, dict[str, object]] = {}

    async def is_content() -> bool:  # a busy machine may answer the doctor late
        checks.update((one["check"], one) for one in command(secured, "doctor", "--json").json)
        return all(checks.get(one, {}).get("ok") for one in CHECKS)

    await until(is_content, why=lambda: f"{checks}")

    folder = secured.state.parent / "backup"
    made = command(secured, "backup", str(folder))
    assert made.status == 0, made.err
    for url, status in ((url_of(prepared, USER, SCHEMA), 1), (url_of(prepared, OTHER, OTHER), 0)):
        ended = command(
            secured, "restore", str(folder), "--no-hold", DATABASE_URL=url, STATE=str(secured.state.parent / "other")
        )
        assert ended.status == status, ended.err
    shutil.rmtree(folder)


async def test_nothing_is_written_beside_the_schema_and_no_password_is_logged(
    secured: Service, prepared: SecureServers
) -> None:
    count = "(SELECT count(*) FROM pg_class WHERE relnamespace = '{}'::regnamespace)"
    await prepared.superuser(
        f"DO $$ BEGIN ASSERT {count.format('public')} = 0; ASSERT {count.format(SCHEMA)} > 100; END $$",
        database=DATABASE,
    )
    logs = [secured.output, *(path for path in (secured.state / "log").rglob("*") if path.is_file())]
    assert len(logs) > 3
    for log in logs:
        text = log.read_text("utf-8", "replace")
        assert ENCODED not in text
        assert PASSWORD not in text
