"""Aborted openings end like a time-out of their stage, and never fall back to plaintext."""

import asyncio
import socket

import pytest

from engine.mail.replies import Break, BreakKind, Phase
from mta.smtp.client.connection import ConnectFailed, SmtpConnection, TlsMode
from mta.smtp.client.opening import CUT_SHORT, OpeningAbort
from tests.harness.patience import PATIENCE_S
from tests.mta.smtp.test_connection import serving

GREETING, EHLO = b"220 mx.peer.test\r\n", b"250-mx.peer.test\r\n250 STARTTLS\r\n"


async def cut_short(address: tuple[str, int], reached: asyncio.Event, ends: str = "_abort_opening") -> ConnectFailed:
    """What an opening raises that is cut once `reached` is set. `ends`: what ends the stage that is meant."""
    cut = OpeningAbort()
    opening = asyncio.create_task(
        SmtpConnection.open(address, server_name="mx.peer.test", helo="c.test", tls=TlsMode.OPPORTUNISTIC, cut=cut)
    )
    async with asyncio.timeout(PATIENCE_S):
        await reached.wait()
        while getattr(cut._end, "__name__", "") != ends:
            await asyncio.sleep(0.01)
        cut.make()
        await asyncio.wait({opening})
    with pytest.raises(ConnectFailed) as failed:
        await opening
    return failed.value


@pytest.mark.parametrize(
    ("said", "phase"),
    [((), Phase.GREETING), ((GREETING,), Phase.EHLO), ((GREETING, EHLO, b"220 go\r\n"), Phase.TLS)],
    ids=["greeting", "ehlo", "handshake"],
)
async def test_a_server_that_falls_silent_timed_out_and_is_not_asked_in_plaintext(
    said: tuple[bytes, ...], phase: Phase
) -> None:
    reached = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number, reply in enumerate(said):
            if number:
                await reader.readline()
            writer.write(reply)
        await reader.read(1)  # what follows the last reply; nothing does before the greeting
        reached.set()
        await reader.read()

    async with serving(serve) as address:
        if not said:
            reached.set()
        failed = await cut_short(address, reached)

    assert failed.phase is phase
    assert failed.fault is None
    assert isinstance(failed.outcome, Break)
    assert failed.outcome.kind is BreakKind.TIMEOUT
    assert failed.outcome.detail.endswith(CUT_SHORT)


async def test_a_connect_that_gets_no_answer_timed_out() -> None:
    reached = asyncio.Event()
    reached.set()
    with socket.socket() as full:  # Linux drops a SYN to a listener whose queue is full
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.create_connection(full.getsockname(), timeout=2):
            failed = await cut_short(full.getsockname(), reached, "expire")

    assert failed.phase is Phase.CONNECT
    assert isinstance(failed.outcome, Break)
    assert failed.outcome.kind is BreakKind.TIMEOUT
    assert failed.outcome.detail.endswith(CUT_SHORT)


def test_a_cut_without_a_stage_changes_nothing() -> None:
    cut = OpeningAbort()
    cut.make()
    assert not cut.made
