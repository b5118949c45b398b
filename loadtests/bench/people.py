"""`ops bench --people`: the cost of a request with a session beside one with a key, and sending during sign-ins.

Requests go one at a time on each of a few connections; the client's own CPU is not counted.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import aiohttp
import orjson
from msgspec import structs
from rich.console import Console

from engine.base import settings
from engine.base.errors import Refusal
from engine.base.plans import Plan
from engine.people.open_account import open_account
from engine.people.open_session import open_session
from engine.people.sessions.rules import COOKIE, Device
from engine.store.database_errors import DatabaseUnavailable
from engine.store.passwords import Passwords
from loadtests.bench import figures, measure, report
from loadtests.bench.service import DOMAIN, SENDER, BenchService, own_service
from ops.embedded import CannotServe
from ops.process_specs import PortTaken
from ops.supervise import StartFailed

CONNECTIONS: Final = 8
SIGN_IN_CLIENTS: Final = 16  # people who sign in all the time while others send
SENDS_PER_S: Final = 100
PASSWORD: Final = "a password of the bench, of no use elsewhere"  # noqa: S105
_ROLES: Final = ("api", "postgres", "redis")
_UNLIMITED: Final = 1_000_000_000

Ask = Callable[[], Awaitable[int]]


def run(*, requests: int, as_json: bool, storm_s: float = 15.0) -> int:
    """Measure and print; return exit status 0 when every request was answered as expected."""
    progress = report.Progress()
    try:
        result = asyncio.run(_measure(requests, storm_s, progress))
    except (CannotServe, PortTaken, StartFailed, Refusal, DatabaseUnavailable) as error:
        progress.fail(str(error) or type(error).__name__)
        return 1
    _show(result, as_json=as_json)
    return 0 if result["checked"] else 1


async def _measure(requests: int, storm_s: float, progress: report.Progress) -> dict[str, Any]:
    given = structs.replace(
        settings.load(os.environ).settings,
        sign_in_rate=_UNLIMITED,
        unauthenticated_rate=_UNLIMITED,
        request_rate=_UNLIMITED,
    )
    async with own_service(given, progress.say, delivering=True, tls=False) as service, _client() as client:
        base = f"http://{service.settings.api_host}:{service.settings.api_port}"
        roots = {role: pids for role, pids in measure.roots_by_role(service.pids()).items() if role in _ROLES}
        email, cookie = await _open_session(service)
        by_key = {"Authorization": f"Bearer {service.access.key}"}
        costs: dict[str, list[float]] = {"key": [], "session": []}
        for name, headers in (("key", by_key), ("session", cookie)) * 3:  # in turns: what the machine does hits both
            progress.say(f"{requests:,} requests with a {name}")
            ask = _getting(client, f"{base}/v1/streams", headers)
            costs[name].append(await _cost(roots, ask, requests))
        progress.say("Wrong passwords and unknown addresses")
        known = await _times(_signing_in(client, base, email, "wrong"), 40)
        unknown = await _times(_signing_in(client, base, f"nobody@{DOMAIN}", "wrong"), 40)
        progress.say("Sending, then sending while people sign in")
        quiet = await _sending(client, base, service, storm_s)
        async with _storm(_signing_in(client, base, email, PASSWORD)) as counted:
            busy = await _sending(client, base, service, storm_s)
    return {
        "requests_each": requests * 3,
        "cpu_ms_per_request": {name: round(sorted(found)[1], 3) for name, found in costs.items()},
        "sign_in_ms": {"wrong_password": figures.percentiles(known), "unknown_address": figures.percentiles(unknown)},
        "send_ms": {"alone": figures.percentiles(quiet), "while_people_sign_in": figures.percentiles(busy)},
        "signed_in_per_s": round(counted[0] / storm_s, 1),
        "checked": bool(quiet) and bool(busy) and counted[1] == 0,
    }


@asynccontextmanager
async def _client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=60),
        trust_env=False,
    ) as client:
        yield client


async def _open_session(service: BenchService) -> tuple[str, dict[str, str]]:
    """Create a second account with an owner and a session; return the address and the session's headers."""
    passwords = Passwords()
    hashed = await passwords.hashed(PASSWORD)
    passwords.close()
    made = await open_account(
        service.pool, name="Beside", email=f"person@{DOMAIN}", password_hash=hashed, plan=Plan.ENTERPRISE
    )
    pepper = service.settings.pepper
    device = Device.of(None, "bench")
    session = await open_session(service.pool, pepper, made.owner_id, method="password", device=device)
    return f"person@{DOMAIN}", {"Cookie": f"{COOKIE}={session.secret}"}


def _getting(client: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> Ask:
    async def ask() -> int:
        async with client.get(url, headers=headers) as answer:
            await answer.read()
            return answer.status

    return ask


def _signing_in(client: aiohttp.ClientSession, base: str, email: str, password: str) -> Ask:
    async def ask() -> int:
        async with client.post(f"{base}/v1/auth/login", json={"email": email, "password": password}) as answer:
            await answer.read()
            return answer.status

    return ask


async def _cost(roots: dict[str, list[int]], ask: Ask, requests: int) -> float:
    """Return the CPU of all servers for one request, in ms."""

    async def one(count: int) -> None:
        for _ in range(count):
            assert await ask() == 200

    await one(50)
    before = measure.sample(roots)
    await asyncio.gather(*[one(requests // CONNECTIONS) for _ in range(CONNECTIONS)])
    after = measure.sample(roots)
    spent = sum(after.roles[role].cpu_ms - before.roles[role].cpu_ms for role in roots)
    return spent / (requests // CONNECTIONS * CONNECTIONS)


async def _times(ask: Ask, count: int) -> list[float]:
    """Return the seconds of each of `count` failed sign-ins, one after the other."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        assert await ask() == 401
        took.append(time.perf_counter() - began)
    return took


async def _sending(client: aiohttp.ClientSession, base: str, service: BenchService, seconds: float) -> list[float]:
    """Send at a constant rate; return the seconds of each send."""
    headers = {"Authorization": f"Bearer {service.access.key}"}
    message = {
        "from": SENDER,
        "to": ["ann@bench-1.test"],
        "subject": "Hello",
        "text": "Hello!",
    }
    took: list[float] = []

    async def send() -> None:
        began = time.perf_counter()
        async with client.post(f"{base}/v1/emails", json=message, headers=headers) as answer:
            await answer.read()
            assert answer.status == 202, answer.status
        took.append(time.perf_counter() - began)

    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(round(SENDS_PER_S * seconds)):
            await asyncio.sleep(max(0.0, began + number / SENDS_PER_S - time.monotonic()))
            group.create_task(send())
    return took


@asynccontextmanager
async def _storm(ask: Ask) -> AsyncIterator[list[int]]:
    """Sign in continuously with several clients; yields the counts [signed in, answered otherwise]."""
    counted = [0, 0]

    async def one() -> None:
        while True:
            counted[0 if await ask() == 200 else 1] += 1

    tasks = [asyncio.create_task(one()) for _ in range(SIGN_IN_CLIENTS)]
    try:
        yield counted
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


def _show(result: dict[str, Any], *, as_json: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    if as_json:
        console.print(orjson.dumps(result, option=orjson.OPT_INDENT_2).decode(), markup=False)
        return
    for name, value in result.items():
        console.print(f"{name:20} {value}", markup=False)
