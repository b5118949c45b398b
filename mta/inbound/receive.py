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

from engine.base.settings import Settings
from engine.flows.receiving.types import (
    AttachmentScan,
    ReceivedEnvelope,
    ReceiveOutcome,
    RecipientPurpose,
    ScanResult,
)
from engine.mail.authentication_results import AuthenticationVerdict, AuthenticationVerdicts
from engine.mail.received import ReceivedSummary, summarise
from engine.mail.received_warnings import infected
from engine.store import metrics
from engine.store.database_errors import DatabaseError, DatabaseUnavailable, DiskFull
from engine.store.deadlines import within
from engine.store.group_commit import Overloaded
from engine.store.process_registry import Rate
from mta.inbound import counters, replies
from mta.inbound.authentication import judge
from mta.inbound.authentication.dns import AuthenticationDns
from mta.inbound.replies import MessageResult
from mta.inbound.scanning.scan import MessageScanner, ScannerRequired, VirusVerdicts
from mta.inbound.scanning.spam_rules import spam_score

MAX_HANDLING_S: Final = 120.0  # RFC 5321 4.5.3.2.6: clients wait 10 minutes for the reply, many give up sooner
MAX_INLINE: Final = 64 * 1024  # octets that the event loop reads itself, in under 1 ms
_NOT_JUDGED: Final = AuthenticationVerdict("none", None, "reports are not authenticated")
NOT_JUDGED: Final = AuthenticationVerdicts(_NOT_JUDGED, _NOT_JUDGED, _NOT_JUDGED, _NOT_JUDGED)
_MAILBOXES: Final = frozenset({RecipientPurpose.ADDRESS, RecipientPurpose.PLATFORM})

_log = structlog.get_logger("mx")
T = TypeVar("T")


class MessageStore(Protocol):
    """The part of `engine.flows.receiving.receive.Receiver` that is used here."""

    async def receive(
        self,
        envelope: ReceivedEnvelope,
        raw: bytes,
        mail: ReceivedSummary,
        authentication: AuthenticationVerdicts,
        scan: ScanResult,
    ) -> ReceiveOutcome:
        """Store a message; return after the commit."""


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
        self._reject_score = settings.inbound_reject_score

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
        mail = await _computed(raw, lambda: summarise(raw))
        if mail.received_count > replies.MAX_RECEIVED:
            return MessageResult.LOOP
        verdicts, scan = await self._judged(envelope, raw, mail)
        if self._is_refused(scan):
            return MessageResult.SPAM
        if scan.raw.scan is AttachmentScan.INFECTED:  # also where no attachment shows it
            found = infected(scan.raw.signature or "malicious code")
            mail = structs.replace(mail, warnings=[*mail.warnings, found])
        outcome = await self._store.receive(envelope, raw, mail, verdicts, scan)
        return replies.stored_result(outcome, len(envelope.recipients))

    async def _judged(
        self, envelope: ReceivedEnvelope, raw: bytes, mail: ReceivedSummary
    ) -> tuple[AuthenticationVerdicts, ScanResult]:
        """Return the verdicts on a message; one that goes to report addresses only is neither judged nor scanned."""
        if all(one.purpose not in _MAILBOXES for one in envelope.recipients):
            return NOT_JUDGED, ScanResult(spam_score=None, attachments=())
        if not self._scanner.is_configured:
            verdicts = await self._authenticated(envelope, raw)
            viruses = await self._scanner.viruses(raw, len(mail.attachments))
            return verdicts, ScanResult(
                spam_score=spam_score(verdicts, mail), attachments=viruses.attachments, raw=viruses.raw
            )
        verdicts, score, viruses = await self._scanned(envelope, raw, len(mail.attachments))
        if score is None:
            score = spam_score(verdicts, mail)
        return verdicts, ScanResult(spam_score=score, attachments=viruses.attachments, raw=viruses.raw)

    async def _scanned(
        self, envelope: ReceivedEnvelope, raw: bytes, attachments: int
    ) -> tuple[AuthenticationVerdicts, float | None, VirusVerdicts]:
        """Authenticate and scan at the same time. Raises ScannerRequired."""
        try:
            async with asyncio.TaskGroup() as group:
                judging = group.create_task(self._authenticated(envelope, raw))
                scoring = group.create_task(self._scanner.spam_score(raw, envelope))
                scanning = group.create_task(self._scanner.viruses(raw, attachments))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return judging.result(), scoring.result(), scanning.result()

    async def _authenticated(self, envelope: ReceivedEnvelope, raw: bytes) -> AuthenticationVerdicts:
        origin = judge.MessageOrigin(envelope.remote_ip, envelope.helo, envelope.sender, self._mail_host)
        return await judge.authenticate(raw, origin, self._dns, at=int(time.time()))

    def _is_refused(self, scan: ScanResult) -> bool:
        limit, score = self._reject_score, scan.spam_score
        return limit is not None and score is not None and score >= limit


def has_bad_octets(raw: bytes) -> bool:
    """Return True for NUL, and for CR or LF outside CRLF (RFC 5321 2.3.8): other servers may see other lines there."""
    pairs = raw.count(b"\r\n")
    return raw.count(b"\n") != pairs or raw.count(b"\r") != pairs or b"\0" in raw


async def _computed(raw: bytes, work: Callable[[], T]) -> T:
    """Return the result of pure work on a message, done in a thread for a large one."""
    return work() if len(raw) <= MAX_INLINE else await asyncio.to_thread(work)
