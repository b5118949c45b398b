"""`POST /v1/emails`."""

from api.areas.emails.schemas import SendReply, SendRequest
from api.http.operation import Access, Call, Operation
from engine.base.errors import ErrorType
from engine.flows.accept import Door


async def send(call: Call) -> SendReply:
    """Accept one email: 202 for a new one, 200 for the replay of an idempotency key."""
    accepted = await call.services.acceptor.accept(call.body, Door(call.account_id, "api"), size_hint=call.body_bytes)
    reply = SendReply(accepted.id, accepted.status)
    if accepted.status == "duplicate":
        call.status = 200
        if accepted.body_differs:
            reply.body_differs = True
    return reply


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/emails",
        tag="Emails",
        summary="Send an email",
        access=Access.KEY,
        scopes=("emails:send",),
        request=SendRequest,
        reply=SendReply,
        success=202,
        also=(200,),
        refusals=(
            ErrorType.DOMAIN_NOT_VERIFIED,
            ErrorType.INVALID_ADDRESS,
            ErrorType.SUPPRESSED,
            ErrorType.ATTACHMENT_BLOCKED,
            ErrorType.DAILY_LIMIT_REACHED,
            ErrorType.MONTHLY_LIMIT_REACHED,
            ErrorType.PLATFORM_PAUSED,
        ),
        handler=send,
    ),
)
