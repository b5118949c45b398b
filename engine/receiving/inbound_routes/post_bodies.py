"""Fill the bodies that a route includes into the webhook posts of received messages, when they are posted.

The event in the account log holds no bodies. They are read from the stored bytes at each attempt, so that every attempt
posts the same, until the message is deleted.
"""

import asyncio
from typing import Any, Final
from uuid import UUID

import asyncpg
import msgspec
import orjson
from msgspec import Struct

from engine.base import ids
from engine.receiving.inbound_messages import store
from engine.receiving.inbound_messages.bodies import ReceivedBodies, bodies_of
from engine.receiving.inbound_routes.types import IncludedBody

MAX_BYTES: Final = 256 * 1024  # of all included bodies, as JSON; larger ones are fetched by id
_NAMES: Final = {
    IncludedBody.TEXT: "text", IncludedBody.HTML: "html", IncludedBody.REPLY_TEXT: "reply_text",
    IncludedBody.HEADERS: "headers",
}  # fmt: skip


class _ReceivedDetail(Struct):
    inbound_message_id: str


class _ReceivedPayload(Struct):
    detail: _ReceivedDetail


_PAYLOAD = msgspec.json.Decoder(_ReceivedPayload)


class PostBodies:
    """Completes the payloads of `inbound.received` events with bodies from the database."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def completed(self, account: UUID, payload: str) -> str:
        """Return the payload with the bodies that the route of its message includes. Raises DatabaseUnavailable."""
        message = ids.parse_id(ids.Kind.RECEIVED, _PAYLOAD.decode(payload).detail.inbound_message_id)
        row = await store.read(self._pool, account, message, domains=None)
        wanted = [] if row is None else [IncludedBody(name) for name in orjson.loads(row.include)]
        if row is None or not wanted:
            return payload
        mime = await store.raw(self._pool, row.raw_id)
        if mime is None:  # deleted meanwhile
            return payload
        return await asyncio.to_thread(_with_bodies, payload, mime, wanted)


def _with_bodies(payload: str, mime: bytes, wanted: list[IncludedBody]) -> str:
    return with_included(payload, bodies_of(mime), wanted)


def with_included(payload: str, found: ReceivedBodies, wanted: list[IncludedBody]) -> str:
    """Return the payload with the wanted bodies in its detail, as far as they fit in MAX_BYTES; `omitted` names the
    others. Pure.
    """
    values: dict[str, Any] = {
        "text": found.text,
        "html": found.html,
        "reply_text": found.reply_text,
        "headers": [{"name": one.name, "value": one.value} for one in found.headers],
    }
    room = MAX_BYTES
    added: list[str] = []
    omitted: list[str] = []
    for name in (_NAMES[one] for one in wanted):
        text = orjson.dumps(values[name]).decode()
        size = len(text.encode())
        too_large = size > room or (name == "html" and found.html is None and found.html_omitted is not None)
        if too_large:
            omitted.append(name)
            text = "null"
        else:
            room -= size
        added.append(f'"{name}":{text}')
    added.append(f'"omitted":{orjson.dumps(omitted).decode()}')
    return f"{payload[:-2]},{','.join(added)}}}}}"
