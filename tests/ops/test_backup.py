"""A backup holds one moment of everything, and comes back whole, held and verified, or not at all."""

import asyncio
import contextlib
import gzip
import itertools
import json
import shutil
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import asyncpg
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as some
from msgspec import structs

from engine.accounts.audit import store as audit
from engine.base import clock
from engine.base.settings import Settings
from engine.delivery import holds
from engine.delivery.holds import HoldKind, Holds
from engine.sending import queue_admin
from engine.store import migrate
from engine.store.postgres import open_pool
from ops.backup import manifest, restore
from ops.backup.dump import UNFINISHED, dump
from ops.backup.manifest import BackupError, Manifest
from ops.backup.rows import RowSum
from ops.backup.tables import Reference, Table, connected, in_order, tables
from ops.cli import main
from ops.host.temporary_servers import Temporary
from tests.harness import history
from tests.harness.accounts import PEPPER, TestAccount, make_account
from tests.harness.sending import Process, process

NewDatabase = Callable[[], Awaitable[str]]
_NUMBERS = itertools.count(1)


def quiet(*_: object) -> None:
    """Nobody listens."""


async def write(database_url: str, folder: Path) -> Manifest:
    return await dump(database_url, folder, PEPPER, say=quiet)


async def put_back(database_url: str, folder: Path, made: Manifest, *, hold: bool = True) -> restore.Restored:
    return await restore.restore(database_url, folder, made, hold=hold, say=quiet, stage=quiet, committed=quiet)


async def sums(database_url: str) -> dict[str, tuple[int, str]]:
    """Every table's rows."""
    found = {}
    async with connected(database_url, "waybill backup") as connection:
        for table in await tables(connection):
            rows = RowSum()

            async def take(piece: bytes, rows: RowSum = rows) -> None:
                rows.add(piece)

            await connection.copy_from_table(table.name, columns=table.columns, output=take, format="text")
            found[table.name] = (rows.rows, rows.digest)
    return found


@pytest.fixture
async def empty(servers: Temporary) -> str:
    """A database without a table."""
    name = f"empty_{next(_NUMBERS)}"
    connection = await asyncpg.connect(servers.database_url)
    try:
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    finally:
        await connection.close()
    return servers.database_url.replace("/postgres?", f"/{name}?", 1)


@pytest.fixture
async def blank(new_database: NewDatabase) -> str:
    """A migrated database without rows: it counts as empty."""
    return await new_database()


class Mail(NamedTuple):
    """An account, where to send, and its database."""

    account: TestAccount
    doors: Process
    pool: asyncpg.Pool


@contextlib.asynccontextmanager
async def posted(settings: Settings, database_url: str) -> AsyncIterator[Mail]:
    """A database with old mail, mail that waits, and an account of odd characters."""
    pool = await open_pool(database_url, name="backup tests", largest=2)
    account = await make_account(pool)
    now = clock.now()
    await history.write(pool, account, *[now - timedelta(days=days) for days in (60, 25, 3)])
    async with process(structs.replace(settings, database_url=database_url)) as doors:
        await doors.send(account, subject="Tab\there, \\N, ü, 😀", text="back\\slash\r\nline\r\n")
        await doors.send(account, to=["a@one.test", "b@two.test"])
        yield Mail(account, doors, pool)
    await pool.close()


class BackedUp(NamedTuple):
    """A backup and the database that it was made of, which nobody writes to any more."""

    url: str
    folder: Path
    made: Manifest
    account: TestAccount


@pytest.fixture(scope="module")
async def kept(settings: Settings, lasting_database: NewDatabase, tmp_path_factory: pytest.TempPathFactory) -> BackedUp:
    """One for all tests that only read it."""
    url, folder = await lasting_database(), tmp_path_factory.mktemp("backup") / "b"
    async with posted(settings, url) as mail:
        return BackedUp(url, folder, await write(url, folder), mail.account)


@pytest.fixture
async def mail(settings: Settings, own_database: str) -> AsyncIterator[Mail]:
    """The same in a database of the test's own, with the doors open."""
    async with posted(settings, own_database) as one:
        yield one


