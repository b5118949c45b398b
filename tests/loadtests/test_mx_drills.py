"""The client, the scanners and the checks of the MX drills. No service runs here."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest

from engine.base.settings import SocketAddress
from engine.receiving.types import AttachmentScan, ReceivedEnvelope
from loadtests.drill.mailbox_reconciliation import MailboxFindings, checks_of
from loadtests.drill.mx_client import INFECTED, DrillMail, content_of
from loadtests.kit.scanners import SCORE, ClamdPeer, RspamdPeer, ScannerMode
from loadtests.ports import reserve_port
from mta.inbound.scanning.breaker import ScannerUnavailable
from mta.inbound.scanning.clamd import scan_stream
from mta.inbound.scanning.rspamd import RspamdClient

TIMEOUT_S = 0.5
ENVELOPE = ReceivedEnvelope(sender="a@b.test", recipients=(), remote_ip="127.0.0.1", helo="b.test", tls=None)
EXACT = {"messages": 1, "events": 1, "counted": 1, "used": 1, "orphans": 0}


@pytest.fixture
async def clamd() -> AsyncIterator[tuple[ClamdPeer, SocketAddress]]:
    port = reserve_port()
    async with ClamdPeer(port, viruses={INFECTED: "Drill.Test"}) as started:
        yield started, SocketAddress("127.0.0.1", port)


def test_a_repeated_message_has_the_same_bytes() -> None:
    one, again, other = (DrillMail("run", number, ["a@b.test"]) for number in (3, 3, 4))

    assert content_of(one) == content_of(again) != content_of(other)


def test_every_line_of_a_message_can_be_sent_as_it_is() -> None:
    for number in range(30):
        content = content_of(DrillMail("run", number, ["a@b.test"]))
        assert b"\r\n." not in content
        assert content.count(b"\r\n") == content.count(b"\n") == content.count(b"\r")


async def test_the_clamd_peer_gives_verdicts_and_remembers_them(clamd: tuple[ClamdPeer, SocketAddress]) -> None:
    peer, address = clamd

    assert (await scan_stream(address, b"harmless")).scan is AttachmentScan.CLEAN
    assert (await scan_stream(address, INFECTED)).scan is AttachmentScan.INFECTED
    assert peer.digests == {hashlib.sha256(one).digest() for one in (b"harmless", INFECTED)}


@pytest.mark.parametrize("mode", [ScannerMode.GARBAGE, ScannerMode.CLOSING, ScannerMode.AWAY])
async def test_a_failing_clamd_peer_gives_no_verdict(clamd: tuple[ClamdPeer, SocketAddress], mode: ScannerMode) -> None:
    peer, address = clamd
    await peer.change(mode)

    with pytest.raises(ScannerUnavailable):
        await scan_stream(address, b"harmless")
    assert not peer.scanned


async def test_a_hanging_clamd_peer_does_not_answer(clamd: tuple[ClamdPeer, SocketAddress]) -> None:
    peer, address = clamd
    await peer.change(ScannerMode.HANGING)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(TIMEOUT_S):
            await scan_stream(address, b"harmless")


async def test_the_rspamd_peer_scores_until_it_fails() -> None:
    port = reserve_port()
    client = RspamdClient(f"http://127.0.0.1:{port}", TIMEOUT_S)
    try:
        async with RspamdPeer(port) as peer:
            assert (await client.check(b"mail", ENVELOPE, "1")).score == SCORE
            for mode in ScannerMode:
                if mode is not ScannerMode.WORKING:
                    await peer.change(mode)
                    with pytest.raises(ScannerUnavailable):
                        await client.check(b"mail", ENVELOPE, "1")
        assert peer.scanned == [b"mail"]
    finally:
        await client.close()


@pytest.mark.parametrize(
    "change",
    [
        {"lost": ["m to a"]}, {"twice": ["m to a"]}, {"unknown": ["m to a"]}, {"unanswered": ["m"]}, {"texts": 2},
        {"counts": EXACT | {"used": 2}}, {"counts": EXACT | {"orphans": 1}}, {"logs_intact": False},
    ],
)  # fmt: skip
def test_each_fault_of_a_mailbox_breaks_one_check(change: dict[str, object]) -> None:
    sound = {"stored": 1, "texts": 1, "accepted": 1, "counts": EXACT}

    assert all(check.ok for check in checks_of(MailboxFindings(**sound)))  # type: ignore[arg-type]
    assert sum(not check.ok for check in checks_of(MailboxFindings(**sound | change))) == 1  # type: ignore[arg-type]
