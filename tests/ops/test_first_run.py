"""The first run of a state folder is repeatable: whatever interrupts it, the next start completes it."""

import asyncio
import json
import os
import random
import signal
import threading
import time
from pathlib import Path

import asyncpg
import pytest

from engine.base.local_mode import FIRST_RUN
from engine.base.operators import FIRST_OWNER
from engine.people.people import store as people
from loadtests.drill import first_start
from loadtests.drill.account_state import client_of, send
from loadtests.drill.catalogue import DrillOrder
from loadtests.kit.accounts import first_access
from loadtests.kit.service import Service, ServicePart, clear, make_folder
from ops.host import first_run
from tests.harness import sampling
from tests.harness.accounts import make_account
from tests.harness.patience import PATIENCE_S
from tests.harness.service import running

KILLS = 8


async def test_an_account_of_an_interrupted_first_run_is_taken_over_with_a_new_password(own_pool: asyncpg.Pool) -> None:
    lost = await first_run._account(own_pool)
    taken = await first_run._account(own_pool)

    assert taken["accountId"] == lost["accountId"]
    assert taken["email"] == FIRST_OWNER
    assert taken["password"] != lost["password"]
    assert await own_pool.fetchval("SELECT count(*) FROM accounts") == 1
    person = await people.FIND.first(own_pool, FIRST_OWNER)
    assert person is not None
    assert person.password_hash is not None


async def test_the_first_owner_is_the_operator_and_a_stranger_with_that_address_is_none(
    own_pool: asyncpg.Pool,
) -> None:
    account = await first_run._account(own_pool)
    await first_run._confirm_operator(own_pool, account["accountId"])
    owner = await people.FIND.first(own_pool, FIRST_OWNER)
    assert owner is not None
    assert owner.is_operator

    await people.SET_OPERATOR.execute(own_pool, owner.id, None)
    other = await make_account(own_pool)
    await first_run._confirm_operator(own_pool, other.public_id)
    stranger = await people.FIND.first(own_pool, FIRST_OWNER)
    assert stranger is not None
    assert not stranger.is_operator


@pytest.mark.journey
def test_the_file_has_the_address_of_the_present_start() -> None:
    with running({"PROFILE": "small"}) as service:
        file = service.state / FIRST_RUN
        old = {**json.loads(file.read_text()), "baseUrl": "http://127.0.0.1:1"}
        service.stop()
        file.write_text(json.dumps(old))
        service.start()
        assert json.loads(file.read_text()) == {**old, "baseUrl": service.base_url}


@pytest.mark.exhaustive
@pytest.mark.timeout(400)
def test_a_first_start_that_is_killed_at_any_moment_leaves_a_folder_that_starts() -> None:
    rng = random.Random(sampling.seed)
    report = first_start.run(DrillOrder(messages=0, rounds=KILLS, rng=rng))
    assert report.passed, report.examples


@pytest.mark.exhaustive
@pytest.mark.timeout(200)
def test_a_first_start_goes_on_although_its_postgres_is_killed_meanwhile() -> None:
    folder = make_folder()
    service = Service(folder)
    killed: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not killed and time.monotonic() < deadline:
            if "Bringing the database up to date" in service.output_text():
                killed.extend(service.pids(ServicePart.POSTGRES))
                for pid in killed:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)  # `ops up` tells its stage in its output only

    killer = threading.Thread(target=kill)
    try:
        killer.start()
        with service:
            killer.join()
            assert killed
            assert asyncio.run(sent(service)) == 202
    finally:
        clear(Path(folder))


async def sent(service: Service) -> int:
    """Send with the key of `first-run.json`; return the status."""
    access = first_access(service)
    async with client_of(service, access) as api:
        return (await send(api, access, "ann@example.com")).status
