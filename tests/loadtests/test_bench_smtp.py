"""The SMTP client of the load process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from loadtests.bench.smtp_load import LoadMail, SmtpLoadSession, SmtpTarget


@asynccontextmanager
async def mail_server(keyword: bytes, bursts: list[int]) -> AsyncIterator[int]:
    """Run a server that offers `keyword` and notes how many commands each read of the envelope brought."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 peer.test ESMTP\r\n")
        await reader.readline()
        writer.write(b"250-peer.test\r\n250 %b\r\n" % keyword)
        for command in (b"MAIL", b"RCPT", b"DATA"):
            line = await reader.readline()
            assert line.startswith(command)
            bursts.append(len(reader._buffer))  # type: ignore[attr-defined]
            writer.write(b"354 go on\r\n" if command == b"DATA" else b"250 ok\r\n")
        await reader.readuntil(b"\r\n.\r\n")
        writer.write(b"250 kept\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(("keyword", "pipelined"), [(b"PIPELINING", True), (b"8BITMIME", False)])
async def test_commands_are_pipelined_only_where_the_server_offers_it(keyword: bytes, pipelined: bool) -> None:
    bursts: list[int] = []
    async with mail_server(keyword, bursts) as port:
        target = SmtpTarget(host="127.0.0.1", port=port, connections=1, folder="")
        mail = LoadMail(b"shop@peer.test", b"ann@people.test", b"Subject: Hello\r\n\r\nHello\r\n.\r\n")
        session = SmtpLoadSession(target, lambda _number: mail)

        await session.open()
        assert await session.send(1, 1) is None
        session.abort()

    assert (bursts[0] > 0) is pipelined
    assert bursts[-1] == 0
