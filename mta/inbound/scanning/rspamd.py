"""Ask rspamd for the spam score of a message: `POST /checkv2` of its normal worker (rspamd.com/doc, "Protocol").

Only the score counts. The actions that rspamd proposes, such as greylisting, are for its own mail server plug-ins: what
is done with a message is decided by the score and the settings.
"""

import math
from typing import Any, Final

import aiohttp
import msgspec
from msgspec import Struct

from engine.receiving.types import ReceivedEnvelope
from mta.inbound.scanning.breaker import ScannerUnavailable

MAX_ANSWER: Final = 1024 * 1024
MAX_CONNECTIONS: Final = 20


class RspamdAnswer(Struct, frozen=True):
    """The parts of rspamd's answer that are read. `symbols` are the names of the rules that matched."""

    score: float
    required_score: float = 0.0
    action: str = ""
    symbols: dict[str, Any] = {}


_decoder = msgspec.json.Decoder(RspamdAnswer)


class RspamdClient:
    """Connections to one rspamd; used within one event loop, which must `close` it."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = f"{url.rstrip('/')}/checkv2"
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def check(self, raw: bytes, envelope: ReceivedEnvelope, queue_id: str) -> RspamdAnswer:
        """Return rspamd's answer for a message. Raises ScannerUnavailable."""
        try:
            async with self._open().post(
                self._url, data=raw, headers=_headers(envelope, queue_id), allow_redirects=False
            ) as response:
                body = await _read(response.content)
                if response.status != 200:
                    raise ScannerUnavailable(f"rspamd answered {response.status}")
        except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
            raise ScannerUnavailable(f"rspamd at {self._url}: {str(error) or type(error).__name__}") from error
        return _answer(body)

    async def close(self) -> None:
        """Close every connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS),
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._session


def _headers(envelope: ReceivedEnvelope, queue_id: str) -> list[tuple[str, str]]:
    headers = [("IP", envelope.remote_ip), ("Helo", envelope.helo), ("From", envelope.sender), ("Queue-Id", queue_id)]
    return headers + [("Rcpt", recipient.given) for recipient in envelope.recipients]


async def _read(content: aiohttp.StreamReader) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in content.iter_any():
        size += len(piece)
        if size > MAX_ANSWER:
            raise ScannerUnavailable(f"rspamd's answer has more than {MAX_ANSWER} octets")
        pieces.append(piece)
    return b"".join(pieces)


def _answer(body: bytes) -> RspamdAnswer:
    try:
        answer = _decoder.decode(body)
    except msgspec.DecodeError as error:  # ValidationError is one
        raise ScannerUnavailable(f"rspamd's answer can't be read: {error}") from error
    if not math.isfinite(answer.score):
        raise ScannerUnavailable("rspamd's answer has no finite score")
    return answer
