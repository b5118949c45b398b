"""Well-behaved clients: each message has an idempotency key and is repeated until it is answered.

The answers are recorded; `reconciliation` compares them with what arrived.
"""

import asyncio
import random
import re
import time
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, Generic, Protocol, TypeVar

from msgspec import Struct

from loadtests.kit.accounts import ApiAccess
from loadtests.kit.http_client import AGAIN, PAUSE_S, ApiAnswer, ApiClient
from loadtests.kit.smtp_client import RefusedCommand, SmtpSession

CONCURRENCY: Final = 32
DOMAINS: Final = 20
# No answer for so long: the client gives up. A process that is killed whenever it is back pauses 10 s after each death.
PATIENCE_S: Final = 600.0
MIX: Final = 50  # of so many messages one is refused by its mail server and one greylisted
_REFUSED_AT, _GREYLISTED_AT = 7, 23
_HANG_UP_S: Final = (0.001, 0.03)  # around the time that a send takes: before and after its commit
_SMTP_S: Final = 20.0
_TAKEN: Final = re.compile(r"250 \S+ (\S+) (?:as|of) (msg_[0-9a-z]+)")
_LOST: Final = (OSError, EOFError, RefusedCommand)  # the time-out is an OSError

Item = TypeVar("Item")


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
    refusal: str = ""  # the last one

    @property
    def key(self) -> str:
        """Return the idempotency key, which is also the `X-Test-Id`."""
        return f"{self.run}-{self.number}"

    @property
    def is_greylisted(self) -> bool:
        """Return True for a message that its mail server defers with 451 first."""
        return self.number % MIX == _GREYLISTED_AT

    def answered(self, status: int, message_id: str | None, refusal: str = "") -> None:
        """Record an answer: the message id, or the text of a refusal; the last refusal before an id is kept."""
        self.status, self.message_id, self.answered_at = status, message_id, time.time()
        self.refusal = self.refusal if message_id else refusal


def plan(count: int, run: str) -> list[Send]:
    """Return `count` messages to different addresses at `DOMAINS` domains; `run` is part of keys and addresses."""
    return [planned(run, number) for number in range(count)]


def planned(run: str, number: int) -> Send:
    """Return message `number` of such a plan; its local part selects the sink's behaviour (`ops.local.sink`)."""
    local = {_REFUSED_AT: "bounce", _GREYLISTED_AT: "defer"}.get(number % MIX, "reader")
    return Send(run, number, f"{local}+{run}-{number}@d{number % DOMAINS}.test")


def body_of(access: ApiAccess, send: Send) -> dict[str, Any]:
    """Return the body of `POST /v1/emails` for a message."""
    return {
        "from": access.sender, "to": send.address, "subject": f"Drill {send.number}",
        "text": "The bearer of this message may have died on the way.\n", "headers": {"X-Test-Id": send.key},
        "idempotencyKey": send.key,
    }  # fmt: skip


def mail_of(access: ApiAccess, send: Send, text: str) -> bytes:
    """Return a message for SMTP submission, with CRLF at the end of its last line."""
    return (
        f"From: {access.sender}\r\nTo: {send.address}\r\nSubject: Drill {send.number}\r\n"
        f"X-Test-Id: {send.key}\r\nX-Waybill-Idempotency-Key: {send.key}\r\n\r\n{text}"
    ).encode()


class BackgroundLoad(Protocol):
    """A client that sends until it is told to stop."""

    async def run(self, until: asyncio.Event) -> None:
        """Send until the event is set; return when every message is answered or given up."""


