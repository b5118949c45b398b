"""The worker's part that posts to webhook endpoints, with what it stands on."""

import asyncio
import functools
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from engine.areas.webhooks.posting import Poster
from engine.base.settings import Settings
from engine.store import metrics
from engine.store.http_client import HttpClient, resolver_for
from engine.store.postgres import close_pool, open_pool

SPARE_FILES = 256  # for everything of the process that is no post


@asynccontextmanager
async def posting(settings: Settings) -> AsyncIterator[Poster]:
    """Posts while inside; leaving waits for the posts under way, within the settings' time for draining."""
    assert settings.database_url is not None
    _allow_files(2 * settings.webhook_connections + SPARE_FILES)  # as many again are kept open for their next post
    pool = await open_pool(settings.database_url, name="worker webhooks", largest=4)
    resolver = resolver_for(settings)
    client = HttpClient.from_settings(settings, resolver)
    poster = Poster(pool, client, settings, on_record=functools.partial(metrics.flushed, "webhooks"))
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
    """Raise this process's limit of open files as far as wanted and allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
