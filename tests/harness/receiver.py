"""Receivers of webhooks on real sockets, good and hostile, and a world in which a Poster posts to them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any, Self
from uuid import UUID

import asyncpg
import orjson
import yarl
from aiohttp import web
from msgspec import Struct, structs
from stripe import WebhookSignature

from engine.base import clock, ids
from engine.base.settings import HostPort, Settings
from engine.events.webhooks import service as webhooks_service
from engine.events.webhooks import store
from engine.events.webhooks.posting import Poster
from engine.events.webhooks.types import AttemptRow, DeliveryRow
from engine.ledger import log
from engine.ledger.events import append_events
from engine.receiving.inbound_routes.post_bodies import PostBodies
from engine.store.http_client import HttpClient, HttpFailure, HttpReply, resolver_for
from engine.store.postgres import open_pool
from engine.store.resolver import Resolver
from ops.local.dns import Responder
from tests.harness.accounts import PEPPER, TestAccount, make_account
from tests.harness.patience import PATIENCE_S
from tests.harness.tcp import listening

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Got(Struct, frozen=True):
    """A request as received; header names are lower-case."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: datetime
    port: int  # of the client's side: tells connections apart

    @property
    def json(self) -> Any:
        """The body read as JSON."""
        return orjson.loads(self.body)

    @property
    def attempt(self) -> int:
        """`Service-Attempt`."""
        return int(self.headers["service-attempt"])


