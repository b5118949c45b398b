"""Define the use of unsubscribe links, their state, and opt-outs of topics."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct


class LinkChoice(StrEnum):
    """State the change that a person asks for through a link."""

    ALL = "all"  # no more mail of the account, except from transactional streams
    TOPIC = "topic"  # no more broadcasts to the list of the link
    UNDO = "undo"  # takes back what this link did


class LinkSource(StrEnum):
    """State the way in which a person used a link; stands in events as `source`."""

    PAGE = "unsubscribe_link"  # the page, or the one-click POST of a mail client
    MAIL = "unsubscribe_mail"  # mail to `u+<token>@`


class OptOutSource(StrEnum):
    """State how an opt-out of a topic came about."""

    LINK = "link"  # the person used an unsubscribe link
    API = "api"  # the account recorded it


class LinkUse(Struct, frozen=True):
    """A person's choice on an unsubscribe link, and where it was made."""

    link: UUID
    choice: LinkChoice
    source: LinkSource


class LinkState(Struct, frozen=True):
    """A stored link with what a person may read about it; `address` is canonical.

    `reason` is that of the suppression of the address, if any; `topic` the name of the link's list, None without one.
    `lifts_all` and `lifts_topic`: this very link made the suppression, or the opt-out of the topic.
    """

    id: UUID
    account_id: UUID
    address: str
    broadcast_id: UUID | None
    list_id: UUID | None
    sender: str
    reason: str | None
    lifts_all: bool
    topic: str | None
    out_of_topic: bool
    lifts_topic: bool


class LinkChange(Struct, frozen=True):
    """The changes by one use of a link: the suppression, the opt-out of the topic, or both.

    `is_turn`: before it, or after it where it takes back, no opt-out of this link was in force.
    """

    link: UUID
    suppression: bool
    topic: bool
    is_turn: bool


class TopicOptOut(Struct, frozen=True):
    """An opt-out of a topic: a person whom broadcasts to the list leave out. `address` is canonical.

    `link_id`: the link that the person used; None if the account recorded the opt-out.
    """

    address: str
    link_id: UUID | None
    created_at: datetime

    @property
    def source(self) -> OptOutSource:
        """Return how the opt-out came about."""
        return OptOutSource.API if self.link_id is None else OptOutSource.LINK
