"""Serve files that the processes make once at their start: plain and compressed, with the headers of public pages."""

import gzip
import hashlib
from typing import Final

import falcon.asgi
from msgspec import Struct

_COMPRESSED: Final = {".png", ".woff2"}  # by their format
MEDIA: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".py": "text/x-python; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
# Scripts and styles of this origin only, no markup made from text (Trusted Types), no frames around it.
PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
FILE_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"
FOREVER: Final = "public, max-age=31536000, immutable"
REVALIDATED: Final = "no-cache"  # kept, and asked for by its ETag each time
_HEADERS: Final = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class StaticFile(Struct, frozen=True):
    """The octets of one file as served, compressed and, for media that do not shrink, plain."""

    content: bytes
    media: str
    tag: str  # the ETag, with its quotes
    packed: bool

    @classmethod
    def of(cls, content: bytes, suffix: str) -> "StaticFile":
        """Return the file with its compressed form; `mtime` 0 keeps the octets the same in every process."""
        tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
        if suffix in _COMPRESSED:
            return cls(content, MEDIA[suffix], tag, packed=False)
        return cls(gzip.compress(content, 9, mtime=0), MEDIA[suffix], tag, packed=True)

    @property
    def plain(self) -> bytes:
        """Return the octets without compression."""
        return gzip.decompress(self.content) if self.packed else self.content


def serve(
    request: falcon.asgi.Request,
    response: falcon.asgi.Response,
    file: StaticFile,
    *,
    cache: str = REVALIDATED,
    policy: str = FILE_POLICY,
) -> None:
    """Answer with the file; 304 if the client has it already (RFC 9110 13.1.2)."""
    response.set_headers(_HEADERS)
    response.set_header("Cache-Control", cache)
    response.set_header("Content-Security-Policy", policy)
    response.set_header("ETag", file.tag)
    given = request.get_header("If-None-Match") or ""
    if file.tag in given or given.strip() == "*":
        response.status = 304
        return
    response.content_type = file.media
    if file.packed and "gzip" in (request.get_header("Accept-Encoding") or ""):
        response.set_header("Content-Encoding", "gzip")
        response.data = file.content
    else:
        response.data = file.plain
