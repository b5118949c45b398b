"""Send mail at a constant rate, however long answers take, and read arrival times from the sink."""

import asyncio
import time
from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Self

import aiohttp
from msgspec import Struct, json

from loadtests.drill.send_client import ApiAccess
from ops.local.sink_store import entries

_ATTEMPT_S: Final = 20.0
_LOOK_S: Final = 0.25
_CONNECTIONS: Final = 64


class PacedMessage(Struct, frozen=True):
    """A message to send; `test_id` becomes its `X-Test-Id`, which the sink records."""

    test_id: str
    address: str


class PacedAnswer(Struct):
    """The API's answer to one message. `answered_at` is wall clock, as the sink's times; status 0: no answer."""

    test_id: str
    answered_at: float
    status: int
    message_id: str | None
    refusal: str  # of a refusal


class PacedClient:
    """Sends mail from one account. An asynchronous context manager."""

    def __init__(self, base_url: str, access: ApiAccess) -> None:
        self._url = f"{base_url}/v1/emails"
        self._sender = access.sender
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {access.key}"},
            connector=aiohttp.TCPConnector(limit=_CONNECTIONS),
            timeout=aiohttp.ClientTimeout(total=_ATTEMPT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def send(self, messages: Sequence[PacedMessage], rate: float) -> list[PacedAnswer]:
        """Send `rate` messages per second and return every answer, in order."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            under_way = []
            for number, message in enumerate(messages):
                await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
                under_way.append(tasks.create_task(self._one(message)))
        return [task.result() for task in under_way]

    async def send_batch(self, messages: Sequence[PacedMessage]) -> list[PacedAnswer]:
        """Send up to 100 messages in one request and return every answer, in order."""
        body = {"messages": [self._body(message) for message in messages]}
        status, text = await self._post(f"{self._url}/batch", body)
        at = time.time()
        if status != 200:
            return [PacedAnswer(message.test_id, at, status, None, text[:200]) for message in messages]
        items = _BATCH.decode(text).data
        return [
            PacedAnswer(message.test_id, at, 202 if item.id else 400, item.id, item.status)
            for message, item in zip(messages, items, strict=True)
        ]

    async def _one(self, message: PacedMessage) -> PacedAnswer:
        status, text = await self._post(self._url, self._body(message))
        at = time.time()
        if status != 202:
            return PacedAnswer(message.test_id, at, status, None, text[:200])
        return PacedAnswer(message.test_id, at, status, _ITEM.decode(text).id, "")

    async def _post(self, url: str, body: object) -> tuple[int, str]:
        try:
            async with self._session.post(url, json=body) as answer:
                return answer.status, await answer.text()
        except (aiohttp.ClientError, OSError) as error:  # the time-out is an OSError
            return 0, repr(error)

    def _body(self, message: PacedMessage) -> dict[str, object]:
        return {
            "from": self._sender, "to": message.address, "subject": "Drill", "text": "Never mind the neighbours.\n",
            "headers": {"X-Test-Id": message.test_id},
        }  # fmt: skip


async def arrivals(store: Path, wanted: Collection[str], patience_s: float) -> dict[str, float]:
    """Return the arrival time (wall clock) of each message by test id; waits for all, at most `patience_s`."""
    ends = time.monotonic() + patience_s
    while True:
        found = {
            entry.test_id: datetime.fromisoformat(entry.at).timestamp()
            for entry in await asyncio.to_thread(entries, store)
            if entry.test_id is not None and entry.test_id in wanted
        }
        if len(found) >= len(wanted) or time.monotonic() > ends:
            return found
        await asyncio.sleep(_LOOK_S)


def percentile(ordered: Sequence[float], part: float) -> float:
    """Return the value below which `part` (0 to 1) of the sorted values lie, rounded to 0.1; raises IndexError if
    empty."""
    return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 1)


class _Item(Struct):
    status: str
    id: str | None = None


class _Batch(Struct):
    data: list[_Item]


_ITEM = json.Decoder(_Item)
_BATCH = json.Decoder(_Batch)
