"""A webhook endpoint for drills: it refuses the first post of an event, accepts the next, and records each."""

import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from aiohttp import web
from msgspec import Struct

_HOST: Final = "127.0.0.1"


class ReceivedPost(Struct, frozen=True):
    """A post received. Times are Unix seconds: `at` by this machine's clock, `signed_at` from the signature."""

    event: str
    attempt: int
    at: float
    signed_at: int
    genuine: bool  # signed by the endpoint's secret


class RecordingEndpoint:
    """A webhook endpoint on loopback; an asynchronous context manager. Set `secret` once it is registered."""

    def __init__(self) -> None:
        self.posts: list[ReceivedPost] = []
        self.secret = ""
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/hook", self._take)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, _HOST, 0).start()
        self.url = f"http://{_HOST}:{self._runner.addresses[0][1]}/hook"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def by_event(self) -> dict[str, list[ReceivedPost]]:
        """Return the posts of each event in order of arrival."""
        found: dict[str, list[ReceivedPost]] = {}
        for post in self.posts:
            found.setdefault(post.event, []).append(post)
        return found

    def waits_s(self) -> Iterator[float]:
        """Yield the seconds from each event's first post to its second."""
        for posts in self.by_event().values():
            if len(posts) > 1:
                yield posts[1].at - posts[0].at

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        parts = dict(part.split("=", 1) for part in request.headers["Service-Signature"].split(","))
        made = hmac.new(self.secret.encode(), f"{parts['t']}.".encode() + body, hashlib.sha256).hexdigest()
        attempt = int(request.headers["Service-Attempt"])
        event = str(json.loads(body)["id"])
        self.posts.append(
            ReceivedPost(event, attempt, time.time(), int(parts["t"]), hmac.compare_digest(made, parts["v1"]))
        )
        return web.Response(status=503 if attempt == 1 else 200)
