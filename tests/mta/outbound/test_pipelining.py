"""Servers that offer PIPELINING and mishandle it: detected by one attempt, disabled for 24 h."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from engine.mail.replies import Answer, Break, BreakKind, Phase, Reply
from mta.outbound.sites.pipelining import CLEARED_S, PROVED_S, BrokenPipelining
from mta.smtp.client.connection import SmtpConnection, SmtpTimeouts, TlsMode, Transaction
from mta.smtp.client.envelope import Envelope
from mta.smtp.client.transcript import TranscriptStep
from tests.harness.outbound import World
from tests.mta.dialog import FOLDER, load

LATER_S = (600.0,)
OK = Answer(Phase.BODY, Reply(250, "ok"))
GONE = Answer(Phase.RCPT, Break(BreakKind.CLOSED, "gone"))
STEPS = (TranscriptStep(Phase.MAIL, Reply(250, "ok"), 0.0),)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def transaction(*answers: Answer, pipelined: bool, broke_on_commands: bool) -> Transaction:
    recipients = tuple(f"r{n}@b.test" for n in range(len(answers)))
    return Transaction(recipients, answers, (), STEPS, None, pipelined, broke_on_commands)


STRAYED = transaction(GONE, pipelined=True, broke_on_commands=True)
BROKEN_AGAIN = transaction(GONE, pipelined=False, broke_on_commands=True)
WENT_WELL = transaction(OK, pipelined=False, broke_on_commands=False)


def test_a_site_that_takes_mail_only_in_lock_step_is_spoken_to_so_for_a_day() -> None:
    clock = Clock()
    known = BrokenPipelining(clock)
    assert not known.of("s")
    assert known.wants_again("s", STRAYED)
    assert known.of("s")
    assert known.wants_again("s", STRAYED)  # of a connection from before
    assert not known.wants_again("s", WENT_WELL)
    clock.now = PROVED_S - 1
    assert known.of("s")
    clock.now = PROVED_S + 1
    assert not known.of("s")


def test_a_site_that_breaks_in_lock_step_too_is_not_suspected_again_for_an_hour() -> None:
    clock = Clock()
    known = BrokenPipelining(clock)
    assert known.wants_again("s", STRAYED)
    assert not known.wants_again("s", BROKEN_AGAIN)
    assert not known.of("s")
    assert not known.wants_again("s", STRAYED)
    clock.now = CLEARED_S + 1
    assert known.wants_again("s", STRAYED)


def test_what_was_partly_sent_is_never_tried_again_for_this() -> None:
    known = BrokenPipelining()
    assert not known.wants_again("s", transaction(OK, GONE, pipelined=True, broke_on_commands=True))
    assert not known.wants_again("s", transaction(OK, pipelined=True, broke_on_commands=False))
    assert not known.of("s")


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mta.outbound.sites.pipelining.MAX_SITES", 10)
    known = BrokenPipelining()
    for n in range(100):
        assert known.wants_again(f"s{n}", STRAYED)
    assert [n for n in range(100) if known.of(f"s{n}")] == list(range(90, 100))


@pytest.mark.parametrize(
    ("name", "broke_on_commands"),
    [
        ("pipelining-liar-short", True),
        ("pipelining-liar-over", True),
        ("pipelining-liar-drops", True),
        ("pipelining-liar-closes", True),
        ("pipelining-liar-behind-the-dot", True),
        ("rcpt-421", False),
        ("rcpt-partial", False),
        ("silence-after-dot", False),
        ("drop-after-dot", False),
        ("happy-pipelined", False),
    ],
)
async def test_which_conversations_raise_the_suspicion(name: str, *, broke_on_commands: bool) -> None:
    """The server's part of a dialogue, said without listening to more than how many lines came."""
    dialog = load(FOLDER / f"{name}.smtp")
    said: asyncio.Queue[bool] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            for line in dialog.lines:
                if line.kind == "S":
                    writer.write(line.raw)
                elif line.kind in ("C", "C~"):
                    await reader.readuntil(b"\r\n")
                elif line.kind == "content":
                    await reader.readexactly(len(line.raw))
                elif line.kind == "silence":
                    await reader.read()
            await writer.drain()
            if dialog.lines[-1].kind != "close":
                await reader.read()
        writer.close()
        said.put_nowait(True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    limits = SmtpTimeouts(reply_s=0.3, data_s=0.3, final_dot_s=0.3, quit_s=0.1)
    host, port = server.sockets[0].getsockname()[:2]
    connection = await SmtpConnection.open(
        (host, port), server_name="mx.peer.test", helo="client.test", tls=TlsMode.OFF, timeouts=limits
    )
    transactions = []
    for place, envelope in enumerate(dialog.envelopes):
        following = dialog.envelopes[place + 1] if place + 1 < len(dialog.envelopes) else None

        def upcoming(given: Envelope | None = following) -> Envelope | None:
            return given

        transactions.append(await connection.send(envelope, upcoming))
    await connection.close()
    await said.get()
    server.close()
    await server.wait_closed()

    assert transactions[-1].broke_on_commands is broke_on_commands


# -- the whole engine --------------------------------------------------------------------------------


class Liar:
    """Offers PIPELINING; takes mail one command at a time, and answers groups in its own way."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.groups = 0  # commands that came together
        self.taken: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await self._serve(reader, writer)
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mx\r\n")
        while heard := await reader.read(4_096):
            commands = heard.decode().split("\r\n")[:-1]
            if len(commands) > 1:
                self.groups += 1
                if not self._confused(writer, commands):
                    return
                continue
            verb = commands[0][:4].upper()
            if verb == "EHLO":
                writer.write(b"250-mx\r\n250 PIPELINING\r\n")
            elif verb == "DATA":
                writer.write(b"354 go ahead\r\n")
                await reader.readuntil(b"\r\n.\r\n")
                writer.write(b"250 2.0.0 taken\r\n")
            elif verb == "QUIT":
                return
            else:
                self.taken += [commands[0]] if verb == "RCPT" else []
                writer.write(b"250 2.1.0 ok\r\n")

    def _confused(self, writer: asyncio.StreamWriter, commands: Sequence[str]) -> bool:
        replies = [b"250 2.1.0 ok\r\n"] * (len(commands) - 1)
        if self.way == "short":
            writer.write(b"".join([*replies[:-1], b"354 go ahead\r\n"]))
        elif self.way == "over":
            writer.write(b"".join([*replies, b"250 and ok\r\n", b"354 go ahead\r\n"]))
        elif self.way == "drops":
            writer.write(replies[0])
        return self.way != "closes"


@contextlib.asynccontextmanager
async def liar(here: World, way: str) -> AsyncIterator[Liar]:
    """At liar.test."""
    made = Liar(way)
    server = await asyncio.start_server(made.serve, "127.0.0.3", here.settings.sink_port)
    here.domain("liar.test", "127.0.0.3")
    try:
        yield made
    finally:
        server.close()


@pytest.mark.parametrize("way", ["short", "over", "drops", "closes"])
async def test_a_pipelining_liar_gets_its_mail_in_lock_step_at_the_first_attempt(here: World, way: str) -> None:
    async with liar(here, way) as server:
        first = await here.send("ann@liar.test")
        await here.mta(retry_ladder_s=LATER_S, reply_timeout_s=0.5)
        await here.until_step(first, "delivered")
        groups = server.groups
        second = await here.send("bob@liar.test")
        await here.until_step(second, "delivered")

    assert await here.steps(first) == ["accepted", "attempted", "delivered"]
    assert server.taken == ["RCPT TO:<ann@liar.test>", "RCPT TO:<bob@liar.test>"]
    assert server.groups == groups == 1


async def test_a_server_that_breaks_in_lock_step_too_is_deferred_after_two_connections(here: World) -> None:
    connections = 0

    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(OSError):
            writer.write(b"220 mx\r\n")
            await reader.readline()
            writer.write(b"250-mx\r\n250 PIPELINING\r\n")
            await reader.readline()
        writer.close()

    server = await asyncio.start_server(broken, "127.0.0.3", here.settings.sink_port)
    here.domain("broken.test", "127.0.0.3")
    message = await here.send("ann@broken.test")
    await here.mta(retry_ladder_s=LATER_S, reply_timeout_s=0.5)
    await here.until_step(message, "deferred")
    server.close()
    await server.wait_closed()

    assert connections == 2
    assert await here.steps(message) == ["accepted", "attempted", "deferred"]
