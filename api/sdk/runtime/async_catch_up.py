"""Hand events of the account log to the handler of webhooks; the synchronous module is derived from this file."""

from collections.abc import Awaitable, Callable
from typing import Any

from .errors import EventsLostError
from .types import EventPage, PulledEvent

Fetch = Callable[[int], Awaitable[EventPage]]
Handler = Callable[[Any], Awaitable[None]]


async def catch_up(fetch: Fetch, after: int, handler: Handler) -> int:
    """Call `handler` with each event after the `seq` `after`; return the `seq` with which the next call begins."""
    while True:
        page = await fetch(after)
        if after and page["purgedThroughSeq"] > after:
            raise EventsLostError(
                f"The log has no events up to {page['purgedThroughSeq']} any more, but `after` is {after}: the "
                "retention period removed the events between."
            )
        for event in page["data"]:
            await handler(_as_posted(event))
        after = int(page["nextCursor"])
        if not page["hasMore"]:
            return after


def _as_posted(event: PulledEvent) -> dict[str, Any]:
    """Return an event in the form of a webhook's body."""
    return {
        "id": event["id"],
        "type": event["type"],
        "createdAt": event["createdAt"],
        "seq": event["seq"],
        "data": {"messageId": event["messageId"], "detail": event["detail"]},
    }
