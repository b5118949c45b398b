"""Conversations of received messages: showing them, answering, and sending a message along its route again."""

from api.areas.inbound_messages.schemas import Conversation, ConversationMessage, ReplayReply, ReplyAccepted
from api.http.operation import Area, Call, LimitedKeys, Operation
from engine.base import clock, ids
from engine.base.errors import ErrorType
from engine.people.api_keys.key_auth import check_scope
from engine.receiving.inbound_messages import conversation, reply
from engine.receiving.inbound_messages.reply import ReplyRequest
from engine.receiving.inbound_routes import replay
from engine.sending.preparation import Origin


async def read_thread(call: Call) -> Conversation:
    """Return the conversation of a received message."""
    found = await conversation.conversation(
        call.services.pool, call.account_id, call.id, domains=call.domains, streams=call.streams
    )
    data = [
        ConversationMessage(
            type=one.type,
            id=one.id,
            from_=one.sender,
            to=one.to,
            subject=one.subject,
            snippet=one.snippet,
            at=clock.iso(one.at),
            read=one.read,
            status=one.status,
            replies_to=one.replies_to,
        )
        for one in found.messages
    ]
    return Conversation(data, found.complete)


async def answer_message(call: Call, body: ReplyRequest) -> ReplyAccepted:
    """Accept an answer to a received message; answer 202 for a new one, 200 for a replay of an idempotency key."""
    if call.caller is not None:  # the key sends and, by its recipient and subject, reads
        check_scope(call.caller, _KEYS.reads)
    origin = Origin(call.account_id, "api", call.reach, traceparent=call.traceparent)
    accepted = await reply.answer(
        call.services.pool, call.services.acceptor, call.id, body, origin, domains=call.domains
    )
    if accepted.status == "duplicate":
        call.status = 200
    return ReplyAccepted(accepted.id, accepted.status)


async def replay_message(call: Call) -> ReplayReply:
    """Send a received message along its route again."""
    found = await replay.replay(
        call.services.pool,
        call.account_id,
        call.id,
        domains=call.domains,
        actor=call.actor,
        scanner_required=call.settings.clamd_required,
    )
    decision = found.decision
    return ReplayReply(
        ids.format_id(ids.Kind.EVENT, found.event_id),
        decision.action.value,
        [ids.format_id(ids.Kind.WEBHOOK, one) for one in decision.webhook_ids],
        decision.forward_to,
    )


_KEYS = Area(
    "Inbound",
    reads=("inbound:read", "messages:read"),
    writes=("emails:send",),
    limited_keys=LimitedKeys.OWN,
    id_of=ids.Kind.RECEIVED,
)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/inbound/messages/{id}/thread",
        read_thread,
        "Read the conversation of a received message",
        _KEYS,
        note=f"Received and sent messages in the order of time, the newest {conversation.MAX_MESSAGES}.",
    ),
    Operation(
        "POST",
        "/v1/inbound/messages/{id}/reply",
        answer_message,
        "Reply to a received message",
        _KEYS,
        note="A send like `POST /v1/emails`, with sender, recipient (Reply-To or From), subject, In-Reply-To and "
        "References filled in where the request leaves them out. A key needs the scope `emails:send` and one of "
        "`inbound:read` and `messages:read`.",
        carries_messages=True,
        success=202,
        also=(200,),
        refusals=(
            ErrorType.DOMAIN_NOT_VERIFIED,
            ErrorType.PLAN_LIMIT_REACHED,
            ErrorType.INVALID_ADDRESS,
            ErrorType.SUPPRESSED,
            ErrorType.ATTACHMENT_BLOCKED,
            ErrorType.TEMPLATE_ERROR,
            ErrorType.DAILY_LIMIT_REACHED,
            ErrorType.MONTHLY_LIMIT_REACHED,
            ErrorType.PLATFORM_PAUSED,
            ErrorType.INVALID_STATE,
        ),
    ),
    Operation(
        "POST",
        "/v1/inbound/messages/{id}/replay",
        replay_message,
        "Send a received message along its route again",
        _KEYS,
        note="The route of its address as it is now decides; the webhook posts carry the same delivery id as before. A "
        "route that forwards sends a new message, also of spam; a message with a virus is never forwarded.",
        scopes=("inbound:write",),
        success=202,
        refusals=(ErrorType.INVALID_STATE, ErrorType.ATTACHMENT_INFECTED, ErrorType.ATTACHMENT_BLOCKED),
    ),
)
