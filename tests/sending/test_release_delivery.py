"""Scheduled mail all the way to its recipient, `deliverBy` in the retries, and releasing processes that are killed."""

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from email import message_from_bytes
from email.policy import SMTP

import pytest
from msgspec import structs

from engine.base import clock
from engine.base.settings import PREFIX, Settings, to_environ
from ops.host import launch
from tests.conftest import NewDatabase
from tests.harness.accounts import make_account
from tests.harness.api import ROOT
from tests.harness.outbound import World, world
from tests.harness.patience import PATIENCE_S
from tests.harness.schedules import comes_due, release, scheduled, standing, waybill
from tests.harness.sending import head_of, process

ROUNDS = 6  # processes killed
_RELEASING = """
import asyncio, os
from engine.base.settings import load
from engine.sending.release import release_due
from engine.store.postgres import open_pool

async def main():
    settings = load(os.environ).settings
    pool = await open_pool(settings.database_url, name="killed", largest=2)
    print("ready", flush=True)
    while True:
        await release_due(pool, settings)

asyncio.run(main())
"""


@pytest.fixture
async def here(settings: Settings, new_database: NewDatabase) -> AsyncIterator[World]:
    """A world with a queue and a schedule of its own."""
    async with world(settings, await new_database()) as made:
        yield made


async def test_a_released_message_is_delivered_dated_for_its_time(here: World) -> None:
    async with process(here.settings) as door:
        at = (clock.now() + timedelta(hours=3)).replace(microsecond=0)
        message = await scheduled(door, here.account, to="ann@peer.test", scheduledAt=clock.iso(at))
    await here.mta()
    await comes_due(here.pool, message)
    assert await release(here.pool, here.settings) == 1
    await here.until_step(message, "delivered")

    assert await here.steps(message) == ["scheduled", "accepted", "attempted", "delivered"]
    [arrived] = here.sink.messages
    assert message_from_bytes(arrived.content, policy=SMTP)["Date"].datetime == at


@pytest.mark.exhaustive
async def test_deliver_by_ends_the_retries_earlier(here: World) -> None:
    end = clock.now() + timedelta(seconds=4)
    message = await here.send("full+1@peer.test", deliverBy=clock.iso(end))
    await here.mta(retry_ladder_s=(0.5,))
    await here.until_step(message, "failed")

    steps = await here.steps(message)
    assert steps.count("deferred") >= 2
    assert (steps[-1], steps.count("failed")) == ("failed", 1)
    assert await here.statuses(message) == {"full+1@peer.test": "failed"}
    assert end <= clock.now()


async def test_retries_of_a_released_message_have_their_whole_time(here: World) -> None:
    """Its id is older than the service tries: counted from there, the first deferral would be the end."""
    async with process(here.settings) as door:
        message = await scheduled(door, here.account, to="defer+1@peer.test")
    await asyncio.sleep(1.6)
    await comes_due(here.pool, message)
    await release(here.pool, here.settings)
    await here.mta(retry_ladder_s=(0.3,), give_up_s=1.5)
    await here.until_step(message, "delivered")

    assert (await here.steps(message))[:4] == ["scheduled", "accepted", "attempted", "deferred"]


@pytest.mark.exhaustive
async def test_killed_workers_release_each_message_once(settings: Settings, new_database: NewDatabase) -> None:
    own = structs.replace(settings, database_url=await new_database())
    environ = {name: text for name, text in to_environ(own).items() if name.startswith(PREFIX)}
    async with process(own) as door:
        account = await make_account(door.pool)
        messages = await asyncio.gather(*[scheduled(door, account) for _ in range(1500)])
        await comes_due(door.pool, *messages)
        for turn in range(ROUNDS):
            work = await asyncio.create_subprocess_exec(
                *launch.command([sys.executable, "-c", _RELEASING]),
                cwd=ROOT, env=environ | {"PATH": "/usr/bin:/bin"}, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert work.stdout is not None
            await asyncio.wait_for(work.stdout.readline(), PATIENCE_S)
            await asyncio.sleep(0.003 + 0.006 * turn)
            work.send_signal(signal.SIGKILL)
            await work.wait()
        left = await door.pool.fetchval("SELECT count(*) FROM schedules")
        assert left > 0  # else none was killed at work
        while await release(door.pool, own):
            pass

        kinds = await door.pool.fetch("SELECT type, message_id FROM events WHERE account_id = $1", account.id)
        assert Counter(row["type"] for row in kinds) == {"scheduled": 1500, "accepted": 1500}
        assert len({row["message_id"] for row in kinds}) == 1500
        assert await door.pool.fetchval("SELECT count(*) FROM queue") == 1500
        head = await head_of(door.pool, account)
        assert (head["sent_today"], head["scheduled"], head["seq"]) == (1500, 0, 3000)
        assert await standing(door.pool, messages[7]) == ("queued", ["queued"], 1)
        assert [kind for kind, _ in await waybill(door.pool, messages[7])] == ["scheduled", "accepted"]
