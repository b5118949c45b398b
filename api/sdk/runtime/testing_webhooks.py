"""Receive the webhook posts of a service under test, and hand them on to the code under test."""

import random
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from .types import WebhookEvent
from .webhooks import SIGNATURE_HEADER, signed_header, verify

MAX_BODY: Final = 1024 * 1024
WAIT_S: Final = 10.0


class Post(NamedTuple):
    """A post as it arrived, with its event; the signature was checked."""

    headers: dict[str, str]
    body: bytes
    event: WebhookEvent


class WebhookReceiver:
    """A webhook endpoint on this machine. Its posts are checked, kept, and answered with 204."""

    def __init__(self) -> None:
        self.secret = ""
        self._posts: list[Post] = []
        self._changed = threading.Condition()
        self._paused = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="webhooks", daemon=True).start()

    @property
    def url(self) -> str:
        """The address to post to."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    @property
    def posts(self) -> list[Post]:
        """The posts that were accepted, in their order of arrival."""
        with self._changed:
            return list(self._posts)

    def wait_for(
        self, kind: str, *, where: Callable[[WebhookEvent], bool] = lambda _: True, timeout: float = WAIT_S
    ) -> WebhookEvent:
        """Return the first event of a type for which `where` is true; raises AssertionError after `timeout` seconds."""
        ends = time.monotonic() + timeout
        with self._changed:
            while True:
                for post in self._posts:
                    if post.event["type"] == kind and where(post.event):
                        return post.event
                if not self._changed.wait(ends - time.monotonic()):
                    came = ", ".join(post.event["type"] for post in self._posts) or "nothing"
                    raise AssertionError(f"no {kind} was posted within {timeout:g} s; what came: {came}")

    def pause(self) -> None:
        """Answer posts with 503, as an application does that is down. The service tries again later."""
        self._paused = True

    def resume(self) -> None:
        """Accept posts again."""
        self._paused = False

    def hand_to(
        self, handler: Callable[[bytes, dict[str, str]], object], *, times: int = 1, seed: int | None = None
    ) -> None:
        """Call the code under test with body and headers of each accepted post: `times` times, and in the order that
        `seed` draws. Posts may be doubled and change places; a handler must bear both.
        """
        posts = self.posts * times
        if seed is not None:
            random.Random(seed).shuffle(posts)
        for post in posts:
            handler(post.body, post.headers)

    def signed(self, body: bytes) -> dict[str, str]:
        """Return the headers of a post with this body, signed with the secret of this endpoint; nothing is sent."""
        return {"Content-Type": "application/json", SIGNATURE_HEADER: signed_header(body, self.secret)}

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, headers: dict[str, str], body: bytes) -> int:
        if self._paused:
            return 503
        event = verify(body, headers, self.secret)
        with self._changed:
            self._posts.append(Post(headers, body, event))
            self._changed.notify_all()
        return 204

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                if size > MAX_BODY:
                    self.send_error(413)
                    return
                body = self.rfile.read(size)
                self.send_response(receiver._take(dict(self.headers.items()), body))
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Keep the output of the tests as it is."""

        return Handler
