"""Define broadcasts, their states and their counts."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from engine.base import ids

MAX_NAME = 120
MAX_PER_MINUTE = 1_000_000
MAX_TEST_ADDRESSES = 5
MAX_UNFINISHED = 500  # broadcasts of an account that have not ended
MAX_UNFINISHED_BYTES = 512 * 1024 * 1024  # of their content together, files in base64
REVIEWED_ABOVE = 1_000  # recipients of 24 hours, until the operator has approved a broadcast of the account


class BroadcastStatus(StrEnum):
    """The states of a broadcast."""

    DRAFT = "draft"
    IN_REVIEW = "in_review"
    SCHEDULED = "scheduled"
    SENDING = "sending"
    PAUSED = "paused"
    STOPPED = "stopped"
    SENT = "sent"
    CANCELED = "canceled"


class PauseReason(StrEnum):
    """Why a broadcast is paused. All but USER end by themselves."""

    USER = "user"
    DAILY_LIMIT = "daily_limit"
    MONTHLY_LIMIT = "monthly_limit"
    SUSPENDED = "suspended"
    DOMAIN = "domain"
    STREAM = "stream"


class StopReason(StrEnum):
    """Why a broadcast was stopped for good."""

    BOUNCE_RATE = "bounce_rate"
    COMPLAINT_RATE = "complaint_rate"


class WaitReason(StrEnum):
    """Why a broadcast in status `sending` accepts nothing at the moment."""

    PLATFORM_PAUSED = "platform_paused"
    PACE = "pace"


class BroadcastAudience(Struct, frozen=True):
    """The contact list or the segment whose contacts are the recipients; one of the two is None."""

    list_id: UUID | None = None
    segment_id: UUID | None = None


class BroadcastDraft(Struct, frozen=True, kw_only=True):
    """The fields of a broadcast that its author writes. `blocks` and `attachments` are JSON."""

    name: str
    audience: BroadcastAudience
    stream: str
    sender: str
    from_domain: str
    reply_to: str | None = None
    template: str | None = None
    subject: str | None = None
    html: str | None = None
    text: str | None = None
    blocks: str | None = None
    attachments: str | None = None
    per_minute: int | None = None


class BroadcastSummary(Struct, frozen=True):
    """A broadcast without its content, as a list shows it."""

    id: UUID
    account_id: UUID
    name: str
    list_id: UUID | None
    segment_id: UUID | None
    stream: str
    sender: str
    from_domain: str
    reply_to: str | None
    template: str | None
    template_version: int | None
    subject: str | None
    per_minute: int | None
    status: str  # a BroadcastStatus
    paused_because: str | None
    stopped_because: str | None
    waits_for: str | None
    review_note: str | None
    scheduled_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    resumes_at: datetime | None
    created_at: datetime
    updated_at: datetime

    @property
    def public_id(self) -> str:
        """Return the id that clients see."""
        return ids.format_id(ids.Kind.BROADCAST, self.id)

    @property
    def audience(self) -> BroadcastAudience:
        """Return the list or segment of its recipients."""
        return BroadcastAudience(self.list_id, self.segment_id)


class Broadcast(BroadcastSummary, frozen=True):
    """A broadcast with its content."""

    html: str | None
    text: str | None
    blocks: str | None  # JSON
    attachments: str | None
    removed_files: str | None  # JSON: what its attachments were, once they are removed


class UnfinishedBroadcasts(Struct, frozen=True):
    """How many broadcasts of an account have not ended, and the octets of their content."""

    broadcasts: int
    content_bytes: int


class BroadcastCounts(Struct, frozen=True):
    """The counts of a broadcast: recipients, accepted, skipped by reason, and outcomes of its messages."""

    recipients: int = 0
    accepted: int = 0
    suppressed: int = 0
    removed: int = 0
    template_error: int = 0
    unconfirmed: int = 0
    unsubscribed_topic: int = 0
    delivered: int = 0
    bounced: int = 0
    complained: int = 0
    failed: int = 0
    rejected: int = 0
    unsubscribed: int = 0

    @property
    def skipped(self) -> int:
        """Return how many recipients were skipped."""
        return self.suppressed + self.removed + self.template_error + self.unconfirmed + self.unsubscribed_topic

    @property
    def waiting(self) -> int:
        """Return how many recipients are neither accepted nor skipped."""
        return self.recipients - self.accepted - self.skipped

    @property
    def settled(self) -> int:
        """Return how many messages have a final outcome."""
        return self.delivered + self.bounced + self.complained + self.failed + self.rejected
