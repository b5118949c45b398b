"""Define erasures as stored and listed."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct


class ErasedKind(StrEnum):
    """Name what an erasure counts, in the order of the work."""

    DELIVERIES = "deliveriesCanceled"
    MESSAGES = "messages"
    RECEIVED = "receivedMessages"
    CONTACTS = "contacts"
    BROADCAST_COPIES = "broadcastRecipients"
    LINKS = "unsubscribeLinks"
    VERIFICATIONS = "verifications"
    REQUESTS = "requests"
    INVITES = "invites"
    SUPPRESSIONS = "suppressions"
    SINK = "sinkMails"
    WEBHOOKS = "webhookDeliveries"
    LOG = "logEntries"


class ErasureRow(Struct, frozen=True):
    """An erasure; `address` is null once it is completed."""

    id: UUID
    account_id: UUID
    address: str | None
    state: str
    counts: str  # JSON object: numbers by ErasedKind
    log_seq: int
    requested_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
