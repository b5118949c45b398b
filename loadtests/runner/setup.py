"""Prepare a separate service for a load test: accounts with verified domains, keys for tails, webhook endpoints."""

import asyncio
import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

from msgspec import Struct, structs

from engine.base.plans import Plan
from engine.base.settings import Settings
from engine.events.tails.store import MAX_TAILS as TAILS_EACH
from engine.events.webhooks import service as webhooks_service
from loadtests.bench.service import CAP, BenchService
from loadtests.kit.accounts import ApiAccess, open_accounts
from loadtests.runner.catalogue import Scenario
from loadtests.users.load_plan import LoadPlan, LoadSender
from ops import admin
from ops.host import launch
from ops.host.process_specs import ROOT

_RECEIVER_S: Final = 10.0


class Receivers(Struct, frozen=True):
    """The running webhook receiver: `quick` is the port that answers, `never` the port that never answers."""

    pid: int
    quick: int
    never: int
    hanging: list[UUID]  # endpoints

    def arrivals(self) -> list[tuple[str, float]]:
        """Return the delivery id and the wall-clock time (s) of every post received."""
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.quick}/arrivals", timeout=30).read().decode()
        return [(line.split()[0], int(line.split()[1]) / 1000) for line in text.splitlines()]


def settings_for(scenario: Scenario, given: Settings, users: int) -> Settings:
    """Return the operator's settings with limits high enough for the sessions and tails of the scenario."""
    return structs.replace(
        given,
        relay_sessions_each=max(given.relay_sessions_each, users + 10),
        tails_per_worker=max(given.tails_per_worker, scenario.readers + 100),
    )


async def make_plan(
    scenario: Scenario,
    service: BenchService,
    accounts: list[ApiAccess],
    *,
    users: int,
    rate: float | None,
    seconds: float,
    max_messages: int,
    folder: str,
) -> LoadPlan:
    """Create the scenario's stream on every account and return the plan that Locust reads."""
    base = f"http://{service.settings.api_host}:{service.settings.api_port}"
    if scenario.stream is not None:
        for one in accounts:
            body = {"id": scenario.stream, "name": scenario.stream.capitalize()}
            await asyncio.to_thread(admin.call_api, base, "POST", "/v1/streams", one.key, body)
    return LoadPlan(
        url=base,
        senders=[LoadSender(one.key, one.sender) for one in accounts],
        readers=[accounts[number // TAILS_EACH].key for number in range(scenario.readers)],
        folder=folder,
        users=users,
        rate=rate,
        seconds=seconds,
        cool_s=scenario.cool_s,
        max_messages=max_messages,
        smtp=(service.settings.submission_host, service.settings.submission_tls_port) if scenario.relay else None,
    )


async def make_accounts(service: BenchService, count: int) -> list[ApiAccess]:
    """Create `count` accounts, each with a verified domain."""
    return await open_accounts(service.settings, "shop", count, plan=Plan.ENTERPRISE, daily_cap=CAP)


@asynccontextmanager
async def receiving(
    scenario: Scenario, service: BenchService, accounts: list[ApiAccess]
) -> AsyncIterator[Receivers | None]:
    """Run the webhook receiver and register the scenario's endpoints; yields None if the scenario has none."""
    if not scenario.hooks:
        yield None
        return
    process = await asyncio.create_subprocess_exec(
        *launch.command([sys.executable, "-m", "loadtests.bench.webhook_receiver"]), cwd=ROOT, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_RECEIVER_S):
            ports = json.loads(await process.stdout.readline())
        hanging = await _endpoints(scenario, service, [one.account_id for one in accounts], ports)
        yield Receivers(process.pid, ports["quick"], ports["never"], hanging)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _endpoints(
    scenario: Scenario, service: BenchService, accounts: list[UUID], ports: dict[str, int]
) -> list[UUID]:
    """Register answering endpoints on every account and hanging ones in turn; return the ids of the hanging ones."""
    pepper = service.settings.pepper

    async def made(account: UUID, port: int) -> UUID:
        url = f"http://127.0.0.1:{port}/hook"
        return (await webhooks_service.create(service.pool, account, url=url, event_types=(), pepper=pepper)).row.id

    for account in accounts:
        for _ in range(scenario.hooks):
            await made(account, ports["quick"])
    return [await made(accounts[number % len(accounts)], ports["never"]) for number in range(scenario.hanging)]
