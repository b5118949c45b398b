"""A client like `send_client`, over SMTP: every message has an idempotency key and is repeated until answered.

The 250 carries the message id, as a 202 does.
"""

import asyncio
import random
import re
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from loadtests.drill.send_client import ATTEMPT_S, CONCURRENCY, PATIENCE_S, PAUSE_S, ApiAccess, Send, key_of, planned

_ID: Final = re.compile(rb"250 \S+ (\S+) (?:as|of) (msg_[0-9a-z]+)")
_Session = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RefusedCommand(Exception):  # noqa: N818 - an answer
    """A reply other than the expected success."""


class RelayClient:
    """Sends a plan over `CONCURRENCY` SMTP sessions that stay open."""

    def __init__(self, port: int, access: ApiAccess, sends: list[Send], *, rate: float, rng: random.Random) -> None:
        self.sends = sends
        self._port = port
        self._access = access
        self._pause_s = CONCURRENCY / rate
        self._rng = rng

    async def run(self, until: asyncio.Event) -> None:
        """Send the plan, then further messages until the event is set."""
        work = self._endless(until)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CONCURRENCY):
                tasks.create_task(self._work(work))

    def _endless(self, until: asyncio.Event) -> Iterator[Send]:
        yield from list(self.sends)
        run = self.sends[0].run
        while not until.is_set():
            self.sends.append(planned(run, len(self.sends)))
            yield self.sends[-1]

    async def _work(self, work: Iterator[Send]) -> None:
        session: _Session | None = None
        for send in work:
            send.first_at = time.time()
            ends = time.monotonic() + PATIENCE_S
            while time.monotonic() < ends:
                send.tries += 1
                try:
                    async with asyncio.timeout(ATTEMPT_S):
                        session = session or await self._open()
                        await self._one(session, send)
                    break
                except (OSError, EOFError, RefusedCommand) as error:  # the time-out is an OSError
                    send.refusal = repr(error)[:200]
                    if session is not None:
                        session[1].transport.abort()
                        session = None
                    await asyncio.sleep(self._rng.uniform(*PAUSE_S))
            await asyncio.sleep(self._pause_s * self._rng.uniform(0.5, 1.5))
        if session is not None:
            session[1].close()
            with suppress(OSError):
                await session[1].wait_closed()

    async def _open(self) -> _Session:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # the certificate was made a moment ago by the service itself
        session = await asyncio.open_connection("127.0.0.1", self._port, ssl=context)
        await _reply(session, b"2")
        await _say(session, b"EHLO drill.test", b"2")
        login = b64encode(b"\0apikey\0" + self._access.key.encode())
        await _say(session, b"AUTH PLAIN " + login, b"2")
        return session

    async def _one(self, session: _Session, send: Send) -> None:
        await _say(session, f"MAIL FROM:<{self._access.sender}>".encode(), b"2")
        await _say(session, f"RCPT TO:<{send.address}>".encode(), b"2")
        await _say(session, b"DATA", b"3")
        content = (
            f"From: {self._access.sender}\r\nTo: {send.address}\r\nSubject: Drill {send.number}\r\n"
            f"X-Test-Id: {key_of(send)}\r\nX-Waybill-Idempotency-Key: {key_of(send)}\r\n\r\n"
            "The bearer of this message may have died on the way.\r\n."
        )
        found = _ID.match(await _say(session, content.encode(), b"2"))
        if found is None:
            raise RefusedCommand("a reply without an id")
        send.status = 200 if found[1] == b"duplicate" else 202
        send.answered_at = time.time()
        send.message_id = found[2].decode()


async def _say(session: _Session, line: bytes, wanted: bytes) -> bytes:
    session[1].write(line + b"\r\n")
    return await _reply(session, wanted)


async def _reply(session: _Session, wanted: bytes) -> bytes:
    while True:
        line = await session[0].readline()
        if not line:
            raise EOFError("the relay closed the session")
        if line[3:4] != b"-":
            if line[:1] != wanted:
                raise RefusedCommand(line.decode("utf-8", "replace"))
            return line
