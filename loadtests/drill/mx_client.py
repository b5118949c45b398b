"""A client that sends mail to the MX as a sending MTA does: it repeats every message until it has seen a 250 or a 5xx.

The bytes of a message depend only on its number and the run, so that a repetition is identical. Every fifth message
goes to two recipients and every thirtieth is large. Half of the sessions use STARTTLS.
"""

import asyncio
import hashlib
import random
import time
from base64 import encodebytes
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from loadtests.drill.clients import RepeatingClient
from loadtests.kit.smtp_client import RefusedCommand, SmtpSession

CONCURRENCY: Final = 24
ATTEMPT_S: Final = 60.0  # above the time that a hung scanner or a hung database takes to be refused
PATIENCE_S: Final = 300.0  # no 250 for so long: the client gives up
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


class MxClient(RepeatingClient[DrillMail]):
    """Sends messages over `concurrency` sessions that stay open, at `rate` messages a second.

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
        super().__init__(rate=rate, rng=rng, concurrency=concurrency, patience_s=PATIENCE_S)
        self.mails: list[DrillMail] = []
        self.attempts: list[MxAttempt] = []
        self._port = port
        self._recipients = recipients
        self._run = run
        self._cut = cut
        self._lasting = lasting
        self._sessions: dict[int, SmtpSession] = {}

    def replies(self) -> dict[str, int]:
        """Return how many attempts ended with each reply."""
        return dict(Counter(one.reply for one in self.attempts).most_common())

    def items(self, until: asyncio.Event | None) -> Iterator[DrillMail]:
        """Yield messages until the event is set."""
        while until is None or not until.is_set():
            number = len(self.mails)
            first = number % len(self._recipients)
            chosen = [self._recipients[first]]
            if number % 5 == 0 and len(self._recipients) > 1:
                chosen.append(self._recipients[first - 1])
            self.mails.append(DrillMail(self._run, number, chosen))
            yield self.mails[-1]

    async def attempt(self, place: int, item: DrillMail) -> bool:
        """Try once and record the reply; return True after a 250 or a 5xx."""
        content = content_of(item)
        item.digest, item.first_at = hashlib.sha256(content).digest(), item.first_at or time.time()
        item.tries += 1
        began = time.monotonic()
        keep = False
        try:
            async with asyncio.timeout(ATTEMPT_S):
                reply = await self._send(self._sessions.get(place) or await self._open(place), item, content)
                keep = True
        except RefusedCommand as error:
            reply, keep = error.reply, self._stage(place) == "envelope"
        except (OSError, ValueError) as error:  # the time-out is an OSError; ValueError: a line without end
            reply = f"{NO_REPLY} {error!r}"
        reply = reply or f"{NO_REPLY} closed by the server"
        stage = self._stage(place)
        keep = keep and self._lasting and not reply.startswith((NO_REPLY, "421"))
        if not keep or (stage == "envelope" and not await self._reset(place)):
            await self.leave(place)
        if reply.startswith("250"):
            item.answered_at = time.time()
        elif reply.startswith("5"):
            item.refusal = reply
        self.attempts.append(_attempt_of(reply, stage, time.monotonic() - began))
        return item.is_accepted or bool(item.refusal)

    async def leave(self, place: int) -> None:
        """Close the session of this place at once."""
        if place in self._sessions:
            self._sessions.pop(place).abort()

    async def _open(self, place: int) -> SmtpSession:
        session = self._sessions[place] = await SmtpSession.connect(self._port)
        await session.greet("client.test", starttls=place % 2 == 1)
        return session

    async def _send(self, session: SmtpSession, mail: DrillMail, content: bytes) -> str:
        """Send one message and return the reply that decides about it; hang up before reading it now and then."""
        if self._rng.random() >= self._cut:
            return await session.send(_SENDER, mail.recipients, content)
        await session.envelope(_SENDER, mail.recipients)
        session.writer.write(content + b".\r\n")  # no line of it begins with a dot
        await asyncio.sleep(self._rng.uniform(*_HANG_UP_S))
        session.abort()
        return f"{NO_REPLY} by the client"

    async def _reset(self, place: int) -> bool:
        """Forget a message that was refused before its content; return True if the session can be used again."""
        with suppress(OSError):
            return (await self._sessions[place].say(b"RSET\r\n")).startswith("250")
        return False

    def _stage(self, place: int) -> str:
        return self._sessions[place].stage if place in self._sessions else "connect"


def _attempt_of(reply: str, stage: str, took_s: float) -> MxAttempt:
    words = reply.split(" ")
    code = NO_REPLY if words[0] == NO_REPLY else " ".join(words[: 2 if "." in "".join(words[1:2]) else 1])
    return MxAttempt(code, stage, took_s, "" if code.startswith("250") else reply[:200])
