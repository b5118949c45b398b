"""Write-back: files that changed start to be written, others and what is gone are left alone."""

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ops.host import write_back
from ops.host.write_back import WriteBack
from tests.harness.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sync_file_range is a call of Linux")

CACHESTAT = 451  # Linux 6.5: cachestat(2)


class Range(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class Pages(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")]


def not_written(path: Path) -> int:
    """Return the pages of a file that are not yet on the disk; skips the test if the kernel does not tell."""
    whole, pages = Range(0, 0), Pages()
    opened = os.open(path, os.O_RDONLY)
    try:
        if ctypes.CDLL(None).syscall(CACHESTAT, opened, ctypes.byref(whole), ctypes.byref(pages), 0):
            pytest.skip("this kernel has no cachestat")
    finally:
        os.close(opened)
    return int(pages.dirty) + int(pages.writeback)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            await asyncio.sleep(0.01)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Return a file of a database, as PostgreSQL lays them out."""
    (tmp_path / "base" / "5").mkdir(parents=True)
    path = tmp_path / "base" / "5" / "16384"
    path.write_bytes(b"\0" * 2**20)
    return path


async def test_a_changed_file_is_written(table: Path) -> None:
    if not not_written(table):
        pytest.skip("this file system keeps nothing to write")

    assert WriteBack(table.parents[1]).start_writing() == 1

    await until(lambda: not not_written(table))


def test_a_file_is_written_again_only_if_it_changed(table: Path) -> None:
    one = WriteBack(table.parents[1])
    one.start_writing()
    minute_ago = time.time() - 60
    os.utime(table, (minute_ago, minute_ago))
    assert one.start_writing() == 0

    table.write_bytes(b"\0" * 8192)
    assert one.start_writing() == 1


def test_what_cannot_be_opened_is_left_out(table: Path) -> None:
    (table.parent / "gone").symlink_to(table.parent / "nowhere")

    assert WriteBack(table.parents[1]).start_writing() == 1


async def test_it_goes_on_after_a_failure(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def failing_once(_: WriteBack) -> int:
        calls.append(1)
        if len(calls) == 1:
            raise OSError
        return 0

    monkeypatch.setattr(write_back, "INTERVAL_S", 0.01)
    monkeypatch.setattr(write_back, "MIN_DIRTY_KIB", 0)
    monkeypatch.setattr(WriteBack, "start_writing", failing_once)
    running = asyncio.create_task(write_back.keep_writing(table.parents[1]))
    await until(lambda: len(calls) >= 2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_nothing_is_done_while_little_waits(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asyncio.Event()

    def little() -> int:
        asked.set()
        return write_back.MIN_DIRTY_KIB - 1

    monkeypatch.setattr(write_back, "INTERVAL_S", 0.01)
    monkeypatch.setattr(write_back, "dirty_kib", little)
    monkeypatch.setattr(WriteBack, "start_writing", lambda _: pytest.fail("written although little waits"))
    running = asyncio.create_task(write_back.keep_writing(table.parents[1]))
    await asyncio.wait_for(asked.wait(), PATIENCE_S)
    await asyncio.sleep(0)
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize(("text", "kib"), [("MemTotal:  9 kB\nDirty:    172 kB\nWriteback: 3 kB\n", 172), ("", 0)])
def test_what_the_host_has_still_to_write(tmp_path: Path, text: str, kib: int) -> None:
    (tmp_path / "meminfo").write_text(text)
    assert write_back.dirty_kib(tmp_path / "meminfo") == kib


def test_a_system_that_does_not_tell(tmp_path: Path) -> None:
    assert write_back.dirty_kib(tmp_path / "missing") == 0
