"""A client of Cloudflare's API, version 4: the zone of a domain, and the records in it.

Every answer is an envelope `{success, errors, result, result_info}`. Nothing of a token goes into an error, a log line
or an answer: what Cloudflare says is quoted shortened and with the token taken out.
"""

from collections.abc import Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import aiohttp
import msgspec
from msgspec import Struct

from engine.areas.domains.publishing import COMMENT, ZoneRecord, quoted
from engine.areas.domains.types import WantedRecord
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
# 6003 and its kin: malformed Authorization header; 9109, 10000, 10001: no such token, or not for this.
_TOKEN_CODES: Final = frozenset({6003, 6111, 9103, 9106, 9107, 9109, 10000, 10001})


class TokenRefused(Exception):  # noqa: N818 - named for what it is about
    """Cloudflare does not take the token; the text is its reason."""


class CloudflareUnavailable(Exception):  # noqa: N818 - named for what it is about
    """Cloudflare can't be asked now: unreachable, overloaded, limiting us, or talking nonsense."""

    def __init__(self, reason: str, retry_after_s: int = 30) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class CloudflareDeclined(Exception):  # noqa: N818 - named for what it is about
    """Cloudflare understood and refuses this one request."""

    def __init__(self, reason: str, codes: frozenset[int]) -> None:
        super().__init__(reason)
        self.codes = codes


class Zone(Struct, frozen=True):
    """A zone that the token sees."""

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
    """One conversation with the API under one token. Use as a context manager."""

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
            auto_decompress=False,  # and none is asked for: an answer is bounded by what comes over the wire
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
        """The zone that holds `name`: its own, or the nearest above it that the token sees."""
        labels = name.split(".")
        for start in range(len(labels) - 1):
            candidate = ".".join(labels[start:])
            envelope = await self._call("GET", "/zones", {"name": candidate, "per_page": "50"})
            for zone in _decoded(_ZONES, envelope.result):
                if ascii_domain(zone.name) == candidate:
                    return Zone(zone.id, candidate)
        return None

    async def records_at(self, zone: Zone, name: str) -> list[ZoneRecord]:
        """All records of one name."""
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
        """An existing record takes the wanted content."""
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
            raise CloudflareUnavailable(f"Cloudflare can't be reached ({type(error).__name__}).") from None
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            raise CloudflareUnavailable(
                "Cloudflare limits the rate of requests with this token.", _seconds(retry_after)
            )
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise CloudflareUnavailable(f"Cloudflare answered {status}.")
        return self._read(status, content)

    def _read(self, status: int, content: bytes) -> _Envelope:
        try:
            envelope = _DECODER.decode(content)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise CloudflareUnavailable(f"Cloudflare answered {status} with something that is not its API.") from None
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
            raise CloudflareUnavailable("Cloudflare's answer is too long to be one of its API.")
    return bytes(content)


def _decoded(decoder: msgspec.json.Decoder[list[Any]], raw: msgspec.Raw) -> list[Any]:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise CloudflareUnavailable("Cloudflare's answer has not the shape of its API.") from None


def _body(wanted: WantedRecord) -> dict[str, Any]:
    shared = {"type": wanted.type, "name": wanted.host, "ttl": AUTOMATIC_TTL, "comment": COMMENT}
    if wanted.type == "TXT":
        return shared | {"content": quoted(wanted.value)}
    if wanted.type == "MX":
        preference, host = wanted.value.split()
        return shared | {"content": host, "priority": int(preference)}
    return shared | {"content": wanted.value, "proxied": False}  # a proxied name answers with Cloudflare's addresses


def _seconds(text: str) -> int:
    """A Retry-After in seconds, within reason; 30 where it is a date or missing."""
    return min(MAX_WAIT_S, max(1, int(text))) if text.isascii() and text.isdigit() and len(text) < 10 else 30
