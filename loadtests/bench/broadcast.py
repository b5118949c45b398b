"""`ops bench broadcast`: how fast a broadcast is accepted, and what it does to transactional mail meanwhile.

The same account, and another one, send single messages at a low rate: first alone, then while the broadcast runs. It is
paused once near its beginning, to see how long after the request messages are still accepted.
"""

import asyncio
import math
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from engine.audience.broadcasts import store
from engine.base import ids
from engine.store.queries import Queries
from loadtests.bench import measure
from loadtests.bench.load import HTTP_GENERATOR, LoadOrder, LoadProcess, times_of
from loadtests.bench.report import Row, in_words
from loadtests.bench.run import BenchResult, BenchRun
from loadtests.bench.run_control import BenchFailed
from loadtests.bench.service import SENDER, BenchService, make_access
from loadtests.kit.accounts import ApiAccess
from ops import admin

DOMAINS: Final = 1_000
MARK_S: Final = 70.0  # for 100,000 contacts
MARK_FACTOR: Final = 2.0
MARK_PAUSE_S: Final = 1.0
STILL_S: Final = 2.0  # without an accepted message, after which a paused broadcast stands still
RATE: Final = 20.0  # single messages a second of each account
SLOWEST: Final = 20  # calls that the result lists
ALONE_S, STEP_S = 50.0, 4.0  # as long as 100,000 contacts take: what happens once a minute belongs to both phases
OTHER: Final = "other.test"
TEXT: Final = "Hello {{name}},\n\nyour plan is {{plan}} with {{seats}} seats. Here is what is new this month.\n" * 4
HTML: Final = f"<html><body><p>{TEXT}</p></body></html>"
_PATIENCE_S: Final = 300.0
_DELIVERY_S: Final = 60.0
_CHUNK: Final = 20_000

_SQL = Queries.beside(__file__, "broadcast.sql")
_LIST = _SQL.command("store_list")
_CONTACTS = _SQL.command("store_contacts")
_SECONDS = _SQL.command("delivery_seconds")
_COPIES = _SQL.command("copies")


class Sender(Struct):
    """An account that sends single messages, and its accepted ones in this phase."""

    name: str
    access: ApiAccess
    load: LoadProcess
    sent: int = 0
    accepted: list[tuple[float, float]] = []  # wall-clock time of the answer, latency; in seconds
    refused: int = 0


class BroadcastBench(Struct, frozen=True, kw_only=True):
    """The options of the bench."""

    contacts: int = 100_000

    async def measure(self, run: BenchRun) -> BenchResult:
        """Send single messages alone, then beside a broadcast; every contact must get one message."""
        contacts = self.contacts
        async with run.service({"processes": ("api", "mta", "worker"), "api_workers": 1}) as service:
            run.say(f"Storing {contacts:,} contacts of {DOMAINS:,} domains")
            list_id = await _store(service, contacts)
            other = await make_access(service.settings, service.pool, OTHER, local=False)
            log = service.settings.state / "load.log"
            async with (
                LoadProcess(HTTP_GENERATOR, service.target(connections=8, domains=100), log) as own_load,
                LoadProcess(
                    HTTP_GENERATOR, service.target(connections=8, domains=100, access=other), log
                ) as other_load,
            ):
                senders = [Sender("same", service.access, own_load), Sender("other", other, other_load)]
                await _send_for(senders, 5.0)
                run.say("Sending single messages alone")
                alone = await _phase(service, senders, asyncio.sleep(ALONE_S))
                run.say("Sending the broadcast")
                worker = measure.roots_by_role(service.pids())["worker"]
                memory, began = measure.resident_mb(worker[0]), time.time()
                broadcast = BroadcastRun(service, await asyncio.to_thread(_start, service, list_id))
                await broadcast.pause_and_resume()
                during = await _phase(service, senders, broadcast.until_accepted())
            peak = measure.peaks_mb({"worker": worker})["worker"]
            copies = await _delivered(service, broadcast.id, contacts)
            deaths = service.deaths()
        factors = {
            f"{name}_{figure}": round(during[name][figure] / alone[name][figure], 2) if alone[name][figure] else None
            for name in alone for figure in ("accept_p99_ms", "delivery_p95_ms")
        }  # fmt: skip
        within = broadcast.took_s <= MARK_S * contacts / 100_000
        exact = copies["messages"] == copies["addresses"] == contacts
        found = {
            "mode": "broadcast", "contacts": contacts, "accepted_in_s": round(broadcast.took_s, 2),
            "accepted_per_s": round(contacts / broadcast.took_s, 1),
            "accepted_after_pause_s": round(broadcast.after_pause_s, 3),
            "alone": alone, "during": during, "factors": factors, "slowest": slowest_calls(senders, began),
            "worker_mib": {"before": int(memory), "peak": int(peak)}, "copies": dict(copies), "deaths": deaths,
            "checked": exact and not deaths and within and broadcast.after_pause_s <= MARK_PAUSE_S
            and all(one is not None and one < MARK_FACTOR for one in factors.values()),
        }  # fmt: skip
        return BenchResult(found, _rows(found))


