"""`ops drill false-hints`: hint streams contain duplicated and invented entries, and lack deleted ones.

A corrupter copies a tenth of the hints, adds as many invented ones, and deletes entries before or after they are read.
Mail must not suffer: a delivery is claimed in PostgreSQL, and a hint only says where to look.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import redis.asyncio as redis

from engine.base import ids
from engine.delivery.hints import WAKE_CHANNEL
from engine.delivery.partition import hint_stream
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.running import on_service, planned_client, report_after_faults, while_sending
from loadtests.kit.accounts import first_access
from loadtests.kit.service import Service

NAME: Final = "false-hints"
SHARE: Final = 0.1
LOOK_S: Final = 0.02
_FIELD: Final = b"m"
_MAX_AT_ONCE: Final = 200


class HintCorrupter:
    """Reads every hint stream beside the service, adds and deletes entries; `done` counts them by kind."""

    def __init__(self, client: "redis.Redis", shards: int, rng: random.Random) -> None:
        self.done: Counter[str] = Counter()
        self._client = client
        self._streams = [hint_stream(shard) for shard in range(shards)]
        self._rng = rng
        self._seen: dict[str, bytes] = dict.fromkeys(self._streams, b"0")

    async def run(self, until: asyncio.Event) -> None:
        """Corrupt streams until the event is set."""
        while not until.is_set():
            streams = self._rng.sample(self._streams, len(self._streams) // 4)
            pipe = self._client.pipeline(transaction=False)
            for stream in streams:
                pipe.xrange(stream, min=b"(" + self._seen[stream], count=_MAX_AT_ONCE)
            for stream, entries in zip(streams, await pipe.execute(), strict=True):
                if entries:
                    self._seen[stream] = entries[-1][0]
                    await self._spoil(stream, entries)
            await asyncio.sleep(LOOK_S)

    async def _spoil(self, stream: str, entries: Sequence[tuple[bytes, dict[bytes, bytes]]]) -> None:
        added: list[dict[bytes, bytes]] = []
        for _, fields in entries:
            if self._rng.random() < SHARE:
                added += [fields] * self._rng.randint(1, 2)
                self.done["duplicated"] += 1
            if self._rng.random() < SHARE:
                added.append(self._invented())
                self.done["invented"] += 1
        pipe = self._client.pipeline(transaction=False)
        for fields in added:
            pipe.xadd(stream, dict[Any, Any](fields))
        if self._rng.random() < SHARE:
            pipe.xdel(stream, *[entry for entry, _ in entries])
            self.done["deleted"] += 1
        pipe.publish(WAKE_CHANNEL, stream.partition("{s")[2].partition("}")[0])
        pipe.publish(WAKE_CHANNEL, self._rng.choice(["", "-1", "99999999", "x,y", "\x00"]))
        await pipe.execute()

    def _invented(self) -> dict[bytes, bytes]:
        return self._rng.choice([
            {_FIELD: ids.uuid7().bytes},
            {_FIELD: os.urandom(7)},
            {_FIELD: b""},
            {b"other": b"field"},
            {_FIELD: b"".join(ids.uuid7().bytes for _ in range(500))},
        ])  # fmt: skip


@on_service()
async def run(service: Service, order: DrillOrder) -> DrillReport:
    """Send mail while the hint streams are corrupted."""
    client = planned_client(service, order, NAME)
    connection = redis.from_url(service.redis_url, socket_timeout=5)
    intruder = HintCorrupter(connection, service.settings.shards, order.rng)
    try:
        await while_sending([intruder], client.run())
    finally:
        await connection.aclose()
    report = await report_after_faults(service, first_access(service), client, [], name=NAME)
    all_kinds = len(intruder.done) == 3
    report.checks.append(Check("every kind of false hint was written", all_kinds, f"{dict(intruder.done)}"))
    return report
