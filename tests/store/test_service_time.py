"""Service time: what follows the clock moves with it, and nothing else does."""

import asyncio
import os
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from engine.base import clock, ids
from engine.base.clock import Calls
from engine.base.settings import Settings
from engine.store import clock_schema, service_time
from engine.store.database_clock import DatabaseClock
from engine.store.postgres import close_pool, open_pool
from engine.store.service_time import Follower, Wake
from engine.store.shared_clock import NAME, SharedClock
from tests.harness.patience import PATIENCE_S

DAY_US = 86_400_000_000
DAY = timedelta(days=1)
SLACK = timedelta(minutes=1)
FOREVER_S = 1e9


@asynccontextmanager
async def watching() -> Any:
    """Notice steps within the block."""
    task = asyncio.create_task(service_time.watch())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def waiting(seconds: float, wake: Wake, follower: Follower) -> Any:
    """A task that waits, and is seen to."""
    task = asyncio.create_task(service_time.sleep(seconds, wake))
    async with asyncio.timeout(PATIENCE_S):
        while not follower.shared.slots() or not follower.is_waiting(task):
            await asyncio.sleep(0.001)  # until the watch has its slot and the task waits
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def seen(follower: Follower, step: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while any(slot.seen < step for slot in follower.shared.slots()):
            await asyncio.sleep(0.001)  # until every process has noticed the step


def test_another_process_moves_the_time_of_this_one_at_once(follower: Follower, tmp_path: Path) -> None:
    move = "import sys; from pathlib import Path; from engine.store.shared_clock import SharedClock as S;"
    move += f" S(Path(sys.argv[1])).move({DAY_US})"
    before, machine, monotonic = clock.now(), time.time(), clock.monotonic()

    subprocess.run([sys.executable, "-c", move, str(tmp_path)], check=True)

    assert DAY <= clock.now() - before < DAY + SLACK
    assert clock.monotonic() - monotonic >= DAY.total_seconds()
    assert ids.milliseconds_of(ids.uuid7()) == pytest.approx(clock.unix_ms(), abs=60_000)
    assert clock.unix_s() - machine >= DAY.total_seconds() - 1
    assert abs(clock.machine_now().timestamp() - time.time()) < SLACK.total_seconds()
    assert time.time() - machine < SLACK.total_seconds()
    assert follower.shared.ahead_us() == DAY_US


def test_live_mode_never_opens_the_clock_file(settings: Settings, tmp_path: Path) -> None:
    """Nothing but the delivery mode decides, so no other setting can switch it on."""
    SharedClock(tmp_path).move(DAY_US)
    live = structs.replace(settings, delivery="live", state=tmp_path)

    assert service_time.join(live) is None
    assert service_time.follower() is None
    assert not clock.can_move()
    assert abs(clock.now().timestamp() - time.time()) < SLACK.total_seconds()


async def test_the_database_has_service_time_in_the_sessions_of_local_mode_only(
    own_database: str, follower: Follower
) -> None:
    mover = await clock_schema.open_mover(own_database)
    await clock_schema.move(mover, DAY_US)
    follower.shared.move(DAY_US)
    moved = await open_pool(own_database, name="local")
    service_time.leave()
    live = await open_pool(own_database, name="live")
    try:
        assert await clock_schema.ahead_us(live) == DAY_US
        for source, ahead in ((moved, DAY), (live, timedelta())):
            at = clock.machine_now()
            for name in ("now()", "clock_timestamp()", "statement_timestamp()"):
                assert abs(await source.fetchval(f"SELECT {name}") - at - ahead) < SLACK
            assert abs(await source.fetchval("SELECT pg_catalog.now()") - at) < SLACK
            assert await source.fetchval("SELECT current_schema()") == "public"
    finally:
        await mover.close()
        await close_pool(moved)
        await close_pool(live)


async def test_a_session_that_was_open_before_the_first_move_follows_it(own_database: str, follower: Follower) -> None:
    pool = await open_pool(own_database, name="early", largest=1)
    try:
        before, reading = await pool.fetchval("SELECT now()"), await DatabaseClock.read(pool)
        mover = await clock_schema.open_mover(own_database)
        await clock_schema.move(mover, DAY_US)
        follower.shared.move(DAY_US)

        assert DAY <= await pool.fetchval("SELECT now()") - before < DAY + SLACK
        assert reading.now() - before >= DAY - SLACK
        await mover.close()
    finally:
        await close_pool(pool)


async def test_now_stays_the_same_in_a_transaction_over_any_number_of_moves(
    own_database: str, follower: Follower
) -> None:
    pool = await open_pool(own_database, name="early", largest=2)
    mover = await clock_schema.open_mover(own_database)
    try:
        async with pool.acquire() as connection, connection.transaction():
            first = await connection.fetchval("SELECT now()")
            for days in range(1, 5):
                await clock_schema.move(mover, days * DAY_US)
                assert await connection.fetchval("SELECT now()") == first
                for sooner in (connection, pool):  # these times pass in a transaction too: account logs order by them
                    assert await sooner.fetchval("SELECT clock_timestamp()") - first >= days * DAY
                assert await pool.fetchval("SELECT now()") - first >= days * DAY
    finally:
        await mover.close()
        await close_pool(pool)


async def test_a_jump_ends_the_waits_that_it_passes(follower: Follower) -> None:
    async with watching(), waiting(3600, Wake.APPOINTMENT, follower) as task:
        follower.shared.move(DAY_US)
        follower.shared.call(Calls.MAIL)

        await asyncio.wait_for(task, PATIENCE_S)


async def test_jobs_that_look_seldom_are_called_when_they_are_due(follower: Follower) -> None:
    async with (
        watching(),
        waiting(3600, Wake.SELDOM, follower) as task,
        waiting(FOREVER_S, Wake.SELDOM, follower) as late,
    ):
        follower.shared.move(DAY_US)
        await seen(follower, follower.shared.call(Calls.QUEUES))
        assert not task.done()

        follower.shared.call(Calls.ALL)

        await asyncio.wait_for(task, PATIENCE_S)
        assert not late.done()


async def test_jobs_of_queues_are_called_without_a_jump(follower: Follower) -> None:
    async with watching(), waiting(FOREVER_S, Wake.QUEUE, follower) as task:
        await seen(follower, follower.shared.call(Calls.MAIL))
        assert not task.done()

        follower.shared.call(Calls.QUEUES)

        await asyncio.wait_for(task, PATIENCE_S)


async def test_a_process_shows_its_appointments_and_whether_it_is_at_work(follower: Follower) -> None:
    go_on = asyncio.Event()

    async def work() -> None:
        await service_time.sleep(3600, Wake.APPOINTMENT)
        await go_on.wait()
        with service_time.resting():
            await asyncio.Event().wait()

    async with watching():
        task = asyncio.create_task(work())
        async with asyncio.timeout(PATIENCE_S):
            while not follower.shared.slots() or not follower.is_waiting(task):
                await asyncio.sleep(0.001)  # until it waits
        await seen(follower, follower.shared.call(Calls.MAIL))
        [slot] = follower.shared.slots()
        assert slot.busy == 0
        assert clock.from_microseconds(slot.due_us) - clock.now() == pytest.approx(timedelta(hours=1), abs=SLACK)

        follower.shared.move(DAY_US)
        await seen(follower, follower.shared.call(Calls.MAIL))
        [slot] = follower.shared.slots()
        assert (slot.pid, slot.busy, slot.due_us) == (os.getpid(), 1, 0)

        go_on.set()
        async with asyncio.timeout(PATIENCE_S):
            while follower.shared.slots()[0].busy:
                await asyncio.sleep(0.001)  # until it rests
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert follower.shared.slots() == []


def test_a_process_that_ended_by_force_has_no_slot(follower: Follower, tmp_path: Path) -> None:
    take = "import os, sys; from pathlib import Path; from engine.store.shared_clock import SharedClock as S;"
    take += " S(Path(sys.argv[1])).take_slot(); os._exit(0)"

    subprocess.run([sys.executable, "-c", take, str(tmp_path)], check=True)

    assert follower.shared.slots() == []


def test_a_start_frees_the_slots_of_the_processes_before(follower: Follower, tmp_path: Path) -> None:
    crashed = SharedClock(tmp_path)
    crashed.take_slot()  # under the id of this process, which lives, as an id does that is given again
    assert [slot.pid for slot in follower.shared.slots()] == [os.getpid()]

    follower.shared.begin(DAY_US)

    assert (follower.shared.slots(), follower.shared.ahead_us()) == ([], DAY_US)


async def test_a_process_knows_for_a_moment_that_the_clock_moves(follower: Follower) -> None:
    async with watching(), waiting(FOREVER_S, Wake.QUEUE, follower):
        assert not service_time.moves()
        await seen(follower, follower.shared.call(Calls.MAIL))
        assert service_time.moves()
        async with asyncio.timeout(PATIENCE_S):
            while service_time.moves():
                await asyncio.sleep(0.05)  # until no other step followed for `BUSY_FOR_S`


def test_the_clock_is_moved_by_one_at_a_time(follower: Follower, tmp_path: Path) -> None:
    with follower.shared.held() as first, SharedClock(tmp_path).held() as second:
        assert (first, second) == (True, False)
    with SharedClock(tmp_path).held() as third:
        assert third


def test_the_clock_file_is_private(follower: Follower, tmp_path: Path) -> None:
    assert follower is service_time.follower()
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