class BroadcastRun:
    """Watches a broadcast until all of its messages are accepted."""

    def __init__(self, service: BenchService, broadcast: UUID) -> None:
        self.id = broadcast
        self._service = service
        self._began = time.monotonic()
        self._paused_s = 0.0
        self.took_s = 0.0  # without the time of the pause
        self.after_pause_s = 0.0  # from the request to pause to the last accepted message before the resumption

    async def pause_and_resume(self) -> None:
        """Pause when the first messages are accepted, wait until none is accepted any more, and resume."""
        counts = await store.counts(self._service.pool, self.id)
        while not counts.accepted:
            await asyncio.sleep(0.02)
            counts = await store.counts(self._service.pool, self.id)
        asked = last = time.monotonic()
        await asyncio.to_thread(_act, self._service, self.id, "pause")
        accepted = counts.accepted
        while (now := time.monotonic()) - last < STILL_S:
            counts = await store.counts(self._service.pool, self.id)
            if counts.accepted != accepted:
                accepted, last = counts.accepted, now
            await asyncio.sleep(0.02)
        self.after_pause_s = last - asked
        if not counts.waiting:
            raise BenchFailed("the broadcast was over before it could be paused: give it more contacts")
        await asyncio.to_thread(_act, self._service, self.id, "resume")
        self._paused_s = time.monotonic() - last

    async def until_accepted(self) -> None:
        """Return when no recipient waits; raises BenchFailed after some minutes."""
        while True:
            counts = await store.counts(self._service.pool, self.id)
            self.took_s = time.monotonic() - self._began - self._paused_s
            if counts.recipients and not counts.waiting:
                return
            if self.took_s > _PATIENCE_S:
                raise BenchFailed(f"only {counts.accepted:,} messages were accepted in {self.took_s:.0f} s")
            await asyncio.sleep(0.1)


async def _phase(
    service: BenchService, senders: Sequence[Sender], until: Coroutine[Any, Any, None]
) -> dict[str, dict[str, float]]:
    """Send single messages until `until` returns; return the figures of each sender."""
    first = ids.uuid7()
    for one in senders:
        one.accepted, one.refused = [], 0
    over = asyncio.create_task(until)
    while not over.done():
        await _send_for(senders, STEP_S)
    await over
    return {one.name: await _figures(service, one, first) for one in senders}


async def _send_for(senders: Sequence[Sender], seconds: float) -> None:
    async with asyncio.TaskGroup() as tasks:
        for one in senders:
            tasks.create_task(_send(one, round(RATE * seconds)))


async def _send(sender: Sender, count: int) -> None:
    result = await sender.load.send(LoadOrder(first=sender.sent, count=count, rate=RATE, timeout_s=_PATIENCE_S))
    sender.sent += count
    sender.refused += sum(result.refused.values())
    latencies, answered = times_of(result)
    sender.accepted += [(at, took) for at, took in zip(answered, latencies, strict=True) if not math.isnan(took)]
    if result.refused:
        raise BenchFailed(f"single messages were refused: {result.refused} {result.example}")


