"""Define members and invitations."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct


class TeamMemberRow(Struct, frozen=True):
    """A member of an account."""

    user_id: UUID
    email: str
    name: str
    role: str
    email_verified: bool
    has_totp: bool
    joined_at: datetime


class InviteRow(Struct, frozen=True):
    """A pending invitation for lists."""

    id: UUID
    email: str
    role: str
    invited_by: UUID | None
    created_at: datetime
    expires_at: datetime


class OpenInvite(Struct, frozen=True):
    """An invitation found by its token."""

    id: UUID
    account_id: UUID
    email: str
    role: str
    account_status: str
