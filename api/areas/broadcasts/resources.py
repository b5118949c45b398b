"""`/v1/broadcasts`: drafting, testing, sending, pausing and reading broadcasts."""

from api.areas.broadcasts import records
from api.areas.broadcasts.schemas import (
    BroadcastChange,
    BroadcastPage,
    BroadcastPreviewQuery,
    BroadcastRecord,
    BroadcastSend,
    BroadcastTest,
    BroadcastTestReply,
    BroadcastWithCounts,
    NewBroadcast,
    RenderedBroadcast,
)
from api.http import item_errors, owner_checks
from api.http.operation import Area, Call, LimitedKeys, Operation
from api.http.paging import Page
from api.http.path_ids import path_id
from engine.audience.broadcasts import audience as broadcast_audience
from engine.audience.broadcasts import draft as broadcast_draft
from engine.audience.broadcasts import samples as broadcast_samples
from engine.audience.broadcasts import send as broadcast_send
from engine.audience.broadcasts import service, store
from engine.audience.broadcasts.sample_checks import sample_checks
from engine.audience.broadcasts.types import Broadcast
from engine.base import ids
from engine.base.errors import ErrorType
from engine.base.list_filters import narrowed
from engine.mail.unsubscribe_links import UnsubscribeLinks
from engine.mail.unsubscribe_token import key_of
from engine.people.api_keys.key_auth import check_scope
from engine.sending import block_content
from engine.sending.preparation import Origin
from engine.sending.sender_requirements import SendChecks


async def create(call: Call, body: NewBroadcast) -> BroadcastRecord:
    """Create a draft."""
    fields = await records.fields_of(call, body)
    row = await broadcast_draft.create(
        call.services.pool, call.services.acceptor, fields, _origin(call), actor=call.actor
    )
    return records.record(row)


async def list_broadcasts(call: Call, page: Page) -> BroadcastPage:
    """Return a page of the account's broadcasts."""
    names = narrowed(None, call.domains), narrowed(None, call.streams)
    rows = await store.LIST.fetch(call.services.pool, call.account_id, page.before, page.probe, *names)
    return BroadcastPage(*page.of(rows, records.item))


async def read(call: Call) -> BroadcastWithCounts:
    """Return one broadcast with its counts."""
    row = await _row(call)
    counts = await store.counts(call.services.pool, row.id)
    recipients: int | None = counts.recipients
    if row.started_at is None and row.finished_at is None:
        recipients = await broadcast_audience.count_now(call.services.pool, row.account_id, row.audience)
    return records.with_counts(row, counts, recipients)


async def change(call: Call, body: BroadcastChange) -> BroadcastRecord:
    """Change the given fields of a draft."""
    fields = await records.fields_of(call, body)
    row = await broadcast_draft.change(
        call.services.pool, call.services.acceptor, call.id, fields, _origin(call), actor=call.actor
    )
    return records.record(row)


async def delete(call: Call) -> None:
    """Delete a broadcast of which nothing was sent."""
    await service.delete(call.services.pool, call.account_id, call.id, actor=call.actor)


async def send(call: Call, body: BroadcastSend) -> BroadcastRecord:
    """Send a broadcast, now or at its time."""
    row = await broadcast_send.send(
        call.services.pool, call.services.acceptor, call.id, body.scheduled_at,
        _origin(call), give_up_s=call.settings.give_up_s, actor=call.actor,
    )  # fmt: skip
    return records.record(row)


async def pause(call: Call) -> BroadcastRecord:
    """Pause a broadcast that is sending."""
    row = await service.pause(call.services.pool, call.account_id, call.id, actor=call.actor)
    return records.record(row)


async def resume(call: Call) -> BroadcastRecord:
    """Resume a paused broadcast."""
    row = await service.resume(call.services.pool, call.account_id, call.id, actor=call.actor)
    return records.record(row)


async def cancel(call: Call) -> BroadcastRecord:
    """Cancel a broadcast."""
    row = await service.cancel(call.services.pool, call.account_id, call.id, actor=call.actor)
    return records.record(row)


async def test(call: Call, body: BroadcastTest) -> BroadcastTestReply:
    """Mail a broadcast to people of the team."""
    row = await _row(call)
    to = body.to
    decisions = await broadcast_samples.send_test(
        call.services.pool, call.services.acceptor, _links(call), row, to, _origin(call)
    )
    data = [records.tested(*one) for one in zip(to, decisions, strict=True)]
    item_errors.link(call, data)
    return BroadcastTestReply(data)


async def preview(call: Call, query: BroadcastPreviewQuery) -> RenderedBroadcast:
    """Render a broadcast for a contact."""
    if query.contact is not None and call.caller is not None:  # the answer shows what the contact's record holds
        check_scope(call.caller, ("contacts:read",))
    contact = None if query.contact is None else path_id(ids.Kind.CONTACT, query.contact, "contact")
    found = await broadcast_samples.preview(call.services.pool, _links(call), await _row(call), contact)
    content = found.content
    html = await block_content.shown(
        call.services.pool, call.account_id, found.blocks, content.html, call.settings.public_url
    )
    return RenderedBroadcast(query.contact, found.recipients, content.subject, html, content.text)


