"""Live tails of message events and of the whole account log, and `GET /v1/events`, which pulls what webhooks push."""

import re
from collections.abc import Collection
from typing import Any, Final

from api.areas.tails import follow
from api.areas.tails.schemas import (
    MAX_SEQ,
    EventPage,
    EventTailQuery,
    PulledEvent,
    PullQuery,
    TailMessage,
    TailQuery,
)
from api.http import sse
from api.http.operation import Area, Call, HeaderField, LimitedKeys, Operation, Streamed
from engine.base import clock
from engine.base.errors import ErrorType, invalid
from engine.base.list_filters import narrowed
from engine.base.settings import Settings
from engine.events.tails import rules, store
from engine.events.tails.feed import LogView
from engine.events.tails.hub import Tails
from engine.events.tails.types import Ending, Filters, TailFilters, TailReader, TailStart
from engine.people.api_keys.key_auth import Keys
from engine.people.sessions.session_auth import SessionAuth

SCOPE: Final = "messages:read"
LAST_EVENT_ID: Final = "Last-Event-ID"
_SEQ: Final = "[0-9]{1,19}"
LAST_SEEN: Final = HeaderField(LAST_EVENT_ID, "The id of the last event received: everything behind it is shown", _SEQ)
_is_seq = re.compile(_SEQ, re.ASCII).fullmatch


def open_hub(pool: Any, keys: Keys, sessions: SessionAuth, settings: Settings) -> Tails:
    """Return the hub of one process's live tails."""

    async def still_valid(readers: Collection[TailReader]) -> set[TailReader]:
        """Return the readers whose key is still valid with its scope, or whose session is alive on the same account."""
        good = {one for one in readers if one.key_id is not None and await _holds(keys, one.key_id)}
        asked = {one.session_id for one in readers if one.session_id is not None}
        living = await sessions.living(asked) if asked else {}
        return good | {one for one in readers if one.session_id and living.get(one.session_id) == one.account_id}

    return Tails(pool, settings, still_allowed=still_valid)


async def _holds(keys: Keys, key_id: str) -> bool:
    known = await keys.cache.get(key_id)
    return known is not None and known.good(clock.now()) and SCOPE in known.scopes


async def tail(call: Call, query: TailQuery) -> Streamed:
    """Stream the account's message events from where the reader stopped, or from the latest ones."""
    wanted = TailFilters(
        status=query.status,
        domains=narrowed(None, call.domains),
        streams=narrowed(query.stream, call.streams),
        tags=frozenset(query.tag),
    )
    return await _follow(call, follow.MESSAGES, wanted, query.after, query.replay)


async def tail_events(call: Call, query: EventTailQuery) -> Streamed:
    """Stream all events of the account log, or those of some types, from where the reader stopped."""
    return await _follow(call, follow.EVENTS, rules.event_filters(query.type), query.after, query.replay)


async def _follow(call: Call, view: LogView, wanted: Filters, after: int | None, replay: int) -> Streamed:
    stopped = _last_event_id(call)
    start = TailStart(after=after if stopped is None else stopped, replay=replay)
    tails: Tails = call.services.tails
    opened = await tails.open(_reader(call), view, wanted, start)
    return Streamed(
        follow.Followed(opened, call.settings), sse.CONTENT_TYPE, sse.HEADERS, final_piece=follow.bye(Ending.TOO_SLOW)
    )


def _reader(call: Call) -> TailReader:
    if call.signed_in is not None:
        return TailReader(call.account_id, session_id=call.signed_in.session_id)
    assert call.caller is not None
    return TailReader(call.account_id, key_id=call.caller.key_id)


async def pull(call: Call, query: PullQuery) -> EventPage:
    """Return a page of the account log, oldest first."""
    found = await store.pull(
        call.services.pool,
        call.account_id,
        after=MAX_SEQ if query.after == "latest" else query.after,
        limit=query.limit,
        types=rules.checked_types(query.type),
    )
    data = [follow.pulled(row) for row in found.rows]
    return EventPage(data, str(found.after), found.has_more, found.purged_through)


def _last_event_id(call: Call) -> int | None:
    """Return the `seq` at which a reconnecting reader stopped, or None.

    It goes before `after`, which is still in the URL that the client reconnects to.
    """
    text = call.request.get_header(LAST_EVENT_ID)
    if not text:
        return None
    if not _is_seq(text) or int(text) > MAX_SEQ:
        raise invalid(LAST_EVENT_ID, f"`{LAST_EVENT_ID}` must be the id of an event of this stream: a `seq`.")
    return int(text)


_KEYS = Area("Messages", reads=("messages:read",), limited_keys=LimitedKeys.WHOLE_ACCOUNT)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/messages/tail",
        tail,
        "Follow message events live, as Server-Sent Events",
        _KEYS,
        limited_keys=LimitedKeys.OWN,
        headers=(LAST_SEEN,),
        reply=TailMessage,
        reply_type=sse.CONTENT_TYPE,
        refusals=(ErrorType.TOO_MANY_STREAMS,),
    ),
    Operation(
        "GET",
        "/v1/events/tail",
        tail_events,
        "Follow the account log live, as Server-Sent Events",
        _KEYS,
        headers=(LAST_SEEN,),
        reply=PulledEvent,
        reply_type=sse.CONTENT_TYPE,
        refusals=(ErrorType.TOO_MANY_STREAMS,),
    ),
    Operation("GET", "/v1/events", pull, "Pull the account log, oldest first", _KEYS),
)
