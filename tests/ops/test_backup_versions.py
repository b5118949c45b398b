"""A backup of one PostgreSQL comes back in an older and in a newer one, row by row."""

import contextlib
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from engine.base import clock
from engine.store.migrate import migrate
from engine.store.postgres import open_pool
from loadtests.kit.service import make_folder
from ops.backup import restore
from ops.backup.dump import dump
from ops.host import store_servers
from tests.harness import history
from tests.harness.accounts import PEPPER, make_account
from tests.harness.own_servers import InstalledPostgres
from tests.ops.test_backup import quiet, sums

OLDEST, NEWEST = "PostgreSQL 15", "PostgreSQL 18"


@contextlib.contextmanager
def installed(title: str) -> Iterator[str]:
    """Start a PostgreSQL of this version and yield its URL."""
    program = store_servers.find(title)
    if program is None:
        pytest.skip(f"{title} is not installed and was not fetched (`ops test --stores`)")
    folder = make_folder("waybill-versions-")
    server = InstalledPostgres(folder, program.parent)
    try:
        server.start()
        yield server.url
    finally:
        server.end()
        for path in {folder, server.paths.base}:
            shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize(("old", "new"), [(OLDEST, NEWEST), (NEWEST, OLDEST)])
async def test_a_backup_comes_back_in_another_version(old: str, new: str, tmp_path: Path) -> None:
    with installed(old) as source, installed(new) as target:
        await migrate(source)
        pool = await open_pool(source, name="test", largest=2)
        account = await make_account(pool)
        now = clock.now()
        await history.write(pool, account, *[now - timedelta(days=days) for days in (60, 25, 3)])
        await pool.close()

        made = await dump(source, tmp_path / "backup", PEPPER, say=quiet)
        done = await restore.restore(
            target, tmp_path / "backup", made, hold=False, say=quiet, stage=quiet, committed=quiet
        )
        assert done.broken == []
        before, after = await sums(source), await sums(target)

    assert sum(rows for name, (rows, _) in before.items() if name.startswith("messages_")) == 3
    assert {name: rows for name, rows in before.items() if rows[0]} == {
        name: rows for name, rows in after.items() if rows[0]
    }