async def check(call: Call) -> SendChecks:
    """Return what spam filters and mailbox providers will probably make of the broadcast."""
    services = call.services
    return await sample_checks(
        services.pool, services.acceptor, call.settings, _links(call), await _row(call), _origin(call)
    )


async def _row(call: Call) -> Broadcast:
    return await service.read(call.services.pool, call.account_id, call.id)


def _origin(call: Call) -> Origin:
    return Origin(call.account_id, "api", call.reach, traceparent=call.traceparent)


def _links(call: Call) -> UnsubscribeLinks:
    settings = call.settings
    return UnsubscribeLinks(key_of(settings.pepper), settings.public_url, settings.mail_host)


_CONTENT = (
    ErrorType.DOMAIN_NOT_VERIFIED, ErrorType.TEMPLATE_ERROR, ErrorType.ATTACHMENT_BLOCKED, ErrorType.NOT_FOUND,
)  # fmt: skip

_KEYS = Area(
    "Broadcasts",
    reads=("broadcasts:read",),
    writes=("broadcasts:write",),
    limited_keys=LimitedKeys.OWN,
    owner_check=owner_checks.broadcast,
    id_of=ids.Kind.BROADCAST,
)
OPERATIONS = (
    Operation(
        "GET", "/v1/broadcasts", list_broadcasts, "List broadcasts", _KEYS, page=ids.Kind.BROADCAST, lagging=True
    ),
    Operation(
        "POST",
        "/v1/broadcasts",
        create,
        "Draft a broadcast to a contact list or a segment",
        _KEYS,
        note="Nothing is sent until `send`. A draft may lack its content; what it has is checked as for a send.",
        success=201,
        carries_messages=True,
        refusals=(*_CONTENT, ErrorType.INVALID_STATE),
    ),
    Operation(
        "GET", "/v1/broadcasts/{id}", read, "Read a broadcast with its progress and the outcomes of its messages", _KEYS
    ),
    Operation(
        "PATCH",
        "/v1/broadcasts/{id}",
        change,
        "Change a draft",
        _KEYS,
        carries_messages=True,
        refusals=(*_CONTENT, ErrorType.INVALID_STATE),
    ),
    Operation(
        "DELETE",
        "/v1/broadcasts/{id}",
        delete,
        "Delete a broadcast of which nothing was sent and that is not in progress",
        _KEYS,
        refusals=(ErrorType.INVALID_STATE,),
    ),
    Operation(
        "POST",
        "/v1/broadcasts/{id}/send",
        send,
        "Send a broadcast, now or at its time",
        _KEYS,
        note="The recipients are those who are on the list when it starts. On a scheduled broadcast it moves the time. "
        "Until the operator has approved a broadcast of the account, one that brings the recipients of 24 hours over "
        "1,000 waits for review.",
        success=202,
        refusals=(*_CONTENT, ErrorType.INVALID_STATE),
    ),
    Operation(
        "POST",
        "/v1/broadcasts/{id}/pause",
        pause,
        "Pause a broadcast that is sending",
        _KEYS,
        note="After the response no further message is accepted; accepted ones are still delivered.",
        refusals=(ErrorType.INVALID_STATE,),
    ),
    Operation(
        "POST",
        "/v1/broadcasts/{id}/resume",
        resume,
        "Resume a paused broadcast where it was paused",
        _KEYS,
        refusals=(ErrorType.INVALID_STATE,),
    ),
    Operation(
        "POST",
        "/v1/broadcasts/{id}/cancel",
        cancel,
        "Cancel a broadcast; what was sent stays sent",
        _KEYS,
        refusals=(ErrorType.INVALID_STATE,),
    ),
    Operation(
        "POST",
        "/v1/broadcasts/{id}/test",
        test,
        "Mail a broadcast to up to 5 people of the account's team",
        _KEYS,
        note="The subject begins with `[Test]`, the unsubscribe link has no effect, and each message counts as a send.",
        success=202,
        refusals=(
            *_CONTENT,
            ErrorType.INVALID_ADDRESS,
            ErrorType.SUPPRESSED,
            ErrorType.DAILY_LIMIT_REACHED,
            ErrorType.MONTHLY_LIMIT_REACHED,
            ErrorType.PLATFORM_PAUSED,
        ),
    ),
    Operation(
        "GET",
        "/v1/broadcasts/{id}/preview",
        preview,
        "Render a broadcast for a contact, and count its recipients",
        _KEYS,
        note="With `contact` the key needs `contacts:read` too.",
        refusals=(ErrorType.TEMPLATE_ERROR,),
    ),
    Operation(
        "GET",
        "/v1/broadcasts/{id}/checks",
        check,
        "Check a broadcast against spam rules and the requirements of mailbox providers",
        _KEYS,
        note="An extra beyond the contract: the `checks` of a dry run, for the message to a contact without fields.",
        refusals=_CONTENT,
    ),
)
