"""Cross-origin requests (WHATWG Fetch, "CORS protocol"): web pages that read the API with a key for their origin.

A preflight carries no credential, so its answer is the same for every origin and tells nothing about accounts. The
answer to the request itself may be read by a page only if the key lists its origin. Cookies are never allowed.
"""

from collections.abc import Collection
from typing import Final

import falcon.asgi

from engine.people.api_keys.rules import MAX_ORIGIN

_MAX_AGE_S: Final = 7_200  # the most that Chromium keeps
_READ_METHODS: Final = ("GET", "HEAD")
_READS: Final = [
    ("Access-Control-Allow-Methods", ", ".join(_READ_METHODS)),
    ("Access-Control-Allow-Headers", "Authorization, Last-Event-ID"),
    ("Access-Control-Max-Age", str(_MAX_AGE_S)),
]
_EXPOSED: Final = (
    "RateLimit, RateLimit-Policy, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, Retry-After, X-Request-Id, "
    "Server-Timing"
)
_VARY: Final = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"


def answer_options(request: falcon.asgi.Request, response: falcon.asgi.Response, methods: Collection[str]) -> None:
    """Answer OPTIONS of a path with its `methods`; allow a preflight of a read from any origin."""
    response.status = falcon.HTTP_204
    response.content_type = None
    response.set_header("Allow", ", ".join(sorted({*methods, "OPTIONS"})))
    response.set_header("Vary", _VARY)
    origin = request.get_header("Origin") or ""
    is_read = request.get_header("Access-Control-Request-Method") in _READ_METHODS
    if is_read and 0 < len(origin) <= MAX_ORIGIN and origin.isascii() and origin.isprintable():
        response.set_header("Access-Control-Allow-Origin", origin)
        response.set_headers(_READS)


def allow(request: falcon.asgi.Request, response: falcon.asgi.Response, origins: Collection[str]) -> None:
    """Let a page read the answer, refusals too, if the origin of the request is one of the key's."""
    response.set_header("Vary", "Origin")
    origin = request.get_header("Origin")
    if origin is not None and origin in origins:
        response.set_header("Access-Control-Allow-Origin", origin)
        response.set_header("Access-Control-Expose-Headers", _EXPOSED)
