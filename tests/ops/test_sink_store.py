"""The sink's folder does not grow for ever."""

import asyncio
import contextlib
import stat
from datetime import timedelta
from pathlib import Path

import pytest

from engine.base.clock import iso, now
from engine.store.sink_folder import INDEX
from ops.local import sink
from ops.local.sink_store import MailStore, SinkMessage, StoreMode, entries
from tests.harness.patience import PATIENCE_S


def received(name: str, at: str) -> SinkMessage:
    return SinkMessage(
        id=name, at=at, sender="a@s.test", recipients=("b@a.test",), helo="x", tls=None, size=5, test_id=None,
        content=b"hello",
    )  # fmt: skip


def keep(store: MailStore, *ages: float) -> None:
    """Messages m0, m1, … that came so many days ago."""
    for place, age in enumerate(ages):
        store.keep(received(f"m{place}", iso(now() - timedelta(days=age))), place)


def files(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.rglob("*.eml"))


def forget(store: MailStore, days: float, most: int = 1_000) -> int:
    gone = store.forget(before=iso(now() - timedelta(days=days)), most=most)
    store.remove(gone)
    return len(gone)


def test_ids_stay_in_order_if_the_clock_goes_back_between_two_runs(tmp_path: Path) -> None:
    with MailStore(tmp_path, StoreMode.FILES) as store:
        assert store.next_run(1_000) == 1_000
        store.keep(received(f"{5_000:x}-7", iso(now())), 7)
        assert (store.next_run(1_000), store.next_run(9_000)) == (5_001, 9_000)


def test_old_messages_go_with_their_files(tmp_path: Path) -> None:
    with MailStore(tmp_path, StoreMode.FILES) as store:
        keep(store, 20, 15, 13, 1)
        assert forget(store, 14) == 2
        assert [entry.id for entry in entries(tmp_path)] == files(tmp_path) == ["m2", "m3"]
        assert forget(store, 14) == 0


def test_only_the_last_messages_stay(tmp_path: Path) -> None:
    with MailStore(tmp_path, StoreMode.FILES) as store:
        keep(store, *[1.0] * 10)
        assert forget(store, 14, most=3) == 7
        assert files(tmp_path) == ["m7", "m8", "m9"]


def test_what_comes_afterwards_stands_behind_what_stayed(tmp_path: Path) -> None:
    with MailStore(tmp_path, StoreMode.FILES) as store:
        keep(store, 20, 1)
        forget(store, 14)
        store.keep(received("later", iso(now())), 9)
    with MailStore(tmp_path, StoreMode.FILES) as store:
        store.keep(received("latest", iso(now())), 10)

    assert [entry.id for entry in entries(tmp_path)] == ["m1", "later", "latest"]
    assert stat.S_IMODE((tmp_path / INDEX).stat().st_mode) == 0o600


def test_a_line_that_a_crash_cut_off_is_no_hindrance(tmp_path: Path) -> None:
    with MailStore(tmp_path, StoreMode.FILES) as store:
        keep(store, 20)
    with (tmp_path / INDEX).open("ab") as index:
        index.write(b'{"id":"cut')
    with MailStore(tmp_path, StoreMode.FILES) as store:
        store.keep(received("m5", iso(now() - timedelta(days=15))), 5)
        store.keep(received("m6", iso(now())), 6)
        assert forget(store, 14) == 2

    assert [entry.id for entry in entries(tmp_path)] == ["m6"]


@pytest.mark.parametrize("mode", [StoreMode.INDEX, StoreMode.COUNT])
def test_a_store_without_files_has_none_to_remove(tmp_path: Path, mode: StoreMode) -> None:
    with MailStore(tmp_path, mode) as store:
        keep(store, 20, 1)
        assert forget(store, 14) == 0

    assert len(entries(tmp_path)) == (1 if mode is StoreMode.INDEX else 0)


async def test_the_running_sink_tidies_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with MailStore(tmp_path, StoreMode.FILES) as store:
        keep(store, 20, 1)
        task = asyncio.create_task(sink._tidy(store))
        async with asyncio.timeout(PATIENCE_S):
            while files(tmp_path) != ["m1"]:
                await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
