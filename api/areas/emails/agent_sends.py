"""`/v1/agent-sends`: emails of agents, confirmed by the token of a dry run or approved by a person."""

from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import structs

from api.areas.emails.agent_send_schemas import (
    AgentAccess,
    AgentSend,
    AgentSendDetail,
    AgentSendPage,
    AgentSendReply,
    AgentSendRequest,
    AgentSendsQuery,
    Sending,
)
from api.areas.emails.dry_run import dry_run, foreseen
from api.http.operation import TRACEPARENT, Access, Area, Call, LimitedKeys, Operation
from api.http.paging import Page
from engine.accounts.request_log.rules import agent_of
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, existing
from engine.base.scopes import SCOPES
from engine.base.secrets import derived
from engine.people.api_keys.key_auth import Caller
from engine.people.api_keys.rules import KeyRestrictions
from engine.sending.agent_sends import rules, service, store
from engine.sending.agent_sends.rules import Door
from engine.sending.agent_sends.types import MAX_EMAIL_BYTES, AgentSendRow, NewAgentSend
from engine.sending.emails.recipients import recipients_of
from engine.sending.emails.request_digest import request_digest
from engine.sending.emails.types import SEND_REFUSALS, SendRequest
from engine.sending.preparation import Origin


async def access(call: Call) -> AgentAccess:
    """Return what the key of the request lets an agent do; with a person's session that is nothing."""
    caller = call.caller
    if caller is None:
        return AgentAccess(scopes=[], recipients=None, sending="forbidden")
    reach = caller.reach
    recipients = None if reach is None or reach.recipients is None else sorted(reach.recipients)
    return AgentAccess(
        scopes=sorted(caller.scopes),
        recipients=recipients,
        sending=_SENDING[rules.door_of(reach)] if "emails:send" in caller.scopes else "forbidden",
    )


async def send(call: Call, body: AgentSendRequest) -> AgentSendReply:
    """Send an email of an agent, or show what would be sent, as the policy of the key says."""
    caller, at = _key(call), clock.now()
    email = await _pinned(call, body.email)
    digest = request_digest(email)
    origin = Origin(caller.account_id, "api", _without_approval(caller.reach), traceparent=call.traceparent)
    if body.dry_run:
        return await _shown(call, email, digest, origin, at)
    match rules.door_of(caller.reach):
        case Door.APPROVED:
            return await _asked(call, email, digest, origin, at)
        case Door.CONFIRMED:
            key = derived(call.settings.pepper, rules.TOKEN_PURPOSE)
            rules.check_token(key, body.token, caller.account_id, caller.id, digest, at)
            return await _sent(call, email, origin, rules.key_of_token(body.token or ""))
        case Door.AT_ONCE:
            return await _sent(call, email, origin, rules.key_of_content(caller.id, digest, at))


async def list_sends(call: Call, query: AgentSendsQuery, page: Page) -> AgentSendPage:
    """Return a page of the sends that a person decides on; a key sees those that it asked for."""
    at = clock.now()
    rows = await store.LIST.fetch(
        call.services.pool, call.account_id, page.before, query.state, _own_key(call), page.probe, at
    )
    return AgentSendPage(*page.of(rows, lambda row: AgentSend(**_fields(row, at))))


async def read_send(call: Call) -> AgentSendDetail:
    """Return a send; while it waits, with the message as it would go out now, or the refusal that it would get."""
    row = existing(await store.READ.first(call.services.pool, call.account_id, call.id, _own_key(call)), service.WHAT)
    detail = AgentSendDetail(**_fields(row, clock.now()))
    email = service.email_of(row, call.settings.pepper)
    if email is not None and detail.state in ("pending", "approved"):
        keyed = structs.replace(email, idempotency_key=None)
        (found,) = await foreseen(call, [keyed], Origin(call.account_id, "api"))
        found = await service.refusal_of_key(call.services.pool, call.account_id, row) or found
        if isinstance(found, Refusal):
            detail.error = found.envelope(call.request.context.docs)["error"]
        else:
            detail.message = found[1]
    return detail


async def approve(call: Call) -> AgentSend:
    """Send the email as its agent asked."""
    services, at = call.services, clock.now()
    row = await service.approve(
        services.pool, services.acceptor, call.account_id, call.id, call.person.user_id, call.settings.pepper, at
    )
    return AgentSend(**_fields(row, at))


async def decline(call: Call) -> AgentSend:
    """Decline a send; nothing goes out."""
    at = clock.now()
    row = await service.decline(call.services.pool, call.account_id, call.id, call.person.user_id, at)
    return AgentSend(**_fields(row, at))


def _key(call: Call) -> Caller:
    if call.caller is None:
        raise Refusal(ErrorType.FORBIDDEN, "Agents use an API key here; a signed-in person sends with POST /v1/emails.")
    return call.caller


def _own_key(call: Call) -> object:
    return None if call.caller is None else call.caller.id


def _without_approval(reach: KeyRestrictions | None) -> KeyRestrictions | None:
    return None if reach is None else structs.replace(reach, needs_approval=False)


async def _pinned(call: Call, email: SendRequest) -> SendRequest:
    """Return an email with the version of its template: what was shown goes out, whatever is published since."""
    if email.template is None or email.template_version is not None:
        return email
    known = await call.services.acceptor.preparer.templates.get(call.account_id, email.template, None)
    return email if known is None else structs.replace(email, template_version=known.version)


