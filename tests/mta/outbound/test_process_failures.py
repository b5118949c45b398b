"""Mail after failures of the mta process: killed by a message, hung, stopped, wrong clock."""

import asyncio
import ctypes.util
import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from engine.base import clock
from mta.outbound.poison_guard import MAX_DEATHS, PoisonGuard
from tests.harness.outbound import BRIEF_LEASE_S, World
from tests.mta.processes import process

POISON = "This one is poison."
# A fault below Python, put where the content of a message is worked on.
DEADLY = """
import os, signal
from engine.authentication import dkim_signing as dkim
from mta.outbound import poison_guard
from mta.process import main
poison_guard.STUCK_S = 1.0
sign = dkim.sign
def deadly(content, *rest, **more):
    if b"This one is poison." in content:
        {end}
    return sign(content, *rest, **more)
dkim.sign = deadly
main()
"""
KILLED = DEADLY.format(end="os.kill(os.getpid(), signal.SIGKILL)")
ENDLESS = DEADLY.format(end="while True: pass")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("program", "status"), [(KILLED, -signal.SIGKILL), (ENDLESS, -signal.SIGPROF)], ids=["crash", "endless loop"]
)
async def test_a_message_that_kills_its_process_fails_after_a_few_tries_and_the_rest_flows(
    here: World, tmp_path: Path, program: str, status: int
) -> None:
    poison = await here.send("ann@peer.test", text=POISON)
    others = await here.send_many(10, lambda n: f"reader{n}@peer.test")
    async with process(here, tmp_path, program=program, state=tmp_path / "state") as mta:
        for _ in range(MAX_DEATHS):
            assert await mta.ended() == status
            await mta.start(program)
        await here.until_step(poison, "failed")
        await here.until_idle()
        mta.send(signal.SIGTERM)
        assert await mta.ended() == 0

    steps = await here.steps(poison)
    assert steps == ["accepted", *["deferred"] * (MAX_DEATHS - 1), "failed"]
    detail = dict(await here.waybill(poison))["failed"]
    assert detail["attempt"] == MAX_DEATHS
    assert "died while it prepared this message" in detail["diagnostic"]
    assert await here.suppressed() == []
    for message in others:
        assert (await here.steps(message)).count("delivered") == 1
    # The deaths may fall between a 250 and its commit: such a message goes out again, and no other does.
    assert {recipient for one in here.sink.messages for recipient in one.recipients} == {
        f"reader{number}@peer.test" for number in range(len(others))
    }


async def test_a_message_that_was_deferred_often_does_not_fail_of_one_death(here: World, tmp_path: Path) -> None:
    message = await here.send("ann@peer.test")
    await here.pool.execute("UPDATE queue SET attempts = 7 WHERE message_id = $1", message)
    box = PoisonGuard(tmp_path / "mta" / "mta-1.hand")
    box.begin(message)  # and then the process is gone
    async with process(here, tmp_path, state=tmp_path):
        await here.until_step(message, "delivered")

    assert await here.steps(message) == ["accepted", "deferred", "attempted", "delivered"]


async def test_a_process_killed_between_messages_accuses_nobody(here: World, tmp_path: Path) -> None:
    here.sink.script(".", delay_s=1.0)
    message = await here.send("ann@peer.test")
    async with process(here, tmp_path, state=tmp_path) as mta:
        await here.until(lambda: "DATA" in here.sink.commands)
        await mta.kill()
    assert PoisonGuard(tmp_path / "mta" / "mta-1.hand").untold == frozenset()
    assert await here.status(message) == "queued"


