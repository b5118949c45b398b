"""Plays the client's part of a dialogue with one of the service's SMTP servers, over a real socket.

A dialogue begins with the line `as STATE`, which the tests of each server explain. Every other line is one of

    # …              a comment
    C: …             the client says this line; {name} stands for a value that the test gives
    raw b"…"         the client says these octets: a Python expression
    message          the client says a small message and the final dot
    recipients N     the client says N RCPT commands in one write
    S: …             the server must say exactly this line; S~ …: a line that matches this expression
    N S~ …           N such lines
    skip N           the server says N more lines
    handshake        TLS is negotiated
    close            the server must close and say no more
"""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from tests.harness.patience import PATIENCE_S
from tests.harness.submission import Client


class ServerDialog(Struct, frozen=True):
    """A dialogue: the state of the session in which it begins, and its lines."""

    state: str
    lines: list[str]


def load(path: Path) -> ServerDialog:
    """Read a dialogue."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return ServerDialog(lines.pop(0).removeprefix("as "), lines)


class DialogPlayer:
    """Plays a dialogue; `words` are the values of its names, `message` the small message without the final dot."""

    def __init__(self, client: Client, words: Mapping[str, str], message: bytes) -> None:
        self.client = client
        self._words = words
        self._message = message

    async def play(self, dialog: ServerDialog) -> None:
        """Play all lines and close."""
        try:
            for line in dialog.lines:
                await self._step(line)
        finally:
            await self.client.close()

    async def _step(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word in ("C:", "raw", "message", "recipients"):
            await self.client.write(self._said(word, rest))
        elif word in ("S:", "S~"):
            await self._hear(word, rest)
        elif word == "skip":
            for _ in range(int(rest)):
                await self._line()
        elif word == "handshake":
            await self.client.start_tls()
        elif word == "close":
            assert await self.client.ended()
        else:
            kind, _, pattern = rest.partition(" ")
            for _ in range(int(word)):
                await self._hear(kind, pattern)

    def _said(self, word: str, rest: str) -> bytes:
        for name, value in self._words.items():
            rest = rest.replace(f"{{{name}}}", value)
        if word == "raw":
            octets = eval(rest, {"__builtins__": {}})  # our own files
            assert isinstance(octets, bytes)
            return octets
        if word == "message":
            return self._message + b".\r\n"
        if word == "recipients":
            return b"".join(f"RCPT TO:<p{number}@people.test>\r\n".encode() for number in range(int(rest)))
        return rest.encode() + b"\r\n"

    async def _hear(self, kind: str, expected: str) -> None:
        line = await self._line()
        assert line == expected if kind == "S:" else re.fullmatch(expected, line), f"{line!r} instead of {expected!r}"

    async def _line(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            line = await self.client.reader.readline()
        assert line.endswith(b"\r\n"), line
        return line[:-2].decode()
