"""A well-behaved client: every send has an idempotency key and is repeated until it is answered.

The answers are recorded; `reconciliation` compares them with what arrived.
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
    """An account to send from: id, API key and sender address."""

    account: str  # acc_…
    key: str
    sender: str


class Send(Struct):
    """A message and the answer the client received. Times are wall clock, as the sink's."""

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
    """A request and its answer; status 0: no answer."""

    status: int
    took_s: float
    retry_after: str | None


def plan(count: int, run: str) -> list[Send]:
    """Return `count` messages to different addresses at `DOMAINS` domains; `run` is part of keys and addresses."""
    return [planned(run, number) for number in range(count)]


def planned(run: str, number: int) -> Send:
    """Return message `number` of such a plan."""
    return Send(run, number, f"{_word(number)}+{run}-{number}@d{number % DOMAINS}.test")


def expects_refusal(send: Send) -> bool:
    """Return True for a message that its mail server refuses with 550."""
    return send.number % MIX == _REFUSED_AT


def expects_greylisting(send: Send) -> bool:
    """Return True for a message that its mail server defers with 451 first."""
    return send.number % MIX == _GREYLISTED_AT


def key_of(send: Send) -> str:
    """Return the idempotency key, which is also the `X-Test-Id`."""
    return f"{send.run}-{send.number}"


class SendClient:
    """Sends a plan over the API with `CONCURRENCY` connections, at `rate` messages per second (0: unlimited).

    For the share `cut` of the sends, the client closes the connection before it can have read the first answer.
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
        """Send the plan, then further messages until the event is set; return when each is answered or given up."""
        work = self._endless(until) if until is not None else iter(list(self.sends))
        async with self.session() as session, asyncio.TaskGroup() as tasks:
            for _ in range(CONCURRENCY):
                tasks.create_task(self._work(session, work))

    async def replay(self, sends: Iterable[Send]) -> list[Send]:
        """Repeat accepted sends; return those not answered by 200 with the same id."""
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
        """Return an HTTP session with a timeout above the API's own."""
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
        """Send a request and close the connection at a random moment while it is processed."""
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
    """Return the local part that selects the sink's behaviour (`ops.local.sink`)."""
    return {_REFUSED_AT: "bounce", _GREYLISTED_AT: "defer"}.get(number % MIX, "reader")
