"""Open the services of one worker when its application starts; drain and close them when it ends."""

import asyncio
import functools
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any

from api.areas.tails import resources as tails
from api.http import graceful_shutdown
from api.http.services import ApiServices
from api.http.stream import OpenRequests, guard_listeners
from api.routes import App, add_routes
from engine.accounts.audit.verifier import Verifier
from engine.accounts.billing.configuration import configured
from engine.accounts.request_log.recorder import RequestRecorder
from engine.base import logs, scheduling
from engine.base.settings import Settings, is_small
from engine.cells import claims
from engine.codes.verifications.send import CodeSender
from engine.delivery.hints import Hints
from engine.people.api_keys.key_auth import TOUCH_S, Keys
from engine.people.identity.provider import IdentityProvider
from engine.people.sessions.session_auth import SessionAuth
from engine.receiving.receivers.service import ReceiverBoard
from engine.sending.accept import Acceptor
from engine.store import exemplars, metrics
from engine.store import redis as redis_store
from engine.store.caches import Stamps
from engine.store.pace import PACE
from engine.store.passwords import Passwords
from engine.store.postgres import close_pool, open_pool
from engine.store.process_registry import ProcessLoad, ProcessRegistration, Rate
from engine.store.rate_limits import RateLimiter
from engine.store.replicas import Replicas
from engine.store.resolver import Resolver
from engine.store.traces import TRACES


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
        TRACES.start(settings, "api")
        rate = Rate()
        services = self._services = await _open_services(settings, rate)
        scheduling.keep_loaded()
        if is_small(settings):
            PACE.follow(functools.partial(self._nudge, services.hints))
        self._tasks = [asyncio.create_task(one) for one in _duties(services, rate)]
        graceful_shutdown.install(services.tails.stop, min(graceful_shutdown.LINGER_S, settings.drain_s / 2))
        add_routes(self.app, services)

    def _nudge(self, hints: Hints) -> None:
        self._told = asyncio.create_task(hints.nudge())  # the loop keeps only weak references to tasks

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
        await claims.close()
        await close_pool(services.pool)
        await asyncio.to_thread(TRACES.stop)


async def _open_services(settings: Settings, rate: Rate) -> ApiServices:
    """Return the services of this process; `rate` counts the messages that it accepts."""
    if settings.database_url is None or settings.redis_url is None or settings.key_pepper is None:
        raise RuntimeError("the API needs WAYBILL_DATABASE_URL, WAYBILL_REDIS_URL and WAYBILL_KEY_PEPPER")
    pool = await open_pool(settings.database_url, name="api", smallest=2, largest=10)
    client = redis_store.connect(settings.redis_url)
    hints = Hints(client)
    claims.configure(settings)
    keys, sessions = Keys(pool, settings.pepper), SessionAuth(pool, settings.pepper)
    acceptor = Acceptor(pool, hints, settings, on_flush=rate.flushed(functools.partial(metrics.flushed, "accept")))
    resolver = Resolver.from_settings(settings)
    return ApiServices(
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
        resolver=resolver,
        receivers=ReceiverBoard(pool, resolver, settings),
        settings=settings,
        replicas=Replicas.from_settings(settings, pool),
    )


def _duties(services: ApiServices, rate: Rate) -> tuple[Coroutine[Any, Any, None], ...]:
    """Return the coroutines that run in the background until the process ends."""
    presence = ProcessRegistration(services.pool, kind="api", name="api", figures=lambda: ProcessLoad(rate=rate.of()))
    return (
        Stamps(services.pool, [services.keys.cache, *services.acceptor.caches]).run(),
        _housekeeping(services),
        services.tails.run(),
        services.requests.run(),
        guard_listeners(services.settings.stream_write_s),
        presence.run(),
        *(() if services.replicas is None else (services.replicas.run(),)),
    )


async def _housekeeping(services: ApiServices) -> None:
    """Write metrics every second, and the keys' last uses every half minute."""
    lost = 0
    ticks = 0
    while True:
        await asyncio.sleep(1)
        ticks += 1
        metrics.TALLY.write()
        exemplars.KEPT.write()
        await services.hints.probe()
        metrics.REDIS_AWAY.set(1 if services.hints.away else 0)
        metrics.REQUESTS_OPEN.set(OpenRequests.count)
        metrics.HINTS_LOST.inc(services.hints.lost - lost)
        lost = services.hints.lost
        if ticks % TOUCH_S == 0:
            await services.keys.write_last_uses()
