"""`/v1/compat/resend/…`: reading and changing what was sent, and reading domains, in the form of Resend."""

from typing import Any, Final
from uuid import UUID

from api.areas.compat import resend_mapping, stored
from api.areas.compat.forms import RESEND_ERRORS, RESEND_PATH
from api.areas.compat.read_schemas import (
    ResendChange,
    ResendChanged,
    ResendDomain,
    ResendDomainDetail,
    ResendDomains,
    ResendListQuery,
    ResendMessage,
    ResendMessageDetail,
    ResendMessages,
    ResendRecord,
)
from api.http import owner_checks
from api.http.operation import Area, Call, LimitedKeys, Operation, OwnerCheck
from api.http.path_ids import cursor_id
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, invalid, not_found
from engine.base.events import Status
from engine.base.list_filters import narrowed
from engine.sending.cancel_schedule import cancel_schedule
from engine.sending.domains import store as domains
from engine.sending.domains.types import CheckedRecord, DomainRow, Purpose, RecordStatus
from engine.sending.domains.verification import known_records
from engine.sending.messages import rules
from engine.sending.messages.types import MessageRow
from engine.sending.reschedule import reschedule

# https://resend.com/docs/dashboard/emails/introduction#understand-email-events
_EVENTS: Final = {
    Status.QUEUED: "queued", Status.SENDING: "sent", Status.DELIVERED: "delivered", Status.BOUNCED: "bounced",
    Status.COMPLAINED: "complained", Status.FAILED: "failed", Status.REJECTED: "failed", Status.SCHEDULED: "scheduled",
    Status.CANCELED: "canceled",
}  # fmt: skip
_DELAYED: Final = "delivery_delayed"
_RECORDS: Final[dict[RecordStatus, str]] = {"ok": "verified", "missing": "pending", "mismatch": "failed"}
_PURPOSES: Final[dict[Purpose, str]] = {
    "dkim": "DKIM", "return_path": "SPF", "dmarc": "DMARC", "inbound": "Receiving", "mta_sts": "MTA-STS",
    "tls_rpt": "TLS-RPT",
}  # fmt: skip


async def list_messages(call: Call, query: ResendListQuery) -> ResendMessages:
    """Return a page of the account's messages."""
    wanted = rules.filters(
        before=_after(ids.Kind.MESSAGE, query), status=None, to=None, search=None, domain=None, stream=None, tags=(),
        metadata=None, since=None, until=None, visible_domains=call.domains, visible_streams=call.streams,
    )  # fmt: skip
    found = await stored.page(call, wanted, limit=query.limit)
    return ResendMessages(has_more=found.has_more, data=[ResendMessage(**_fields(row)) for row in found.rows])


async def read_message(call: Call) -> ResendMessageDetail:
    """Return one message with its content."""
    found = await stored.content(call, call.id)
    tags = [{"name": name, "value": value} for name, value in stored.metadata_of(found.row).items()]
    return ResendMessageDetail(**_fields(found.row), html=found.bodies.html, text=found.bodies.text, tags=tags)


async def change_message(call: Call, body: ResendChange) -> ResendChanged:
    """Give a scheduled message another time."""
    if body.id not in (None, call.path["id"]):
        raise invalid("id", "`id` is not the message in the path. Leave it out.")
    at = resend_mapping.moment(body.scheduled_at)
    try:
        await reschedule(
            call.services.pool, call.account_id, call.id, at,
            give_up_s=call.settings.give_up_s, pepper=call.settings.pepper, actor=call.actor,
        )  # fmt: skip
    except Refusal as refusal:
        raise resend_mapping.NAMES.refusal(refusal) from None
    return ResendChanged(id=call.path["id"])


async def cancel_message(call: Call) -> ResendChanged:
    """Cancel a scheduled message."""
    await cancel_schedule(call.services.pool, call.account_id, call.id, actor=call.actor)
    return ResendChanged(id=call.path["id"])


async def list_domains(call: Call, query: ResendListQuery) -> ResendDomains:
    """Return a page of the account's domains."""
    before, names = _after(ids.Kind.DOMAIN, query), narrowed(None, call.domains)
    rows = await domains.LIST.fetch(call.services.pool, call.account_id, before, query.limit + 1, names)
    data = [_domain(row) for row in rows[: query.limit]]
    return ResendDomains(has_more=len(rows) > query.limit, data=data)


