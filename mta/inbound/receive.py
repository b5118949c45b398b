"""Handle a message after its final dot: check, authenticate, scan and store it; return what became of it.

The stored octets are those that came over the wire, without a Received or Authentication-Results field of our own:
repeated messages are recognised by them, signatures stay valid, and what we know (address, HELO, TLS, verdicts) is in
the message's row, from which such fields are composed where mail leaves the service again.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import structlog
from msgspec import structs

from engine.authentication import judge
from engine.authentication.dns import AuthenticationDns
from engine.authentication.results import AuthenticationVerdicts
from engine.authentication.spam_rules import spam_score
from engine.base import clock
from engine.base.settings import Settings
from engine.mail.received import ReceivedSummary, summarise
from engine.mail.received_header import read_header
from engine.mail.received_warnings import infected, truncated
from engine.receiving.receive import kept_octets
from engine.receiving.receive_reports import needs_author, report_addresses
from engine.receiving.reports.report_tokens import keys_of
from engine.receiving.reports.room import ReportsFull
from engine.receiving.types import AttachmentScan, ReceivedEnvelope, ReceiveOutcome, ScanResult
from engine.store import large_mail, metrics
from engine.store.database_errors import DatabaseError, DatabaseUnavailable, DiskFull
from engine.store.deadlines import within
from engine.store.group_commit import Overloaded
from engine.store.process_registry import Rate
from mta.inbound import counters, replies
from mta.inbound.replies import MessageResult
from mta.inbound.reporter import authenticated_author
from mta.inbound.scanning.scan import MessageScanner, ScannerRequired, VirusVerdicts

MAX_HANDLING_S: Final = 120.0  # RFC 5321 4.5.3.2.6: clients wait 10 minutes for the reply, many give up sooner
SLICE: Final = 256 * 1024  # octets examined at a time: in a thread, other threads run between two slices
MAX_INLINE: Final = 64 * 1024  # octets that the event loop reads itself, in under 1 ms

_log = structlog.get_logger("mx")
T = TypeVar("T")


class MessageStore(Protocol):
    """The part of `engine.receiving.receive.Receiver` that is used here."""

    async def receive(
        self,
        envelope: ReceivedEnvelope,
        raw: bytes,
        mail: ReceivedSummary,
        authentication: AuthenticationVerdicts,
        scan: ScanResult,
    ) -> ReceiveOutcome:
        """Store a message; return after the commit."""

    async def receive_report(self, envelope: ReceivedEnvelope, raw: bytes) -> None:
        """Store a message whose recipients are report addresses; return after the commit."""


class IncomingMessages:
    """The handling of complete messages, for all sessions of one process."""

    def __init__(
        self,
        store: MessageStore,
        dns: AuthenticationDns,
        scanner: MessageScanner,
        settings: Settings,
        rate: Rate,
    ) -> None:
        self._store = store
        self._dns = dns
        self._scanner = scanner
        self._rate = rate
        self._mail_host = settings.mail_host
        self._report_keys = keys_of(settings)
        self._reject_score = settings.inbound_reject_score

    @property
    def mailboxes_must_wait(self) -> bool:
        """Return True while mail for mailboxes would be answered 451 after its content; reports are not scanned."""
        return self._scanner.required_is_away

    async def receive(self, envelope: ReceivedEnvelope, raw: bytes) -> MessageResult:
        """Handle one message within `MAX_HANDLING_S`. STORED means committed; anything else is not a 250."""
        began = time.perf_counter()
        result = await self._handled(envelope, raw)
        self._rate.add(1)
        metrics.TALLY.add(counters.MESSAGES, result.value)
        counters.SECONDS.observe(time.perf_counter() - began)
        return result

    async def _handled(self, envelope: ReceivedEnvelope, raw: bytes) -> MessageResult:
        try:
            with within(MAX_HANDLING_S):
                return await self._received(envelope, raw)
        except ScannerRequired:
            return MessageResult.SCANNER
        except DiskFull:
            _log.error("message not stored: the database has no disk space")
            return MessageResult.DISK_FULL
        except ReportsFull:
            _log.warning("report not stored: reports use all the space that they may have")
            return MessageResult.REPORTS_FULL
        except Overloaded:
            return MessageResult.NO_MEMORY
        except TimeoutError:
            _log.warning("message not stored in time", size=len(raw))
            return MessageResult.TIMEOUT
        except (DatabaseUnavailable, OSError) as error:
            _log.warning("message not stored: database unavailable", error=repr(error))
            return MessageResult.DATABASE
        except DatabaseError:
            _log.exception("message not stored: a statement failed")
            return MessageResult.DATABASE

    async def _received(self, envelope: ReceivedEnvelope, raw: bytes) -> MessageResult:
        if await _computed(raw, lambda: has_bad_octets(raw)):
            return MessageResult.BAD_OCTETS
        if len(report_addresses(envelope.recipients)) == len(envelope.recipients):
            return await self._report(envelope, raw)
        kept = kept_octets(envelope, raw)
        mail = await _computed(kept, lambda: summarise(kept))
        if mail.received_count > replies.MAX_RECEIVED:
            return MessageResult.LOOP
        verdicts, scan = await self._judged(envelope, raw, kept, mail)
        if self._is_refused(scan):
            return MessageResult.SPAM
        if scan.raw.scan is AttachmentScan.INFECTED:  # also where no attachment shows it
            found = infected(scan.raw.signature or "malicious code")
            mail = structs.replace(mail, warnings=[*mail.warnings, found])
        if len(kept) < len(raw):
            mail = structs.replace(mail, warnings=[*mail.warnings, truncated(len(kept))])
        if report_addresses(envelope.recipients):
            envelope = await _with_reporter(envelope, raw, verdicts)
        outcome = await self._store.receive(envelope, raw, mail, verdicts, scan)
        return replies.stored_result(outcome, len(envelope.recipients))

    async def _report(self, envelope: ReceivedEnvelope, raw: bytes) -> MessageResult:
        """Store a message that goes to report addresses only. No mailbox lists it, so it is not scanned; most
        reports act by their token alone, so they are not judged.
        """
        if read_header(raw).count(b"received") > replies.MAX_RECEIVED:
            return MessageResult.LOOP
        if needs_author(envelope.recipients, raw, self._report_keys):
            envelope = await _with_reporter(envelope, raw, await self._authenticated(envelope, raw))
        await self._store.receive_report(envelope, raw)
        return MessageResult.STORED

    async def _judged(
        self, envelope: ReceivedEnvelope, raw: bytes, kept: bytes, mail: ReceivedSummary
    ) -> tuple[AuthenticationVerdicts, ScanResult]:
        """Return the verdict of authentication on a message, and those of the scanners on what is kept of it."""
        if not self._scanner.is_configured:
            verdicts = await self._authenticated(envelope, raw)
            viruses = await self._scanner.viruses(kept, len(mail.attachments))
            return verdicts, ScanResult(
                spam_score=spam_score(verdicts, mail), attachments=viruses.attachments, raw=viruses.raw
            )
        verdicts, score, viruses = await self._scanned(envelope, raw, kept, len(mail.attachments))
        if score is None:
            score = spam_score(verdicts, mail)
        return verdicts, ScanResult(spam_score=score, attachments=viruses.attachments, raw=viruses.raw)

    async def _scanned(
        self, envelope: ReceivedEnvelope, raw: bytes, kept: bytes, attachments: int
    ) -> tuple[AuthenticationVerdicts, float | None, VirusVerdicts]:
        """Authenticate and scan at the same time. Raises ScannerRequired."""
        try:
            async with asyncio.TaskGroup() as group:
                judging = group.create_task(self._authenticated(envelope, raw))
                scoring = group.create_task(self._scanner.spam_score(kept, envelope))
                scanning = group.create_task(self._scanner.viruses(kept, attachments))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return judging.result(), scoring.result(), scanning.result()

    async def _authenticated(self, envelope: ReceivedEnvelope, raw: bytes) -> AuthenticationVerdicts:
        origin = judge.MessageOrigin(envelope.remote_ip, envelope.helo, envelope.sender, self._mail_host)
        return await judge.authenticate(raw, origin, self._dns, at=clock.unix_s())

    def _is_refused(self, scan: ScanResult) -> bool:
        limit, score = self._reject_score, scan.spam_score
        return limit is not None and score is not None and score >= limit


def has_bad_octets(raw: bytes) -> bool:
    """Return True for NUL, and for CR or LF outside CRLF (RFC 5321 2.3.8): other servers may see other lines there."""
    return any(_has_bad_octets(raw, start, start + SLICE) for start in range(0, len(raw), SLICE))


def _has_bad_octets(raw: bytes, start: int, end: int) -> bool:
    """Return True if the octets from `start` to `end` hold NUL, or CR or LF outside CRLF."""
    pairs = raw.count(b"\r\n", start, end + 1)
    split = start > 0 and raw[start - 1 : start + 1] == b"\r\n"  # its CR was counted with the slice before
    return (
        raw.count(b"\r", start, end) != pairs
        or raw.count(b"\n", start, end) != pairs + split - (raw[end - 1 : end + 1] == b"\r\n")
        or raw.find(b"\0", start, end) >= 0
    )


async def _with_reporter(envelope: ReceivedEnvelope, raw: bytes, verdicts: AuthenticationVerdicts) -> ReceivedEnvelope:
    """Return the envelope with the author of the message, if the verdicts authenticate it."""
    return structs.replace(envelope, reporter=await _computed(raw, lambda: authenticated_author(raw, verdicts)))


async def _computed(raw: bytes, work: Callable[[], T]) -> T:
    """Return the result of pure work on a message, done in a thread for a large one."""
    return work() if len(raw) <= MAX_INLINE else await large_mail.in_thread(len(raw), work)