async def _figures(service: BenchService, sender: Sender, first: UUID) -> dict[str, float]:
    """Return p99 of acceptance and p95 of delivery in ms."""
    ends = time.monotonic() + _DELIVERY_S
    while True:
        row = (await _SECONDS.records(service.pool, sender.access.account_id, first))[0]
        if not row["waiting"] or time.monotonic() > ends:
            break
        await asyncio.sleep(0.5)
    latencies = sorted(took for _, took in sender.accepted)
    return {
        "messages": len(latencies),
        "accept_p50_ms": _at(latencies, 0.5),
        "accept_p99_ms": _at(latencies, 0.99),
        "delivery_p50_ms": _at(row["seconds"], 0.5),
        "delivery_p95_ms": _at(row["seconds"], 0.95),
        "undelivered": row["waiting"],
    }


def _at(ordered: Sequence[float], share: float) -> float:
    return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1) if ordered else 0.0


def slowest_calls(senders: Sequence[Sender], began: float) -> list[dict[str, object]]:
    """Return the `SLOWEST` calls that took longest, by the time of their answers.

    What they waited for repeats: the log of PostgreSQL, or the processors' use, at those times shows it.
    """
    calls = sorted(((took, at, one.name) for one in senders for at, took in one.accepted), reverse=True)[:SLOWEST]
    return [
        {"at_s": round(at - began, 1), "sender": name, "ms": round(took * 1000, 1)}
        for took, at, name in sorted(calls, key=lambda call: call[1])
    ]


async def _store(service: BenchService, contacts: int) -> UUID:
    """Store the contacts of the broadcast; return their list."""
    account, list_id = service.access.account_id, ids.uuid7()
    await _LIST.execute(service.pool, account, list_id, contacts)
    for first in range(0, contacts, _CHUNK):
        numbers = range(first, min(contacts, first + _CHUNK))
        addresses = [f"person{number}@bench-{number % DOMAINS}.test" for number in numbers]
        await _CONTACTS.execute(service.pool, account, list(ids.uuid7s(len(addresses))), addresses, list_id)
    await service.pool.execute("VACUUM ANALYZE")
    return list_id


def _start(service: BenchService, list_id: UUID) -> UUID:
    """Create the broadcast and send it, over the API."""
    body = {"name": "Bench", "list": ids.format_id(ids.Kind.LIST, list_id), "from": SENDER, "subject": "Hello {{name}}",
            "text": TEXT, "html": HTML}  # fmt: skip
    made = _call(service, "/v1/broadcasts", body)
    _call(service, f"/v1/broadcasts/{made['id']}/send", {})
    return ids.parse_id(ids.Kind.BROADCAST, made["id"])


def _act(service: BenchService, broadcast: UUID, action: str) -> None:
    _call(service, f"/v1/broadcasts/{ids.format_id(ids.Kind.BROADCAST, broadcast)}/{action}", {})


def _call(service: BenchService, path: str, body: dict[str, Any]) -> dict[str, Any]:
    return admin.call_api(service.settings.public_url, "POST", path, service.access.key, body)


async def _delivered(service: BenchService, broadcast: UUID, contacts: int) -> Any:
    """Return the counts of the broadcast's messages when all are delivered, or after some time."""
    ends = time.monotonic() + _DELIVERY_S
    while True:
        row = (await _COPIES.records(service.pool, broadcast))[0]
        if row["delivered"] == contacts or time.monotonic() > ends:
            return row
        await asyncio.sleep(2.0)


def _rows(found: Mapping[str, Any]) -> list[Row]:
    names = ("accept_p50_ms", "accept_p99_ms", "delivery_p50_ms", "delivery_p95_ms")
    calls = ", ".join(f"{one['ms']} ms at {one['at_s']} s ({one['sender']})" for one in found["slowest"])
    phases = [(phase, name, found[phase][name]) for phase in ("alone", "during") for name in found[phase]]
    return [
        *((name, in_words(value)) for name, value in found.items() if name not in {"alone", "during", "slowest"}),
        (),
        ("single messages", "account", *(name.replace("_", " ") for name in names)),
        *((phase, name, *(str(one[figure]) for figure in names)) for phase, name, one in phases),
        (f"slowest calls: {calls}",),
    ]
