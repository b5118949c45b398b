"""Delivery into other people's mail servers: whatever the content, the copy they keep verifies.

Run with `pytest -m peers`; a server that is not installed is skipped and says so.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from email.utils import format_datetime
from uuid import UUID

import dkim
import pytest
from msgspec import Struct

from engine.base import clock
from tests.harness.outbound import World
from tests.mta.outbound.peers import DOMAIN, PEERS, Peer, running

pytestmark = [pytest.mark.peers, pytest.mark.exhaustive, pytest.mark.timeout(170)]

ADDRESS = "127.0.0.5"
COUNT = 1_000
LARGE = 2  # of 10 MB
PATIENCE_S = 60.0
KEPT_S = 40.0  # from its 250 to its folder


class Mail(Struct):
    """A message as it stands in the store: headers that every one has come from `compose`."""

    number: int
    body: bytes
    headers: bytes = b""
    utf8: bool = False
    local: str = "reader"


def kinds(number: int) -> Iterator[Mail]:
    """One message of every kind, numbered from `number`."""
    lines = [
        b"plain\r\n",
        b"",
        b"no blank line is missing at the end\r\n\r\n\r\n\r\n",
        b".\r\n..\r\n.x\r\n...\r\n.\r\n\r\n.\r\n",
        b"." * 998 + b"\r\n" + b"." + b"x" * 997 + b"\r\n",
        b"x" * 998 + b"\r\n" + b"y" * 997 + b" \r\n",
        b"trailing spaces   \r\nand a tab\t\r\n \r\n\t\r\nand  spaces \t within\r\n",
        b"From the beginning of a line\r\n>From a quoted one\r\n",
    ]
    for body in lines:
        yield Mail(number, body)
        number += 1
    wide = b"Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n"
    yield Mail(number, "Grüße aus Köln, 你好, \u2028 и привет\r\n".encode() * 40, wide)
    latin = b"Content-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: 8bit\r\n"
    yield Mail(number + 1, bytes(range(0xA0, 0x100)) + b"\r\n" + bytes(range(0x80, 0xA0)) + b"\r\n", latin)
    yield Mail(number + 2, "Für alle\r\n".encode(), "X-Note: Grüße an ä@ö.test\r\n".encode() + wide, utf8=True)
    yield Mail(number + 3, b"to a wide address\r\n", utf8=True, local="jürgen")
    folded = b"X-Long: " + b"\r\n ".join([b"word " * 12] * 30) + b"\r\nX-Tab:\ta\tb\r\n\tc\r\nX-Empty:\r\n"
    yield Mail(number + 4, b"folded\r\n", folded)
    mixed = b'MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary="=_b"\r\n'
    yield Mail(number + 5, b"--=_b\r\n\r\none\r\n--=_b\r\nContent-Type: text/html\r\n\r\n<p>two\r\n--=_b--\r\n", mixed)


def many(count: int, *, utf8: bool) -> list[Mail]:
    """So many messages of all kinds in turn, the last ones large."""
    rounds = itertools.chain.from_iterable(kinds(100 * number) for number in itertools.count())
    found = list(itertools.islice((one for one in rounds if utf8 or not one.utf8), count - LARGE))
    line = b"All work and no play makes a long message: " + b"0123456789" * 3 + b"\r\n"
    found += [Mail(0, line * (10_000_000 // len(line))) for _ in range(LARGE)]
    for number, one in enumerate(found):
        one.number = number
    return found


def compose(mail: Mail, sender: str) -> bytes:
    """The octets that are stored, signed and sent."""
    head = (
        f"From: Shop <{sender}>\r\nTo: {mail.local}@{DOMAIN}\r\nSubject: Number {mail.number}\r\n"
        f"Date: {format_datetime(clock.now())}\r\nMessage-ID: <{mail.number}@{sender.partition('@')[2]}>\r\n"
        f"X-Test-Id: {mail.number}\r\n"
    )
    return head.encode() + mail.headers + b"\r\n" + mail.body


async def accepted(here: World, mails: list[Mail]) -> dict[UUID, bytes]:
    """Messages in the queue whose stored octets are ours to the last."""
    made = {}
    for mail in mails:
        message = await here.send(f"{mail.local}@{DOMAIN}")
        raw = compose(mail, here.account.sender)
        await here.pool.execute(
            "UPDATE message_bodies SET mime = $2, smtputf8 = $3 WHERE message_id = $1", message, raw, mail.utf8
        )
        made[message] = raw
    return made


async def verifier(here: World) -> Callable[[bytes], bool]:
    """Whether all signatures of a message are good by the keys that its domain publishes."""
    rows = await here.pool.fetch(
        "SELECT d.name, k.selector, k.public_txt FROM domain_keys k JOIN domains d ON d.id = k.domain_id"
        " WHERE d.account_id = $1",
        here.account.id,
    )
    published = {f"{row['selector']}._domainkey.{row['name']}.".encode(): row["public_txt"].encode() for row in rows}

    def good(message: bytes) -> bool:
        mail = dkim.DKIM(message)
        count = sum(name.lower() == b"dkim-signature" for name, _ in mail.headers)
        return count > 0 and all(
            mail.verify(idx=place, dnsfunc=lambda name, timeout=5: published[name]) for place in range(count)
        )

    return good


def ours(peer: Peer, domain: str) -> list[bytes]:
    """What it keeps of this account's: a server's spool may hold mail of an earlier run."""
    mark = f"From: Shop <shop@{domain}>\r\n".encode()
    return [message for message in peer.stored() if mark in message[:16_384]]


def number_of(message: bytes) -> int:
    """The number that a kept copy carries."""
    head = message.partition(b"\r\n\r\n")[0]
    return int(next(line for line in head.split(b"\r\n") if line.startswith(b"X-Test-Id: ")).split(b" ")[1])


@pytest.mark.parametrize("make", PEERS, ids=lambda make: make.name)
async def test_every_kind_of_content_arrives_once_and_verifies(here: World, make: type[Peer]) -> None:
    async with running(make, ADDRESS, here.settings.sink_port) as peer:
        here.domain(DOMAIN, ADDRESS)
        mails = many(COUNT, utf8=peer.utf8)
        sent = await accepted(here, mails)
        await here.mta(final_dot_timeout_s=60.0)
        await here.until_idle(timeout_s=PATIENCE_S)
        for message in sent:
            assert await here.steps(message) == ["accepted", "attempted", "delivered"], await here.waybill(message)
        ends = time.monotonic() + KEPT_S
        while len(kept := await asyncio.to_thread(ours, peer, here.account.domain)) < len(sent):
            assert time.monotonic() < ends, f"{len(kept)} kept\n{peer.told}"
            await asyncio.sleep(0.2)

    by_number = {number_of(message): message for message in kept}
    assert len(kept) == len(by_number) == len(sent)
    good = await verifier(here)
    for number, raw in enumerate(sent.values()):
        copy = by_number[number]
        assert copy.partition(b"\r\n\r\n")[2].rstrip(b"\r\n") == raw.partition(b"\r\n\r\n")[2].rstrip(b"\r\n"), number
        assert good(copy), number


@pytest.mark.parametrize("make", [make for make in PEERS if not make.utf8], ids=lambda make: make.name)
async def test_where_smtputf8_is_unknown_such_mail_bounces_and_suppresses_nobody(here: World, make: type[Peer]) -> None:
    async with running(make, ADDRESS, here.settings.sink_port):
        here.domain(DOMAIN, ADDRESS)
        message = await here.send(f"jürgen@{DOMAIN}")
        await here.mta()
        await here.until_step(message, "bounced")

    assert dict(await here.waybill(message))["bounced"]["enhanced_code"] == "5.6.7"
    assert await here.suppressed() == []
