"""List the processes of all hosts for the operator, from the process registry."""

from typing import Literal

import asyncpg
from msgspec import Struct

from engine.base import clock
from engine.store import process_registry
from engine.store.process_registry import RegisteredProcess

MEBIBYTE = 1024 * 1024


class ListedProcess(Struct, frozen=True, rename="camel"):
    """A process as last seen: `gone` if it stopped its heartbeat without ending.

    `rate` is in messages per second over the last minute, `inHand` the deliveries in its memory; a figure that its kind
    lacks is null. An API process has one line per worker.
    """

    host: str
    name: str
    kind: str
    version: str
    pid: int
    since: str
    state: Literal["here", "gone"]
    last_seen_s: float
    shards: int | None
    in_hand: int | None
    rate: float | None
    memory_mb: int | None


class ProcessList(Struct, frozen=True):
    """All registered processes; the registry forgets those that are gone after ten minutes."""

    hosts: int
    gone: int
    processes: list[ListedProcess]


async def listing(pool: asyncpg.Pool) -> ProcessList:
    """Return all registered processes."""
    seen = await process_registry.READ_PROCESSES.fetch(pool)
    processes = [_listed(one) for one in seen]
    gone = sum(one.state == "gone" for one in processes)
    return ProcessList(len({one.host for one in seen}), gone, processes)


def _listed(one: RegisteredProcess) -> ListedProcess:
    return ListedProcess(
        host=one.host,
        name=one.name,
        kind=one.kind,
        version=one.version,
        pid=one.pid,
        since=clock.iso(one.since),
        state="gone" if one.silent_s > process_registry.GONE_S else "here",
        last_seen_s=round(max(0.0, one.silent_s), 1),
        shards=one.shards,
        in_hand=one.in_hand,
        rate=None if one.rate is None else round(one.rate, 1),
        memory_mb=None if one.memory_bytes is None else round(one.memory_bytes / MEBIBYTE),
    )
