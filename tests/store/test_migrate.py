"""Migrations while mail is accepted: nobody is refused, nothing is lost, and two at once are one."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path

import asyncpg
import pytest
from msgspec import structs

from engine.base import clock, ids
from engine.base.settings import PREFIX, Settings, to_environ
from engine.sending.messages import store as messages
from engine.store import migrate, partitions
from engine.store.database_errors import DatabaseError
from engine.store.migrate import MigrationError
from tests.harness import history
from tests.harness.accounts import make_account
from tests.harness.api import ROOT
from tests.harness.patience import PATIENCE_S
from tests.harness.sending import DELIVERED, attempt_at, member, process, rows_of, settler_of

NewDatabase = Callable[[], Awaitable[str]]

SHORT_IN_PLACE = "toast_tuple_target=4064"
FEWER_VACUUMS = {"autovacuum_analyze_threshold=20000", "autovacuum_vacuum_insert_threshold=50000"}
LAST_OF_VERSION_BEFORE = 22
STORED_BY_VERSION_BEFORE = """
    INSERT INTO messages (id, account_id, status, source, sender, from_domain, subject, stream, recipient_count,
                          size_bytes)
    VALUES ('{message}', '{account}', 'queued', 'api', 'shop@shop.test', 'shop.test', 'Hello', 'transactional', 1, 4);
    INSERT INTO message_bodies (message_id, mime, smtputf8) VALUES ('{message}', 'Hi\r\n', false);
    INSERT INTO recipients (message_id, n, account_id, kind, address, status)
    VALUES ('{message}', 0, '{account}', 'to', 'ann@one.test', 'queued');
    INSERT INTO queue (message_id, domain, shard, account_id, from_domain, recipients, total, due_at)
    VALUES ('{message}', 'one.test', 1, '{account}', 'shop.test', '[[0, "ann@one.test"]]', 1, now());
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The service's migrations and one that wants `messages` for itself."""
    made = tmp_path / "migrations"
    shutil.copytree(migrate.FOLDER, made)
    (made / "9001_probe.sql").write_text("ALTER TABLE messages ADD COLUMN probe text;\n")
    return made


async def has_probe(url: str) -> bool:
    connection = await asyncpg.connect(url)
    try:
        return bool(await connection.fetchval("SELECT count(*) FROM pg_attribute WHERE attname = 'probe'"))
    finally:
        await connection.close()


async def test_a_migration_that_waits_for_a_table_lets_sending_pass(
    new_database: NewDatabase, settings: Settings, folder: Path
) -> None:
    url = await new_database()
    told: list[str] = []
    longest, accepted, over = 0.0, 0, asyncio.Event()
    reader = await asyncpg.connect(url, server_settings={"application_name": "somebody's report"})
    async with process(structs.replace(settings, database_url=url)) as doors:
        account = await make_account(doors.pool)

        async def sender() -> None:
            nonlocal longest, accepted
            while not over.is_set():
                began = time.monotonic()
                await doors.send(account)
                longest = max(longest, time.monotonic() - began)
                accepted += 1

        async with asyncio.TaskGroup() as tasks:
            for _ in range(4):
                tasks.create_task(sender())
            reading = reader.transaction()
            await reading.start()
            await reader.fetchval("SELECT count(*) FROM messages")
            migrating = tasks.create_task(migrate.migrate(url, folder, report=told.append))
            async with asyncio.timeout(PATIENCE_S):
                while not any("did not get its locks" in line for line in told):
                    await asyncio.sleep(0.05)
            before = accepted
            async with asyncio.timeout(PATIENCE_S):
                while accepted < before + 20:  # mail goes through while the migration keeps trying
                    await asyncio.sleep(0.05)
            still_waiting = not migrating.done()
            await reading.rollback()
            await migrating
            over.set()
        stored = await doors.pool.fetchval("SELECT count(*) FROM messages")
    await reader.close()

    assert still_waiting
    assert migrating.result() == ["9001_probe.sql"]
    assert any("somebody's report" in line for line in told)
    assert stored == accepted
    assert longest < migrate.LOCK_TIMEOUT_S + 20  # far below a 503, on a busy machine too
    assert await has_probe(url)


async def test_a_migration_that_never_gets_its_locks_leaves_nothing_and_names_who_has_them(
    new_database: NewDatabase, folder: Path
) -> None:
    url = await new_database()
    (folder / "9001_probe.sql").write_text("ALTER TABLE accounts ADD COLUMN probe text;\nLOCK TABLE messages;\n")
    reader = await asyncpg.connect(url, server_settings={"application_name": "somebody's report"})
    async with reader.transaction():
        await reader.fetchval("SELECT count(*) FROM messages")
        with pytest.raises(MigrationError, match=r"nothing of it was applied.*somebody's report"):
            await migrate.migrate(url, folder, max_wait_s=0)
    await reader.close()

    assert not await has_probe(url)


