"""Define unsubscribe links and opt-outs as stored."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct


class OptOutChoice(StrEnum):
    """State the change that a person asked for through a link."""

    ALL = "all"  # no more mail of the account, except from transactional streams
    TOPIC = "topic"  # no more broadcasts to the list of the link
    UNDO = "undo"  # takes back what this link did


class OptOutSource(StrEnum):
    """State the way in which a person used a link; stands in the events as `source`."""

    LINK = "unsubscribe_link"  # the page, or the one-click POST of a mail client
    MAIL = "unsubscribe_mail"  # mail to `u+<token>@`


class LinkRow(Struct, frozen=True):
    """Hold what a link stands for; `address` is canonical, `list_id` its topic."""

    id: UUID
    account_id: UUID
    address: str
    broadcast_id: UUID | None = None
    list_id: UUID | None = None


class TopicOptOut(Struct, frozen=True):
    """Hold one opt-out of a topic, for export."""

    list_id: UUID
    address: str
    created_at: datetime
