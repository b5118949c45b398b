"""Every dialogue of `tests/dialogs`, once against the pure session and once over a real socket."""

import asyncio
import ssl
from pathlib import Path

import pytest

from engine.mail.replies import Break, BreakKind
from mta.smtp.client.connection import ConnectFailed, SmtpConnection, SmtpTimeouts, TlsMode
from mta.smtp.client.envelope import Envelope
from mta.smtp.client.session import ClientSession, ClientState
from mta.smtp.client.transaction import PendingTransaction
from mta.smtp.client.transcript import TlsDetails
from ops.local import certificate
from tests.mta.dialog import HELO, Dialog, Line, files, load, matches, outcome

PATIENCE_S = 20.0
SHORT_S = 0.2


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    return certificate.server_context(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=files(), ids=lambda path: path.stem)
def dialog(request: pytest.FixtureRequest) -> Dialog:
    path = request.param
    assert isinstance(path, Path)
    return load(path)


def test_the_pure_session_follows_the_dialogue(dialog: Dialog) -> None:
    assert _Pure(dialog).play() == dialog.expected


async def test_a_connection_follows_the_dialogue(dialog: Dialog, context: ssl.SSLContext) -> None:
    server = _Server(dialog, context)
    outcomes = await server.meet()
    assert server.faults == []
    assert outcomes == dialog.expected


class _Pure:
    """Drives a session by hand, as `connection` would, with a clock that stands still."""

    def __init__(self, dialog: Dialog) -> None:
        self.dialog = dialog
        self.session = ClientSession(HELO, starttls=dialog.tls, required=dialog.required, now=0.0)
        self.said = b""
        self.queue = list(enumerate(dialog.envelopes, 1))
        self.current: tuple[int, PendingTransaction] | None = None
        self.outcomes: list[str] = []

    def play(self) -> list[str]:
        """The outcomes; fails at the first line that the client does not say."""
        heard = b""
        for line in [*self.dialog.lines, Line(0, "flush")]:
            if line.kind == "S":
                heard += line.raw
                continue
            if heard:
                self.said += self.session.received(heard, 0.0)
                heard = b""
            self.step(line)
        self.pump()
        assert self.said == b""
        return self.finish()

    def step(self, line: Line) -> None:
        if line.kind in ("C", "C~"):
            self.pump()
            said, found, self.said = self.said.partition(b"\r\n")
            assert found, f"line {line.number}: the client says nothing instead of {line.text}"
            assert matches(line, said), f"line {line.number}: {said!r}"
        elif line.kind == "content":
            self.pump()
            assert self.said.startswith(line.raw), f"line {line.number}: {self.said!r}"
            self.said = self.said[len(line.raw) :]
        elif line.kind == "handshake":
            assert self.session.state is ClientState.HANDSHAKE
            self.said += self.session.secured(TlsDetails("TLSv1.3", "cipher", "unverified"), 0.0)
        elif line.kind in ("close", "silence"):
            self.pump()
            kind = BreakKind.CLOSED if line.kind == "close" else BreakKind.TIMEOUT
            self.session.fail(Break(kind, "as the dialogue says"), 0.0)

    def pump(self) -> None:
        """All that the client can do without hearing more."""
        while self.session.state in (ClientState.READY, ClientState.ENDED):
            if self.current is None:
                opened = self.session.state is ClientState.READY or self.outcomes
                if not self.queue or not opened:
                    return
                number, envelope = self.queue.pop(0)
                transaction, commands = self.session.begin(envelope, 0.0)
                self.current = number, transaction
                self.said += commands
            number, transaction = self.current
            if transaction.done:
                answers = transaction.result(()).answers
                self.outcomes += [outcome(f"{number}.{m}", answer) for m, answer in enumerate(answers, 1)]
                self.current = None
            elif self.session.content_due is transaction:
                upcoming = self.queue[0][1] if self.queue and self.session.features.pipelining else None
                self.said += b"".join(self.session.content(upcoming, 0.0))
                self.session.content_written(0.0)
            else:
                return

    def finish(self) -> list[str]:
        ended = self.session.ended
        if not self.outcomes and ended is not None:
            self.outcomes.append(outcome("open", ended))
        return [*self.outcomes, "over" if ended is not None else "usable"]


class _Server:
    """Plays the server's part on a socket while a `SmtpConnection` plays its own."""

    def __init__(self, dialog: Dialog, context: ssl.SSLContext) -> None:
        self.dialog = dialog
        self.context = context
        self.faults: list[str] = []
        self.done = asyncio.Event()

    async def meet(self) -> list[str]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        try:
            async with asyncio.timeout(2 * PATIENCE_S):
                outcomes = await self.client(host, port)
                await self.done.wait()
        finally:
            server.close()
            await server.wait_closed()
        return outcomes

    async def client(self, host: str, port: int) -> list[str]:
        silent = any(line.kind == "silence" for line in self.dialog.lines)
        limit = SHORT_S if silent else PATIENCE_S
        timeouts = SmtpTimeouts(reply_s=limit, data_s=limit, final_dot_s=limit, quit_s=SHORT_S)
        mode = TlsMode.OPPORTUNISTIC if self.dialog.tls else TlsMode.OFF
        mode = TlsMode.ENCRYPTED if self.dialog.required else mode
        try:
            connection = await SmtpConnection.open(
                (host, port), server_name="mx.peer.test", helo=HELO, tls=mode, timeouts=timeouts
            )
        except ConnectFailed as failed:
            return [f"open {failed.phase.value} {_what(failed)}", "over"]
        outcomes = await self.send_all(connection)
        if self.dialog.expected[-1] == "over" and connection.usable:
            await asyncio.sleep(SHORT_S)  # what ends it is on its way
        outcomes.append("usable" if connection.usable else "over")
        await connection.close()
        return outcomes

    async def send_all(self, connection: SmtpConnection) -> list[str]:
        outcomes: list[str] = []
        envelopes = self.dialog.envelopes
        for number, envelope in enumerate(envelopes, 1):
            following = envelopes[number] if number < len(envelopes) else None

            def upcoming(given: Envelope | None = following) -> Envelope | None:
                return given

            transaction = await connection.send(envelope, upcoming)
            outcomes += [outcome(f"{number}.{m}", answer) for m, answer in enumerate(transaction.answers, 1)]
        return outcomes

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self.play(reader, writer)
        except (OSError, asyncio.IncompleteReadError) as error:
            # The client may leave while a flood is still being written to it.
            if self.dialog.expected[-1] != "over":
                self.faults.append(repr(error))
        finally:
            writer.close()
            self.done.set()

    async def play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = b""
        for line in [*self.dialog.lines, Line(0, "flush")]:
            if line.kind == "S":
                heard += line.raw
                continue
            writer.write(heard)
            heard = b""
            await writer.drain()
            if line.kind in ("C", "C~"):
                said = (await reader.readuntil(b"\r\n"))[:-2]
                if not matches(line, said):
                    self.faults.append(f"line {line.number}: {said!r}")
            elif line.kind == "content":
                said = await reader.readexactly(len(line.raw))
                if said != line.raw:
                    self.faults.append(f"line {line.number}: {said!r}")
            elif line.kind == "handshake":
                await writer.start_tls(self.context)
            elif line.kind == "flush":
                await asyncio.sleep(0.01)
            elif line.kind == "close":
                return
        rest = await reader.read()
        if rest not in (b"", b"QUIT\r\n"):
            self.faults.append(f"more than expected: {rest!r}")


def _what(failed: ConnectFailed) -> str:
    return failed.outcome.kind.value if isinstance(failed.outcome, Break) else str(failed.outcome.code)
