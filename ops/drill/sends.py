"""A client as it should be: every send has an idempotency key and is repeated until there is an answer.

What was answered is written down; the verdict compares it with what arrived.
"""

import asyncio
import random
import time
from collections.abc import Iterable
from typing import Final

import aiohttp
from msgspec import Struct, json

CONCURRENCY: Final = 32
DOMAINS: Final = 20
ATTEMPT_S: Final = 20.0  # above the time the API gives its own commit
PATIENCE_S: Final = 120.0  # no answer for so long: the client gives up
PAUSE_S: Final = (0.05, 0.25)  # between two tries, drawn evenly
MIX: Final = 50  # of so many messages one is refused by its mail server and one greylisted
_REFUSED_AT, _GREYLISTED_AT = 7, 23


class Access(Struct, frozen=True):
    """An account to send from."""

    account: str  # acc_…
    key: str
    sender: str


class Send(Struct):
    """One message and what the client was told. Times are wall clock, as the sink's are."""

    run: str
    number: int
    address: str
    first_at: float = 0.0
    answered_at: float = 0.0
    tries: int = 0
    status: int = 0  # 202 and 200 carry an id; 0: no answer at all
    message_id: str | None = None
    said: str = ""  # of a refusal


def plan(count: int, run: str) -> list[Send]:
    """So many messages, each to an address of its own, over `DOMAINS` domains of the sink. `run` sets the keys and
    addresses of several runs on one service apart."""
    return [Send(run, number, f"{_word(number)}+{run}-{number}@d{number % DOMAINS}.test") for number in range(count)]


def expects_refusal(send: Send) -> bool:
    """True for those whose mail server answers 550."""
    return send.number % MIX == _REFUSED_AT


def expects_greylisting(send: Send) -> bool:
    """True for those whose mail server answers 451 first."""
    return send.number % MIX == _GREYLISTED_AT


def key_of(send: Send) -> str:
    """The idempotency key, which is the `X-Test-Id` too."""
    return f"{send.run}-{send.number}"


class Client:
    """Sends a plan over the API, `CONCURRENCY` at a time; each of them rests for `pause_s` between two sends."""

    def __init__(self, base_url: str, access: Access, sends: Iterable[Send], pause_s: float = 0.0) -> None:
        self.answered = 0
        self._url = f"{base_url}/v1/emails"
        self._headers = {"Authorization": f"Bearer {access.key}"}
        self._sender = access.sender
        self._pause_s = pause_s
        self._sends = iter(list(sends))
        self._progress = asyncio.Condition()

    async def run(self) -> None:
        """Send everything; returns when each has its answer or was given up."""
        connector = aiohttp.TCPConnector(limit=CONCURRENCY)
        timeout = aiohttp.ClientTimeout(total=ATTEMPT_S)
        async with (
            aiohttp.ClientSession(
                connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
            ) as session,
            asyncio.TaskGroup() as tasks,
        ):
            for _ in range(CONCURRENCY):
                tasks.create_task(self._work(session))

    async def reached(self, count: int) -> None:
        """Wait until so many have been answered."""
        async with self._progress:
            await self._progress.wait_for(lambda: self.answered >= count)

    async def _work(self, session: aiohttp.ClientSession) -> None:
        for send in self._sends:
            await self._one(session, send)
            async with self._progress:
                self.answered += 1
                self._progress.notify_all()
            await asyncio.sleep(self._pause_s)

    async def _one(self, session: aiohttp.ClientSession, send: Send) -> None:
        body = {
            "from": self._sender,
            "to": send.address,
            "subject": f"Drill {send.number}",
            "text": "The bearer of this message may have died on the way.\n",
            "headers": {"X-Test-Id": key_of(send)},
            "idempotencyKey": key_of(send),
        }
        send.first_at = time.time()
        ends = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends:
            send.tries += 1
            try:
                async with session.post(self._url, json=body, headers=self._headers) as answer:
                    text = await answer.text()
                    if answer.status not in (429, 500, 502, 503, 504):
                        _write_down(send, answer.status, text)
                        return
            except (aiohttp.ClientError, OSError) as error:  # the time-out is an OSError
                text = repr(error)
            send.said = text[:200]
            await asyncio.sleep(random.uniform(*PAUSE_S))


def _write_down(send: Send, status: int, text: str) -> None:
    send.status = status
    send.answered_at = time.time()
    if status in (200, 202):
        send.message_id = _ANSWER.decode(text).id
    else:
        send.said = text[:200]


class _Answer(Struct):
    id: str


_ANSWER = json.Decoder(_Answer)


def _word(number: int) -> str:
    """What the sink shall do with it; see `ops.local.sink`."""
    return {_REFUSED_AT: "bounce", _GREYLISTED_AT: "defer"}.get(number % MIX, "reader")