async def test_what_comes_back_is_row_by_row_what_was_backed_up(kept: BackedUp, empty: str) -> None:
    made = kept.made
    done = await put_back(empty, kept.folder, made, hold=False)
    before, after = await sums(kept.url), await sums(empty)

    assert {name: rows for name, rows in before.items() if rows[0]} == {n: r for n, r in after.items() if r[0]}
    assert (done.chains, done.broken, done.held) == (made.accounts, [], None)
    assert made.in_flight.deliveries == 3
    assert len((kept.folder / manifest.IN_FLIGHT).read_text().splitlines()) == 1 + 3


async def test_what_was_under_way_is_held_until_the_operator_lets_go(kept: BackedUp, blank: str) -> None:
    done = await put_back(blank, kept.folder, kept.made)
    pool = await asyncpg.create_pool(blank, min_size=1, max_size=2)
    try:
        rows = await pool.fetch("SELECT held_by, due_at FROM queue")
        known = Holds(pool)
        await known.refresh()
        owed = await queue_admin._OWED.fetch(pool, 10, UUID(int=0), "", UUID(int=2**128 - 1), None, None, None, None)
        every = [known.of(row) is not None for row in owed]
        standing = await holds.IN_FORCE.fetch(pool)
        told = await pool.fetchval(
            "SELECT count(*) FROM events WHERE type = 'queued' AND payload LIKE '%restored from%'"
        )
        back = await queue_admin.resume(pool, queue_admin.queue_target(HoldKind.SITE, holds.EVERYWHERE))
        verdict = await audit.verify(pool, kept.account.id)
    finally:
        await pool.close()

    assert done.held == len(rows) == told == back == 3
    assert every == [True] * 3  # as the deliverers see it
    assert {row["held_by"] for row in rows} == {standing[0].id}
    assert min(row["due_at"] for row in rows) > clock.now() + timedelta(hours=12)
    assert verdict.broken is None


@pytest.mark.exhaustive
async def test_a_backup_beside_sending_holds_one_moment(
    mail: Mail, own_database: str, blank: str, tmp_path: Path
) -> None:
    account, doors, _ = mail
    over = asyncio.Event()

    async def sender() -> None:
        while not over.is_set():
            await doors.send(account)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(sender())
        await asyncio.sleep(0.2)
        made = await write(own_database, tmp_path / "b")
        over.set()
    done = await put_back(blank, tmp_path / "b", made)
    connection = await asyncpg.connect(blank)
    counts = await connection.fetchrow(
        "SELECT (SELECT count(*) FROM messages) AS messages, (SELECT count(*) FROM message_bodies) AS bodies,"
        " (SELECT count(*) FROM events WHERE type = 'accepted') AS accepted,"
        " (SELECT sum(sent_today) FROM account_heads) AS counted, (SELECT count(*) FROM queue) AS waiting"
    )
    await connection.close()

    assert done.broken == []
    assert counts is not None
    assert counts["messages"] == counts["bodies"] == counts["accepted"]  # old mail has its events too
    assert counts["counted"] == counts["messages"] - 3
    assert counts["waiting"] == made.in_flight.deliveries == done.held


async def test_a_database_with_rows_is_left_alone(kept: BackedUp) -> None:
    with pytest.raises(BackupError, match=r"is not empty: .* has rows"):
        await put_back(kept.url, kept.folder, kept.made)


async def test_a_database_that_processes_use_is_left_alone(kept: BackedUp) -> None:
    pool = await open_pool(kept.url, name="backup tests")
    try:
        with pytest.raises(BackupError, match="stop them first"):
            await put_back(kept.url, kept.folder, kept.made)
    finally:
        await pool.close()


