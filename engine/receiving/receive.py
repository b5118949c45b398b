"""Store received messages: the last step of the MX before its 250, which waits for the commit.

Concurrent messages share a transaction (engine.receiving.receive_store). A large message gets one of its own, so
that nobody waits for its bytes, and they are held once.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import asyncpg
import structlog
from msgspec import structs

from engine.authentication.results import AuthenticationVerdicts
from engine.base import clock
from engine.base.settings import Settings
from engine.mail.received import ReceivedSummary
from engine.receiving import receive_store
from engine.receiving.receive_reports import ReportReceiver
from engine.receiving.receive_store import WaitingMail
from engine.receiving.received_rows import IncomingMail, received_mail
from engine.receiving.reports.store import MAX_OPERATOR_BYTES
from engine.receiving.types import ReceivedEnvelope, ReceiveOutcome, RecipientPurpose, ScanResult
from engine.store import large_mail
from engine.store.database_errors import BadData, MissingPartition
from engine.store.group_commit import GroupCommit

LARGE_BYTES = 256 * 1024  # preparing more takes over 1 ms, so a thread does it; stored in a transaction of its own
MAX_LARGE = 4  # large messages that are written at a time: each holds its bytes once more in the driver
MAX_BATCH = 64
MAX_UNCOUNTED_BYTES = MAX_OPERATOR_BYTES  # of a message to `postmaster@` or `abuse@`, which no plan counts

_log = structlog.get_logger("receive")


class Receiver:
    """Stores the received messages of one process."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings) -> None:
        self._pool = pool
        self._group: GroupCommit[WaitingMail, ReceiveOutcome] = GroupCommit(
            self._flush, max_items=MAX_BATCH, bad_data=(BadData,)
        )
        self._large = asyncio.Semaphore(MAX_LARGE)
        self._very_large = asyncio.Semaphore(1)  # several write ahead so much that the commits of others wait
        self._reports = ReportReceiver(pool, settings)

    async def receive(
        self,
        envelope: ReceivedEnvelope,
        raw: bytes,
        mail: ReceivedSummary,
        authentication: AuthenticationVerdicts,
        scan: ScanResult,
    ) -> ReceiveOutcome:
        """Store a message for each of its recipients; return after the commit.

        Recipients are independent: each is stored unless its outcome forbids it. Raises DatabaseUnavailable if the
        database is away, DiskFull if it is full, Overloaded if too many messages wait, ReportsFull if there is no room
        for its reports: the sender should try again. A retry of what was stored after all stores nothing twice.
        """
        prepare = partial(self._waiting, envelope, raw, mail, authentication, scan)
        if len(raw) <= LARGE_BYTES:
            return await self._stored(await self._admitted(prepare()))
        async with self._very_large if len(raw) > large_mail.VERY_LARGE_BYTES else self._large:
            return await self._stored_large(await self._admitted(await large_mail.in_thread(len(raw), prepare)))

    async def receive_report(self, envelope: ReceivedEnvelope, raw: bytes) -> None:
        """Store a message whose recipients are all report addresses; return after the commit. Raises as `receive`."""
        await self._reports.receive(envelope, raw)

    async def drain(self) -> None:
        """Wait for the messages that are being stored."""
        await self._group.idle()
        await self._reports.drain()

    def _waiting(
        self,
        envelope: ReceivedEnvelope,
        raw: bytes,
        mail: ReceivedSummary,
        authentication: AuthenticationVerdicts,
        scan: ScanResult,
    ) -> WaitingMail:
        """Return a message as the transaction takes it; hashes its bytes."""
        kept = kept_octets(envelope, raw)
        content = received_mail(envelope, kept, mail, authentication, scan, clock.now())
        return WaitingMail(content, envelope.recipients, self._reports.mails(envelope, raw))

    async def _admitted(self, item: WaitingMail) -> WaitingMail:
        await self._reports.admitted(list(item.reports))
        return item

    async def _stored(self, item: WaitingMail) -> ReceiveOutcome:
        with suppress(BadData):
            return await self._group.submit(item)
        _log.error("message with unstorable fields stored without them", digest=item.mail.digest.hex())
        return await self._group.submit(structs.replace(item, mail=without_fields(item.mail)))

    async def _stored_large(self, item: WaitingMail) -> ReceiveOutcome:
        async with self._pool.acquire() as connection:
            try:
                result = await receive_store.store_large(connection, item)
            except MissingPartition:  # nothing was stored, and the partition has been made meanwhile
                result = await receive_store.store_large(connection, item)
            except BadData:
                _log.error("message with unstorable fields stored without them", digest=item.mail.digest.hex())
                bare = structs.replace(item, mail=without_fields(item.mail))
                result = await receive_store.store_large(connection, bare)
        return result.outcomes[0]

    async def _flush(self, batch: Sequence[WaitingMail]) -> list[ReceiveOutcome | Exception]:
        async with self._pool.acquire() as connection:
            try:
                result = await receive_store.store(connection, batch)
            except MissingPartition:
                result = await receive_store.store(connection, batch)
        return list(result.outcomes)


def kept_octets(envelope: ReceivedEnvelope, raw: bytes) -> bytes:
    """Return the octets to store of a message for mailboxes: the beginning, if no plan counts it for any of them."""
    if any(one.purpose is RecipientPurpose.ADDRESS for one in envelope.recipients):
        return raw
    return raw[:MAX_UNCOUNTED_BYTES]


def without_fields(mail: IncomingMail) -> IncomingMail:
    """Return the message as one that no parser could read: its bytes, and a warning."""
    warning = '[{"code":"unstorable","text":"Fields of this message can\'t be stored; only its bytes are kept."}]'
    return structs.replace(
        mail, helo="", envelope_from="", sender=None, sender_address=None, reply_to=None, to="[]", cc="[]", subject="",
        snippet="", sent_at=None, header_message_id=None, in_reply_to=None, candidates=(), warnings=warning,
        search_text="", detail=mail.detail | {"from": None, "to": [], "subject": ""},
    )  # fmt: skip
