"""`/v1/compat/postmark/…`: searching what was sent, bounces and suppressions, in the form of Postmark."""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import structs

from api.areas.compat import postmark_read_mapping as mapping
from api.areas.compat import stored
from api.areas.compat.forms import KEY_HEADER, KEY_HEADER_FIELD, POSTMARK_ERRORS, POSTMARK_PATH
from api.areas.compat.read_schemas import (
    PostmarkActivated,
    PostmarkBounce,
    PostmarkBounces,
    PostmarkBouncesQuery,
    PostmarkDump,
    PostmarkMessageDetail,
    PostmarkMessages,
    PostmarkMessagesQuery,
    PostmarkSuppressions,
    PostmarkSuppressionsQuery,
)
from api.http import owner_checks
from api.http.operation import Area, Call, LimitedKeys, Operation, Streamed
from engine.base import ids
from engine.base.errors import ErrorType, Refusal, invalid, not_found
from engine.base.list_cursors import ListPlace
from engine.base.slugs import is_slug
from engine.mail.address import BadAddress, canonical
from engine.sending.bounces import rules as bounce_rules
from engine.sending.bounces import store as bounces
from engine.sending.bounces.types import BounceFilters, BounceRow, BounceType
from engine.sending.emails.defaults import DEFAULT_STREAM
from engine.sending.messages import rules
from engine.sending.messages import store as messages
from engine.sending.streams import store as streams
from engine.sending.suppressions import rules as suppression_rules
from engine.sending.suppressions import service as suppressions_service
from engine.sending.suppressions import store as suppressions
from engine.sending.suppressions.types import Reason

DUMP_ROWS: Final = 1_000  # in one query, and in one piece of the response
MAX_ROUNDS: Final = 10  # pages of our log of bounces that one search reads
_ENCODER = msgspec.json.Encoder()
Found = TypeVar("Found")


async def search_messages(call: Call, query: PostmarkMessagesQuery) -> PostmarkMessages:
    """Return the messages that a search finds."""
    _refuse_given(query, "fromemail", "subject", "status")
    reach = mapping.checked_reach(query.count, query.offset)
    wanted = _named(
        lambda: rules.filters(
            before=None, status=None, to=query.recipient, search=None, domain=None,
            stream=mapping.stream_of(query.messagestream), tags=() if query.tag is None else (query.tag,),
            metadata=None, **mapping.period(query.fromdate, query.todate), visible_domains=call.domains,
            visible_streams=call.streams,
        )
    )  # fmt: skip
    found = await stored.page(call, wanted, limit=reach)
    data = [mapping.message(row) for row in found.rows[query.offset :]]
    return PostmarkMessages(len(found.rows) + found.has_more, data)


async def read_message(call: Call) -> PostmarkMessageDetail:
    """Return one message with its content and events."""
    return mapping.message_detail(await stored.content(call, call.id))


async def dump_message(call: Call) -> PostmarkDump:
    """Return the source of one message."""
    found = await stored.content(call, call.id)
    return PostmarkDump("" if found.mime is None else found.mime.decode("utf-8", "replace"))


async def search_bounces(call: Call, query: PostmarkBouncesQuery) -> PostmarkBounces:
    """Return the bounces that a search finds."""
    _refuse_given(query, "inactive", "tag", "messageID")
    reach = mapping.checked_reach(query.count, query.offset)
    wanted = _filters(call, query)
    if query.email_filter is None:
        rows, has_more = await _page(call, wanted, query.type, reach)
    else:
        rows, has_more = await _of_address(call, wanted, query.type, query.email_filter), False
    total = len(rows) + has_more
    return PostmarkBounces(total, await _shown(call, rows[query.offset : reach]))


async def read_bounce(call: Call) -> PostmarkBounce:
    """Return one bounce."""
    (found,) = await _shown(call, [await _bounce(call)])
    return found


async def dump_bounce(call: Call) -> PostmarkDump:
    """Return the reply of one bounce: nothing else is kept."""
    return PostmarkDump(mapping.reply_of(stored.detail_of((await _bounce(call)).payload)))


async def activate_bounce(call: Call) -> PostmarkActivated:
    """Remove the suppression of a bounce's address, unless there is none."""
    row = await _bounce(call)
    address = canonical(str(stored.detail_of(row.payload).get("recipient", "")))
    try:
        await suppressions_service.lift(call.services.pool, call.account_id, address, actor=call.actor)
    except Refusal as refusal:
        if refusal.kind is not ErrorType.NOT_FOUND:
            raise
    (found,) = await _shown(call, [row])
    return PostmarkActivated("OK", found)


