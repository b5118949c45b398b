"""Processes are killed while mail is under way: everything that was accepted arrives, and the record holds."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import aiohttp
import pytest

from loadtests.drill.clients import SendClient, plan
from loadtests.drill.faults import FAULTS, kill_postgres
from loadtests.drill.mailbox_reconciliation import checks_of, compare
from loadtests.drill.mx_client import MxClient
from loadtests.drill.mx_drills import receivers
from loadtests.drill.process_stops import ProcessStops
from loadtests.drill.report import AllowedCopies, CopyReason
from loadtests.drill.running import reconcile_when_idle, under_load, until_empty
from loadtests.kit.accounts import ApiAccess
from loadtests.kit.service import Service, ServicePart
from mta.outbound.complete import MAX_UNSETTLED
from ops.host.process_specs import ROOT
from tests.harness.api import Answer, Api
from tests.harness.patience import PATIENCE_S
from tests.harness.sampling import sampled
from tests.harness.service import (
    arrived,
    gone,
    message,
    new_access,
    running,
    send,
    try_send,
    until,
    until_status,
)

pytestmark = pytest.mark.journey

SENDS, KILLS, RATE, EVERY_S = 300, 2, 150, 0.7
ON_THE_WIRE = MAX_UNSETTLED + 40  # copies too many that one killed mta may leave: with a connection to each domain


@pytest.fixture(scope="module")
def harmed() -> Iterator[Service]:
    """A service that these tests may kill parts of."""
    with running() as started:
        yield started


@pytest.fixture
async def access(harmed: Service) -> ApiAccess:
    """An account of the test's own on it."""
    return await new_access(harmed)


@pytest.fixture
def served(harmed: Service, http: aiohttp.ClientSession) -> Api:
    """A client of its API."""
    return Api(harmed.base_url, http)


@pytest.mark.parametrize(
    "name", sampled(sorted(FAULTS.keys() - {"pause-mta", "kill-relay", "kill-backend", "kill-mx"}), 5)
)
async def test_what_was_accepted_arrives_although_processes_are_killed(
    harmed: Service, access: ApiAccess, name: str
) -> None:
    rng = random.Random()
    client = SendClient(harmed.base_url, access, plan(SENDS, name), rate=RATE, rng=rng)
    injected = await under_load(harmed, client, FAULTS[name], rounds=KILLS, rng=rng, every_s=EVERY_S)
    found = await reconcile_when_idle(harmed, access, client.sends, injected, name=name, patience_s=PATIENCE_S)
    if name == "kill-mta":
        found.allow_copies(AllowedCopies.each(KILLS, ON_THE_WIRE, CopyReason.MTA_KILLED))

    assert found.passed, found
    assert found.sent >= SENDS
    assert (found.accepted, found.delivered + found.bounced) == (found.sent, found.sent)
    assert len(found.done) == KILLS


@pytest.mark.exhaustive
async def test_an_mta_that_is_stopped_under_load_sends_nothing_after_its_lease(
    harmed: Service, access: ApiAccess
) -> None:
    """Check the cause of each second copy, not their number: a busy machine settles late, which adds to them."""
    rng, stops = random.Random(), ProcessStops()
    client = SendClient(harmed.base_url, access, plan(SENDS, "pause-mta"), rate=RATE, rng=rng)
    injected = await under_load(harmed, client, stops.inject, rounds=KILLS, rng=rng, every_s=EVERY_S)
    found = await reconcile_when_idle(harmed, access, client.sends, injected, name="pause-mta", patience_s=PATIENCE_S)

    assert found.lost == 0
    assert [one for one in found.checks if not one.ok] == []
    assert (found.accepted, found.delivered + found.bounced) == (found.sent, found.sent)
    causes = stops.check_copies(harmed.sink, client.sends)
    assert causes.ok, causes


@pytest.mark.exhaustive
async def test_received_mail_is_in_its_mailboxes_once_although_the_mx_is_killed(harmed: Service) -> None:
    accounts, recipients = await receivers(harmed)
    client = MxClient(harmed.mx_port, recipients, "journey", rate=RATE, rng=random.Random(), cut=0.1)

    await under_load(harmed, client, FAULTS["kill-mx"], rounds=KILLS, rng=random.Random(), every_s=EVERY_S)
    found = await compare(harmed.database_url, accounts, client.mails)

    assert found.accepted == len(client.mails) > 0
    assert all(check.ok for check in checks_of(found)), found


