"""The ASGI application: the services of one worker, the operations of all areas, health checks.

Granian calls the factory `create_app`; the ASGI lifespan opens and closes the services.
"""

import asyncio
import functools
import gc
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import falcon
import falcon.asgi
import structlog

from api.areas.account import resources as account
from api.areas.account_deletion import resources as account_deletion
from api.areas.address_checks import resources as address_checks
from api.areas.alerts import resources as alerts
from api.areas.analytics import resources as analytics
from api.areas.api_keys import resources as api_keys
from api.areas.audit import resources as audit
from api.areas.auth import resources as auth
from api.areas.billing import payprov_simulator
from api.areas.billing import resources as billing
from api.areas.bounces import resources as bounces
from api.areas.broadcasts import resources as broadcasts
from api.areas.compat import resources as compat
from api.areas.contacts import confirmation_page, lists, opt_outs, segments
from api.areas.contacts import files as contact_files
from api.areas.contacts import resources as contacts
from api.areas.domains import resources as domains
from api.areas.email_verification import resources as email_verification
from api.areas.emails import raw, resend
from api.areas.emails import resources as emails
from api.areas.erasures import resources as erasures
from api.areas.identity import resources as identity
from api.areas.inbound_addresses import resources as inbound_addresses
from api.areas.inbound_domains import resources as inbound_domains
from api.areas.inbound_messages import resources as inbound_messages
from api.areas.inbound_routes import resources as inbound_routes
from api.areas.instance import resources as instance
from api.areas.leads import resources as leads
from api.areas.local_sink import resources as local_sink
from api.areas.messages import export as message_exports
from api.areas.messages import resources as messages
from api.areas.mta_sts import resources as mta_sts
from api.areas.mta_sts.policy_host import TLS_ALLOWED_PATH, AcmeChallenge, PolicyHost, TlsAllowed
from api.areas.operator import resources as operator
from api.areas.passkeys import resources as passkeys
from api.areas.request_log import resources as request_log
from api.areas.second_factor import resources as second_factor
from api.areas.statistics import resources as statistics
from api.areas.streams import resources as streams
from api.areas.sub_accounts import resources as sub_accounts
from api.areas.suppressions import resources as suppressions
from api.areas.tails import resources as tails
from api.areas.team import resources as team
from api.areas.templates import layouts
from api.areas.templates import resources as templates
from api.areas.unsubscribes import resources as unsubscribes
from api.areas.verifications import resources as verifications
from api.areas.verifications.link import ConfirmationLink
from api.areas.verifications.public import LogoFile
from api.areas.webhooks import deliveries as webhook_deliveries
from api.areas.webhooks import event_schemas
from api.areas.webhooks import resources as webhooks
from api.console import assets
from api.docs import resources as docs
from api.http import dispatch, framing, graceful_shutdown, openapi, paths, readiness
from api.http.body import BodyMemory
from api.http.decode import set_query_aside
from api.http.forwarded import with_client
from api.http.operation import Access, Area, Call, Operation, Raw
from api.http.services import ApiServices
from api.http.stream import guard_listeners, open_connection
from api.sdk import resources as sdk
from engine.accounts.audit.verifier import Verifier
from engine.accounts.billing.configuration import configured
from engine.accounts.request_log.recorder import RequestRecorder
from engine.base import logs
from engine.base.errors import Refusal
from engine.base.settings import Settings, load
from engine.base.version import version
from engine.codes.verifications.send import LINK_PATH, LOGO_PATH, CodeSender
from engine.delivery.hints import Hints
from engine.people.api_keys.key_auth import TOUCH_S, Keys
from engine.people.identity.provider import IdentityProvider
from engine.people.sessions.session_auth import SessionAuth
from engine.receiving.certificates.renewal import CHALLENGE_PATH
from engine.receiving.mta_sts.rules import POLICY_PATH
from engine.sending.accept import Acceptor
from engine.store import metrics
from engine.store import redis as redis_store
from engine.store.caches import Stamps
from engine.store.passwords import Passwords
from engine.store.postgres import close_pool, open_pool
from engine.store.process_registry import ProcessLoad, ProcessRegistration, Rate
from engine.store.rate_limits import RateLimiter
from engine.store.resolver import Resolver

_log = structlog.get_logger("api")

App = falcon.asgi.App[falcon.asgi.Request, falcon.asgi.Response]


