"""Translation of PostgreSQL driver errors, and preserved cancellation."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress

import asyncpg
import pytest

from engine.store import postgres
from engine.store.database_errors import (
    BadData,
    DatabaseError,
    DatabaseMissing,
    DatabaseUnavailable,
    ForeignKeyViolation,
    LockUnavailable,
    SchemaMismatch,
    StatementCanceled,
    StorageUnwritable,
    UniqueViolation,
)
from engine.store.postgres import SessionPool, open_pool
from ops.host.temporary_servers import Temporary
from tests.conftest import NewDatabase
from tests.harness.patience import PATIENCE_S
from tests.harness.small_disks import make_read_only, small_disk

TABLES = """
CREATE TABLE border_parents (id int CONSTRAINT border_parents_key PRIMARY KEY);
CREATE TABLE border_children (parent int CONSTRAINT border_children_parent REFERENCES border_parents);
INSERT INTO border_parents VALUES (1);
"""


@pytest.fixture
async def database(new_database: NewDatabase) -> AsyncIterator[asyncpg.Pool]:
    pool = await open_pool(await new_database(), name="border test", largest=2)
    await pool.execute(TABLES)
    yield pool
    await pool.close()


@pytest.mark.parametrize(
    ("statement", "arguments", "kind"),
    [
        ("INSERT INTO border_parents VALUES (1)", (), UniqueViolation),
        ("INSERT INTO border_children VALUES ($1)", (7,), ForeignKeyViolation),
        ("SELECT $1::int", (1 << 40,), BadData),  # refused by the driver
        ("SELECT $1::text", ("\0",), BadData),  # refused by the server
        ("SELECT * FROM border_nowhere", (), SchemaMismatch),
        ("SELECT border_column FROM border_parents", (), SchemaMismatch),
        ("SET statement_timeout = '10ms'; SELECT pg_sleep(10)", (), StatementCanceled),
        (
            "DO $$ BEGIN RAISE insufficient_privilege USING MESSAGE = 'permission denied for table x'; END $$",
            (),
            DatabaseError,
        ),
    ],
)
async def test_a_failed_statement_raises_an_exception_of_ours(
    database: asyncpg.Pool, statement: str, arguments: tuple[object, ...], kind: type[DatabaseError]
) -> None:
    with pytest.raises(kind) as caught:
        await database.execute(statement, *arguments)
    assert type(caught.value) is kind
    assert caught.value.__cause__ is not None


async def test_a_file_system_that_the_server_cannot_write_is_an_outage(
    database: asyncpg.Pool, servers: Temporary
) -> None:
    with small_disk(8) as folder:
        owner = servers.postgres.paths.identity
        if owner is not None:
            os.chown(folder, owner.uid, owner.gid)
        await database.execute(f"CREATE TABLESPACE read_only LOCATION '{folder}'")
        try:
            make_read_only(folder)
            with pytest.raises(StorageUnwritable, match="Read-only file system"):
                await database.execute("CREATE TABLE border_elsewhere (id int) TABLESPACE read_only")
        finally:
            make_read_only(folder, wanted=False)
            await database.execute("DROP TABLESPACE read_only")


async def test_a_violation_names_its_constraint(database: asyncpg.Pool) -> None:
    with pytest.raises(UniqueViolation) as caught:
        await database.execute("INSERT INTO border_parents VALUES (1)")
    assert caught.value.constraint == "border_parents_key"


async def test_a_lock_that_is_not_granted_is_told_from_other_outages(database: asyncpg.Pool) -> None:
    async with database.acquire() as holder, holder.transaction():
        await holder.execute("LOCK TABLE border_parents")
        async with database.acquire() as waiter, waiter.transaction():
            await waiter.execute("SET LOCAL lock_timeout = '10ms'")
            with pytest.raises(LockUnavailable):
                await waiter.execute("LOCK TABLE border_parents")


async def test_a_session_that_the_server_ends_while_in_use_is_unavailable(database: asyncpg.Pool) -> None:
    async with database.acquire() as session:
        await database.execute("SELECT pg_terminate_backend($1)", session.get_server_pid())
        for _ in range(2):  # while it ends, and once it has ended
            with pytest.raises(DatabaseUnavailable):
                await session.fetch("SELECT 1")
        with pytest.raises(DatabaseUnavailable):
            session.transaction()
    assert await database.fetchval("SELECT 1") == 1


async def test_a_transaction_whose_session_the_server_ends_is_unavailable(database: asyncpg.Pool) -> None:
    async def write() -> None:
        async with database.acquire() as session, session.transaction():
            await database.execute("SELECT pg_terminate_backend($1)", session.get_server_pid())
            while not session.is_closed():
                await asyncio.sleep(0.01)

    with pytest.raises(DatabaseUnavailable):
        await write()
    assert await database.fetchval("SELECT 1") == 1


async def test_a_database_that_does_not_exist_or_answer_is_told_at_connecting(database: asyncpg.Pool) -> None:
    url = "postgresql://postgres@/postgres?host=/nowhere"
    for opening in (postgres.connect(url, name="test"), open_pool(url, name="test")):
        with pytest.raises(DatabaseUnavailable):
            await opening
    assert isinstance(database, SessionPool)


async def test_a_missing_database_is_named(new_database: NewDatabase) -> None:
    url = _renamed(await new_database())
    with pytest.raises(DatabaseMissing, match="border_nobody"):
        await postgres.connect(url, name="test")


async def test_an_error_in_a_cancelled_task_is_its_cancellation(database: asyncpg.Pool) -> None:
    async def outlives_errors() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with suppress(asyncio.CancelledError):  # as a driver does whose rollback fails meanwhile
            await asyncio.sleep(0)
        while True:
            try:
                await database.fetch("SELECT 1 / 0")
            except DatabaseError:
                await asyncio.sleep(0)

    task = asyncio.create_task(outlives_errors())
    _, running = await asyncio.wait({task}, timeout=PATIENCE_S)
    task.cancel()
    assert not running
    assert task.cancelled()


def _renamed(url: str) -> str:
    head, question, query = url.partition("?")
    return head.rpartition("/")[0] + "/border_nobody" + question + query
