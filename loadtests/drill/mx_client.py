"""A client that sends mail to the MX as a sending MTA does: it repeats every message until it has seen a 250 or a 5xx.

The bytes of a message depend only on its number and the run, so that a repetition is identical. Every fifth message
goes to two recipients and every thirtieth is large. Half of the sessions use STARTTLS.
"""

import asyncio
import hashlib
import random
import ssl
import time
from base64 import encodebytes
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Self

from msgspec import Struct

CONCURRENCY: Final = 24
ATTEMPT_S: Final = 60.0  # above the time that a hung scanner or a hung database takes to be refused
PATIENCE_S: Final = 300.0  # no 250 for so long: the client gives up
PAUSE_S: Final = (0.05, 0.25)  # between two attempts, drawn evenly
NO_REPLY: Final = "none"
INFECTED: Final = b"A virus that only the scanner of this drill knows."
_SENDER: Final = "news@sender.test"
_LARGE_AT, _LARGE_BYTES = 11, 300_000  # of every 30; above the size that is stored in a transaction of its own
_INFECTED_AT: Final = 17
_HANG_UP_S: Final = (0.0, 0.02)  # around the time that a commit takes


class DrillMail(Struct):
    """A message to the MX and the replies to it; times are wall clock."""

    run: str
    number: int
    recipients: Sequence[str]
    digest: bytes = b""  # SHA-256 of the bytes, known once they have been composed
    first_at: float = 0.0
    answered_at: float = 0.0  # of the 250
    refusal: str = ""  # the 5xx that ended the attempts
    tries: int = 0

    @property
    def message_id(self) -> str:
        """Return the Message-ID without its brackets."""
        return f"{self.run}-{self.number}@sender.test"

    @property
    def is_accepted(self) -> bool:
        """Return True if a 250 was seen."""
        return self.answered_at > 0


class MxAttempt(Struct, frozen=True):
    """An attempt: the code and enhanced code of the reply that ended it (or NO_REPLY), and the stage reached."""

    reply: str
    stage: str  # connect (up to the 220), hello, envelope, content
    took_s: float
    text: str = ""  # of anything but a 250


def content_of(mail: DrillMail) -> bytes:
    """Return the bytes of a message; an attachment is in every one of them."""
    number = mail.number
    infected = number % 30 == _INFECTED_AT
    attached = INFECTED if infected else hashlib.sha256(f"{mail.run} {number}".encode()).digest() * 4
    if number % 30 == _LARGE_AT:
        attached *= _LARGE_BYTES // len(attached)
    encoded = encodebytes(attached).replace(b"\n", b"\r\n")
    head = (
        f"From: News <{_SENDER}>\r\nTo: {', '.join(mail.recipients)}\r\nSubject: Drill {number}\r\n"
        f"Date: Mon, 02 Mar 2026 10:00:00 +0000\r\nMessage-ID: <{mail.message_id}>\r\nMIME-Version: 1.0\r\n"
        'Content-Type: multipart/mixed; boundary="part"\r\n\r\n'
        f"--part\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nMessage {number} of {mail.run}.\r\n"
        '--part\r\nContent-Type: application/octet-stream\r\nContent-Disposition: attachment; filename="drill.bin"\r\n'
        "Content-Transfer-Encoding: base64\r\n\r\n"
    )
    return head.encode() + encoded + b"--part--\r\n"


class MxClosed(Exception):  # noqa: N818 - named for what happened
    """The session ended without a reply."""