async def read_domain(call: Call) -> ResendDomainDetail:
    """Return one domain with its records."""
    row = await domains.FIND.first(call.services.pool, call.account_id, call.id)
    if row is None:
        raise not_found("domain")
    keys = await domains.PUBLISHED.fetch(call.services.pool, row.id)
    records = [_record(one) for one in known_records(call.settings, row, keys) if not one.wanted.by_operator]
    shown = _domain(row)
    return ResendDomainDetail(
        id=shown.id, name=shown.name, status=shown.status, created_at=shown.created_at, records=records
    )


def last_event(row: MessageRow) -> str:
    """Return Resend's name of a message's status; of one that is retried, that it is delayed."""
    status = Status(row.status)
    retried = status is Status.SENDING and any(one.next_attempt_at for one in stored.recipients_of(row) if one.attempts)
    return _DELAYED if retried else _EVENTS[status]


def _after(kind: ids.Kind, query: ResendListQuery) -> UUID | None:
    if query.before is not None:
        raise invalid("before", "`before` is not supported here. Page with `after`, the last id of a page.")
    return cursor_id(kind, query.after, "after")


def _fields(row: MessageRow) -> dict[str, Any]:
    return {
        "id": ids.format_id(ids.Kind.MESSAGE, row.id),
        "from_": row.sender,
        **{kind: stored.written(row, kind) for kind in ("to", "cc", "bcc")},
        "reply_to": [] if row.reply_to is None else [row.reply_to],
        "subject": row.subject,
        "created_at": stored.made_at(row),
        "scheduled_at": None if row.scheduled_at is None else clock.iso(row.scheduled_at),
        "last_event": last_event(row),
    }


def _domain(row: DomainRow) -> ResendDomain:
    return ResendDomain(
        id=ids.format_id(ids.Kind.DOMAIN, row.id),
        name=row.name,
        status=row.status,
        created_at=clock.iso(row.created_at),
    )


def _record(check: CheckedRecord) -> ResendRecord:
    wanted = check.wanted
    return ResendRecord(
        record=_PURPOSES[wanted.purpose],
        name=wanted.host,
        type=wanted.type,
        status=_RECORDS[check.finding.status],
        value=wanted.value,
    )


_NOTE: Final = "For clients of Resend, as `POST /v1/compat/resend/emails`. Errors have the form of Resend."
_SENT: Final = Area(
    "Compatibility",
    reads=("messages:read",),
    writes=("emails:send",),
    limited_keys=LimitedKeys.OWN,
    owner_check=owner_checks.message,
    id_of=ids.Kind.MESSAGE,
)
_DOMAINS: Final = Area(
    "Compatibility",
    reads=("domains:read",),
    limited_keys=LimitedKeys.OWN,
    owner_check=owner_checks.domain,
    id_of=ids.Kind.DOMAIN,
)


def _operation(
    method: str,
    path: str,
    handler: Any,
    summary: str,
    area: Area,
    *refusals: ErrorType,
    lagging: bool = False,
    owner_check: OwnerCheck | None = None,
) -> Operation:
    return Operation(
        method, f"{RESEND_PATH}{path}", handler, summary, area, note=_NOTE, errors=RESEND_ERRORS, refusals=refusals,
        lagging=lagging, owner_check=owner_check,
    )  # fmt: skip


OPERATIONS = (
    _operation(
        "GET", "/emails", list_messages, "List messages in the form of Resend's `GET /emails`", _SENT, lagging=True
    ),
    _operation("GET", "/emails/{id}", read_message, "Read a message in the form of Resend's `GET /emails/{id}`", _SENT),
    _operation(
        "PATCH", "/emails/{id}", change_message,
        "Give a scheduled message another time as Resend's `PATCH /emails/{id}`", _SENT,
        ErrorType.INVALID_STATE, ErrorType.DAILY_LIMIT_REACHED, ErrorType.MONTHLY_LIMIT_REACHED,
        owner_check=owner_checks.rescheduling,
    ),
    _operation(
        "POST", "/emails/{id}/cancel", cancel_message,
        "Cancel a scheduled message as Resend's `POST /emails/{id}/cancel`", _SENT, ErrorType.INVALID_STATE,
        owner_check=owner_checks.cancellation,
    ),
    _operation("GET", "/domains", list_domains, "List domains in the form of Resend's `GET /domains`", _DOMAINS),
    _operation(
        "GET", "/domains/{id}", read_domain, "Read a domain in the form of Resend's `GET /domains/{id}`", _DOMAINS
    ),
)  # fmt: skip
