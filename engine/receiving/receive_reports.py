"""Store messages that go to report addresses only: bounces, complaints, DMARC and TLS reports. The worker reads them.

A report is not urgent, so the reports of one process gather for `INTERVAL_S` and share a statement: a wave of bounces
after a large send costs little while other mail is being accepted.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

import asyncpg

from engine.base import clock
from engine.base.settings import Settings
from engine.mail import return_path
from engine.mail.feedback_reports import looks_like_complaint
from engine.receiving.received_rows import storable
from engine.receiving.reports import report_tokens, store
from engine.receiving.reports.report_tokens import ReportKeys
from engine.receiving.reports.room import ReportRoom
from engine.receiving.reports.types import ReportMail, ReportPurpose
from engine.receiving.types import InboundRecipient, ReceivedEnvelope, RecipientPurpose
from engine.store.database_errors import BadData
from engine.store.group_commit import GroupCommit
from engine.store.large_mail import in_thread

INTERVAL_S: Final = 0.02  # between two statements; measured: ops/decisions/0058
LARGE_BYTES: Final = 256 * 1024  # hashing more takes long, so a thread does it; stored by a statement of its own
MAX_LARGE: Final = 2  # large reports that are written at a time: each holds its bytes once more in the driver
MAX_BATCH: Final = 64
UNCOUNTED: Final = frozenset({RecipientPurpose.PLATFORM, RecipientPurpose.POSTMASTER})  # by no plan
MAILBOXES: Final = UNCOUNTED | {RecipientPurpose.ADDRESS}


class ReportReceiver:
    """Stores the report mails of one process."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings) -> None:
        self._pool = pool
        self._keys = report_tokens.keys_of(settings)
        self._room = ReportRoom(pool, settings.reports_max_bytes)
        self._group: GroupCommit[Sequence[ReportMail], None] = GroupCommit(
            self._flush, max_items=MAX_BATCH, min_interval_s=INTERVAL_S, bad_data=(BadData,)
        )
        self._large = asyncio.Semaphore(MAX_LARGE)

    async def receive(self, envelope: ReceivedEnvelope, raw: bytes) -> None:
        """Store a message for each of its report addresses; return after the commit. Raises as `Receiver.receive`."""
        if len(raw) <= LARGE_BYTES:
            await self._group.submit(await self.admitted(self.mails(envelope, raw)))
            return
        async with self._large:
            mails = await in_thread(len(raw), partial(self.mails, envelope, raw))
            await store.add(self._pool, await self.admitted(mails))

    def mails(self, envelope: ReceivedEnvelope, raw: bytes) -> list[ReportMail]:
        """Return a message as report mails, one for each of its report addresses; hashes its bytes."""
        return _report_mails(envelope, raw, self._keys)

    async def admitted(self, mails: list[ReportMail]) -> list[ReportMail]:
        """Return the mails, counted as stored. Raises ReportsFull if there is no room for them."""
        await self._room.take(mails)
        return mails

    async def drain(self) -> None:
        """Wait for the messages that are being stored."""
        await self._group.idle()

    async def _flush(self, batch: Sequence[Sequence[ReportMail]]) -> list[Exception | None]:
        await store.add(self._pool, [mail for mails in batch for mail in mails])
        return [None] * len(batch)


def _report_mails(envelope: ReceivedEnvelope, raw: bytes, keys: ReportKeys) -> list[ReportMail]:
    addresses = report_addresses(envelope.recipients)
    if not addresses:
        return []
    at, sender = clock.now(), storable(envelope.sender)
    purposes = [ReportPurpose(one.purpose.value) for one in addresses]
    digests = {purpose: store.digest(raw, purpose) for purpose in set(purposes)}
    return [
        ReportMail(
            purpose=purpose, local=one.local, host=one.host, sender=sender, remote_ip=envelope.remote_ip,
            received_at=at, raw=raw, digest=digests[purpose], reporter=envelope.reporter,
            is_genuine=report_tokens.is_genuine(purpose, one.local, one.host, keys),
        )
        for one, purpose in zip(addresses, purposes, strict=True)
    ]  # fmt: skip


def needs_author(recipients: Sequence[InboundRecipient], raw: bytes, keys: ReportKeys) -> bool:
    """Return True for a message whose author matters: at `fbl@`, at a genuine return path that several recipients have
    read, or at any other if it looks like a complaint.
    """
    if any(one.purpose is RecipientPurpose.FEEDBACK for one in recipients):
        return True
    paths = [f"{one.local}@{one.host}" for one in recipients if one.purpose is RecipientPurpose.BOUNCE]
    origins = [return_path.origin(keys.return_path, one) for one in paths]
    return any(one is not None and one.is_shared for one in origins) or (bool(paths) and looks_like_complaint(raw))


def report_addresses(recipients: Sequence[InboundRecipient]) -> list[InboundRecipient]:
    """Return those of the recipients that are report addresses."""
    return [one for one in recipients if one.purpose not in MAILBOXES]
