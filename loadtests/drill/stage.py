"""Where a drill plays: a service of its own in a folder of its own, an account on it, and the end of both.

The folder of a drill that failed stays, and is named on standard error.
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
from engine.delivery.hints import unfinished
from engine.store import redis as redis_store
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.sends import ApiAccess
from loadtests.drill.service import Service, clear, make_folder
from loadtests.drill.world import DrillWorld
from mta.outbound.fetch import LEFT_EVERY_S, LEFT_LONG_S
from ops import admin

SETTINGS: Final = {"RETRY_LADDER_S": "1,2,4,8", "REQUEST_RATE": "100000"}
EMPTY_S: Final = 300.0  # how long the queue may take to empty after the last send
ASK_S: Final = 0.25
_PENDING_S: Final = LEFT_LONG_S + LEFT_EVERY_S + 20.0  # for hints to be finished once nothing is queued

Play = Callable[[Service], Awaitable[DrillReport]]
PlayInWorld = Callable[[Service, DrillWorld], Awaitable[DrillReport]]


def played(play: Play, more: Mapping[str, str] | None = None) -> DrillReport:
    """The drill `play` on a fresh service with `more` settings; the service's own end is judged too.

    Call from the main thread. Raises what the start of a service raises.
    """
    return _kept_if_failed(lambda folder: asyncio.run(_play(Service(folder, _settings(more)), play)))


def played_in_world(play: PlayInWorld, more: Mapping[str, str] | None = None) -> DrillReport:
    """The same with a world of mail servers and names between the service and its sink."""

    def on(service: Service) -> DrillReport:
        with DrillWorld(service) as world:
            service.set("DNS_SERVERS", f"127.0.0.1:{world.dns_port}")
            return asyncio.run(_play(service, lambda one: play(one, world)))

    return _kept_if_failed(lambda folder: on(Service(folder, _settings(more))))


async def new_access(service: Service, name: str, *, daily_cap: int | None = 1_000_000) -> ApiAccess:
    """Another account with a key for everything and a verified domain; `name` sets it apart."""
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
    """The account that the service made at its first start."""
    made = service.first_run
    return ApiAccess(made["accountId"], made["apiKey"], f"drill@{made['domain']}")


def account_id(access: ApiAccess) -> UUID:
    """For the database."""
    return ids.parse_id(ids.Kind.ACCOUNT, access.account)


def database_url(service: Service) -> str:
    """Of its database."""
    url = service.settings.database_url
    assert url is not None
    return url


def redis_url(service: Service) -> str:
    """Of its Valkey."""
    url = service.settings.redis_url
    assert url is not None
    return url


async def until_empty(url: str, timeout_s: float = EMPTY_S) -> None:
    """Wait until no delivery is pending, or until the patience ends: what hangs then shows in the verdict."""
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


async def pending_hints(service: Service) -> int:
    """Stream entries that were read and not acknowledged, over all shards; asked until there are none or the
    patience ends."""
    client = redis_store.connect(redis_url(service), timeout_s=2)
    try:
        ends = time.monotonic() + _PENDING_S
        while True:
            left = -1
            with suppress(redis_store.RedisUnavailable):
                left = await unfinished(client, range(service.settings.shards))
            if left == 0 or time.monotonic() > ends:
                return left
            await asyncio.sleep(ASK_S)
    finally:
        await client.aclose()


async def _play(service: Service, play: Play) -> DrillReport:
    with service:
        began = time.monotonic()
        report = await play(service)
        report.took_s = report.took_s or time.monotonic() - began
        status = await asyncio.to_thread(service.stop)
        left = len(service.everything())
        report.checks.append(
            Check("it stops when told to, and nothing outlives it", status == left == 0, f"{left} left")
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
            print(f"what this drill left is in {folder}", file=sys.stderr)
        else:
            clear(folder)
