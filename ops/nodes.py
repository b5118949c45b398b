"""Implementation of `ops nodes`: the processes of all hosts, from the process registry."""

from typing import Any

import asyncpg

from engine.base import clock
from engine.store import process_registry

MEBIBYTE = 1024 * 1024


async def listing(pool: asyncpg.Pool) -> dict[str, Any]:
    """Return all registered processes. `state` is `here`, or `gone` for one that stopped its heartbeat without ending.

    The registry forgets gone processes after ten minutes.
    """
    seen = await process_registry.READ_PROCESSES.fetch(pool)
    processes = [_shown(one) for one in seen]
    gone = sum(one["state"] == "gone" for one in processes)
    return {"hosts": len({one.host for one in seen}), "gone": gone, "processes": processes}


def _shown(one: process_registry.RegisteredProcess) -> dict[str, Any]:
    return {
        "host": one.host,
        "name": one.name,
        "kind": one.kind,
        "version": one.version,
        "pid": one.pid,
        "since": clock.iso(one.since),
        "state": "gone" if one.silent_s > process_registry.GONE_S else "here",
        "lastSeenS": round(max(0.0, one.silent_s), 1),
        "shards": one.shards,
        "inHand": one.in_hand,
        "rate": None if one.rate is None else round(one.rate, 1),
        "memoryMb": None if one.memory_bytes is None else round(one.memory_bytes / MEBIBYTE),
    }
