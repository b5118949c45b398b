"""`dryRun`: what a send would do, without doing it."""

from collections.abc import Sequence
from functools import partial

from api.areas.emails.forecasts import forecast_of
from api.areas.emails.schemas import DryRunReply, ForeseenFile, ForeseenMessage
from api.http.operation import Call
from engine.base import clock
from engine.base.errors import Refusal
from engine.mail.read import Bodies, UnreadableMail, bodies
from engine.sending.admission import Decision
from engine.sending.emails.submitted import Submitted
from engine.sending.emails.types import Accepted, Checked, Prepared, SendRequest
from engine.sending.messages.rules import written
from engine.sending.preparation import Origin
from engine.sending.sender_checks import check_message, sender_facts
from engine.store.large_mail import run_sized


async def foreseen(
    call: Call, requests: Sequence[SendRequest | Submitted | Refusal], origin: Origin
) -> list[tuple[Accepted, ForeseenMessage] | Refusal]:
    """Return for each request the reply that its send would get, with the message, or the refusal."""
    acceptor = call.services.acceptor
    checked = await acceptor.preparer.check_all(requests, origin)
    decisions = await acceptor.foresee(checked)
    return [await _shown(*found) for found in zip(decisions, checked, strict=True)]


async def _shown(decision: Decision, made: Checked) -> tuple[Accepted, ForeseenMessage] | Refusal:
    if isinstance(decision, Refusal):
        return decision
    assert isinstance(made, Prepared)  # a refused request has no other decision
    return decision, await run_sized(len(made.mime), partial(_message, made))


async def dry_run(call: Call, request: SendRequest | Submitted, origin: Origin) -> DryRunReply:
    """Return the reply of one send with the message and its checks; raise the refusal that the send would get."""
    call.status = 200
    acceptor, pool = call.services.acceptor, call.services.pool
    [made] = await acceptor.preparer.check_all([request], origin)
    [decision] = await acceptor.foresee([made])
    found = await _shown(decision, made)
    if isinstance(found, Refusal):
        raise found
    assert isinstance(made, Prepared)
    accepted, message = found
    async with pool.acquire() as connection:
        sender = await sender_facts(connection, call.settings, call.account_id, made.from_domain, clock.now().date())
    checks = await run_sized(len(made.mime), partial(check_message, sender, made.mime, made.stream))
    forecast = await forecast_of(call, made, accepted)
    reply = DryRunReply(status=accepted.status, message=message, checks=checks, forecast=forecast)
    if accepted.status == "duplicate":
        reply.id = accepted.id
        if accepted.body_differs:
            reply.body_differs = True
    return reply


def _message(made: Prepared) -> ForeseenMessage:
    try:
        shown = bodies(made.mime)
    except UnreadableMail:
        shown = Bodies(None, None)
    to, cc, bcc = (
        [written(one.mailbox.name, one.mailbox.address) for one in made.recipients if one.kind == kind]
        for kind in ("to", "cc", "bcc")
    )
    return ForeseenMessage(
        from_=made.sender,
        to=to,
        cc=cc,
        bcc=bcc,
        reply_to=made.reply_to,
        subject=made.subject,
        text=shown.text,
        html=shown.html,
        stream=made.stream,
        template=made.template,
        template_version=made.template_version,
        tags=made.tags,
        metadata=made.metadata,
        scheduled_at=clock.iso_or_none(made.scheduled_at),
        deliver_by=clock.iso_or_none(made.deliver_by),
        size_bytes=len(made.mime),
        attachments=[
            ForeseenFile(one.filename, one.content_type, one.size_bytes, one.sha256) for one in made.attachments
        ],
    )
