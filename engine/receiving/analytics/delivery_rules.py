"""Compute from events of an account log what they add to the counts of deliveries. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from uuid import UUID

import orjson
from msgspec import Struct, field

from engine.base.events import EventType
from engine.receiving.analytics import rules
from engine.receiving.analytics.histogram import bucket_of
from engine.receiving.analytics.mailbox_providers import provider_of
from engine.receiving.analytics.types import CountedEvent
from engine.receiving.analytics.wait_rules import WaitCounter

# The first string named so: `recipient` stands at the beginning of an outcome's detail. Payloads may be cut behind it.
_recipient = re.compile(r'"recipient":("(?:[^"\\]|\\.)*")').search
# The mail host of the attempt. Quotes in texts are escaped, so these can't be part of one.
_server = re.compile(r'"mx":"([^"\\]+)"').search
_MILLISECOND = timedelta(milliseconds=1)


class CountedMessage(Struct, frozen=True):
    """The properties of a message that deliveries are counted by."""

    id: UUID
    from_domain: str
    stream: str
    tags: list[str]


GroupKey = tuple[str, date, str, str, str]  # tag, day, domain, stream, from_domain


class GroupCounts(Struct):
    """The addition to the counts of a group; `samples` by bucket of the histogram.

    `tag` and `domain` are "" in the sums over all tags and all domains. In the counts by provider, `domain` is the
    provider of the mailbox. `times` is the stored histogram with `samples`
    added; empty while there is none.
    """

    tag: str
    day: date
    domain: str
    stream: str
    from_domain: str
    deliveries: int = 0
    delivered: int = 0
    bounced: int = 0
    failed: int = 0
    complained: int = 0
    samples: dict[int, int] = field(default_factory=dict)
    times: bytes = b""

    @property
    def key(self) -> GroupKey:
        """Return the columns that identify the group."""
        return self.tag, self.day, self.domain, self.stream, self.from_domain

    @property
    def changed(self) -> bool:
        """Return True if anything is added."""
        return bool(self.deliveries or self.delivered or self.bounced or self.failed or self.complained or self.samples)


class RecordedMessages(Struct, frozen=True):
    """The stored facts about the messages of some events.

    `accepted`: when each message was accepted. `recipients`: addresses by message. `history`: earlier events of the
    messages that bounced late or were complained about, in order.
    """

    messages: Mapping[UUID, CountedMessage]
    accepted: Mapping[UUID, datetime]
    recipients: Mapping[UUID, Sequence[str]]
    history: Mapping[UUID, Sequence[CountedEvent]]


def by_week(groups: Iterable[GroupCounts]) -> list[GroupCounts]:
    """Return the additions by calendar week instead of day, without those of pairs of a tag and a domain."""
    weeks: dict[GroupKey, GroupCounts] = {}
    for one in groups:
        if one.tag and one.domain:
            continue
        key = one.tag, rules.monday_of(one.day), one.domain, one.stream, one.from_domain
        week = weeks.setdefault(key, GroupCounts(*key))
        week.deliveries += one.deliveries
        week.delivered += one.delivered
        week.bounced += one.bounced
        week.failed += one.failed
        week.complained += one.complained
        for bucket, count in one.samples.items():
            week.samples[bucket] = week.samples.get(bucket, 0) + count
    return list(weeks.values())


def _settle(
    groups: Sequence[GroupCounts], event: CountedEvent, accepted: datetime, delivered: CountedEvent | None
) -> None:
    """Add one recipient's outcome to its groups; `delivered` is the delivery that it revises."""
    match event.type:
        case EventType.DELIVERED:
            bucket = bucket_of((event.occurred_at - accepted) // _MILLISECOND)
            for group in groups:
                group.delivered += 1
                group.samples[bucket] = group.samples.get(bucket, 0) + 1
        case EventType.BOUNCED:
            for group in groups:
                group.bounced += 1
                if delivered is not None:
                    bucket = bucket_of((delivered.occurred_at - accepted) // _MILLISECOND)
                    group.delivered -= 1
                    group.samples[bucket] = group.samples.get(bucket, 0) - 1
        case EventType.FAILED:
            for group in groups:
                group.failed += 1
        case EventType.COMPLAINED if delivered is not None:
            for group in groups:
                group.complained += 1
                group.delivered -= 1


def is_late(event: CountedEvent) -> bool:
    """Return True for a bounce after the delivery. The text contains quotes, which JSON strings escape."""
    return event.type == EventType.BOUNCED and '"late":true' in event.payload


def recipient_of(event: CountedEvent, recorded: RecordedMessages) -> str | None:
    """Return the address that an event is about: as it says, or the only one of its message."""
    found = _recipient(event.payload)
    if found is not None:
        return str(orjson.loads(found[1])) if "\\" in found[1] else found[1][1:-1]
    only = recorded.recipients.get(event.message_id, ())
    return only[0] if len(only) == 1 else None


def mail_server(payload: str) -> str | None:
    """Return the mail server that an attempt went to, or None if the payload names none."""
    found = _server(payload)
    return None if found is None else found[1]


def revises(event: CountedEvent) -> bool:
    """Return True if an event may change the outcome of a delivery that was made before."""
    return event.type == EventType.COMPLAINED or is_late(event)


def _delivered_before(event: CountedEvent, address: str, recorded: RecordedMessages) -> CountedEvent | None:
    """Return the delivery of a recipient, if that is its status right before the event."""
    delivered: CountedEvent | None = None
    for one in recorded.history.get(event.message_id, ()):
        if one.seq >= event.seq:
            break
        if recipient_of(one, recorded) != address:
            continue
        if one.type == EventType.DELIVERED:
            delivered = one
        elif one.type in (EventType.BOUNCED, EventType.COMPLAINED):
            delivered = None
    return delivered


class DeliveryCounter:
    """Adds up what events add to the counts, page by page. Messages accepted before day `since`, or erased, do not
    count.
    """

    def __init__(self, since: date) -> None:
        self.waits = WaitCounter()
        self._since = since
        self._by_key: dict[GroupKey, GroupCounts] = {}
        self._by_provider: dict[GroupKey, GroupCounts] = {}
        self._found: dict[tuple[date, str, str, str, tuple[str, ...], str], list[GroupCounts]] = {}

    def add(self, events: Iterable[CountedEvent], recorded: RecordedMessages) -> None:
        """Count the next events of a log."""
        for event in events:
            message = recorded.messages.get(event.message_id)
            accepted = recorded.accepted.get(event.message_id)
            if message is None or accepted is None or accepted.date() < self._since:
                continue
            if event.type == EventType.ACCEPTED:
                for address in recorded.recipients.get(event.message_id, ()):
                    for group in self._groups_of(message, accepted.date(), _domain(address)):
                        group.deliveries += 1
                continue
            recipient = recipient_of(event, recorded)
            if event.type == EventType.ATTEMPTED:
                provider = provider_of(mail_server(event.payload), _domain(recipient or ""))
                self.waits.add(event, provider, message.stream, message.from_domain)
            elif recipient is not None:
                delivered = _delivered_before(event, recipient, recorded) if revises(event) else None
                domain = _domain(recipient)
                provider = provider_of(mail_server((delivered or event).payload), domain)
                _settle(self._groups_of(message, accepted.date(), domain, provider), event, accepted, delivered)

    def by_provider(self) -> list[GroupCounts]:
        """Return what the outcomes added, by provider of the mailbox."""
        return [one for one in self._by_provider.values() if one.changed]

    def groups(self) -> list[GroupCounts]:
        """Return what the events added, by group."""
        return [one for one in self._by_key.values() if one.changed]

    def _groups_of(self, message: CountedMessage, day: date, domain: str, provider: str = "") -> list[GroupCounts]:
        """Return the groups in which a delivery counts: domain, each tag, each tag with the domain, and provider."""
        place = (day, domain, message.stream, message.from_domain, tuple(message.tags), provider)
        found = self._found.get(place)
        if found is None:
            found = self._found[place] = [_group(self._by_key, key) for key in _keys(message, day, domain)]
            if provider:
                key = ("", day, provider, message.stream, message.from_domain)
                found.append(_group(self._by_provider, key))
        return found


def _group(known: dict[GroupKey, GroupCounts], key: GroupKey) -> GroupCounts:
    """Return the group of a key; a new one if there is none."""
    group = known.get(key)
    if group is None:
        group = known[key] = GroupCounts(*key)
    return group


def _keys(message: CountedMessage, day: date, domain: str) -> list[GroupKey]:
    stream, from_domain = message.stream, message.from_domain
    keys = [("", day, domain, stream, from_domain)]
    for tag in dict.fromkeys(message.tags):
        keys += (tag, day, "", stream, from_domain), (tag, day, domain, stream, from_domain)
    return keys


def _domain(address: str) -> str:
    return address.rpartition("@")[2].lower()
