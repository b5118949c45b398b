"""Run a drill on a new service in a temporary folder, with accounts to send from.

The folder of a failed drill is kept and named on standard error.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import UUID

import asyncpg

from engine.base import ids
from engine.base.plans import Plan
from loadtests.drill.drill_network import DrillNetwork
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.send_client import ApiAccess
from loadtests.drill.service import Service, clear, make_folder
from ops import admin

SETTINGS: Final = {"RETRY_LADDER_S": "1,2,4,8", "REQUEST_RATE": "100000"}
EMPTY_S: Final = 300.0  # how long the queue may take to empty after the last send
ASK_S: Final = 0.25

RunOnService = Callable[[Service], Awaitable[DrillReport]]
RunWithNetwork = Callable[[Service, DrillNetwork], Awaitable[DrillReport]]


def run_on_service(play: RunOnService, more: Mapping[str, str] | None = None) -> DrillReport:
    """Run `play` on a new service with `more` settings; the report also checks that the service stops cleanly.

    Call from the main thread. Raises what starting a service raises.
    """
    return _kept_if_failed(lambda folder: asyncio.run(_play(Service(folder, _settings(more)), play)))


def run_with_network(play: RunWithNetwork, more: Mapping[str, str] | None = None) -> DrillReport:
    """Like `run_on_service`, with DNS and SMTP proxies of the drill between the service and its sink."""

    def on(service: Service) -> DrillReport:
        with DrillNetwork(service) as network:
            service.set("DNS_SERVERS", f"127.0.0.1:{network.dns_port}")
            return asyncio.run(_play(service, lambda one: play(one, network)))

    return _kept_if_failed(lambda folder: on(Service(folder, _settings(more))))


async def new_access(service: Service, name: str, *, daily_cap: int | None = 1_000_000) -> ApiAccess:
    """Create another account with an API key and a verified domain, both named after `name`."""
    settings = service.settings
    async with admin.opened(settings) as pool:
        made = await admin.create_account(
            pool, name=name, email=f"{name}@drill.test", plan=Plan.SCALE, daily_cap=daily_cap
        )
        key = await admin.create_key(pool, settings, account=made["accountId"], name="drill", scopes=["all"])
        domain = f"{name}.test"
        await admin.add_domain(pool, settings, account=made["accountId"], name=domain, verified=True)
    return ApiAccess(made["accountId"], key["apiKey"], f"drill@{domain}")


def first_access(service: Service) -> ApiAccess:
    """Return the account that the service created at its first start."""
    made = service.first_run
    return ApiAccess(made["accountId"], made["apiKey"], f"drill@{made['domain']}")


def account_id(access: ApiAccess) -> UUID:
    """Return the account's UUID."""
    return ids.parse_id(ids.Kind.ACCOUNT, access.account)


def database_url(service: Service) -> str:
    """Return the URL of the service's database."""
    url = service.settings.database_url
    assert url is not None
    return url


def redis_url(service: Service) -> str:
    """Return the URL of the service's Valkey."""
    url = service.settings.redis_url
    assert url is not None
    return url


async def until_empty(url: str, timeout_s: float = EMPTY_S) -> None:
    """Wait until no delivery is pending, at most `timeout_s`; reconciliation reports the rest."""
    ends = time.monotonic() + timeout_s
    while time.monotonic() < ends:
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):  # it may just be coming back
            connection = await asyncpg.connect(url, timeout=5)
            try:
                while time.monotonic() < ends:
                    if not await connection.fetchval("SELECT EXISTS (SELECT FROM queue)", timeout=5):
                        return
                    await asyncio.sleep(ASK_S)
            finally:
                connection.terminate()
        await asyncio.sleep(ASK_S)


async def _play(service: Service, play: RunOnService) -> DrillReport:
    with service:
        began = time.monotonic()
        report = await play(service)
        report.took_s = report.took_s or time.monotonic() - began
        status = await asyncio.to_thread(service.stop)
        left = len(service.everything())
        report.checks.append(
            Check("the service stops cleanly and leaves no process", status == left == 0, f"{left} left")
        )
    return report


def _settings(more: Mapping[str, str] | None) -> dict[str, str]:
    return SETTINGS | dict(more or {})


def _kept_if_failed(run: Callable[[Path], DrillReport]) -> DrillReport:
    folder = make_folder()
    keep = True
    try:
        report = run(folder)
        keep = not report.passed
        return report
    finally:
        if keep:
            print(f"the files of this failed drill are in {folder}", file=sys.stderr)
        else:
            clear(folder)