class RepeatingClient(ABC, Generic[Item]):
    """Sends items over `concurrency` connections at `rate` items per second (0: unlimited).

    Each item is tried again and again until it is answered, or given up after `patience_s`.
    """

    def __init__(
        self,
        *,
        rate: float = 0.0,
        rng: random.Random | None = None,
        concurrency: int = CONCURRENCY,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._concurrency = concurrency
        self._pause_s = concurrency / rate if rate else 0.0
        self._patience_s = patience_s
        self._rng = rng or random.Random()

    @abstractmethod
    def items(self, until: asyncio.Event | None) -> Iterator[Item]:
        """Yield the items to send, further ones until the event is set."""

    @abstractmethod
    async def attempt(self, place: int, item: Item) -> bool:
        """Try an item on connection number `place`; return True if it was answered."""

    async def leave(self, place: int) -> None:
        """Close connection number `place`."""

    async def run(self, until: asyncio.Event | None = None) -> None:
        """Send all items; return when each is answered or given up."""
        work = self.items(until)
        async with asyncio.TaskGroup() as tasks:
            for place in range(self._concurrency):
                tasks.create_task(self._work(place, work))

    async def _work(self, place: int, work: Iterator[Item]) -> None:
        for item in work:
            ends = time.monotonic() + self._patience_s
            while not await self.attempt(place, item) and time.monotonic() < ends:  # noqa: ASYNC110 - a pause
                await asyncio.sleep(self._rng.uniform(*PAUSE_S))
            await asyncio.sleep(self._pause_s * self._rng.uniform(0.5, 1.5))
        await self.leave(place)


class PlanClient(RepeatingClient[Send]):
    """Sends a plan from an account, then further messages of the same run until it is told to stop."""

    def __init__(
        self, access: ApiAccess, sends: list[Send], *, rate: float = 0.0, rng: random.Random | None = None
    ) -> None:
        super().__init__(rate=rate, rng=rng)
        self.sends = sends
        self._access = access

    def items(self, until: asyncio.Event | None) -> Iterator[Send]:
        """Yield the plan, then further messages until the event is set."""
        yield from list(self.sends)
        while until is not None and not until.is_set():
            self.sends.append(planned(self.sends[0].run, len(self.sends)))
            yield self.sends[-1]


class SendClient(PlanClient):
    """Sends a plan over the API, over connections that it `keeps` or over one for each request.

    After a temporary refusal, a message goes to the next of the base URLs if there are `others`. For the share `cut` of
    the sends, the client closes the connection before it can have read the first answer.
    """

    def __init__(
        self,
        base_url: str,
        access: ApiAccess,
        sends: list[Send],
        *,
        others: Sequence[str] = (),
        rate: float = 0.0,
        cut: float = 0.0,
        attachment: bytes = b"",
        keeps: bool = True,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(access, sends, rate=rate, rng=rng)
        self.tried: list[ApiAnswer] = []
        self._apis = [ApiClient(one, access.key, connections=CONCURRENCY, keeps=keeps) for one in (base_url, *others)]
        self._cut = cut
        self._more: dict[str, object] = {}
        if attachment:
            content = b64encode(attachment).decode()
            file = {"filename": "drill.bin", "contentType": "application/octet-stream", "content": content}
            self._more["attachments"] = [file]

    async def run(self, until: asyncio.Event | None = None) -> None:
        """Send the plan, then further messages until the event is set."""
        async with AsyncExitStack() as stack:
            for one in self._apis:
                await stack.enter_async_context(one)
            await super().run(until)

    async def attempt(self, place: int, item: Send) -> bool:
        """Post a message; return False after a temporary refusal."""
        body = body_of(self._access, item) | self._more
        api = self._apis[(place + item.tries) % len(self._apis)]
        if not item.first_at:
            item.first_at = time.time()
            if self._cut and self._rng.random() < self._cut:
                item.tries += 1
                await api.hang_up("/v1/emails", body, self._rng.uniform(*_HANG_UP_S))
        item.tries += 1
        answer = await api.call("POST", "/v1/emails", body)
        self.tried.append(answer)
        if answer.status in AGAIN:
            item.refusal = answer.text
            return False
        item.answered(answer.status, answer.json.get("id"), answer.text)
        return True


async def replay(base_url: str, access: ApiAccess, sends: Sequence[Send]) -> list[Send]:
    """Repeat accepted sends; return those not answered by 200 with the same id."""
    wanted = {send.key: send.message_id for send in sends}
    again = [Send(send.run, send.number, send.address) for send in sends]
    await SendClient(base_url, access, again).run()
    return [send for send in again if send.status != 200 or send.message_id != wanted[send.key]]


class RelayClient(PlanClient):
    """Sends a plan over SMTP sessions that stay open; the 250 carries the message id, as a 202 does.

    After an error a new session begins, at the next port if `others` has any.
    """

    def __init__(
        self,
        port: int,
        access: ApiAccess,
        sends: list[Send],
        *,
        others: Sequence[int] = (),
        rate: float,
        rng: random.Random,
    ) -> None:
        super().__init__(access, sends, rate=rate, rng=rng)
        self.permanent: list[str] = []  # replies 5yz, after which a program with a queue would give up
        self._ports = (port, *others)
        self._sessions: dict[int, SmtpSession] = {}

    async def attempt(self, place: int, item: Send) -> bool:
        """Send a message on the session of this place; after an error the next attempt opens another."""
        item.first_at = item.first_at or time.time()
        item.tries += 1
        try:
            async with asyncio.timeout(_SMTP_S):
                session = await self._session(place, self._ports[(place + item.tries) % len(self._ports)])
                text = mail_of(self._access, item, "The bearer of this message may have died on the way.\r\n")
                reply = await session.send(self._access.sender, [item.address], text)
                found = _TAKEN.match(reply)
                if found is None:
                    raise RefusedCommand(reply)
        except _LOST as error:
            item.refusal = repr(error)[:200]
            if isinstance(error, RefusedCommand) and error.reply.startswith("5"):
                self.permanent.append(error.reply)
            if place in self._sessions:
                self._sessions.pop(place).abort()
            return False
        item.answered(200 if found[1] == "duplicate" else 202, found[2])
        return True

    async def leave(self, place: int) -> None:
        """Close the session of this place."""
        if place in self._sessions:
            writer = self._sessions.pop(place).writer
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _session(self, place: int, port: int) -> SmtpSession:
        """Return the session of a place, or a new one at the port."""
        if place not in self._sessions:
            self._sessions[place] = await SmtpSession.connect(port, tls=True)
            await self._sessions[place].greet(key=self._access.key)
        return self._sessions[place]


async def send_paced(api: ApiClient, access: ApiAccess, sends: Sequence[Send], rate: float) -> None:
    """Send each message once, `rate` of them per second, however long answers take."""
    began = time.monotonic()

    async def one(send: Send) -> None:
        answer = await api.call("POST", "/v1/emails", body_of(access, send))
        send.answered(answer.status, answer.json["id"] if answer.status == 202 else None, answer.text)

    async with asyncio.TaskGroup() as tasks:
        for number, send in enumerate(sends):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            tasks.create_task(one(send))


async def send_batch(api: ApiClient, access: ApiAccess, sends: Sequence[Send]) -> None:
    """Send up to 100 messages in one request."""
    answer = await api.call("POST", "/v1/emails/batch", {"messages": [body_of(access, send) for send in sends]})
    items = answer.json["data"] if answer.status == 200 else [{"status": answer.text}] * len(sends)
    for send, item in zip(sends, items, strict=True):
        send.answered(202 if "id" in item else answer.status, item.get("id"), item["status"])


def percentile(ordered: Sequence[float], part: float) -> float:
    """Return the value below which `part` (0 to 1) of the sorted values lie, rounded to 0.1; raises IndexError if
    empty."""
    return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 1)