async def test_a_restore_that_fails_leaves_nothing_and_can_be_repeated(kept: BackedUp, blank: str) -> None:
    made = kept.made
    parts = [structs.replace(part, digest="0" * 32) if part.table == "queue" else part for part in made.parts]
    with pytest.raises(BackupError, match="queue is not what was backed up"):
        await put_back(blank, kept.folder, structs.replace(made, parts=parts))
    left = [name for name, (rows, _) in (await sums(blank)).items() if rows and name != "stamps"]
    done = await put_back(blank, kept.folder, made)

    assert left == []
    assert done.rows == made.rows


@pytest.mark.parametrize("change", ["cut", "changed", "gone"])
async def test_a_file_that_is_not_what_was_written_is_named(kept: BackedUp, tmp_path: Path, change: str) -> None:
    shutil.copytree(kept.folder, tmp_path / "b")
    file = tmp_path / "b" / "stamps.copy.gz"
    if change == "gone":
        file.unlink()
    else:
        text = gzip.decompress(file.read_bytes())
        file.write_bytes(file.read_bytes()[:-3] if change == "cut" else gzip.compress(text.replace(b"keys", b"kyes")))
    with pytest.raises(BackupError, match=r"stamps\.copy\.gz"):
        manifest.check_files(tmp_path / "b", kept.made)


async def test_a_backup_of_a_schema_this_version_does_not_know_is_refused(kept: BackedUp, servers: Temporary) -> None:
    made = kept.made
    newer = structs.replace(made, migrations=[*made.migrations, structs.replace(made.migrations[-1], number=9999)])
    with pytest.raises(BackupError, match="another version of Waybill"):
        await put_back(servers.database_url, kept.folder, newer)


async def test_a_backup_of_an_older_schema_is_brought_up_to_date(
    empty: str, servers: Temporary, tmp_path: Path
) -> None:
    numbers = [one.number for one in migrate.read()]
    await migrate.migrate(empty, only=frozenset(numbers[:-1]))
    made = await write(empty, tmp_path / "b")
    connection = await asyncpg.connect(servers.database_url)
    await connection.execute("CREATE DATABASE older TEMPLATE template0")
    await connection.close()
    done = await put_back(servers.database_url.replace("/postgres?", "/older?", 1), tmp_path / "b", made)

    assert done.migrated == [migrate.read()[-1].name]


async def test_a_backup_that_was_broken_off_is_begun_anew_and_a_finished_one_never(
    kept: BackedUp, tmp_path: Path
) -> None:
    folder = tmp_path / "b"
    folder.mkdir()
    (folder / UNFINISHED).touch()
    (folder / "events_1.copy.gz").write_bytes(b"half")
    with pytest.raises(BackupError, match="no finished backup"):
        manifest.read(folder)
    await write(kept.url, folder)

    assert {UNFINISHED, "events_1.copy.gz"}.isdisjoint(path.name for path in folder.iterdir())
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with pytest.raises(BackupError, match="finished backup already"):
        await write(kept.url, folder)


