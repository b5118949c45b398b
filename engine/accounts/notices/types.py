"""Define the kinds of notices, what is found in the database, and what a person is shown."""

from datetime import datetime
from enum import StrEnum
from typing import Final, Literal
from uuid import UUID

from msgspec import Struct

MAX_OF_A_KIND: Final = 20  # notices
MAX_MARKED: Final = 200  # notices that one call marks

NoticeSeverity = Literal["bad", "warn", "info"]
NoticeMark = Literal["seen", "dismissed"]


class NoticeKind(StrEnum):
    """The condition that a notice reports."""

    ALERT_FIRING = "alert_firing"
    WEBHOOK_FAILING = "webhook_failing"
    WEBHOOK_DISABLED = "webhook_disabled"
    DOMAIN_UNVERIFIED = "domain_unverified"
    BROADCAST_IN_REVIEW = "broadcast_in_review"
    BROADCAST_PAUSED = "broadcast_paused"
    BROADCAST_STOPPED = "broadcast_stopped"
    AGENT_SENDS_WAITING = "agent_sends_waiting"
    LIMIT_NEAR = "limit_near"
    LIMIT_REACHED = "limit_reached"


class NeededRow(Struct, frozen=True):
    """A thing that needs a person: its kind of notice, its id and name, since when, and the numbers of an alert."""

    kind: str
    object_id: UUID
    name: str
    since: datetime | None
    value: float | None
    threshold: float | None
    fired_value: float | None


class SendingUse(Struct, frozen=True, kw_only=True):
    """Emails that an account has sent, with the limits of today and of this month."""

    sent_today: int
    daily_limit: int
    sent_this_month: int
    monthly_limit: int


class MarkRow(Struct, frozen=True):
    """A notice that a person has marked."""

    notice: str
    dismissed: bool


class AccountNotice(Struct, frozen=True):
    """A notice without its mark; `id` changes when the same thing happens again."""

    id: str
    kind: NoticeKind
    severity: NoticeSeverity
    message: str
    object_id: str | None
    since: datetime | None


class MarkedNotice(Struct, frozen=True):
    """A notice as one person sees it."""

    notice: AccountNotice
    unread: bool