def all_operations() -> tuple[Operation, ...]:
    """Return every operation of the public API, including the OpenAPI document."""
    areas = (
        emails, raw, resend, compat, messages, message_exports, tails, statistics, analytics, templates, layouts,
        streams, suppressions, bounces, domains, webhooks, webhook_deliveries,
        contacts, contact_files, lists, opt_outs, segments, broadcasts,
        inbound_addresses, inbound_messages, inbound_routes, inbound_domains, mta_sts, verifications, address_checks,
        alerts, audit, api_keys, account, billing, auth, identity, email_verification, second_factor, passkeys,
        sub_accounts, account_deletion, erasures, team, leads, request_log, instance, local_sink, operator,
    )  # fmt: skip
    return (*(operation for area in areas for operation in area.OPERATIONS), _description())


def create_app(settings: Settings | None = None) -> App:
    """Return the application; settings are read from the environment unless given."""
    known = settings or load(os.environ).settings
    lifespan = Lifespan(known)
    app: App = ApiApp(known)
    app.add_middleware(dispatch.RequestId(known.public_url))
    app.add_middleware(lifespan)
    lifespan.app = app
    app.add_error_handler(falcon.HTTPError, dispatch.on_http_error)
    app.add_error_handler(Exception, dispatch.on_bug)
    app.resp_options.default_media_type = "application/json"
    return app


