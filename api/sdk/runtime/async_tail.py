"""Follow the account log: a tail that reconnects and misses nothing. The synchronous tail is derived from this file."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import httpx

from . import retry
from .async_transport import AsyncTransport
from .errors import ApiError, ConnectionFailedError, EventsLostError, TailClosedError
from .sse import EventParser, ServerSentEvent

# Three heartbeats of 15 s: a connection that is silent for longer is dead.
SILENCE_S: Final = 45.0
MAX_RECONNECT_S: Final = 30.0
_FINAL_REASONS: Final = frozenset({"unauthorized", "too_many_streams"})
_EVENTS: Final = frozenset({"message", "event"})


class AsyncTail:
    """The position of one tail: the `seq` up to which every event was yielded, over all its connections."""

    def __init__(self, transport: AsyncTransport, path: str, params: Mapping[str, Any]) -> None:
        self._transport = transport
        self._path = path
        self._params = dict(params)
        self._seen: int | None = None
        self._failures = 0

    async def events(self) -> AsyncIterator[Any]:
        """Yield the events for ever. Reconnects after every interruption but a refusal of the service.

        The first connection raises ConnectionFailedError if the service does not answer.
        """
        while True:
            try:
                response = await self._connect()
                try:
                    parser = EventParser()
                    async for chunk in response.aiter_bytes():
                        for event in parser.feed(chunk):
                            if self._accept(event):
                                yield json.loads(event.data)
                finally:
                    await response.aclose()
            except httpx.TransportError:
                pass
            except (ApiError, ConnectionFailedError) as error:
                if self._seen is None or not _passes(error):
                    raise
            self._failures += 1
            await asyncio.sleep(min(MAX_RECONNECT_S, retry.backoff(self._failures)))

    async def _connect(self) -> httpx.Response:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-cache"}
        params = self._params
        if self._seen is not None:
            headers["Last-Event-ID"] = str(self._seen)
            params = {name: value for name, value in params.items() if name not in {"replay", "after"}}
        timeout = httpx.Timeout(self._transport.timeout, read=SILENCE_S)
        return await self._transport.answer(
            "GET", self._path, params=params, repeatable=True, headers=headers, stream=True, timeout=timeout
        )

    def _accept(self, event: ServerSentEvent) -> bool:
        """Move the position by an event; return True if it is new and belongs to the caller."""
        if event.name == "bye":
            self._end(json.loads(event.data))
        if event.id is None or not event.id.isdigit():
            return False
        seq = int(event.id)
        if event.name == "ready":
            self._begin(seq)
            return False
        fresh = self._seen is None or seq > self._seen
        self._seen = seq if self._seen is None else max(seq, self._seen)
        return fresh and event.name in _EVENTS

    def _begin(self, after: int) -> None:
        """Take the position at which a connection begins. Raises EventsLostError if it is not the one asked for."""
        self._failures = 0
        asked = self._params.get("after") if self._seen is None else self._seen
        if isinstance(asked, int) and after != asked:
            raise EventsLostError(
                f"The tail asked for the events after {asked}, but the log continues after {after}: the retention "
                "period removed the events between, or the log was restored from a backup."
            )
        self._seen = after

    def _end(self, bye: Mapping[str, Any]) -> None:
        """Raise TailClosedError if a new connection would be closed as well."""
        reason = str(bye.get("reason", ""))
        if reason in _FINAL_REASONS:
            raise TailClosedError(reason, str(bye.get("message", "")))


def _passes(error: ApiError | ConnectionFailedError) -> bool:
    """Return True if a tail tries again after this error."""
    return isinstance(error, ConnectionFailedError) or error.status >= 500 or error.type in {
        "rate_limited", "platform_paused", "too_many_streams",
    }  # fmt: skip
