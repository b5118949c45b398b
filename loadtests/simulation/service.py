"""The processes of the simulated service: those of the product, with the stores and networks of the world."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import asyncpg
from msgspec import Struct, convert

from engine.base import ids
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.delivery.hints import Hints
from engine.events.webhooks.posting import Poster
from engine.sending import release
from engine.sending.accept import Acceptor
from engine.sending.emails.types import Accepted, SendRequest
from engine.sending.preparation import Origin
from engine.store.caches import Stamps
from engine.store.postgres import open_pool
from loadtests.simulation.database import Database
from loadtests.simulation.mail_servers import MailServers
from loadtests.simulation.postgres import PEPPER
from loadtests.simulation.process import Process
from loadtests.simulation.receivers import Receivers, SimulatedHttpClient
from loadtests.simulation.redis import RedisServer, SimulatedRedis
from loadtests.simulation.resolver import SimulatedResolver
from loadtests.simulation.world import World
from mta.process import DeliveryProcess, Stores
from mta.simulator.server import Simulator
from ops.processes.worker import _repeat as repeat
from shards.ownership import ShardOwnership

SHARDS: Final = 4


class Surroundings(Struct):
    """Everything of a run that is not the service."""

    world: World
    database: Database
    redis: RedisServer
    mail: MailServers
    receivers: Receivers
    addresses: dict[str, str]
    settings: Settings


def settings_for(url: str, state: Path) -> Settings:
    """Return the settings of the service: short waits, so that a run covers takeovers and retries in seconds."""
    return Settings(
        state=state, database_url=url, redis_url="redis://simulated", key_pepper=PEPPER, shards=SHARDS, lease_s=2.4,
        fresh_due_s=1.0, retry_ladder_s=(0.5, 1.0, 2.0), give_up_s=3600.0, connect_timeout_s=2.0, reply_timeout_s=8.0,
        final_dot_timeout_s=8.0, webhook_ladder_s=(0.5, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2),
        webhook_timeout_s=2.0, delivery="live", allow_private_mx=True, allow_private_webhooks=True,
        mail_host="mail.service.test", processes=("api", "mta", "worker"),
    )  # fmt: skip


class ApiProcess:
    """The part of an API process that accepts."""

    def __init__(self, around: Surroundings, process: Process) -> None:
        self._around = around
        self.process = process
        self._acceptor: Acceptor | None = None
        self.is_started = False

    async def run(self) -> None:
        """Start, and serve until the process ends."""
        settings = self._around.settings
        assert settings.database_url is not None
        pool = await open_pool(settings.database_url, name=self.process.name, largest=4)
        acceptor = Acceptor(pool, Hints(SimulatedRedis(self._around.redis)), settings)
        self._acceptor = acceptor
        self.is_started = True
        await Stamps(pool, acceptor.caches).run()

    @property
    def is_ready(self) -> bool:
        """Return True while it takes requests."""
        return self.process.alive and self._acceptor is not None

    async def accept(self, account: UUID, fields: dict[str, object]) -> Accepted | Refusal:
        """Accept one message as the API does."""
        assert self._acceptor is not None
        request = convert(fields, SendRequest)
        try:
            return await self._acceptor.accept(await self._acceptor.preparer.check(request, Origin(account, "api")))
        except Refusal as refusal:
            return refusal


class MtaProcess:
    """A whole mta process."""

    def __init__(self, around: Surroundings, process: Process) -> None:
        self._around = around
        self.process = process
        self.ownership = ShardOwnership(SHARDS)
        self.is_started = False

    async def run(self) -> None:
        """Start, and deliver until the process ends."""
        settings, name = self._around.settings, self.process.name
        pools: Any = [await self._pool(part, largest=largest, generic=generic) for part, largest, generic in _POOLS]
        pool, membership, loading, settling = pools
        redis = self._around.redis
        clients = SimulatedRedis(redis), SimulatedRedis(redis, timeout_s=30)
        stores = Stores(settings, pool, membership, loading, settling, *clients)
        stores.resolver = SimulatedResolver(self._around.addresses)
        simulator = await Simulator.start(settings, stores.pool)
        self.is_started = True
        await DeliveryProcess(settings, name, stores, simulator, self.ownership).work()

    async def _pool(self, part: str, *, largest: int, generic: bool) -> asyncpg.Pool:
        url = self._around.settings.database_url
        assert url is not None
        return await open_pool(url, name=f"{self.process.name} {part}", largest=largest, generic=generic)


_POOLS: Final = (("", 5, False), ("membership", 2, False), ("loading", 3, True), ("settling", 2, True))


class WorkerProcess:
    """The part of a worker that releases scheduled messages and posts webhooks."""

    def __init__(self, around: Surroundings, process: Process) -> None:
        self._around = around
        self.process = process
        self.is_started = False

    async def run(self) -> None:
        """Start, and work until the process ends."""
        settings = self._around.settings
        assert settings.database_url is not None
        pool = await open_pool(settings.database_url, name=self.process.name, largest=4)
        client: Any = SimulatedHttpClient(self._around.receivers)
        poster = Poster(pool, client, settings, on_record=lambda _posts, _seconds: None)
        self.is_started = True
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(poster.run())
            tasks.create_task(repeat(release.JOB, pool, settings))


Role = ApiProcess | MtaProcess | WorkerProcess
ROLES: Final[dict[str, Callable[[Surroundings, Process], Role]]] = {
    "api-1": ApiProcess, "api-2": ApiProcess, "mta-1": MtaProcess, "mta-2": MtaProcess, "worker-1": WorkerProcess,
    "worker-2": WorkerProcess,
}  # fmt: skip


def message_of(answer: Accepted) -> UUID:
    """Return the id of an accepted message."""
    return ids.parse_id(ids.Kind.MESSAGE, answer.id)
