"""`ops drill tails`: readers follow an account's log while API workers are killed; no event is missed or repeated.

Several writers append events as the service does. Each reader reconnects with the id of the last event it received; it
must have received every `seq` once, in order.
"""

import asyncio
import http.client
import random
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final
from uuid import UUID

import asyncpg

from engine.base import clock
from engine.base.events import EventType
from engine.ledger import log
from engine.ledger.events import append_events
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.running import on_service
from loadtests.kit.accounts import first_access
from loadtests.kit.processes import signal_all
from loadtests.kit.service import Service

SETTINGS: Final = {"API_WORKERS": "2", "REQUEST_RATE": "100000", "TAIL_LEASE_S": "1"}
WRITERS: Final = 4
READERS: Final = 3
EVERY_S: Final = 1.0
PATIENCE_S: Final = 60.0  # from the last event until every reader must have it
_PAUSE_S: Final = (0.05, 0.3)  # before a reader comes back
_READ_S: Final = 40.0  # a heartbeat is due every 15 s

# What one connection brings, (event name, id) after (event name, id), until it breaks. Any SSE client will do.
Follow = Callable[[str, Mapping[str, str]], Iterable[tuple[str, str]]]
_BROKEN = (OSError, http.client.HTTPException, ValueError)


class TailFollower:
    """A tail client that reconnects in its own thread and records the ids it receives."""

    def __init__(self, name: str, follow: Follow, base_url: str, key: str, start: int) -> None:
        self.name = name
        self.seen: list[int] = []
        self.connections = 0
        self.refused = 0
        self.longest_silence_s = 0.0
        self._follow = follow
        self._url = f"{base_url}/v1/messages/tail?after={start}"
        self._key = key
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"reader {name}", daemon=True)

    def start(self) -> None:
        """Start following."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reconnecting; the open connection ends with the service."""
        self._stopped.set()

    def _run(self) -> None:
        rng = random.Random()
        last_at = time.monotonic()
        while not self._stopped.is_set():
            headers = {"Authorization": f"Bearer {self._key}"}
            if self.seen:
                headers["Last-Event-ID"] = str(self.seen[-1])
            try:
                self.connections += 1
                for name, place in self._follow(self._url, headers):
                    if name == "message":
                        now = time.monotonic()
                        self.longest_silence_s = max(self.longest_silence_s, now - last_at)
                        last_at = now
                        self.seen.append(int(place))
            except urllib.error.HTTPError as error:
                self.refused += 1
                error.close()
            except _BROKEN:
                pass
            self._stopped.wait(rng.uniform(*_PAUSE_S))


@on_service(SETTINGS)
async def run(service: Service, order: DrillOrder) -> DrillReport:
    """Write `order.messages` events while a worker is killed every second, `order.rounds` times."""
    return await drill(service, events=order.messages, kills=order.rounds, follow={"plain": plain}, readers=READERS)


async def drill(
    service: Service, *, events: int, kills: int, follow: Mapping[str, Follow], readers: int = 1
) -> DrillReport:
    """Write, kill and read on a running service; `readers` of each kind follow the account of the first start."""
    access = first_access(service)
    began = time.monotonic()
    async with asyncpg.create_pool(service.database_url, min_size=WRITERS, max_size=WRITERS) as pool:
        start = int(await pool.fetchval("SELECT seq FROM account_heads WHERE account_id = $1", access.account_id))
        followers = [
            TailFollower(f"{name} {number}", one, service.base_url, access.key, start)
            for name, one in follow.items()
            for number in range(1, readers + 1)
        ]
        for reader in followers:
            reader.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                killing = tasks.create_task(_kill_every_second(service, kills))
                for share in _shares(events):
                    tasks.create_task(_write(pool, access.account_id, share, kills * EVERY_S))
            ends = time.monotonic() + PATIENCE_S
            for reader in followers:
                await until_seen(reader, start + events, ends)
        finally:
            for reader in followers:
                reader.stop()
    missed, checks = zip(*[_judged(reader, start, events) for reader in followers], strict=True)
    return DrillReport(
        drill="tails", lost=sum(missed), recovery_s=max(one.longest_silence_s for one in followers),
        took_s=time.monotonic() - began, checks=list(checks), done=[f"{killing.result()} API workers killed"],
        figures={
            "events written": events,
            "connections": sum(one.connections for one in followers),
            "refused": sum(one.refused for one in followers),
        },
    )  # fmt: skip


def plain(url: str, headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Read an SSE stream line by line; yield (event name, id)."""
    request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310 - our own service
    with urllib.request.urlopen(request, timeout=_READ_S) as answer:  # noqa: S310
        name, place = "message", ""
        for raw in answer:
            line = raw.decode().rstrip("\n")
            field, _, value = line.partition(":")
            if not line:
                yield name, place
                name = "message"
            elif field == "event":
                name = value.removeprefix(" ")
            elif field == "id":
                place = value.removeprefix(" ")


def _shares(events: int) -> Sequence[int]:
    return [events // WRITERS + (number < events % WRITERS) for number in range(WRITERS)]


async def _write(pool: asyncpg.Pool, account: UUID, count: int, spread_s: float) -> None:
    """Append `count` events over `spread_s` seconds, a few at a time."""
    loop = asyncio.get_running_loop()
    began, written = loop.time(), 0
    while written < count:
        size = min(count - written, random.randint(1, 12))
        async with pool.acquire() as connection, connection.transaction():
            now = clock.now()
            entries = [
                log.Entry(account, EventType.DEFERRED, log.detail_text({"n": written + n}), now) for n in range(size)
            ]
            await append_events(connection, entries)
        written += size
        await asyncio.sleep(max(0.0, began + spread_s * written / count - loop.time()))


async def _kill_every_second(service: Service, kills: int) -> int:
    done = 0
    for _ in range(kills):
        await asyncio.sleep(EVERY_S)
        workers = await asyncio.to_thread(service.api_workers)
        if workers:
            signal_all([random.choice(workers)], signal.SIGKILL)
            done += 1
    return done


async def until_seen(reader: TailFollower, last: int, ends: float) -> None:
    """Wait until a reader has received the event `last`, at most until `ends` (monotonic)."""
    while time.monotonic() < ends and not (reader.seen and reader.seen[-1] >= last):  # noqa: ASYNC110 - a thread
        await asyncio.sleep(0.05)


def _judged(reader: TailFollower, start: int, events: int) -> tuple[int, Check]:
    """Return the number of events that a reader missed, and the check of what it received."""
    steps = [later - earlier for earlier, later in pairwise([start, *reader.seen])]
    missed = sum(step - 1 for step in steps if step > 1)
    missed += max(0, start + events - (reader.seen[-1] if reader.seen else start))
    repeated = sum(step < 1 for step in steps)
    whole = missed == repeated == 0 and len(reader.seen) == events
    found = f"{len(reader.seen)} events, {missed} missed, {repeated} repeated"
    return missed, Check(f"{reader.name}: every event once, in order", whole, found)