async def dump_suppressions(call: Call, query: PostmarkSuppressionsQuery) -> Streamed:
    """Stream the suppressed addresses of a stream, newest first. Who unsubscribed still gets transactional mail."""
    _refuse_given(query, "Origin", "fromdate", "todate")
    wanted = mapping.reasons_of(query.suppression_reason)
    name = mapping.stream_of(call.path["stream"]) or ""
    stream = is_slug(name) and await streams.READ_SLUG.first(call.services.pool, call.account_id, name)
    if not stream or stream.deleted_at is not None:
        raise not_found("stream")
    if name == DEFAULT_STREAM:
        wanted -= {Reason.UNSUBSCRIBE}
    address = None
    if query.email_address is not None:
        address = _named(lambda: suppression_rules.address_of(query.email_address or ""))
    return Streamed(_pieces(call, wanted, address), "application/json", (("Cache-Control", "private, no-store"),))


async def _pieces(call: Call, wanted: frozenset[Reason], address: str | None) -> AsyncGenerator[bytes, None]:
    """Yield the dump page by page, without holding a connection while the client reads."""
    pool, account = call.services.pool, call.account_id
    start = b'{"Suppressions":['
    filters = suppression_rules.filters(before=None, reason=None, search=None)
    while True:
        if address is None:
            found = await suppressions.page(pool, account, filters, limit=DUMP_ROWS)
            rows, has_more = found.rows, found.has_more
        else:
            rows, has_more = list((await suppressions.read(pool, account, [address])).values()), False
        lines = [_ENCODER.encode(mapping.suppression(row)) for row in rows if Reason(row.reason) in wanted]
        if lines:
            yield start + b",".join(lines)
            start = b","
        if not has_more:
            yield (b"" if start == b"," else start) + b"]}"
            return
        filters = structs.replace(filters, before=ListPlace(rows[-1].created_at, rows[-1].address))


async def _page(call: Call, wanted: BounceFilters, name: str | None, reach: int) -> tuple[list[BounceRow], bool]:
    """Return up to `reach` bounces of one of Postmark's types, newest first, and whether others may follow."""
    rows: list[BounceRow] = []
    before: int | None = None
    for _ in range(MAX_ROUNDS):
        found = await bounces.page(call.services.pool, call.account_id, wanted, before=before, limit=reach)
        rows += [row for row in found.rows if name in (None, mapping.name_of(row))]
        before = found.before
        if before is None or len(rows) >= reach:
            break
    return rows[:reach], before is not None or len(rows) > reach


async def _of_address(call: Call, wanted: BounceFilters, name: str | None, text: str) -> list[BounceRow]:
    """Return the bounces of an address among its newest messages, as far as the filters and the key allow."""
    try:
        address = bounce_rules.address_of(text)
    except BadAddress as error:
        raise invalid("emailFilter", f"`emailFilter` must be a complete address: {error}") from None
    rows = await bounces.history(call.services.pool, call.account_id, address)
    found = [row for row in rows if row.type in set(BounceType) and _matches(row, wanted)]
    return [row for row in found if name in (None, mapping.name_of(row))]


def _matches(row: BounceRow, wanted: BounceFilters) -> bool:
    return (
        wanted.type in (None, row.type)
        and (wanted.domains is None or row.from_domain in wanted.domains)
        and (wanted.streams is None or row.stream in wanted.streams)
        and (wanted.since is None or row.occurred_at >= wanted.since)
        and (wanted.until is None or row.occurred_at < wanted.until)
    )


def _filters(call: Call, query: PostmarkBouncesQuery) -> BounceFilters:
    ended = mapping.type_of(query.type)
    return _named(
        lambda: bounce_rules.filters(
            type=ended, category=None, scope=None,
            recipient_domain=None, domain=None, stream=mapping.stream_of(query.messagestream),
            **mapping.period(query.fromdate, query.todate), visible_domains=call.domains,
            visible_streams=call.streams,
        )
    )  # fmt: skip


async def _bounce(call: Call) -> BounceRow:
    """Return the bounce in the path; raise the 404 if the caller has none with that number."""
    try:
        number = bounce_rules.cursor(call.path["bounceId"])
    except Refusal:
        raise not_found("bounce") from None
    wanted = BounceFilters(
        domains=None if call.domains is None else sorted(call.domains),
        streams=None if call.streams is None else sorted(call.streams),
    )
    found = await bounces.page(call.services.pool, call.account_id, wanted, before=(number or 0) + 1, limit=1)
    if not found.rows or found.rows[0].seq != number:
        raise not_found("bounce")
    return found.rows[0]


