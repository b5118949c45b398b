"""Define the rows of verifications and of the branding settings."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct


class VerificationStatus(StrEnum):
    """The status of a verification; all but the first are final."""

    PENDING = "pending"
    APPROVED = "approved"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    EXHAUSTED = "exhausted"


class VerificationRow(Struct, frozen=True):
    """A verification; `status` is already `expired` once its time has passed by the database's clock."""

    id: UUID
    status: str
    attempts_left: int
    code_length: int
    codes_sent: int
    message_id: UUID
    created_at: datetime
    expires_at: datetime
    finished_at: datetime | None


class NewVerification(Struct, frozen=True, kw_only=True):
    """A verification to be stored; `destination` and `code` are keyed digests, `tags` and `metadata` JSON."""

    id: UUID
    account_id: UUID
    destination: bytes
    code: bytes
    attempts_left: int
    code_length: int
    message_id: UUID
    sender: str
    stream: str
    tags: str
    metadata: str
    locale: str
    has_link: bool
    idempotency_key: str | None
    created_at: datetime
    expires_at: datetime


class ResendRow(Struct, frozen=True):
    """The values for the mail of another code."""

    destination: bytes
    status: str
    attempts_left: int
    code_length: int
    codes_sent: int
    sender: str
    stream: str
    tags: str  # JSON, as the next
    metadata: str
    locale: str
    has_link: bool
    expires_at: datetime


class ClaimedAttempt(Struct, frozen=True):
    """A verification of which one attempt was just taken."""

    code: bytes
    attempts_left: int
    destination: bytes


class StartFacts(Struct, frozen=True):
    """The facts that decide about a start or resend, as of the lock of the account's head.

    `sent`: times of codes to the destination within an hour, oldest first. `used`: verifications of the payer's month.
    """

    replay: UUID | None
    now: datetime
    sent: list[datetime]
    locked_until: datetime | None
    used: int


class SettingsRow(Struct, frozen=True):
    """The branding of an account without the logo's bytes."""

    brand_name: str | None = None
    code_length: int | None = None
    logo_token: str | None = None
    logo_type: str | None = None
    logo_width: int | None = None
    logo_height: int | None = None
    logo_bytes: int | None = None


class PreludeRow(Struct, frozen=True):
    """The values for composing a first code: the time, the branding, and the verification of a repeated key."""

    now: datetime
    replay: UUID | None
    brand_name: str | None
    code_length: int | None
    logo_token: str | None
    logo_width: int | None
    logo_height: int | None


class LogoRow(Struct, frozen=True):
    """A logo as it is served."""

    content: bytes
    content_type: str


class FinishedRow(Struct, frozen=True):
    """A finished verification whose event is to be written."""

    id: UUID
    account_id: UUID
    status: str
    message_id: UUID


class LinkedRow(Struct, frozen=True):
    """The stored values that a confirmation link must match."""

    account_id: UUID
    status: str
    codes_sent: int
    has_link: bool
    brand_name: str | None
    locale: str
