"""Call Cloudflare's API, version 4, to find the zone of a domain and change its records.

Every answer is an envelope `{success, errors, result, result_info}`. Errors and log lines never contain the token:
messages of Cloudflare are quoted shortened, with the token removed.
"""

from collections.abc import Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import aiohttp
import msgspec
from msgspec import Struct

from engine.sending.domains.publishing import COMMENT, ZoneRecord, quoted
from engine.sending.domains.types import WantedRecord
from engine.store.resolver import ascii_domain

CALL_S: Final = 6.0
MAX_BYTES: Final = 2 * 1024 * 1024
MAX_PAGES: Final = 10
PAGE: Final = 100
MAX_WAIT_S: Final = 300
BASE: Final = "/client/v4"
AUTOMATIC_TTL: Final = 1
IDENTICAL: Final = frozenset({81057, 81058})  # "record already exists", "an identical record already exists"
ALIASED: Final = frozenset({81053, 81054})  # an A, AAAA or CNAME with that host exists
# 6003, 6111, 9103, 9106, 9107: malformed Authorization header; 9109, 10000, 10001: invalid token or missing permission.
_TOKEN_CODES: Final = frozenset({6003, 6111, 9103, 9106, 9107, 9109, 10000, 10001})


class TokenRefused(Exception):  # noqa: N818 - named for what it is about
    """Report that Cloudflare refuses the token; the text is Cloudflare's reason."""


class CloudflareUnavailable(Exception):  # noqa: N818 - named for what it is about
    """Report that Cloudflare can't answer now: unreachable, overloaded, rate limiting or invalid answers."""

    def __init__(self, reason: str, retry_after_s: int = 30) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class CloudflareDeclined(Exception):  # noqa: N818 - named for what it is about
    """Report that Cloudflare refused one request with error `codes`."""

    def __init__(self, reason: str, codes: frozenset[int]) -> None:
        super().__init__(reason)
        self.codes = codes


class Zone(Struct, frozen=True):
    """A zone that the token may read."""

    id: str
    name: str


class _Problem(Struct):
    code: int = 0
    message: str = ""


class _Page(Struct):
    total_pages: int = 1


class _Envelope(Struct):
    success: bool
    errors: list[_Problem] | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    result_info: _Page | None = None


_DECODER: Final = msgspec.json.Decoder(_Envelope)
_ZONES: Final = msgspec.json.Decoder(list[Zone])
_RECORDS: Final = msgspec.json.Decoder(list[ZoneRecord])


class Cloudflare:
    """An HTTP session with the API for one token. Use as an async context manager."""

    def __init__(self, base_url: str, token: str) -> None:
        self._base = base_url.rstrip("/") + BASE
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=4),
            timeout=aiohttp.ClientTimeout(total=CALL_S),
            headers={"Authorization": f"Bearer {self._token}", "Accept": "application/json"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,  # the size limit applies to the bytes received
            skip_auto_headers=("Accept-Encoding",),
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def zone_of(self, name: str) -> Zone | None:
        """Return the zone with `name`: its own, or the nearest parent zone that the token may read."""
        labels = name.split(".")
        for start in range(len(labels) - 1):
            candidate = ".".join(labels[start:])
            envelope = await self._call("GET", "/zones", {"name": candidate, "per_page": "50"})
            for zone in _decoded(_ZONES, envelope.result):
                if ascii_domain(zone.name) == candidate:
                    return Zone(zone.id, candidate)
        return None

    async def records_at(self, zone: Zone, name: str) -> list[ZoneRecord]:
        """Return all records at one name."""
        found: list[ZoneRecord] = []
        for page in range(1, MAX_PAGES + 1):
            query = {"name": name, "per_page": str(PAGE), "page": str(page)}
            envelope = await self._call("GET", self._path(zone), query)
            found += _decoded(_RECORDS, envelope.result)
            if envelope.result_info is None or page >= envelope.result_info.total_pages:
                break
        return found

    async def create(self, zone: Zone, wanted: WantedRecord) -> None:
        """Create a record. Raises CloudflareDeclined if Cloudflare refuses it."""
        await self._call("POST", self._path(zone), body=_body(wanted))

    async def update(self, zone: Zone, record_id: str, wanted: WantedRecord) -> None:
        """Replace the content of an existing record."""
        await self._call("PATCH", f"{self._path(zone)}/{quote(record_id, safe='')}", body=_body(wanted))

    def _path(self, zone: Zone) -> str:
        return f"/zones/{quote(zone.id, safe='')}/dns_records"

    async def _call(
        self, method: str, path: str, query: Mapping[str, str] | None = None, *, body: Mapping[str, Any] | None = None
    ) -> _Envelope:
        assert self._session is not None
        try:
            async with self._session.request(
                method, self._base + path, params=query, json=body, allow_redirects=False
            ) as response:
                content = await _bounded(response.content)
                status, retry_after = response.status, response.headers.get("Retry-After", "")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise CloudflareUnavailable(f"Cloudflare could not be reached ({type(error).__name__}).") from None
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            raise CloudflareUnavailable("Cloudflare's rate limit for this token is exceeded.", _seconds(retry_after))
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise CloudflareUnavailable(f"Cloudflare returned {status}.")
        return self._read(status, content)

    def _read(self, status: int, content: bytes) -> _Envelope:
        try:
            envelope = _DECODER.decode(content)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise CloudflareUnavailable(f"Cloudflare returned {status} with an invalid body.") from None
        if envelope.success and status < HTTPStatus.MULTIPLE_CHOICES:
            return envelope
        problems = envelope.errors or []
        codes = frozenset(problem.code for problem in problems)
        reason = self._quoted("; ".join(problem.message for problem in problems) or f"HTTP {status}")
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN} or codes & _TOKEN_CODES:
            raise TokenRefused(reason)
        raise CloudflareDeclined(reason, codes)

    def _quoted(self, text: str) -> str:
        clean = "".join(letter for letter in text if letter.isprintable()).replace(self._token, "…")
        return clean[:200].rstrip(".")


async def _bounded(stream: aiohttp.StreamReader) -> bytes:
    content = bytearray()
    async for chunk in stream.iter_any():
        content += chunk
        if len(content) > MAX_BYTES:
            raise CloudflareUnavailable(f"Cloudflare's response is longer than {MAX_BYTES} bytes.")
    return bytes(content)


def _decoded(decoder: msgspec.json.Decoder[list[Any]], raw: msgspec.Raw) -> list[Any]:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise CloudflareUnavailable("Cloudflare's response does not have the documented form.") from None


def _body(wanted: WantedRecord) -> dict[str, Any]:
    shared = {"type": wanted.type, "name": wanted.host, "ttl": AUTOMATIC_TTL, "comment": COMMENT}
    if wanted.type == "TXT":
        return shared | {"content": quoted(wanted.value)}
    if wanted.type == "MX":
        preference, host = wanted.value.split()
        return shared | {"content": host, "priority": int(preference)}
    return shared | {
        "content": wanted.value,
        "proxied": False,
    }  # a proxied name would resolve to Cloudflare's addresses


def _seconds(text: str) -> int:
    """Return Retry-After in seconds, at most MAX_WAIT_S; 30 if it is missing or a date."""
    return min(MAX_WAIT_S, max(1, int(text))) if text.isascii() and text.isdigit() and len(text) < 10 else 30
