"""A client as it should be: every send has an idempotency key and is repeated until there is an answer.

What was answered is written down; the verdict compares it with what arrived.
"""

import asyncio
import random
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

import aiohttp
from msgspec import Struct, json

CONCURRENCY: Final = 32
DOMAINS: Final = 20
ATTEMPT_S: Final = 20.0  # above the time the API gives its own commit
# No answer for so long: the client gives up. A process that is killed whenever it is back pauses 10 s after each death.
PATIENCE_S: Final = 600.0
PAUSE_S: Final = (0.05, 0.25)  # between two tries, drawn evenly
MIX: Final = 50  # of so many messages one is refused by its mail server and one greylisted
_REFUSED_AT, _GREYLISTED_AT = 7, 23
_HANG_UP_S: Final = (0.001, 0.03)  # around the time that a send takes: before and after its commit


class ApiAccess(Struct, frozen=True):
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
    refusal: str = ""  # of a refusal


class SendAttempt(Struct, frozen=True):
    """One request and its answer; status 0: none."""

    status: int
    took_s: float
    retry_after: str | None


def plan(count: int, run: str) -> list[Send]:
    """So many messages, each to an address of its own, over `DOMAINS` domains of the sink. `run` sets the keys and
    addresses of several runs on one service apart."""
    return [planned(run, number) for number in range(count)]


def planned(run: str, number: int) -> Send:
    """One message of such a plan."""
    return Send(run, number, f"{_word(number)}+{run}-{number}@d{number % DOMAINS}.test")


def expects_refusal(send: Send) -> bool:
    """True for those whose mail server answers 550."""
    return send.number % MIX == _REFUSED_AT


def expects_greylisting(send: Send) -> bool:
    """True for those whose mail server answers 451 first."""
    return send.number % MIX == _GREYLISTED_AT


def key_of(send: Send) -> str:
    """The idempotency key, which is the `X-Test-Id` too."""
    return f"{send.run}-{send.number}"


class SendClient:
    """Sends a plan over the API, `CONCURRENCY` at a time, spread to `rate` messages a second; 0: as fast as it goes.

    Of the share `cut` the client hangs up before it can have read the first answer, as one whose network fails.
    """

    def __init__(
        self,
        base_url: str,
        access: ApiAccess,
        sends: list[Send],
        *,
        rate: float = 0.0,
        cut: float = 0.0,
        attachment: bytes = b"",
        rng: random.Random | None = None,
    ) -> None:
        self.sends = sends
        self._url = f"{base_url}/v1/emails"
        self._headers = {"Authorization": f"Bearer {access.key}"}
        self._sender = access.sender
        self._pause_s = CONCURRENCY / rate if rate else 0.0
        self._cut = cut
        self._rng = rng or random.Random()
        self.tried: list[SendAttempt] = []
        self._more: dict[str, object] = {}
        if attachment:
            content = b64encode(attachment).decode()
            self._more["attachments"] = [
                {"filename": "drill.bin", "contentType": "application/octet-stream", "content": content}
            ]

    async def run(self, until: asyncio.Event | None = None) -> None:
        """Send the plan, and more of the kind until the event is set; returns when each has its answer or was given
        up."""
        work = self._endless(until) if until is not None else iter(list(self.sends))
        async with self.session() as session, asyncio.TaskGroup() as tasks:
            for _ in range(CONCURRENCY):
                tasks.create_task(self._work(session, work))

    async def replay(self, sends: Iterable[Send]) -> list[Send]:
        """Repeat sends that were accepted; those whose answer was not 200 with the same id as before."""
        wrong = []
        async with self.session() as session:
            for send in sends:
                again = Send(send.run, send.number, send.address)
                await self._one(session, again)
                if again.status != 200 or again.message_id != send.message_id:
                    wrong.append(again)
        return wrong

    @staticmethod
    def session() -> aiohttp.ClientSession:
        """Connections for a client that waits as long as the API may take."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONCURRENCY),
            timeout=aiohttp.ClientTimeout(total=ATTEMPT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )

    def _endless(self, until: asyncio.Event) -> Iterator[Send]:
        yield from list(self.sends)
        run = self.sends[0].run
        while not until.is_set():
            self.sends.append(planned(run, len(self.sends)))
            yield self.sends[-1]

    async def _work(self, session: aiohttp.ClientSession, work: Iterator[Send]) -> None:
        for send in work:
            await self._one(session, send)
            await asyncio.sleep(self._pause_s * self._rng.uniform(0.5, 1.5))

    async def _one(self, session: aiohttp.ClientSession, send: Send) -> None:
        body = {
            "from": self._sender,
            "to": send.address,
            "subject": f"Drill {send.number}",
            "text": "The bearer of this message may have died on the way.\n",
            "headers": {"X-Test-Id": key_of(send)},
            "idempotencyKey": key_of(send),
            **self._more,
        }
        send.first_at = send.first_at or time.time()
        ends = time.monotonic() + PATIENCE_S
        if self._cut and self._rng.random() < self._cut:
            send.tries += 1
            await self._hang_up(session, body)
        while time.monotonic() < ends:
            send.tries += 1
            began = time.monotonic()
            status, retry_after = 0, None
            try:
                async with session.post(self._url, json=body, headers=self._headers) as answer:
                    text = await answer.text()
                    status, retry_after = answer.status, answer.headers.get("Retry-After")
                    if answer.status not in (429, 500, 502, 503, 504):
                        _write_down(send, answer.status, text)
                        return
            except (aiohttp.ClientError, OSError) as error:  # the time-out is an OSError
                text = repr(error)
            finally:
                self.tried.append(SendAttempt(status, time.monotonic() - began, retry_after))
            send.refusal = text[:200]
            await asyncio.sleep(self._rng.uniform(*PAUSE_S))

    async def _hang_up(self, session: aiohttp.ClientSession, body: object) -> None:
        """The request goes out, and the connection breaks at some moment of its being worked on."""
        patience = aiohttp.ClientTimeout(total=self._rng.uniform(*_HANG_UP_S))
        with suppress(aiohttp.ClientError, OSError):
            async with session.post(self._url, json=body, headers=self._headers, timeout=patience):
                pass  # the head was there in time, the body is not read: the connection is closed with it unread


def _write_down(send: Send, status: int, text: str) -> None:
    send.status = status
    send.answered_at = time.time()
    if status in (200, 202):
        send.message_id = _ANSWER.decode(text).id
    else:
        send.refusal = text[:200]


class _SendAnswer(Struct):
    id: str


_ANSWER = json.Decoder(_SendAnswer)


def _word(number: int) -> str:
    """What the sink shall do with it; see `ops.local.sink`."""
    return {_REFUSED_AT: "bounce", _GREYLISTED_AT: "defer"}.get(number % MIX, "reader")