class MxDrillSession:
    """An SMTP session with the MX; `stage` is what it was doing last."""

    def __init__(self, port: int, *, tls: bool) -> None:
        self.stage = "connect"
        self._port = port
        self._tls = tls
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> str:
        """Connect and greet; return "" or the reply that refused the session."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        if refused := await self._say(None, "220"):
            return refused
        self.stage = "hello"
        if refused := await self._say("EHLO client.test", "250"):
            return refused
        if self._tls:
            if refused := await self._say("STARTTLS", "220"):
                return refused
            await self._writer.start_tls(trusting_context())
            return await self._say("EHLO client.test", "250")
        return ""

    async def send(self, mail: DrillMail, content: bytes, hang_up_s: float | None = None) -> str:
        """Send one message and return the reply that decides about it; close before reading it if `hang_up_s`."""
        self.stage = "envelope"
        recipients = [f"RCPT TO:<{one}>" for one in mail.recipients]
        for line in (f"MAIL FROM:<{_SENDER}>", *recipients):
            if refused := await self._say(line, "250"):
                return refused
        if refused := await self._say("DATA", "354"):
            return refused
        self.stage = "content"
        assert self._writer is not None
        self._writer.write(content + b".\r\n")  # no line of it begins with a dot
        if hang_up_s is not None:
            await asyncio.sleep(hang_up_s)
            self._writer.transport.abort()
            raise MxClosed("by the client")
        return await self.reply()

    async def reset(self) -> None:
        """Forget a message that was refused before its content."""
        if self.stage == "envelope":
            await self._say("RSET", "250")

    async def reply(self) -> str:
        """Return the last line of a reply. Raises MxClosed."""
        while line := (await self._reader.readline()).decode("utf-8", "replace"):
            if line[3:4] != "-":
                return line.rstrip()
        raise MxClosed("by the server")

    def close(self) -> None:
        """Close the connection at once."""
        if self._writer is not None:
            self._writer.transport.abort()

    async def _say(self, line: str | None, wanted: str) -> str:
        """Send a line, if there is one; return its reply unless that begins with `wanted`."""
        assert self._writer is not None
        if line is not None:
            self._writer.write(line.encode() + b"\r\n")
        reply = await self.reply()
        return "" if reply.startswith(wanted) else reply


class MxClient:
    """Sends messages over `CONCURRENCY` sessions that stay open, at `rate` messages a second.

    For the share `cut` of the attempts the client hangs up after the final dot, before it has read the reply. A client
    that is not `lasting` opens a session for each message.
    """

    def __init__(
        self,
        port: int,
        recipients: Sequence[str],
        run: str,
        *,
        rate: float,
        rng: random.Random,
        cut: float = 0.0,
        lasting: bool = True,
        concurrency: int = CONCURRENCY,
    ) -> None:
        self.mails: list[DrillMail] = []
        self.attempts: list[MxAttempt] = []
        self._port = port
        self._recipients = recipients
        self._run = run
        self._pause_s = concurrency / rate
        self._rng = rng
        self._cut = cut
        self._lasting = lasting
        self._concurrency = concurrency

    async def run(self, until: asyncio.Event, count: int = 0) -> None:
        """Send `count` messages, then further ones until the event is set; return when each is answered."""
        work = self._endless(until, count)
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._concurrency):
                tasks.create_task(self._work(work, tls=number % 2 == 1))

    def replies(self) -> dict[str, int]:
        """Return how many attempts ended with each reply."""
        return dict(Counter(one.reply for one in self.attempts).most_common())

    def _endless(self, until: asyncio.Event, count: int) -> Iterator[DrillMail]:
        while len(self.mails) < count or not until.is_set():
            number = len(self.mails)
            first = number % len(self._recipients)
            chosen = [self._recipients[first]]
            if number % 5 == 0 and len(self._recipients) > 1:
                chosen.append(self._recipients[first - 1])
            self.mails.append(DrillMail(self._run, number, chosen))
            yield self.mails[-1]

    async def _work(self, work: Iterator[DrillMail], *, tls: bool) -> None:
        session: MxDrillSession | None = None
        for mail in work:
            content = content_of(mail)
            mail.digest, mail.first_at = hashlib.sha256(content).digest(), time.time()
            ends = time.monotonic() + PATIENCE_S
            while time.monotonic() < ends:
                session = session or MxDrillSession(self._port, tls=tls)
                keep = await self._attempt(session, mail, content)
                if not keep or not self._lasting:
                    session.close()
                    session = None
                if mail.is_accepted or mail.refusal:
                    break
                await asyncio.sleep(self._rng.uniform(*PAUSE_S))
            await asyncio.sleep(self._pause_s * self._rng.uniform(0.5, 1.5))
        if session is not None:
            session.close()

    async def _attempt(self, session: MxDrillSession, mail: DrillMail, content: bytes) -> bool:
        """Try once and record it; return True if the session can be used again."""
        mail.tries += 1
        began = time.monotonic()
        hang_up_s = self._rng.uniform(*_HANG_UP_S) if self._rng.random() < self._cut else None
        reply, keep = "", False
        try:
            async with asyncio.timeout(ATTEMPT_S):
                if session.stage == "connect":
                    reply = await session.open()
                reply = reply or await session.send(mail, content, hang_up_s)
                keep = session.stage in ("envelope", "content") and not reply.startswith("421")
                if keep and session.stage == "envelope":
                    await session.reset()
        except (OSError, MxClosed, ValueError) as error:  # the time-out is an OSError; ValueError: a line without end
            keep = False
            reply = reply or f"{NO_REPLY} {error!r}"
        if reply.startswith("250"):
            mail.answered_at = time.time()
        elif reply.startswith("5"):
            mail.refusal = reply
        self.attempts.append(_attempt_of(reply, session.stage, time.monotonic() - began))
        return keep


class OpenMxSession(MxDrillSession):
    """A session for single commands, as a context manager."""

    async def __aenter__(self) -> Self:
        if refused := await self.open():
            raise MxClosed(refused)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def trusting_context() -> ssl.SSLContext:
    """Return a TLS context that takes the certificate which the service made for itself."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _attempt_of(reply: str, stage: str, took_s: float) -> MxAttempt:
    words = reply.split(" ")
    code = NO_REPLY if words[0] == NO_REPLY else " ".join(words[: 2 if "." in "".join(words[1:2]) else 1])
    return MxAttempt(code, stage, took_s, "" if code.startswith("250") else reply[:200])