@pytest.mark.exhaustive
async def test_a_process_stopped_past_its_lease_settles_nothing_and_sends_nothing_more(
    here: World, tmp_path: Path
) -> None:
    """Stopped after the leave to send content was asked and before it came: on waking it must ask again."""
    here.sink.script("DATA", delay_s=1.0)
    messages = await here.send_many(12, lambda n: f"reader{n}@peer.test")
    async with process(here, tmp_path, state=tmp_path, site_connections=2, lease_s=BRIEF_LEASE_S) as stopped:
        await here.until(lambda: "DATA" in here.sink.commands)
        stopped.send(signal.SIGSTOP)
        here.sink.scripts.clear()
        await here.mta("mta-2", lease_s=BRIEF_LEASE_S)
        await here.until_idle()
        assert here.sink.count == 12
        stopped.send(signal.SIGCONT)
        await stopped.until_told("joined")
        await asyncio.sleep(2 * BRIEF_LEASE_S)
        assert here.sink.count == 12
        stopped.send(signal.SIGTERM)
        assert await stopped.ended() == 0

    for message in messages:
        assert await here.steps(message) == ["accepted", "attempted", "delivered"]


SLOW_S = 180.0  # for a process that reads a file whenever it looks at the clock, on a busy machine


def faketime() -> str | None:
    """The library that gives a process another wall clock."""
    places = (f"/usr/lib/{machine}/faketime/libfaketime.so.1" for machine in (f"{os.uname().machine}-linux-gnu", "."))
    return next((place for place in places if Path(place).exists()), None) or ctypes.util.find_library("faketime")


def to_midnight() -> str:
    """How far the clock must be moved to stand two seconds before midnight UTC."""
    now = clock.now()
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return f"+{(midnight - now).total_seconds() - 2:.0f}"


@pytest.mark.parametrize("shift", ["+7200", "-3600"])
async def test_due_times_go_by_the_databases_clock_whatever_that_of_the_host_says(
    here: World, tmp_path: Path, shift: str
) -> None:
    library = faketime()
    if library is None:
        pytest.skip("libfaketime is not installed")
    later = await here.send("later@peer.test")
    await here.flush_hints()
    await here.pool.execute("UPDATE queue SET due_at = now() + interval '1 hour' WHERE message_id = $1", later)
    here.sink.script("RCPT TO:<busy@peer.test>", "450 4.2.2 mailbox busy")
    busy = await here.send("busy@peer.test")
    faked = {"LD_PRELOAD": library, "FAKETIME": f"{shift}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    async with process(here, tmp_path, more=faked, state=tmp_path, retry_ladder_s="600,600"):
        await here.until_step(busy, "deferred")
        wait_s = await here.pool.fetchval(
            "SELECT extract(epoch FROM due_at - clock_timestamp()) FROM queue WHERE message_id = $1", busy
        )
        assert 300 < wait_s < 900
        await here.pool.execute("UPDATE queue SET due_at = now() WHERE message_id = $1", busy)
        await here.until_step(busy, "deferred")
        assert await here.steps(later) == ["accepted"]


@pytest.mark.exhaustive
@pytest.mark.timeout(400)
@pytest.mark.parametrize("shift", ["+7200", "-3600", "over midnight"])
async def test_a_wall_clock_that_jumps_under_the_process_sends_nothing_twice_and_loses_nothing(
    here: World, tmp_path: Path, shift: str
) -> None:
    library = faketime()
    if library is None:
        pytest.skip("libfaketime is not installed")
    moved = tmp_path / "clock"
    moved.write_text("+0")
    faked = {
        "LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": str(moved), "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip
    here.sink.script(".", delay_s=0.1)
    before = [await here.send(f"before{number}@peer.test") for number in range(6)]
    lease_s = 6.0
    async with process(here, tmp_path, more=faked, state=tmp_path, site_connections=1, lease_s=lease_s) as mta:
        await here.until(lambda: here.sink.count >= 3)
        moved.write_text(to_midnight() if shift == "over midnight" else shift)
        after = [await here.send(f"after{number}@peer.test") for number in range(6)]
        await here.sink.until(12, SLOW_S)
        for message in (*before, *after):
            await here.until_step(message, "delivered", timeout_s=SLOW_S)
        await asyncio.sleep(1.5 * lease_s)  # leases are kept by another clock: nobody is fenced
        assert mta.told.count("joined") == 1
        assert "fenced" not in mta.told
        mta.send(signal.SIGTERM)
        assert await mta.ended() == 0

    assert here.sink.count == 12
    for message in (*before, *after):
        assert await here.steps(message) == ["accepted", "attempted", "delivered"]
