"""Delivery inside the test's own loop: the engine as `mta.process` builds it, with real DNS, servers and stores."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Self
from uuid import UUID

import asyncpg
import msgspec
import orjson
import redis.asyncio as redis

from engine.base import ids
from engine.base.settings import HostPort, Settings
from engine.delivery.hints import HintReader, Hints, WakeListener, WokenShards
from engine.delivery.mx_routes import Router
from engine.delivery.partition import shard_of
from engine.delivery.wait_reasons import QueuedReason
from engine.sending.accept import Acceptor
from engine.sending.emails.types import SendRequest
from engine.sending.preparation import Origin
from engine.sending.settle import DeliveryAttempt, Settler
from engine.store import redis as redis_store
from engine.store.caches import Stamps
from engine.store.postgres import close_pool, open_pool
from engine.store.resolver import Resolver
from mta.outbound.envelopes import EnvelopeBuilder
from mta.outbound.pipeline import OutboundPipeline
from mta.outbound.tls.mta_sts_fetch import StsFetcher
from mta.outbound.tls.security import TransportSecurity
from mta.simulator.complaints import SimulatedComplaints
from mta.simulator.server import Simulator
from ops.local.sink import Sink
from ops.local.sink_session import SinkSession
from shards.member import ShardMember
from shards.ownership import ShardOwnership
from tests.harness.accounts import TestAccount, make_account
from tests.harness.patience import PATIENCE_S
from tests.harness.sending import accept
from tests.harness.transport import SignedDns

_DATABASE = 7  # of Valkey: apart from what other tests announce
_STOP_S = 5.0
SLOW_S, COMPLAINT_S = 1.0, 0.2  # of the simulator
_TURN = {
    QueuedReason.SITE_WINDOW, QueuedReason.SITE_OPENING, QueuedReason.LOOKUP_SLOT, QueuedReason.CONNECTION_SLOT,
}  # fmt: skip
_SOON_S = 10.0  # a row due later than this is no part of what a test waits for


class CountingSink(Sink):
    """A sink that knows how many connections were open at once."""

    most_open = 0

    def joined(self, conversation: SinkSession) -> bool:
        """Count, as the sink does."""
        welcome = super().joined(conversation)
        self.most_open = max(self.most_open, len(self._conversations))
        return welcome


BRIEF_LEASE_S = 2.0  # for a process whose shards another one takes over


class Mta:
    """A delivery pipeline inside the test process: `start`, then `stop` (drains) or `crash`."""

    def __init__(self, settings: Settings, name: str, fetcher: Callable[[Resolver], StsFetcher] | None = None) -> None:
        self.settings = settings
        self.name = name
        self._fetcher = fetcher
        self._opened = contextlib.AsyncExitStack()
        self._work: asyncio.Task[None] | None = None

    async def start(self) -> Self:
        """Join and deliver."""
        settings = self.settings
        assert settings.database_url is not None
        assert settings.redis_url is not None
        pool = await open_pool(settings.database_url, name=self.name, largest=6)
        self._pool = pool
        self._opened.push_async_callback(close_pool, pool)
        client = redis_store.connect(settings.redis_url)
        listener = redis_store.connect(settings.redis_url, timeout_s=30)
        self._opened.push_async_callback(client.aclose)
        self._opened.push_async_callback(listener.aclose)
        resolver = Resolver.from_settings(settings)
        self._opened.push_async_callback(resolver.close)
        simulator = await Simulator.start(settings, pool, slow_s=SLOW_S)
        self._opened.push_async_callback(simulator.close)
        ownership = self.ownership = ShardOwnership(settings.shards)
        simulated: asyncio.Queue[DeliveryAttempt] = asyncio.Queue()
        complaints = self.complaints = SimulatedComplaints(pool, simulator.domain, simulated, delay_s=COMPLAINT_S)
        self._opened.push_async_callback(complaints.drain)
        router = Router.from_settings(settings, resolver, simulator_port=simulator.port)
        self._opened.push_async_callback(router.close)
        fetcher = None if self._fetcher is None else self._fetcher(resolver)
        security = self.security = TransportSecurity(settings, pool, resolver, fetcher)
        self._opened.push_async_callback(security.close)
        envelopes = EnvelopeBuilder(pool, settings)
        woken = WokenShards()
        settler = Settler(pool, lambda: ownership.member_id, on_flush=lambda _items, _seconds: None)
        self.outbound = OutboundPipeline(
            settings=settings, pool=pool, client=client, process=self.name,
            reader=HintReader(client), woken=woken, router=router,
            envelopes=envelopes, settler=settler, security=security, simulated=simulated, ownership=ownership,
        )  # fmt: skip
        self.member = ShardMember(
            pool, name=self.name, ownership=ownership, lease_s=settings.lease_s,
            before_take=self.outbound.settle_left, on_gain=self.outbound.gained,
            on_release=self.outbound.release, on_fenced=self.outbound.fenced,
        )  # fmt: skip
        self.stamps = Stamps(pool, [envelopes.identities, self.member.cache, *self.outbound.caches])
        self._work = asyncio.create_task(self._run(self.stamps, WakeListener(listener), woken))
        return self

    async def stop(self, grace_s: float = 5.0) -> None:
        """Drain and stop, as on SIGTERM."""
        await self.outbound.drain(grace_s)
        await self._end()
        await self.member.leave()
        await self._opened.aclose()

    async def crash(self) -> None:
        """Stop as after SIGKILL: connections drop, no outcome is settled, the lease stays."""
        self.outbound.stop_taking()  # the dead hire nobody
        self._pool.terminate()
        self.outbound.tasks.cancel()
        await self._end()
        await self.outbound.tasks.finish(5)
        await self._opened.aclose()

    async def _run(self, stamps: Stamps, wakes: WakeListener, woken: WokenShards) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.member.run())
            tasks.create_task(stamps.run())
            tasks.create_task(wakes.run(woken))
            tasks.create_task(self.outbound.run())
            tasks.create_task(self.complaints.run())

    async def _end(self) -> None:
        assert self._work is not None
        self._work.cancel()
        done, _ = await asyncio.wait({self._work}, timeout=5)
        if not done:
            print("did not end:", *asyncio.all_tasks(), sep="\n  ")  # noqa: T201 - shown with a failing test


class World:
    """The surroundings of an Mta: its own database, an account, an acceptor, DNS and mail servers.

    Mail servers share one port and differ by loopback address: 127.0.0.1 is `sink`, nothing listens on 127.0.0.9.
    """

    NOBODY = "127.0.0.9"

    def __init__(
        self, settings: Settings, pool: asyncpg.Pool, account: TestAccount, dns: SignedDns, sink: CountingSink
    ):
        self.settings = settings
        self.pool = pool
        self.account = account
        self.dns = dns
        self.sink = sink
        assert settings.redis_url is not None
        self.redis = redis.from_url(settings.redis_url)
        self._client = redis_store.connect(settings.redis_url, timeout_s=PATIENCE_S)
        self.hints = Hints(self._client)
        self.acceptor = Acceptor(pool, self.hints, settings)
        self.mtas: list[Mta] = []
        self.fetcher: Callable[[Resolver], StsFetcher] | None = None  # of MTA-STS policies, where not from port 443
        self._more: list[Sink] = []

    # -- who is there --------------------------------------------------------------------------

    def domain(self, name: str, address: str = "127.0.0.1", *, mx: str | None = None) -> None:
        """A recipient domain whose mail server has that address."""
        exchanger = mx or f"mx.{name}"
        self.dns.set(name, "MX", [f"10 {exchanger}."])
        self.dns.set(exchanger, "A", [address])

    async def server(self, address: str, **how: Any) -> CountingSink:
        """Another mail server, on another address of loopback."""
        sink = CountingSink(name=f"mx-{address}.test", **how)
        await sink.start(address, self.settings.sink_port)
        self._more.append(sink)
        return sink

    async def live(self, **changes: Any) -> Mta:
        """A started engine that applies the policies of recipients' domains, as towards the world."""
        towards: dict[str, Any] = {"delivery": "live", "smtp_port": self.settings.sink_port, "allow_private_mx": True}
        return await self.mta(**towards | changes)

    async def mta(self, name: str = "mta-1", **changes: Any) -> Mta:
        """A started engine; ends with the world."""
        mta = await Mta(msgspec.structs.replace(self.settings, **changes), name, self.fetcher).start()
        self.mtas.append(mta)
        return mta

    # -- mail ----------------------------------------------------------------------------------

    async def send(
        self, *to: str, acceptor: Acceptor | None = None, account: TestAccount | None = None, **fields: object
    ) -> UUID:
        """Accept one message to these; its id."""
        sender = account or self.account
        request = msgspec.convert(sender.email(to=list(to), **fields), SendRequest)
        accepted = await accept(acceptor or self.acceptor, request, Origin(sender.id, "api"))
        assert accepted.status == "queued"
        return ids.parse_id(ids.Kind.MESSAGE, accepted.id)

    async def send_many(self, count: int, address: Callable[[int], str]) -> list[UUID]:
        """So many messages at once, number n to `address(n)`."""
        return list(await asyncio.gather(*[self.send(address(number)) for number in range(count)]))

    async def flush_hints(self) -> None:
        """Delete all data in Valkey."""
        await self.hints.drain()
        await self.redis.flushdb()

    async def hint_again(self, message: UUID, domain: str, times: int = 1) -> None:
        """Announce a message once more."""
        for _ in range(times):
            self.hints.announce({shard_of(domain, self.settings.shards): [message]})
            await self.hints.drain()

    # -- what became of it -----------------------------------------------------------------------

    async def statuses(self, message: UUID) -> dict[str, str]:
        """Recipients' statuses by address."""
        rows = await self.pool.fetch("SELECT address, status FROM recipients WHERE message_id = $1 ORDER BY n", message)
        return {row["address"]: row["status"] for row in rows}

    async def status(self, message: UUID) -> str:
        """The message's own status."""
        return str(await self.pool.fetchval("SELECT status FROM messages WHERE id = $1", message))

    async def waybill(self, message: UUID) -> list[tuple[str, dict[str, Any]]]:
        """(type, detail) of its events."""
        rows = await self.pool.fetch("SELECT type, payload FROM events WHERE message_id = $1 ORDER BY seq", message)
        return [(row["type"], orjson.loads(row["payload"])["detail"]) for row in rows]

    async def steps(self, message: UUID) -> list[str]:
        """The types alone, without waiting for a turn, which a busy machine makes longer."""
        return [kind for kind, detail in await self.waybill(message) if detail.get("reason") not in _TURN]

    async def suppressed(self) -> list[str]:
        """The account's suppressed addresses."""
        rows = await self.pool.fetch(
            "SELECT address FROM suppressions WHERE account_id = $1 ORDER BY address", self.account.id
        )
        return [row["address"] for row in rows]

    async def queue(self, message: UUID) -> list[asyncpg.Record]:
        """Return its pending rows of the queue."""
        return list(await self.pool.fetch("SELECT * FROM queue WHERE message_id = $1 ORDER BY domain", message))

    async def until(self, true: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        """Wait for something in memory."""
        async with asyncio.timeout(timeout_s):
            while not true():
                await asyncio.sleep(0.01)

    async def until_step(self, message: UUID, kind: str, times: int = 1, timeout_s: float = PATIENCE_S) -> None:
        """Until the waybill shows an event so often."""
        ends = time.monotonic() + timeout_s
        while (found := [one for one, _ in await self.waybill(message)]).count(kind) < times:
            assert time.monotonic() < ends, f"no {kind} after {timeout_s} s: {found}"
            await asyncio.sleep(0.02)

    async def heard(self) -> None:
        """Let every engine learn what was changed in the tables that it keeps in memory."""
        for mta in self.mtas:
            await mta.stamps.check()

    async def until_idle(self, timeout_s: float = PATIENCE_S) -> None:
        """Until nothing is due within the next seconds and no engine holds anything."""
        ends = time.monotonic() + timeout_s
        while True:
            due = await self.pool.fetchval(
                "SELECT count(*) FROM queue WHERE due_at < clock_timestamp() + make_interval(secs => $1)",
                float(_SOON_S),
            )
            held = sum(mta.outbound.in_hand for mta in self.mtas)
            if not due and not held:
                return
            assert time.monotonic() < ends, f"{due} rows due, {held} in hand after {timeout_s} s"
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Stop all that runs."""
        for mta in self.mtas:
            try:
                async with asyncio.timeout(_STOP_S):
                    await mta.stop(grace_s=0.2)
            except TimeoutError:  # a test that fails may leave what no engine can finish
                await mta.crash()
        for sink in self._more:
            await sink.stop()
        await self.hints.drain()
        await self._client.aclose()
        await self.redis.aclose()


@contextlib.asynccontextmanager
async def world(settings: Settings, database_url: str, **changes: Any) -> AsyncIterator[World]:
    """A world without an engine yet; it retries soon, and no stalled machine loses a lease, unless `changes` say so."""
    async with contextlib.AsyncExitStack() as opened:
        sink = await opened.enter_async_context(CountingSink())
        dns = await opened.enter_async_context(SignedDns())
        pool = await open_pool(database_url, name="tests", largest=4)
        opened.push_async_callback(pool.close)
        quick: dict[str, Any] = {
            "database_url": database_url, "redis_url": f"{settings.redis_url}?db={_DATABASE}", "shards": 16,
            "sink_port": sink.address[1], "dns_servers": (HostPort(*dns.address),), "lease_s": 12.0, "fresh_due_s": 1.0,
            "retry_ladder_s": (0.3,), "connect_timeout_s": 20.0, "reply_timeout_s": 20.0, "final_dot_timeout_s": 20.0,
        }  # fmt: skip
        own = msgspec.structs.replace(settings, **(quick | changes))
        made = World(own, pool, await make_account(pool), dns, sink)
        opened.push_async_callback(made.close)
        await made.redis.flushdb()
        made.domain("peer.test")
        yield made