async def test_two_at_once_are_one(new_database: NewDatabase, folder: Path) -> None:
    url = await new_database()
    told: list[str] = []
    first, second = await asyncio.gather(
        migrate.migrate(url, folder, report=told.append), migrate.migrate(url, folder, report=told.append)
    )

    assert sorted([first, second]) == [[], ["9001_probe.sql"]]
    assert told.count("applying 9001_probe.sql") == 1


async def test_a_database_newer_than_the_code_is_refused_in_plain_words(
    new_database: NewDatabase, folder: Path
) -> None:
    url = await new_database()
    await migrate.migrate(url, folder)
    with pytest.raises(MigrationError, match="newer than this version of Waybill: it has migration 9001_probe"):
        await migrate.migrate(url)


async def test_a_migration_that_was_changed_is_refused(new_database: NewDatabase, folder: Path) -> None:
    url = await new_database()
    await migrate.migrate(url, folder)
    (folder / "9001_probe.sql").write_text("SELECT 1;\n")
    with pytest.raises(MigrationError, match="was changed after it had been applied"):
        await migrate.migrate(url, folder)


def test_no_migration_changes_once_it_is_written() -> None:
    """Installations compare digests: a changed comment, too, would keep them from starting. `sha256sum` adds a line."""
    lines = (ROOT / "tests" / "data" / "migrations.sha256").read_text("utf-8").splitlines()
    listed = {name: digest for digest, name in map(str.split, lines)}
    found = {path.name: sha256(path.read_bytes()).hexdigest() for path in migrate.FOLDER.glob("*.sql")}

    assert found == listed


async def test_earlier_texts_of_a_migration_are_accepted(new_database: NewDatabase) -> None:
    url = await new_database()
    connection = await asyncpg.connect(url)
    try:
        for number, digest in migrate.FORMER.items():
            await connection.execute("UPDATE schema_migrations SET digest = $2 WHERE number = $1", number, digest)
    finally:
        await connection.close()

    assert await migrate.migrate(url) == []


async def test_large_bytes_are_stored_apart_and_not_compressed_again(new_database: NewDatabase) -> None:
    url = await new_database()
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
            " WHERE c.relkind IN ('r', 'p') AND a.atttypid = 'bytea'::regtype AND a.attstorage = 'e'"
        )
    finally:
        await connection.close()

    found = {f"{row['relname']}.{row['attname']}" for row in rows}
    assert {
        "message_bodies.mime", "inbound_bytes.bytes", "report_mails.raw", "verification_settings.logo", "images.content"
    } <= found  # fmt: skip
    for table in ("message_bodies", "inbound_bytes"):
        assert [one for one in found if one.startswith(f"{table}_")], f"no partition of {table}"


@pytest.mark.exhaustive
async def test_a_process_on_a_database_that_lacks_a_migration_says_so_and_ends(
    new_database: NewDatabase, settings: Settings, tmp_path: Path
) -> None:
    url = await new_database()
    last = migrate.read()[-1]
    connection = await asyncpg.connect(url)
    await connection.execute("DELETE FROM schema_migrations WHERE number = $1", last.number)
    await connection.close()
    environ = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    environ |= to_environ(structs.replace(settings, database_url=url, state=tmp_path))
    ended = await asyncio.gather(
        *(
            asyncio.to_thread(
                subprocess.run, [sys.executable, "-m", module], env=environ, cwd=ROOT, capture_output=True, text=True,
                timeout=60, check=False,
            )
            for module in ("mta.process", "ops.processes.worker", "ops.processes.relay", "ops.processes.api")
        )
    )  # fmt: skip

    assert {one.returncode for one in ended} == {1}
    for one in ended:
        assert one.stderr.strip().splitlines()[-1].endswith("run `python3 -m ops migrate` first")
        assert last.name in one.stderr
        assert "Traceback" not in one.stderr


async def test_a_process_goes_on_with_a_newer_schema(new_database: NewDatabase, folder: Path) -> None:
    url = await new_database()
    await migrate.migrate(url, folder)
    await migrate.require_at(url)


