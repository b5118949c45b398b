"""Marking and deleting received messages, one or many."""

from collections.abc import Collection
from uuid import UUID

from api.areas.inbound_messages.records import message_of
from api.areas.inbound_messages.schemas import BulkReply, BulkRequest, ReadRequest, ReceivedMessage, SpamRequest
from api.http.operation import Area, Call, LimitedKeys, Operation
from engine.base import ids
from engine.base.errors import not_found
from engine.receiving.inbound_messages import service
from engine.receiving.inbound_messages.service import ChangedMessages

_SPAM: dict[str, bool | None] = {"spam": True, "not_spam": False, "spam_by_score": None}


async def mark_read(call: Call, body: ReadRequest) -> ReceivedMessage:
    """Mark a message read, or unread; without a body it is marked read."""
    return message_of(service.one_of(await _mark_read(call, [call.id], read=body.read)))


async def mark_spam(call: Call, body: SpamRequest) -> ReceivedMessage:
    """Say whether a message is spam, or return that decision to its score."""
    return message_of(service.one_of(await _mark_spam(call, [call.id], spam=body.spam)))


async def delete_message(call: Call) -> None:
    """Delete a message with its attachments."""
    if not (await _delete(call, [call.id])).changed:
        raise not_found("received message")


async def change_many(call: Call, body: BulkRequest) -> BulkReply:
    """Change up to 100 messages in one transaction."""
    wanted: dict[UUID, str] = {}
    unknown: list[str] = []
    for text in dict.fromkeys(body.ids):
        try:
            wanted[ids.parse_id(ids.Kind.RECEIVED, text)] = text
        except ids.WrongId:
            unknown.append(text)
    found = await _apply(call, body.action, wanted)
    missing = [wanted[one] for one in found.missing]
    known = len(wanted) - len(missing)
    return BulkReply(len(found.changed), known - len(found.changed), unknown + missing)


async def _apply(call: Call, action: str, wanted: Collection[UUID]) -> ChangedMessages:
    if action == "delete":
        return await _delete(call, wanted)
    if action in _SPAM:
        return await _mark_spam(call, wanted, spam=_SPAM[action])
    return await _mark_read(call, wanted, read=action == "read")


async def _mark_read(call: Call, wanted: Collection[UUID], *, read: bool) -> ChangedMessages:
    return await service.mark_read(
        call.services.pool, call.account_id, wanted, read=read, domains=call.domains, actor=call.actor
    )


async def _mark_spam(call: Call, wanted: Collection[UUID], *, spam: bool | None) -> ChangedMessages:
    return await service.mark_spam(
        call.services.pool, call.account_id, wanted, spam=spam, domains=call.domains, actor=call.actor
    )


async def _delete(call: Call, wanted: Collection[UUID]) -> ChangedMessages:
    return await service.delete(call.services.pool, call.account_id, wanted, domains=call.domains, actor=call.actor)


_KEYS = Area("Inbound", writes=("inbound:write",), limited_keys=LimitedKeys.OWN, id_of=ids.Kind.RECEIVED)
OPERATIONS = (
    Operation(
        "DELETE",
        "/v1/inbound/messages/{id}",
        delete_message,
        "Delete a received message",
        _KEYS,
        scopes=("inbound:write", "domains:write"),
    ),
    Operation(
        "POST",
        "/v1/inbound/messages/{id}/read",
        mark_read,
        "Mark a received message read or unread",
        _KEYS,
        note="Without a body the message is marked read. `readAt` is the first time of reading and stays.",
    ),
    Operation(
        "POST", "/v1/inbound/messages/{id}/spam", mark_spam, "Override the spam decision on a received message", _KEYS
    ),
    Operation(
        "POST",
        "/v1/inbound/messages/bulk",
        change_many,
        "Mark or delete up to 100 received messages",
        _KEYS,
        note="One transaction with an event for each message that changed. Ids that are no messages of this account "
        "are in `notFound`; they do not stop the others.",
    ),
)