async def _shown(call: Call, rows: Sequence[BounceRow]) -> list[PostmarkBounce]:
    """Return bounces with what their messages say, and whether their addresses are suppressed now."""
    pool, account = call.services.pool, call.account_id
    named = list({row.message_id for row in rows if row.message_id is not None})
    of = await messages.read_many(pool, account, named) if named else {}
    addresses = [canonical(str(stored.detail_of(row.payload).get("recipient", ""))) for row in rows]
    found = await suppressions.read(pool, account, list(dict.fromkeys(addresses))) if rows else {}
    return [
        mapping.bounce(row, None if row.message_id is None else of.get(row.message_id), found.get(address))
        for row, address in zip(rows, addresses, strict=True)
    ]


def _refuse_given(query: msgspec.Struct, *names: str) -> None:
    """Raise the 400 for a filter of Postmark's that has no counterpart: an ignored one would show too much."""
    for field in structs.fields(query):
        if field.encode_name in names and getattr(query, field.name) is not None:
            raise invalid(field.encode_name, f"`{field.encode_name}` is not supported here: {_why(field.type)}.")


def _why(annotated: Any) -> str:
    return str(annotated.__metadata__[0].description).partition(": ")[2]


def _named(read: Callable[[], Found]) -> Found:
    """Return what `read` returns; a refusal gets Postmark's names of the parameters."""
    try:
        return read()
    except Refusal as refusal:
        raise mapping.renamed(refusal) from None


_NOTE: Final = "For clients of Postmark, as `POST /v1/compat/postmark/email`. Errors have the form of Postmark."
_SEARCH_NOTE: Final = _NOTE + " `TotalCount` counts what was found so far, and one more if others follow."
_SENT: Final = Area(
    "Compatibility",
    reads=("messages:read",),
    limited_keys=LimitedKeys.OWN,
    owner_check=owner_checks.message,
    id_of=ids.Kind.MESSAGE,
)
_SUPPRESSED: Final = Area(
    "Compatibility",
    reads=("suppressions:read",),
    writes=("suppressions:write",),
    limited_keys=LimitedKeys.WHOLE_ACCOUNT,
)


def _operation(method: str, path: str, handler: Any, summary: str, area: Area, **fields: Any) -> Operation:
    return Operation(
        method, f"{POSTMARK_PATH}{path}", handler, summary, area, key_header=KEY_HEADER,
        headers=(KEY_HEADER_FIELD,), errors=POSTMARK_ERRORS, **({"note": _NOTE} | fields),
    )  # fmt: skip


OPERATIONS = (
    _operation(
        "GET", "/messages/outbound", search_messages, "Search messages as Postmark's `GET /messages/outbound`", _SENT,
        note=_SEARCH_NOTE, lagging=True,
    ),
    _operation(
        "GET", "/messages/outbound/{id}/details", read_message,
        "Read a message as Postmark's `GET /messages/outbound/{id}/details`", _SENT,
    ),
    _operation(
        "GET", "/messages/outbound/{id}/dump", dump_message,
        "Read the source of a message as Postmark's `GET /messages/outbound/{id}/dump`", _SENT,
    ),
    _operation(
        "GET", "/bounces", search_bounces, "Search bounces as Postmark's `GET /bounces`", _SENT, note=_SEARCH_NOTE,
        lagging=True,
    ),
    _operation("GET", "/bounces/{bounceId}", read_bounce, "Read a bounce as Postmark's `GET /bounces/{id}`", _SENT),
    _operation(
        "GET", "/bounces/{bounceId}/dump", dump_bounce,
        "Read the reply of a bounce as Postmark's `GET /bounces/{id}/dump`", _SENT,
    ),
    _operation(
        "PUT", "/bounces/{bounceId}/activate", activate_bounce,
        "Remove the suppression of a bounce's address as Postmark's `PUT /bounces/{id}/activate`", _SUPPRESSED,
        refusals=(ErrorType.INVALID_STATE,),
    ),
    _operation(
        "GET", "/message-streams/{stream}/suppressions/dump", dump_suppressions,
        "List the suppressed addresses as Postmark's `GET /message-streams/{stream}/suppressions/dump`", _SUPPRESSED,
        reply=PostmarkSuppressions, lagging=True,
    ),
)  # fmt: skip
