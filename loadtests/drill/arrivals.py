"""Read from a sink's store which message arrived when, and how often."""

import asyncio
import time
from collections.abc import Collection, Iterable
from datetime import datetime
from pathlib import Path
from typing import Final

from engine.store.sink_folder import SinkEntry
from ops.local.sink_store import entries

_LOOK_S: Final = 0.25
_HEAD_BYTES: Final = 64 * 1024


def arrived_at(entry: SinkEntry) -> float:
    """Return the time of an arrival by the wall clock."""
    return datetime.fromisoformat(entry.at).timestamp()


def by_address(store: Path, own: Collection[str] | None = None) -> dict[str, list[SinkEntry]]:
    """Return the arrivals by recipient, in order; `own` limits them to these test ids."""
    found: dict[str, list[SinkEntry]] = {}
    for entry in entries(store):
        if own is None or entry.test_id in own:
            for address in entry.recipients:
                found.setdefault(address, []).append(entry)
    return found


async def until_arrived(store: Path, wanted: Collection[str], patience_s: float) -> dict[str, float]:
    """Return the arrival time (wall clock) of each message by test id; waits for all, at most `patience_s`."""
    ends = time.monotonic() + patience_s
    while True:
        found = {
            entry.test_id: arrived_at(entry)
            for entry in await asyncio.to_thread(entries, store)
            if entry.test_id is not None and entry.test_id in wanted
        }
        if len(found) >= len(wanted) or time.monotonic() > ends:
            return found
        await asyncio.sleep(_LOOK_S)


def head_of(store: Path, entry: SinkEntry) -> bytes:
    """Return the header of a stored message; b"" without a file."""
    if entry.file is None:
        return b""
    with (store / entry.file).open("rb") as file:
        return file.read(_HEAD_BYTES).partition(b"\r\n\r\n")[0]


def message_ids(store: Path, copies: Iterable[SinkEntry]) -> set[bytes]:
    """Return the different Message-ID lines of the copies of a message."""
    heads = (head_of(store, copy).split(b"\r\n") for copy in copies)
    return {b"|".join(line for line in head if line.lower().startswith(b"message-id:")) for head in heads}
