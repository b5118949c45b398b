"""Webhook receivers of the simulated world, in place of the HTTP client of a process."""

import asyncio
from collections.abc import Mapping
from typing import Final

import yarl

from engine.events.webhooks import rules
from engine.store.http_client import HttpFailure, HttpReply
from loadtests.simulation.process import current
from loadtests.simulation.world import World

_LATENCY_S: Final = (0.001, 0.05)
_FAULTS: Final = {"answers": 60, "fails": 15, "drops": 10, "drops after": 10, "hangs": 5}


class Receivers:
    """All endpoints: the events that they took (`webhook-id` of a post), while `faulty` not always the first time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.faulty = True
        self.rng = world.rng("receivers")
        self.taken: set[str] = set()


class SimulatedHttpClient:
    """The HTTP client of one process: posts to the receivers."""

    def __init__(self, receivers: Receivers) -> None:
        self._receivers = receivers

    async def post(
        self, url: yarl.URL, body: bytes, headers: Mapping[str, str], *, timeout_s: float, max_bytes: int,
        max_header_chars: int = 0,
    ) -> HttpReply | HttpFailure:  # fmt: skip
        """Post, and return what the receiver does."""
        receivers, process = self._receivers, current()
        rng, name = receivers.rng, "" if process is None else process.name
        how = rng.choices(list(_FAULTS), list(_FAULTS.values()))[0] if receivers.faulty else "answers"
        await asyncio.sleep(rng.uniform(*_LATENCY_S))
        if how in ("answers", "drops after"):
            receivers.taken.add(headers[rules.DELIVERY_ID])
        receivers.world.note(name, f"post {headers[rules.DELIVERY_ID][-6:]}: {how}")
        match how:
            case "answers":
                await asyncio.sleep(rng.uniform(*_LATENCY_S))
                return HttpReply(200, b"ok"[:max_bytes], ""[:max_header_chars])
            case "fails":
                return HttpReply(500, b"")
            case "hangs":
                await asyncio.sleep(timeout_s)
                return HttpFailure("timeout", "no response in time")
        return HttpFailure("connect", f"{url.host} closed the connection after {len(body)} octets")