class Receiver:
    """A good HTTP server: keeps what it got, answers with `status` (or what `answer` makes of the request)."""

    def __init__(self) -> None:
        self.got: list[Got] = []
        self.status = 200
        self.body = b"ok"
        self.headers: dict[str, str] = {}
        self.delay_s = 0.0
        self.answer: Callable[[Got], int] | None = None
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._take)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=2_048)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        """Return the URL of the receiver."""
        return f"http://127.0.0.1:{self.port}/hook"

    def attempts(self, event: UUID) -> list[Got]:
        """Return the requests for one event in the order of arrival."""
        public = ids.format_id(ids.Kind.EVENT, event)
        return [one for one in self.got if one.headers.get("service-delivery-id") == public]

    async def _take(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        headers = {name.lower(): value for name, value in request.headers.items()}
        port = request.transport.get_extra_info("peername")[1]
        got = Got(request.path_qs, headers, await request.read(), clock.now(), port)
        self.got.append(got)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        status = self.status if self.answer is None else self.answer(got)
        return web.Response(status=status, body=self.body, headers=self.headers)


class Hostile:
    """A raw server: `script` says what it does with a connection; `connections` counts them."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._open = contextlib.AsyncExitStack()
        self.connections = 0
        self.port = 0

    async def __aenter__(self) -> Self:
        _, self.port = await self._open.enter_async_context(listening(self._meet, backlog=2_048))
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._open.aclose()

    @property
    def url(self) -> str:
        """Return the URL of the server."""
        return f"http://127.0.0.1:{self.port}/hook"

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await self._script(reader, writer)


def saying(*parts: bytes, pause_s: float = 0.0, then: Script | None = None) -> Script:
    """Reads a request, writes the parts with a pause between, then goes on with `then` or closes."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        for part in parts:
            writer.write(part)
            await writer.drain()
            if pause_s:
                await asyncio.sleep(pause_s)
        if then is not None:
            await then(reader, writer)

    return script


async def hang(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Accept the connection and never answer."""
    await asyncio.sleep(600)


async def request_of(reader: asyncio.StreamReader) -> bytes:
    """Read a request with its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    return head + await reader.readexactly(length)


class Endpoint(Struct, frozen=True):
    """An endpoint as a test made it."""

    account: TestAccount
    id: UUID
    secret: str


class World:
    """A database of its own, accounts with endpoints, events on their logs, and posters."""

    def __init__(self, settings: Settings, pool: asyncpg.Pool) -> None:
        self.settings = settings
        self.pool = pool

    async def endpoint(
        self, url: str, *, account: TestAccount | None = None, event_types: tuple[str, ...] = ()
    ) -> Endpoint:
        """A new endpoint, of a new account unless one is given."""
        owner = account or await make_account(self.pool)
        made = await webhooks_service.create(self.pool, owner.id, url=url, event_types=event_types, pepper=PEPPER)
        return Endpoint(owner, made.row.id, made.secret)

    async def event(self, account: TestAccount, kind: str = "delivered", **detail: object) -> UUID:
        """An event of the account, written as the service writes its own."""
        return (await self.events(account, [kind], **detail))[0]

    async def events(self, account: TestAccount, kinds: list[str], **detail: object) -> list[UUID]:
        """Record several events in one transaction."""
        text = log.detail_text(detail or {"recipient": "ann@people.test"})
        message = ids.uuid7()
        public = ids.format_id(ids.Kind.MESSAGE, message)
        async with self.pool.acquire() as connection, connection.transaction():
            entries = [log.Entry(account.id, kind, text, clock.now(), message, public) for kind in kinds]
            sealed = await append_events(connection, entries)
        return [row.id for row in sealed]

    @contextlib.asynccontextmanager
    async def posting(self, client: HttpClient | None = None, **changes: Any) -> AsyncIterator[Poster]:
        """A poster at work; ends as a worker does. `changes` are settings."""
        settings = structs.replace(self.settings, **changes)
        resolver = resolver_for(settings)
        own = HttpClient.from_settings(settings, resolver)
        poster = Poster(
            self.pool,
            client or own,
            settings,
            on_record=lambda _items, _seconds: None,
            received_bodies=PostBodies(self.pool),
            rng=lambda: 0.0,
        )
        work = asyncio.create_task(poster.run())
        try:
            yield poster
        finally:
            await poster.drain(5.0)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await own.close()
            await resolver.close()

    async def queued(self, endpoint: Endpoint) -> list[asyncpg.Record]:
        """Return the pending posts to an endpoint."""
        return list(
            await self.pool.fetch("SELECT * FROM webhook_queue WHERE webhook_id = $1 ORDER BY seq", endpoint.id)
        )

    async def make_due(self, endpoint: Endpoint) -> float:
        """Move what is to be posted next to now; gives the seconds it would have waited."""
        waits = await self.pool.fetch(
            "UPDATE webhook_queue q SET due_at = now() FROM webhook_queue was "
            "WHERE q.webhook_id = $1 AND was.webhook_id = q.webhook_id AND was.event_id = q.event_id "
            "RETURNING extract(epoch FROM was.due_at - now())::float8 AS wait_s",
            endpoint.id,
        )
        return float(waits[0]["wait_s"]) if waits else 0.0

    async def delivery(self, endpoint: Endpoint, event: UUID) -> DeliveryRow:
        """Return the delivery of an event to an endpoint."""
        account = endpoint.account.id
        found = await store.candidates(self.pool, account, endpoint.id, before=None, limit=100)
        rows = await store.deliveries(self.pool, account, endpoint.id, found)
        return next(row for row in rows if row.event_id == event)

    async def attempts(self, endpoint: Endpoint, event: UUID) -> list[AttemptRow]:
        """Its attempts."""
        return [AttemptRow(*fields) for fields in (await self.delivery(endpoint, event)).attempts]

    async def until_attempts(
        self, endpoint: Endpoint, event: UUID, count: int, within_s: float = PATIENCE_S
    ) -> list[AttemptRow]:
        """Wait until so many are recorded."""
        found: list[AttemptRow] = []
        async with asyncio.timeout(within_s):
            while len(found) < count:
                found = await self.attempts(endpoint, event)
                await asyncio.sleep(0.02)
        return found

    async def until_posted(self, endpoint: Endpoint, within_s: float = PATIENCE_S) -> None:
        """Wait until nothing is queued for the endpoint."""
        async with asyncio.timeout(within_s):
            while await self.queued(endpoint):
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def world(settings: Settings, database_url: str) -> AsyncIterator[World]:
    """Yield a World on its own migrated database; receivers have far more time than a busy machine needs."""
    pool = await open_pool(database_url, name="webhook tests", largest=8)
    own = structs.replace(settings, database_url=database_url, webhook_timeout_s=20.0)
    try:
        yield World(own, pool)
    finally:
        await pool.close()


def verify(got: Got, secret: str, header: str = "service-signature") -> None:
    """An independent verifier; raises when the signature, or its time, is not right."""
    WebhookSignature.verify_header(got.body.decode(), got.headers[header], secret, tolerance=300)


@contextlib.asynccontextmanager
async def client_of(zone: Responder | None = None, **how: object) -> AsyncIterator[HttpClient]:
    """Return a client that may connect to every address, unless `may_dial` refuses."""
    servers = (HostPort(*zone.address),) if zone else (HostPort("127.0.0.1", 9),)
    resolver = Resolver(servers, query_timeout_s=0.5, budget_s=PATIENCE_S)
    client = HttpClient(resolver, **{"may_dial": lambda _address: True} | how)  # type: ignore[arg-type]
    try:
        yield client
    finally:
        await client.close()
        await resolver.close()


async def post(client: HttpClient, url: str, *, timeout_s: float = PATIENCE_S) -> HttpReply | HttpFailure:
    """A post of next to nothing."""
    return await client.post(yarl.URL(url), b"{}", {"content-type": "x"}, timeout_s=timeout_s, max_bytes=4_096)


def failed(found: HttpReply | HttpFailure) -> HttpFailure:
    """Assert that the result is a failure and return it."""
    assert isinstance(found, HttpFailure), found
    return found