async def test_a_folder_with_something_else_in_it_is_left_alone(kept: BackedUp, tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("Dear Ann")
    with pytest.raises(BackupError, match="not empty"):
        await write(kept.url, tmp_path)

    assert (tmp_path / "letters.txt").read_text() == "Dear Ann"


async def test_the_commands_keep_the_pepper_and_refuse_another(
    given: dict[str, str],
    kept: BackedUp,
    blank: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    folder = str(tmp_path / "b")
    (Path(given["WAYBILL_STATE"]) / "first-run.json").write_text("{}")
    assert await asyncio.to_thread(main, ["backup", folder, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert stat.S_IMODE(Path(told["pepper"]).stat().st_mode) == 0o600
    assert Path(told["pepper"]).read_text().strip() == PEPPER
    last = json.loads((Path(given["WAYBILL_STATE"]) / "backup.json").read_text())
    assert last == {"madeAt": told["madeAt"], "folder": folder}

    monkeypatch.setenv("WAYBILL_DATABASE_URL", blank)
    monkeypatch.setenv("WAYBILL_KEY_PEPPER", "quite another pepper, of no use")
    assert await asyncio.to_thread(main, ["restore", folder]) == 1
    assert "not the one that the backup's keys were made under" in capsys.readouterr().err
    monkeypatch.delenv("WAYBILL_KEY_PEPPER")
    monkeypatch.setenv("WAYBILL_STATE", str(tmp_path / "elsewhere"))
    assert await asyncio.to_thread(main, ["restore", folder, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["restored"] is False
    monkeypatch.setenv("WAYBILL_DATABASE_URL", kept.url)
    assert await asyncio.to_thread(main, ["restore", folder]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere" / "pepper").exists()  # `ops up` must not take it for the pepper of other data
    assert not (tmp_path / "elsewhere" / "first-run.json").exists()
    monkeypatch.setenv("WAYBILL_DATABASE_URL", blank)
    assert await asyncio.to_thread(main, ["restore", folder]) == 0
    assert "ops queue resume --all" in capsys.readouterr().err
    assert (tmp_path / "elsewhere" / "pepper").read_text().strip() == PEPPER
    assert (tmp_path / "elsewhere" / "first-run.json").read_text() == "{}"


async def test_a_backup_during_a_change_of_the_pepper_holds_both(
    given: dict[str, str],
    blank: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before, during = str(tmp_path / "before"), str(tmp_path / "during")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert await asyncio.to_thread(main, ["backup", before, "--json"]) == 0
    monkeypatch.setenv("WAYBILL_KEY_PEPPER", "the pepper after the change")
    monkeypatch.setenv("WAYBILL_KEY_PEPPER_PREVIOUS", PEPPER)
    assert await asyncio.to_thread(main, ["backup", during, "--json"]) == 0
    assert (tmp_path / "during" / "pepper-previous").read_text().strip() == PEPPER

    monkeypatch.setenv("WAYBILL_DATABASE_URL", blank)
    assert await asyncio.to_thread(main, ["restore", before, "--dry-run"]) == 0  # made under the previous pepper
    monkeypatch.delenv("WAYBILL_KEY_PEPPER_PREVIOUS")
    assert await asyncio.to_thread(main, ["restore", during, "--dry-run"]) == 1
    assert "WAYBILL_KEY_PEPPER_PREVIOUS" in capsys.readouterr().err
    monkeypatch.delenv("WAYBILL_KEY_PEPPER")
    monkeypatch.setenv("WAYBILL_STATE", str(tmp_path / "elsewhere"))
    assert await asyncio.to_thread(main, ["restore", during]) == 0
    kept = [(tmp_path / "elsewhere" / name).read_text().strip() for name in ("pepper", "pepper-previous")]
    assert kept == ["the pepper after the change", PEPPER]


@drawn(some.lists(some.binary(max_size=8).map(lambda row: row.replace(b"\n", b"")), max_size=8), some.data())
def test_rows_are_counted_alike_however_they_are_cut_and_ordered(rows: list[bytes], data: some.DataObject) -> None:
    text = b"".join(row + b"\n" for row in rows)
    whole, pieces = RowSum(), RowSum()
    whole.add(text)
    mixed = b"".join(row + b"\n" for row in data.draw(some.permutations(rows)))
    cuts = sorted(data.draw(some.lists(some.integers(0, len(mixed)), max_size=4)))
    for low, high in itertools.pairwise([0, *cuts, len(mixed)]):
        pieces.add(mixed[low:high])

    assert (whole.rows, whole.digest) == (pieces.rows, pieces.digest)
    assert whole.rows == len(rows)


def test_a_row_more_or_changed_is_another_sum() -> None:
    found = set()
    for text in (b"a\nb\n", b"a\nb\nb\n", b"a\nc\n", b"a\n", b""):
        rows = RowSum()
        rows.add(text)
        found.add(rows.digest)

    assert len(found) == 5


def test_tables_come_after_those_they_point_to() -> None:
    found = [Table(name, parent, [], 0) for name, parent in (("a", None), ("b_1", "b"), ("b_2", "b"), ("c", None))]
    ordered = in_order(found, [Reference("a", "c"), Reference("c", "b")])

    assert [table.name for table in ordered] == ["b_1", "b_2", "c", "a"]