@pytest.mark.exhaustive
async def test_without_postgres_the_api_refuses_with_503_and_accepts_nothing(
    harmed: Service, served: Api, access: ApiAccess
) -> None:
    await asyncio.to_thread(kill_postgres, harmed, random.Random(0))
    answers: list[Answer] = []
    async with asyncio.timeout(PATIENCE_S):
        while not answers or answers[-1].status != 202:
            began = time.monotonic()
            answers.append(await try_send(served, access, f"reader{len(answers)}@people.test"))
            assert time.monotonic() - began < 60
    refused, accepted = answers[:-1], answers[-1]

    assert refused
    assert {answer.status for answer in refused} == {503}
    for answer in refused:
        assert answer.error["type"] == "unavailable"
        assert int(answer.headers["retry-after"]) > 0
    await until_status(served, access, accepted.json["id"], "delivered")
    page = await served.get("/v1/messages?limit=100", access.key)
    assert [one["id"] for one in page.json["data"]] == [accepted.json["id"]]


@pytest.mark.exhaustive
async def test_without_valkey_mail_is_accepted_and_delivered_and_readiness_says_so(
    harmed: Service, served: Api, access: ApiAccess
) -> None:
    [pid] = harmed.pids(ServicePart.VALKEY)
    os.kill(pid, signal.SIGSTOP)  # it hangs, which is worse than being dead
    try:
        began = time.monotonic()
        sent = [await send(served, access, f"reader{number}@people.test") for number in range(10)]
        took_s = time.monotonic() - began
        ready = await served.get("/readyz")
        for id_ in sent:
            await until_status(served, access, id_, "delivered")
    finally:
        os.kill(pid, signal.SIGCONT)

    assert took_s < 60  # ten times the time-out of Valkey
    assert ready.status == 200
    assert ready.json["checks"]["redis"]["ok"] is False

    async def well() -> bool:
        return bool((await served.get("/readyz")).json["checks"]["redis"]["ok"])

    await until(well)


@pytest.mark.exhaustive
async def test_an_mta_that_stood_still_past_its_lease_sends_nothing_twice(
    harmed: Service, served: Api, access: ApiAccess
) -> None:
    sent = [await send(served, access, f"slow+1@pause{number}.test") for number in range(20)]
    paused = harmed.pids(ServicePart.MTA)[0]
    await asyncio.sleep(0.3)
    os.kill(paused, signal.SIGSTOP)
    try:
        await asyncio.sleep(2.5 * harmed.settings.lease_s)
    finally:
        os.kill(paused, signal.SIGCONT)
    for id_ in sent:
        await until_status(served, access, id_, "delivered")
    await asyncio.sleep(2)

    copies = [len(arrived(harmed, f"slow+1@pause{number}.test")) for number in range(20)]
    assert min(copies) == 1
    assert max(copies) <= 2  # those that the server took while the process stood still
    steps = [[event["type"] for event in (await message(served, access, id_))["waybill"]] for id_ in sent]
    assert all(kinds.count("delivered") == 1 for kinds in steps)


async def test_a_drain_loses_nothing_and_the_next_start_delivers_the_rest(
    harmed: Service, served: Api, access: ApiAccess
) -> None:
    addresses = [f"{'slow+1' if number % 10 else 'slow+2'}@drain{number}.test" for number in range(60)]
    sent = await asyncio.gather(*[send(served, access, address) for address in addresses])
    began = time.monotonic()
    status = await asyncio.to_thread(harmed.stop)
    drained_s = time.monotonic() - began
    left = harmed.everything()
    harmed.start()
    await until_empty(harmed.database_url, timeout_s=PATIENCE_S)

    assert status == 0
    assert left == []
    assert drained_s < harmed.settings.drain_s + 60
    for id_ in sent:
        assert (await message(served, access, id_))["status"] == "delivered"
    assert [len(arrived(harmed, address)) for address in addresses] == [1] * len(addresses)


async def test_a_second_up_on_the_same_folder_fails_at_once(harmed: Service) -> None:
    second = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "ops", "up"],
        env=harmed.environ, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip

    assert second.returncode == 1
    assert f"process {harmed.pid}" in second.stderr
    assert harmed.readiness()["status"] == "ready"


@pytest.mark.exhaustive
async def test_nothing_outlives_a_killed_supervisor_and_the_next_start_goes_on(
    harmed: Service, served: Api, access: ApiAccess
) -> None:
    sent = [await send(served, access, f"slow+2@orphan{number}.test") for number in range(10)]
    harmed_pids = harmed.everything()
    os.kill(harmed.pid, signal.SIGKILL)

    async def all_gone() -> bool:
        return all(gone(pid) for pid in harmed_pids)

    await until(all_gone, why=lambda: str([pid for pid in harmed_pids if not gone(pid)]))
    harmed.kill()
    harmed.start()
    for id_ in sent:
        await until_status(served, access, id_, "delivered")