async def _shown(call: Call, email: SendRequest, digest: bytes, origin: Origin, at: datetime) -> AgentSendReply:
    found = await dry_run(call, structs.replace(email, idempotency_key=None), origin)
    caller = _key(call)
    key = derived(call.settings.pepper, rules.TOKEN_PURPOSE)
    token, ends = rules.token_of(key, caller.account_id, caller.id, digest, at)
    return AgentSendReply(state="preview", token=token, expires_at=clock.iso(ends), preview=found)


async def _sent(call: Call, email: SendRequest, origin: Origin, key: str) -> AgentSendReply:
    acceptor = call.services.acceptor
    keyed = email if email.idempotency_key is not None else structs.replace(email, idempotency_key=key)
    decision = await acceptor.accept(await acceptor.preparer.check(keyed, origin))
    if decision.status == "duplicate":
        call.status = 200
    return AgentSendReply(state="sent", message_id=decision.id, duplicate=decision.status == "duplicate")


async def _asked(call: Call, email: SendRequest, digest: bytes, origin: Origin, at: datetime) -> AgentSendReply:
    """Store the send for a person; a send that would be refused is refused before anybody looks at it."""
    (found,) = await foreseen(call, [structs.replace(email, idempotency_key=None)], origin)
    if isinstance(found, Refusal):
        raise found
    new = NewAgentSend(
        key_id=_key(call).id,
        agent=call.agent or agent_of(call.request.user_agent),
        digest=digest,
        sender=email.from_,
        subject=found[1].subject,
        recipients=[one.canonical for one in recipients_of(email)],
        email=msgspec.json.encode(email),
    )
    row = await service.ask(call.services.pool, call.account_id, new, call.settings.pepper, at)
    return AgentSendReply(
        state="pending", id=ids.format_id(ids.Kind.AGENT_SEND, row.id), expires_at=clock.iso(row.expires_at)
    )


def _fields(row: AgentSendRow, at: datetime) -> dict[str, Any]:
    return {
        "id": ids.format_id(ids.Kind.AGENT_SEND, row.id),
        "state": rules.state_of(row, at),
        "key_id": ids.format_id(ids.Kind.API_KEY, row.key_id),
        "agent": row.agent,
        "from_": row.sender,
        "recipients": row.recipients,
        "subject": row.subject,
        "message_id": None if row.message_id is None else ids.format_id(ids.Kind.MESSAGE, row.message_id),
        "decided_by": None if row.decided_by is None else ids.format_id(ids.Kind.USER, row.decided_by),
        "created_at": clock.iso(row.created_at),
        "expires_at": clock.iso(row.expires_at),
        "decided_at": clock.iso_or_none(row.decided_at),
    }


_SENDING: Final[dict[Door, Sending]] = {Door.AT_ONCE: "at_once", Door.CONFIRMED: "confirm", Door.APPROVED: "approval"}
_KEYS = Area(
    "Agents",
    reads=("emails:send",),
    writes=("emails:send",),
    limited_keys=LimitedKeys.OWN,
    id_of=ids.Kind.AGENT_SEND,
)
_PEOPLE = Area("Agents", access=Access.SESSION, id_of=ids.Kind.AGENT_SEND)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/agent-access",
        access,
        "Read what the API key lets an agent do",
        Area("Agents", reads=tuple(sorted(SCOPES)), limited_keys=LimitedKeys.FREE),
        note="An extra beyond the contract. Any key reads its own scopes, and how it sends over MCP.",
    ),
    Operation(
        "POST",
        "/v1/agent-sends",
        send,
        "Send an email of an agent, as the policy of its key says",
        _KEYS,
        headers=(TRACEPARENT,),
        success=202,
        also=(200,),
        max_body_bytes=MAX_EMAIL_BYTES,
        refusals=(*SEND_REFUSALS, ErrorType.CONFLICT),
        note="An extra beyond the contract; the tool `send_email` of the MCP server calls it. A key with "
        "`agent.recipients` sends at once. With an `agent.approval` of `required` a person decides first. Any other "
        "key sends what it has shown: `dryRun` returns a `token`, which sends the same email once, within 10 minutes.",
    ),
    Operation(
        "GET",
        "/v1/agent-sends",
        list_sends,
        "List the sends of agents that a person decides on",
        _KEYS,
        page=ids.Kind.AGENT_SEND,
        note="An extra beyond the contract. A key sees the sends that it asked for.",
    ),
    Operation(
        "GET",
        "/v1/agent-sends/{id}",
        read_send,
        "Read a send that a person decides on",
        _KEYS,
        note="An extra beyond the contract. The email is deleted with the decision, or after 24 hours without one.",
    ),
    Operation(
        "POST",
        "/v1/agent-sends/{id}/approve",
        approve,
        "Approve a send of an agent: it goes out",
        _PEOPLE,
        note="An extra beyond the contract. Any member of the account may approve, as any member may send.",
        refusals=(*SEND_REFUSALS, ErrorType.INVALID_STATE),
    ),
    Operation(
        "POST",
        "/v1/agent-sends/{id}/decline",
        decline,
        "Decline a send of an agent",
        _PEOPLE,
        note="An extra beyond the contract.",
        refusals=(ErrorType.INVALID_STATE,),
    ),
)
