"""Start and stop webhook posting in the worker, with its connection pool and HTTP client."""

import asyncio
import functools
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from engine.base.settings import Settings
from engine.events.webhooks.posting import Poster
from engine.receiving.inbound_routes.post_bodies import PostBodies
from engine.store import metrics
from engine.store.http_client import HttpClient, resolver_for
from engine.store.postgres import close_pool, open_pool

SPARE_FILES = 256  # descriptors for the rest of the process


@asynccontextmanager
async def posting(settings: Settings) -> AsyncIterator[Poster]:
    """Post webhooks until the context ends, then wait at most `drain_s` seconds for pending posts."""
    assert settings.database_url is not None
    _allow_files(2 * settings.webhook_connections + SPARE_FILES)  # in use, and as many idle ones kept open for reuse
    pool = await open_pool(settings.database_url, name="worker webhooks", largest=4)
    resolver = resolver_for(settings)
    client = HttpClient.from_settings(settings, resolver)
    poster = Poster(
        pool,
        client,
        settings,
        on_record=functools.partial(metrics.flushed, "webhooks"),
        received_bodies=PostBodies(pool),
    )
    work = asyncio.create_task(poster.run())
    try:
        yield poster
    finally:
        await poster.drain(settings.drain_s)
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        await client.close()
        await resolver.close()
        await close_pool(pool)


def _allow_files(wanted: int) -> None:
    """Raise the soft limit of open files to `wanted`, or to the hard limit if that is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