async def test_partitions_are_made_beside_a_reader_of_the_whole_table(new_database: NewDatabase) -> None:
    url = await new_database()
    reader, maker = await asyncpg.connect(url), await asyncpg.connect(url)
    async with reader.transaction():
        for table in partitions.TABLES:
            await reader.fetchval(f"SELECT count(*) FROM {table}")
        made = await partitions.ensure(maker, clock.now() + 10 * partitions.WEEK, ahead=0)
    parameters = await parameters_of(maker, made)
    await reader.close()
    await maker.close()

    assert len(made) == 2 * len(partitions.TABLES)
    assert parameters == {
        "messages": {"fillfactor=60", *FEWER_VACUUMS},
        "recipients": {"fillfactor=55", *FEWER_VACUUMS},
        "message_bodies": {SHORT_IN_PLACE, *FEWER_VACUUMS},
        "events": FEWER_VACUUMS,
        "inbound_messages": {"fillfactor=90"},
        "webhook_attempts": set(),
        "inbound_bytes": set(),
    }


async def test_partitions_that_exist_get_the_parameters_of_new_ones(new_database: NewDatabase) -> None:
    """A migration sets them: the partitions of the next five weeks were made by the version before."""
    connection = await asyncpg.connect(await new_database())
    tables = ("messages", "message_bodies", "recipients", "events")
    rows = await connection.fetch(
        "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = ANY($1::text[]::regclass[])", tables
    )
    changed = [row["name"] for row in rows]
    for name in changed:
        await connection.execute(
            f"ALTER TABLE {name} RESET ({', '.join(one.partition('=')[0] for one in (*FEWER_VACUUMS, SHORT_IN_PLACE))})"
        )
    assert not any(FEWER_VACUUMS & found for found in (await parameters_of(connection, changed)).values())
    for name in ("0061_vacuums_of_broadcasts.sql", "0079_short_bodies_in_place.sql"):
        await connection.execute((migrate.FOLDER / name).read_text("utf-8"))

    parameters = await parameters_of(connection, changed)
    await connection.close()
    assert set(parameters) == set(tables)
    assert all(found >= FEWER_VACUUMS for found in parameters.values())
    assert SHORT_IN_PLACE in parameters["message_bodies"]


async def parameters_of(connection: asyncpg.Connection, partitions_: list[str]) -> dict[str, set[str]]:
    """Return the storage parameters that the partitions of each table have in common, by table."""
    rows = await connection.fetch(
        "SELECT relname, coalesce(reloptions, '{}') AS options FROM pg_class WHERE relname = ANY($1)", partitions_
    )
    found: dict[str, set[str]] = {}
    for row in rows:
        table = row["relname"].rpartition("_")[0]
        found[table] = found.get(table, set(row["options"])) & set(row["options"])
    return found


async def test_a_database_of_the_version_before_migrates_and_what_it_holds_is_delivered(
    new_database: NewDatabase, settings: Settings
) -> None:
    url = await new_database()
    connection = await asyncpg.connect(url)
    await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    await migrate.migrate(url, only=range(1, LAST_OF_VERSION_BEFORE + 1))
    message, owner = ids.uuid7(), ids.uuid7()
    await connection.execute(STORED_BY_VERSION_BEFORE.format(message=message, account=owner))

    assert await migrate.migrate(url) == [one.name for one in migrate.read() if one.number > LAST_OF_VERSION_BEFORE]

    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        account = await make_account(pool, account=owner)
    async with process(structs.replace(settings, database_url=url)) as one:
        await one.send(account)
        [row] = await rows_of(one.pool, message)
        assert await settler_of(one.pool, await member(one.pool)).settle(attempt_at(row, DELIVERED))
        found = await messages.read(one.pool, account.id, message)
        assert found is not None
        assert (found.status, found.resent_from, len(found.recipients)) == ("delivered", None, 1)
        assert await history.chain_holds(one.pool, account)
    # Processes of the version before, which are replaced one by one after the migration, still settle by it.
    assert await connection.fetchval("SELECT count(*) FROM pg_proc WHERE proname = 'settle_whole'") == 1
    await connection.close()


async def test_a_start_that_fails_leaves_no_session_behind(own_database: str) -> None:
    connection = await asyncpg.connect(own_database)
    try:
        await connection.execute("ALTER TABLE schema_migrations RENAME TO migrations_before")
        await connection.execute("CREATE VIEW schema_migrations AS SELECT 1 / 0 AS number")
        with pytest.raises(DatabaseError, match="division by zero"):
            await migrate.open_current(own_database, name="failed start")
        left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waybill failed start'"
        async with asyncio.timeout(PATIENCE_S):
            while await connection.fetchval(left):
                await asyncio.sleep(0.02)
    finally:
        await connection.close()
