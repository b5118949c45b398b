"""The server side of the dialogues of `tests/dialogs/submission`, over real sockets.

A line of a dialogue is one of

    # …              a comment
    as STATE         where it begins: nothing (connected, greeting not read), nothing-in-tls, clear, tls (greeting
                     read), user (EHLO said and logged in)
    C: …             the client says this line; {sender}, {plain} and {password} stand for the account's
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
from base64 import b64encode
from pathlib import Path

import asyncpg
import pytest

from tests.harness.accounts import TestAccount, make_account
from tests.harness.patience import PATIENCE_S
from tests.harness.submission import Client, TestRelay, message

FOLDER = Path(__file__).parents[2] / "dialogs" / "submission"
FILES = sorted(FOLDER.glob("*.smtp"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_the_relay_follows_the_dialogue(path: Path, relay: TestRelay, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    lines = [line for line in path.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    state = lines.pop(0).removeprefix("as ")
    player = Player(await _begun(state, relay, account), account)
    try:
        for line in lines:
            await player.step(line)
    finally:
        await player.client.close()


def test_there_are_dialogues() -> None:
    assert len(FILES) > 20


async def _begun(state: str, relay: TestRelay, account: TestAccount) -> Client:
    if state == "user":
        return await relay.logged_in(account)
    client = await relay.client(tls=state in ("tls", "nothing-in-tls"))
    if state == "tls":
        assert (await client.reply()).startswith("220 ")
    return client


class Player:
    """Plays the client's part."""

    def __init__(self, client: Client, account: TestAccount) -> None:
        self.client = client
        self.account = account

    async def step(self, line: str) -> None:
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
        words = {
            "{sender}": self.account.sender,
            "{plain}": b64encode(b"\0apikey\0" + self.account.token.encode()).decode(),
            "{password}": b64encode(self.account.token.encode()).decode(),
        }
        for name, value in words.items():
            rest = rest.replace(name, value)
        if word == "raw":
            octets = eval(rest, {"__builtins__": {}})  # our own files
            assert isinstance(octets, bytes)
            return octets
        if word == "message":
            return message(self.account) + b".\r\n"
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
