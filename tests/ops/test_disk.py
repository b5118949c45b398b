"""Full, small and read-only disks: `ops up` and the doctor name the folder and say what to do."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.base.settings import MIN_DISK_BYTES, load
from ops.commands.failures import sentence
from ops.host import disk, up
from ops.host.postgres_server import PostgresServer
from ops.host.process_specs import ROOT
from ops.host.server_paths import CannotServe
from tests.harness.small_disks import fill, make_read_only, small_disk
from tests.ops.installation import environ, examined


def failed_start(variables: dict[str, str], capsys: pytest.CaptureFixture[str]) -> str:
    assert up.run(load(variables)) == 1
    return " ".join(capsys.readouterr().err.split())


def test_a_start_on_a_small_disk_says_how_much_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with small_disk(20) as folder:
        told = failed_start(environ(folder / "state"), capsys)

    assert told.startswith(f"The disk of {folder}/state is too small: ")
    assert "of 20 MiB are free" in told
    assert f"less than {MIN_DISK_BYTES // 1024**2} MiB" in told
    assert "WAYBILL_STATE" in told


def test_a_start_on_a_full_disk_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with small_disk(4) as folder:
        (folder / "state").mkdir()
        fill(folder)
        told = failed_start(environ(folder / "state"), capsys)

    assert told.startswith(f"The disk of {folder}/state is full: 0 MiB are free.")


def test_a_start_on_a_read_only_file_system_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with small_disk(4) as folder:
        (folder / "state").mkdir()
        make_read_only(folder)
        told = failed_start(environ(folder / "state"), capsys)

    assert told.startswith(f"The file system of {folder}/state is read-only.")
    assert f"mount -o remount,rw {folder}" in told
    assert "Errno" not in told


def test_read_only_data_of_the_embedded_servers_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with small_disk(4) as data:
        make_read_only(data)
        (tmp_path / "embedded").symlink_to(data)
        told = failed_start(environ(tmp_path), capsys)

    assert told.startswith(f"The file system of {data} is read-only.")


def test_a_disk_that_is_full_before_its_database_is_made_is_named() -> None:
    with small_disk(20) as folder, pytest.raises(CannotServe) as caught:
        PostgresServer(folder / "state").prepare()

    assert str(caught.value).startswith(f"The disk of {folder}/state is full: ")
    assert "initdb" not in str(caught.value)


async def test_the_doctor_names_a_read_only_folder(tmp_path: Path) -> None:
    with small_disk(4) as folder:
        make_read_only(folder)
        found = (await examined(environ(folder)))["state"]
        assert (found.ok, found.found) == (False, f"The file system of {folder} is read-only")

        (tmp_path / "embedded").symlink_to(folder)
        found = await examined(environ(tmp_path))  # type: ignore[assignment]
    assert not found["state"].ok  # type: ignore[index]
    assert str(folder) in found["state"].found  # type: ignore[index]
    assert str(folder) in found["disk"].found  # type: ignore[index]


def test_a_commands_error_names_the_disk() -> None:
    with small_disk(4) as folder:
        make_read_only(folder)
        with pytest.raises(OSError, match="Read-only") as caught:
            (folder / "file").write_text("x")
        told = sentence(caught.value)

    assert told.startswith(f"The file system of {folder}/file is read-only.")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disks_and_used_quotas_are_recognised_in_the_output_of_programs(tmp_path: Path, number: int) -> None:
    told = disk.of_output(f'could not write to file "base/4/2616_fsm": {os.strerror(number)}', tmp_path)
    assert told is not None
    assert told.startswith(f"The disk of {tmp_path} is full")
    assert disk.of_output("another error", tmp_path) is None


def test_the_sentences_need_the_standard_library_alone() -> None:
    words = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import ops.host.disk"]
    subprocess.run(words, check=True)
