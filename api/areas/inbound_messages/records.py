"""Received messages as the API shows them."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from api.areas.inbound_messages.schemas import Correspondent, ReceivedAttachmentInfo, ReceivedMessage, ReceivedVerdicts
from engine.base import clock, ids
from engine.receiving.inbound_messages import rules
from engine.receiving.inbound_messages.types import ReceivedRow

WHAT = rules.WHAT

Value = TypeVar("Value")
_ONE = msgspec.json.Decoder(Correspondent).decode
_MANY = msgspec.json.Decoder(list[Correspondent]).decode
_VERDICTS = msgspec.json.Decoder(ReceivedVerdicts).decode
_FILES = msgspec.json.Decoder(list[ReceivedAttachmentInfo]).decode


def message_of(row: ReceivedRow) -> ReceivedMessage:
    """Return a message as the list shows it."""
    return ReceivedMessage(**fields_of(row))


def fields_of(row: ReceivedRow) -> dict[str, Any]:
    """Return the fields that the list and the single message have in common."""
    return {
        "id": ids.format_id(ids.Kind.RECEIVED, row.id),
        "address": row.address,
        "recipient": row.recipient,
        "tag": row.tag,
        "from_": _optional(row.sender, _ONE),
        "reply_to": _optional(row.reply_to, _ONE),
        "to": _MANY(row.to),
        "cc": _MANY(row.cc),
        "subject": row.subject,
        "snippet": row.snippet,
        "date": _iso(row.sent_at),
        "header_message_id": row.header_message_id,
        "in_reply_to": row.in_reply_to,
        "replies_to": None if row.replies_to is None else ids.format_id(ids.Kind.MESSAGE, row.replies_to),
        "received_at": clock.iso(rules.received_at(row.id)),
        "size_bytes": row.size_bytes,
        "read": row.is_read,
        "read_at": _iso(row.read_at),
        "spam": row.is_spam,
        "spam_score": row.spam_score,
        "spam_threshold": row.spam_threshold,
        "spam_override": row.spam_override,
        "authentication": _VERDICTS(row.authentication),
        "action": row.action,
        "fallback": row.fallback,
        "attachments": _FILES(row.attachments),
    }


def _optional(text: str | None, decode: Callable[[str], Value]) -> Value | None:
    return None if text is None else decode(text)


def _iso(at: datetime | None) -> str | None:
    return None if at is None else clock.iso(at)