class ApiApp(falcon.asgi.App[falcon.asgi.Request, falcon.asgi.Response]):
    """Falcon without its own body handling: operations read the body after they have checked credentials and size."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._write_s = settings.stream_write_s
        self._max_request_bytes = settings.max_request_bytes
        self._proxies = settings.http_proxy_networks
        self._docs = dispatch.errors_page(settings.public_url)

    async def __call__(  # type: ignore[override]  # as in Falcon: its ASGI App overrides its WSGI App
        self, scope: Any, receive: Any, send: Any
    ) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        if self._proxies:
            scope = with_client(scope, self._proxies)
        if scope["http_version"] == "1":  # Granian's name of HTTP/1.0; ASGI specifies "1.0"
            scope["http_version"] = "1.0"
        try:
            framing.check(scope, self._max_request_bytes)
            paths.make_routable(scope)
        except Refusal as refusal:
            await framing.answer(refusal, receive, send, self._docs)
            return
        set_query_aside(scope)
        connection = open_connection(scope, receive, send, self._write_s)
        await connection.run(super().__call__(scope, _nothing_yet, connection.send))
        await connection.drain(scope["headers"])


async def _nothing_yet() -> Any:
    """Return an empty first event: Falcon requests one before it does anything."""
    return {"type": "http.request", "body": b"", "more_body": True}


class Lifespan:
    """Falcon middleware: open the services at start; drain and close them at shutdown."""

    app: App  # set by create_app, which needs this middleware first

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tasks: list[asyncio.Task[None]] = []
        self._services: ApiServices | None = None

    async def process_startup(self, scope: Mapping[str, Any], event: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Open the services, then add the routes."""
        settings = self._settings
        logs.configure("api", settings.log_level, settings.state)
        if settings.database_url is None or settings.redis_url is None or settings.key_pepper is None:
            raise RuntimeError("the API needs WAYBILL_DATABASE_URL, WAYBILL_REDIS_URL and WAYBILL_KEY_PEPPER")
        pool = await open_pool(settings.database_url, name="api", smallest=2, largest=10)
        client = redis_store.connect(settings.redis_url)
        hints = Hints(client)
        rate = Rate()
        keys, sessions = Keys(pool, settings.pepper), SessionAuth(pool, settings.pepper)
        acceptor = Acceptor(pool, hints, settings, on_flush=rate.flushed(functools.partial(metrics.flushed, "accept")))
        services = ApiServices(
            pool=pool,
            redis=client,
            acceptor=acceptor,
            codes=CodeSender(pool, acceptor, settings),
            keys=keys,
            sessions=sessions,
            passwords=Passwords(),
            limits=RateLimiter(client),
            requests=RequestRecorder(pool),
            hints=hints,
            tails=tails.open_hub(pool, keys, sessions, settings),
            verifier=Verifier(pool),
            provider=IdentityProvider.from_settings(settings),
            billing=configured(settings),
            resolver=Resolver.from_settings(settings),
            settings=settings,
        )
        self._services = services
        gc.freeze()  # the collector need not scan objects that stay loaded
        gc.set_threshold(50_000, 20, 100)  # requests make few cycles; the default collects 70 times as often
        stamps = Stamps(pool, [services.keys.cache, *services.acceptor.caches])
        self._tasks = [asyncio.create_task(stamps.run()), asyncio.create_task(_housekeeping(services))]
        self._tasks += [
            asyncio.create_task(services.tails.run()),
            asyncio.create_task(services.requests.run()),
            asyncio.create_task(guard_listeners(settings.stream_write_s)),
        ]
        presence = ProcessRegistration(pool, kind="api", name="api", figures=lambda: ProcessLoad(rate=rate.of()))
        self._tasks.append(asyncio.create_task(presence.run()))
        graceful_shutdown.install(services.tails.stop, min(graceful_shutdown.LINGER_S, settings.drain_s / 2))
        _add_routes(self.app, services)

    async def process_shutdown(self, scope: Mapping[str, Any], event: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Finish the requests' pending writes, then close the services."""
        services = self._services
        if services is None:
            return
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        metrics.TALLY.write()
        await services.verifier.close()
        await services.acceptor.drain()
        await services.keys.write_last_uses()
        await services.requests.flush()
        await services.sessions.drain()
        services.passwords.close()
        if services.provider is not None:
            await services.provider.close()
        await services.resolver.close()
        await services.hints.drain()
        await services.redis.aclose()
        await close_pool(services.pool)


async def _housekeeping(services: ApiServices) -> None:
    """Write metrics every second, and the keys' last uses every half minute."""
    lost = 0
    ticks = 0
    while True:
        await asyncio.sleep(1)
        ticks += 1
        metrics.TALLY.write()
        await services.hints.probe()
        metrics.REDIS_AWAY.set(1 if services.hints.away else 0)
        metrics.HINTS_LOST.inc(services.hints.lost - lost)
        lost = services.hints.lost
        if ticks % TOUCH_S == 0:
            await services.keys.write_last_uses()


def _add_routes(app: App, services: ApiServices) -> None:
    context = dispatch.DispatchContext(
        settings=services.settings,
        services=services,
        keys=services.keys,
        sessions=services.sessions,
        limits=services.limits,
        memory=BodyMemory(services.settings),
        suspects={},
        requests=services.requests,
        on_answer=_count,
    )
    by_path: dict[str, list[Operation]] = {}
    for operation in all_operations():
        by_path.setdefault(operation.path, []).append(operation)
    for path, operations in by_path.items():
        app.add_route(path, dispatch.RoutedOperation(context, operations))
    for alias, path in compat.ALIASES.items():
        app.add_route(alias, dispatch.RoutedOperation(context, by_path[path]))
    assets.add_routes(app, services.settings.public_url)
    docs.add_routes(app, functools.partial(client_document, services.settings), services.settings)
    sdk.add_routes(app, functools.partial(client_document, services.settings), version(), services.settings.public_url)
    payprov_simulator.add_routes(app, services)
    app.add_route(LINK_PATH + "{token}", ConfirmationLink(services, _count))
    app.add_route(LOGO_PATH + "{token}", LogoFile(services.pool))
    app.add_route(POLICY_PATH, PolicyHost(services.pool, services.settings))
    app.add_route(CHALLENGE_PATH + "{token}", AcmeChallenge(services.pool))
    app.add_route(TLS_ALLOWED_PATH, TlsAllowed(services.pool, services.settings))
    app.add_route(confirmation_page.PATH, confirmation_page.ConfirmationResource(services, _count))
    app.add_route(unsubscribes.PATH, unsubscribes.UnsubscribeResource(services, _count))
    app.add_route("/healthz", Health())
    app.add_route("/readyz", ReadinessEndpoint(services))


def _count(operation: str, status: int, refused: str | None) -> None:
    metrics.TALLY.add(metrics.REQUESTS, operation, str(status))
    _log.debug("request answered", operation=operation, status=status, refused=refused)
    if refused is not None:
        metrics.TALLY.add(metrics.REFUSED, refused)


def _description() -> Operation:
    async def describe(call: Call) -> Raw:
        return Raw(client_document(call.settings), "application/json")

    anyone = Area("Other", access=Access.NONE)
    return Operation("GET", "/v1/openapi.json", describe, "This description", anyone)


@functools.lru_cache(maxsize=1)
def client_document(settings: Settings) -> bytes:
    """Return the OpenAPI document, from which the clients are made."""
    return openapi.document(all_operations(), settings, webhooks=event_schemas.webhooks())


class Health:
    """`/healthz`: the process answers."""

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:  # noqa: ARG002
        """Answer 200 while the event loop runs."""
        response.media = {"status": "ok"}

    on_head = on_get  # many load balancers and monitors send HEAD


class ReadinessEndpoint:
    """`/readyz`: the state of every dependency; 503 when mail can't be accepted."""

    def __init__(self, services: ApiServices) -> None:
        self._services = services

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:  # noqa: ARG002
        """Answer 200 with all checks, or 503 if a check that acceptance needs has failed."""
        found = await readiness.check(self._services)
        response.status = falcon.HTTP_200 if found.is_ready else falcon.HTTP_503
        response.media = {"status": found.status, "checks": found.checks}

    on_head = on_get
