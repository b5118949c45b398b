"""Collect the messages of a conversation, received and sent, in the order of time.

Received messages share a key, made of the Message-ID that began their conversation. Some mail programs leave out
References, so answers to messages of ours are also found by those.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Literal
from uuid import UUID

import orjson
from msgspec import Struct

from engine.base import ids
from engine.base.errors import existing
from engine.receiving.inbound_messages import rules, store
from engine.receiving.inbound_messages.types import ThreadReceivedRow, ThreadSentRow
from engine.sending.messages.rules import made_at
from engine.store.queries import Source

MAX_MESSAGES = 100
MAX_ROUNDS = 4  # each follows one more link that References left out


class ThreadMessage(Struct, frozen=True, kw_only=True):
    """A message of a conversation with its public ids; `read` is of received messages, `status` of sent ones."""

    type: Literal["received", "sent"]
    id: str
    sender: str | None
    to: list[str]
    subject: str
    snippet: str | None
    at: datetime
    read: bool | None = None
    status: str | None = None
    replies_to: str | None = None


class Thread(Struct, frozen=True):
    """A conversation in the order of time; `complete` is False if older messages were left out."""

    messages: list[ThreadMessage]
    complete: bool


async def conversation(
    source: Source,
    account: UUID,
    message: UUID,
    *,
    domains: Collection[str] | None,
    streams: Collection[str] | None,
) -> Thread:
    """Return the newest MAX_MESSAGES of the conversation of a received message; raise the 404 for an unknown one.

    `domains`, `streams`: those whose messages the caller may see, None for all.
    """
    row = existing(await store.read(source, account, message, domains=domains), rules.WHAT)
    keys, sent_ids, answered = {row.thread_key}, _named(row.replies_to), {row.id}
    received: dict[UUID, ThreadReceivedRow] = {}
    sent: dict[UUID, ThreadSentRow] = {}
    for _ in range(MAX_ROUNDS):
        known = len(keys), len(sent_ids), len(answered)
        limit = MAX_MESSAGES + 1
        for one in await store.thread_received(source, account, keys, sent_ids, answered, domains=domains, limit=limit):
            received[one.id] = one
            keys.add(one.thread_key)
            sent_ids |= _named(one.replies_to)
        for other in await store.thread_sent(
            source, account, sent_ids, received, domains=domains, streams=streams, limit=limit
        ):
            sent[other.id] = other
            sent_ids.add(other.id)
            keys.add(rules.sent_thread_key(other.id, other.from_domain))
            answered |= _named(other.answers)
        if (len(keys), len(sent_ids), len(answered)) == known or len(received) + len(sent) > MAX_MESSAGES:
            break
    found = sorted([*map(_received, received.values()), *map(_sent, sent.values())], key=lambda one: (one.at, one.id))
    return Thread(found[-MAX_MESSAGES:], len(found) <= MAX_MESSAGES)


def _named(message: UUID | None) -> set[UUID]:
    return set() if message is None else {message}


def _received(row: ThreadReceivedRow) -> ThreadMessage:
    return ThreadMessage(
        type="received",
        id=ids.format_id(ids.Kind.RECEIVED, row.id),
        sender=None if row.sender is None else orjson.loads(row.sender)["address"],
        to=[row.address],
        subject=row.subject,
        snippet=row.snippet,
        at=rules.received_at(row.id),
        read=row.is_read,
        replies_to=_public(ids.Kind.MESSAGE, row.replies_to),
    )


def _sent(row: ThreadSentRow) -> ThreadMessage:
    return ThreadMessage(
        type="sent",
        id=ids.format_id(ids.Kind.MESSAGE, row.id),
        sender=row.sender,
        to=list(row.recipients),
        subject=row.subject,
        snippet=None,
        at=made_at(row.id),
        status=row.status,
        replies_to=_public(ids.Kind.RECEIVED, row.answers),
    )


def _public(kind: ids.Kind, found: UUID | None) -> str | None:
    return None if found is None else ids.format_id(kind, found)
