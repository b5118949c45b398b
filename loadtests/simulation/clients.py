"""Clients of the simulated API: they send, and remember what they were told."""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from engine.base import clock
from engine.base.errors import Refusal
from engine.sending.emails.types import Accepted
from loadtests.simulation.postgres import SimulatedSender, senders
from loadtests.simulation.service import ApiProcess, message_of
from loadtests.simulation.supervisor import SimulatedSupervisor
from loadtests.simulation.world import World

MESSAGES: Final = 10
_SPREAD_S: Final = 4.5  # over which they are sent
_BURST_S: Final = 0.5
_TIMEOUT_S: Final = 20.0
_AGAIN_S: Final = (0.05, 0.8)
_LATENCY_S: Final = (0.0003, 0.004)
_TRIES: Final = 40


class ClientRequest(Struct):
    """A message that a client sends; `answer` is the id of the 202."""

    label: str
    sender: SimulatedSender
    to: list[str]
    key: str | None
    delay_s: float | None  # of a scheduled one
    scheduled_at: str | None = None  # as it was sent first
    answer: UUID | None = None
    unknown: int = 0  # tries without an answer: each may have been accepted
    refused: str = ""


class NoAnswer(Exception):  # noqa: N818 - named for what happened
    """The process that had the request was killed."""


class Clients:
    """All clients of a run."""

    def __init__(self, world: World, supervisor: SimulatedSupervisor, domains: list[str]) -> None:
        self._world = world
        self._rng = world.rng("clients")
        self._supervisor = supervisor
        self._burst_at = self._rng.uniform(0.6, 2.6)
        self.requests = [self._drawn(f"m{number}", domains) for number in range(MESSAGES)]

    async def run(self) -> None:
        """Send everything; return once each has its answer, or was given up without a key."""
        async with asyncio.TaskGroup() as tasks:
            for one in self.requests:
                tasks.create_task(self._send(one, self._drawn_time()))

    def _drawn_time(self) -> float:
        """Return when a request is sent: half of them come together, so that they meet one another and one fault."""
        rng = self._rng
        return self._burst_at + rng.uniform(0.0, _BURST_S) if rng.random() < 0.5 else rng.uniform(0.2, _SPREAD_S)

    def _drawn(self, label: str, domains: list[str]) -> ClientRequest:
        rng = self._rng
        to = [
            f"{label}-{number}@{domain}" for number, domain in enumerate(rng.sample(domains, rng.choice((1, 1, 1, 2))))
        ]
        key = label if rng.random() < 0.6 else None
        delay_s = rng.uniform(0.2, 3.0) if rng.random() < 0.3 else None
        return ClientRequest(label, rng.choice(senders()), to, key, delay_s)

    async def _send(self, request: ClientRequest, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        for _ in range(_TRIES):
            api = self._supervisor.ready_api(self._rng)
            if api is not None and await self._tried(request, api):
                return
            await asyncio.sleep(self._rng.uniform(*_AGAIN_S))
        self._world.violate(f"{request.label} was never accepted: {request.refused or 'no answer'}")

    async def _tried(self, request: ClientRequest, api: ApiProcess) -> bool:
        """Send once; return True if no other try is due."""
        try:
            answer = await self._ask(request, api)
        except (NoAnswer, TimeoutError):
            request.unknown += 1
            self._world.note("client", f"{request.label}: no answer from {api.process.name}")
            return request.key is None  # without a key a second try could be a second message
        if isinstance(answer, Refusal):
            request.refused = answer.kind.value
            self._world.note("client", f"{request.label}: {answer.kind.value}")
            return False
        request.answer = message_of(answer)
        self._world.note("client", f"{request.label}: 202 {answer.status}")
        return True

    async def _ask(self, request: ClientRequest, api: ApiProcess) -> Accepted | Refusal:
        await asyncio.sleep(self._rng.uniform(*_LATENCY_S))
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def serve() -> None:
            answer = await api.accept(request.sender.account, self._fields(request))
            if not answered.done():
                answered.set_result(answer)

        def broken() -> None:
            if not answered.done():
                answered.set_exception(NoAnswer())

        if not api.process.alive:
            raise NoAnswer
        api.process.on_kill.append(broken)
        work = api.process.start(serve())
        work.add_done_callback(partial(_fail, answered))
        async with asyncio.timeout(_TIMEOUT_S):
            answer: Accepted | Refusal = await answered
        await asyncio.sleep(self._rng.uniform(*_LATENCY_S))
        return answer

    def _fields(self, request: ClientRequest) -> dict[str, object]:
        fields: dict[str, object] = {
            "from": f"shop@{request.sender.domain}", "to": request.to, "subject": request.label, "text": "Hello!",
        }  # fmt: skip
        if request.key is not None:
            fields["idempotencyKey"] = request.key
        if request.delay_s is not None:
            request.scheduled_at = request.scheduled_at or clock.iso(
                self._world.utc() + timedelta(seconds=request.delay_s)
            )
            fields["scheduledAt"] = request.scheduled_at
        return fields


def _fail(answered: "asyncio.Future[Any]", done: "asyncio.Task[Any]") -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None and not answered.done():
        answered.set_exception(error)
