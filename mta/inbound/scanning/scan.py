"""Scan a received message with the scanners that the settings name.

An optional scanner that fails leaves its result out: attachments are `failed`, the score comes from the built-in rules.
A required one makes the MX answer 451, so that the sender keeps the mail: fails closed, and loses nothing.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import structlog
from msgspec import Struct

from engine.base import ids
from engine.base.settings import Settings, SocketAddress
from engine.mail.received import received_contents
from engine.receiving.types import AttachmentScan, ReceivedEnvelope, ScanVerdict
from engine.store import metrics
from mta.inbound import counters
from mta.inbound.scanning.breaker import CircuitBreaker, ScannerUnavailable
from mta.inbound.scanning.clamd import scan_stream

if TYPE_CHECKING:
    from mta.inbound.scanning.rspamd import RspamdClient

MAX_SCANS: Final = 8  # messages that one process hands to clamd at a time; its MaxThreads is 10 by default
MAX_INLINE: Final = 64 * 1024  # octets whose attachments the event loop decodes itself

_log = structlog.get_logger("mx")
_UNSCANNED: Final = ScanVerdict(AttachmentScan.UNSCANNED)
_FAILED: Final = ScanVerdict(AttachmentScan.FAILED)


class ScannerRequired(Exception):  # noqa: N818 - named for the rule
    """A required scanner gave no result: the message must not be accepted now."""


class VirusVerdicts(Struct, frozen=True):
    """clamd's verdicts on the message as it came, and on each attachment in order."""

    raw: ScanVerdict
    attachments: tuple[ScanVerdict, ...]


class MessageScanner:
    """The scanners of one process; `close` it."""

    def __init__(self, settings: Settings) -> None:
        self._clamd = settings.clamd
        self._clamd_required = settings.clamd_required
        self._clamd_timeout_s = settings.clamd_timeout_s
        self._clamd_breaker = CircuitBreaker("clamd")
        self._slots = asyncio.Semaphore(MAX_SCANS)
        self._rspamd = _rspamd(settings)
        self._rspamd_required = settings.rspamd_required
        self._rspamd_breaker = CircuitBreaker("rspamd")

    @property
    def is_configured(self) -> bool:
        """Return True if there is a scanner."""
        return self._clamd is not None or self._rspamd is not None

    @property
    def required_is_away(self) -> bool:
        """Return True while a required scanner is left alone after failures: no message can be accepted."""
        return (self._clamd_required and self._clamd_breaker.is_open) or (
            self._rspamd_required and self._rspamd_breaker.is_open
        )

    async def spam_score(self, raw: bytes, envelope: ReceivedEnvelope) -> float | None:
        """Return rspamd's score, None without one. Raises ScannerRequired."""
        if self._rspamd is None:
            return None
        try:
            self._rspamd_breaker.check()
            answer = await self._rspamd.check(raw, envelope, str(ids.uuid7()))
        except ScannerUnavailable as error:
            self._fail(self._rspamd_breaker, "rspamd", error, required=self._rspamd_required)
            return None
        self._rspamd_breaker.succeeded()
        metrics.TALLY.add(counters.SCANS, "rspamd", "ok")
        _log.debug("rspamd", score=answer.score, action=answer.action, symbols=list(answer.symbols)[:50])
        return answer.score

    async def viruses(self, raw: bytes, attachments: int) -> VirusVerdicts:
        """Return the verdicts on the message and on its `attachments`. Raises ScannerRequired."""
        if self._clamd is None:
            return VirusVerdicts(_UNSCANNED, (_UNSCANNED,) * attachments)
        try:
            self._clamd_breaker.check()
            async with asyncio.timeout(self._clamd_timeout_s), self._slots:
                found = await _scan_all(self._clamd, raw, attachments)
        except (ScannerUnavailable, TimeoutError) as error:
            self._fail(self._clamd_breaker, "clamd", error, required=self._clamd_required)
            return VirusVerdicts(_FAILED, (_FAILED,) * attachments)
        self._clamd_breaker.succeeded()
        for verdict in (found.raw, *found.attachments):
            metrics.TALLY.add(counters.SCANS, "clamd", verdict.scan.value)
        return found

    async def close(self) -> None:
        """Close the connections to the scanners."""
        if self._rspamd is not None:
            await self._rspamd.close()

    def _fail(self, breaker: CircuitBreaker, name: str, error: Exception, *, required: bool) -> None:
        """Count a failure; a scanner that is left alone was not asked, and gets no more failures."""
        if not breaker.is_open:
            breaker.failed()
            detail = str(error) or "no answer within its time limit"
            _log.warning("scanner failed", scanner=name, required=required, error=detail)
        metrics.TALLY.add(counters.SCANS, name, "failed")
        if required:
            raise ScannerRequired(name) from error


def _rspamd(settings: Settings) -> "RspamdClient | None":
    if settings.rspamd_url is None:
        return None
    from mta.inbound.scanning.rspamd import RspamdClient  # noqa: PLC0415 - aiohttp takes 8 MB

    return RspamdClient(settings.rspamd_url, settings.rspamd_timeout_s)


async def _scan_all(address: SocketAddress, raw: bytes, attachments: int) -> VirusVerdicts:
    """Scan the message and each decoded attachment: clamd's parser and ours may see different parts."""
    whole = await scan_stream(address, raw)
    found: list[ScanVerdict] = []
    contents = iter(received_contents(raw) if attachments else ())
    while (content := await _next(contents, inline=len(raw) <= MAX_INLINE)) is not None:
        found.append(await scan_stream(address, content))
    return VirusVerdicts(whole, marked(whole, found))


async def _next(contents: Iterable[bytes], *, inline: bool) -> bytes | None:
    iterator = iter(contents)
    return next(iterator, None) if inline else await asyncio.to_thread(next, iterator, None)


def marked(raw: ScanVerdict, attachments: Sequence[ScanVerdict]) -> tuple[ScanVerdict, ...]:
    """Return the verdicts on the attachments; a virus that only the raw message shows marks all of them."""
    infected = AttachmentScan.INFECTED
    if raw.scan is infected and all(one.scan is not infected for one in attachments):
        return (raw,) * len(attachments)
    return tuple(attachments)
