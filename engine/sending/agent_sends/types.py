"""Define the sends of agents that wait for approval, and their limits."""

from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID

from msgspec import Struct

AgentSendState = Literal["pending", "approved", "sent", "declined", "expired"]
MAX_PENDING: Final = 100  # of an account
MAX_EMAIL_BYTES: Final = 1024 * 1024  # of one request
TO_DECIDE: Final = timedelta(hours=24)
TOLD_EVERY: Final = timedelta(minutes=15)  # at most one mail per account
MAX_TOLD: Final = 50  # people of an account
KEPT: Final = timedelta(days=30)  # after the time to decide


class AgentSendRow(Struct, frozen=True):
    """A send that a person decides on. Its email is encrypted, and deleted with the decision."""

    id: UUID
    key_id: UUID
    agent: str | None
    state: str  # as stored: a pending one is `expired` after `expires_at`
    sender: str
    subject: str
    recipients: list[str]
    sealed_email: bytes | None
    message_id: UUID | None
    decided_by: UUID | None
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None


class NewAgentSend(Struct, frozen=True, kw_only=True):
    """A send to ask approval for; `digest` tells it from others of its key."""

    key_id: UUID
    agent: str | None
    digest: bytes
    sender: str
    subject: str
    recipients: list[str]
    email: bytes  # the request as JSON
