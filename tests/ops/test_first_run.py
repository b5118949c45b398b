"""The first run of a state folder is repeatable: whatever interrupts it, the next start completes it."""

import json
import os
import random
import signal
import threading
import time
import urllib.request
from pathlib import Path

import asyncpg
import pytest

from engine.areas.people import store as people
from engine.base.operators import FIRST_OWNER
from loadtests.drill.service import Service, ServiceNotReady, ServicePart, clear, make_folder
from ops import first_run
from tests.harness import sampling
from tests.harness.patience import PATIENCE_S

FOLDERS, KILLS = 4, 3
LATEST_S = 6.0  # a start takes 3 to 6 s


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


@pytest.mark.exhaustive
@pytest.mark.timeout(400)
@pytest.mark.parametrize("number", range(FOLDERS))
def test_a_first_start_that_is_killed_at_any_moment_leaves_a_folder_that_starts(number: int) -> None:
    moments = random.Random(sampling.seed + number)
    folder = make_folder()
    try:
        service = Service(folder)
        for _ in range(KILLS):
            try:
                service.start(timeout_s=moments.uniform(0.3, LATEST_S))
            except ServiceNotReady:
                service.kill()
        with service:
            assert sent(service) == 202
            keys = json.loads(asked(service, "/v1/api-keys"))["data"]
            assert len([one for one in keys if one["revokedAt"] is None]) == 1
    finally:
        clear(Path(folder))


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
            assert sent(service) == 202
    finally:
        clear(Path(folder))


def sent(service: Service) -> int:
    """Send with the key of `first-run.json`; return the status."""
    made = service.first_run
    message = {"from": f"hello@{made['domain']}", "to": ["ann@example.com"], "subject": "Hello", "text": "It works."}
    request = urllib.request.Request(
        f"{service.base_url}/v1/emails",
        data=json.dumps(message).encode(),
        headers={"Authorization": f"Bearer {made['apiKey']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return int(answer.status)


def asked(service: Service, path: str) -> bytes:
    """Return the body of a GET with the key of `first-run.json`."""
    headers = {"Authorization": f"Bearer {service.first_run['apiKey']}"}
    with urllib.request.urlopen(urllib.request.Request(service.base_url + path, headers=headers), timeout=60) as answer:
        return bytes(answer.read())
