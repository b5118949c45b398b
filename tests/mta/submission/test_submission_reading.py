"""Parsing of received octets: lines, content, commands and PROXY headers, split at any place."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base.errors import REGISTRY, ErrorType, Refusal
from engine.base.memory_pool import MemoryPool, Reservation
from mta.smtp.server import commands, proxy_protocol
from mta.smtp.server.buffer import CONTENT_END, LineFlaw, ReceivedLine, unstuffed
from mta.smtp.server.commands import BadCommand
from mta.smtp.server.reader import (
    MAX_DISCARDED,
    MAX_UNREAD,
    TURN_OCTETS,
    ClientGone,
    ContentDropped,
    ReceivedContent,
    SmtpReader,
)
from mta.submission import replies
from tests.harness.patience import PATIENCE_S, until

pieces = st.sampled_from([b"\r", b"\n", b"\r\n", b".", b"..", b"a", b"\r\n.\r\n", b"\0", b"\r\n.", b".\r\n"])
contents = st.lists(pieces, max_size=14).map(b"".join)


class Wire(asyncio.ReadTransport):
    """Counts how often it was held back."""

    def __init__(self) -> None:
        super().__init__()
        self.paused = 0
        self.resumed = 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.paused += 1

    def resume_reading(self) -> None:
        self.resumed += 1


def cut(octets: bytes, places: Sequence[int]) -> list[bytes]:
    """`octets` in pieces, cut at these places."""
    marks = [0, *sorted({place % (len(octets) + 1) for place in places}), len(octets)]
    return [octets[a:b] for a, b in itertools.pairwise(marks)]


def fed(octets: Sequence[bytes], *, end: bool = True) -> tuple[SmtpReader, Wire]:
    """A reader that gets one piece each time it has to wait, then the end."""
    left = list(octets)
    wire = Wire()

    async def more() -> None:
        while left:
            piece = left.pop(0)
            if piece:
                reader.feed(piece, wire)
                return
        if end:
            reader.end()

    reader = SmtpReader(more)
    return reader, wire


async def content_of(octets: Sequence[bytes], most: int = 10_000, held: Reservation | None = None) -> ReceivedContent:
    reader, _ = fed(octets)
    return await reader.content(most, held or memory().open("an account"), lambda _size: None)


def memory(total: int = 10**9) -> MemoryPool:
    return MemoryPool(total, owner_limit=total, part_limit=total)


# -- content -----------------------------------------------------------------------------------------


@given(contents, st.lists(st.integers(0, 100), max_size=5), contents)
async def test_content_ends_at_the_first_real_end_however_it_is_cut(
    before: bytes, places: list[int], after: bytes
) -> None:
    octets = before + CONTENT_END + after
    whole = b"\r\n" + octets
    end = whole.index(CONTENT_END)
    reader, _ = fed(cut(octets, places), end=False)
    found = await reader.content(10_000, memory().open("an account"), lambda _size: None)
    raw = whole[2 : end + 2]
    assert found == ReceivedContent(unstuffed(raw), None, len(raw))
    rest = bytes(reader._buffer._octets)
    assert (whole[end + len(CONTENT_END) :]).startswith(rest)


@given(contents)
async def test_what_was_stuffed_is_unstuffed(content: bytes) -> None:
    text = content.replace(b"\r\n.\r\n", b"").replace(b"\n", b"\r\n") + b"\r\n"
    stuffed = (b"." if text.startswith(b".") else b"") + text.replace(b"\r\n.", b"\r\n..")
    found = await content_of([stuffed + b".\r\n"])
    assert found.octets == text


async def test_content_beyond_the_bounds_is_read_and_dropped() -> None:
    pool = memory(1_000)
    line = b"x" * 98 + b"\r\n"
    first = pool.open("first")
    fits = await content_of([line] * 9 + [b".\r\n"], 900, first)
    assert (len(fits.octets), fits.dropped) == (900, None)
    assert 900 <= pool.held <= 905
    assert (await content_of([line] * 2 + [b".\r\n"], 900, pool.open("second"))).dropped is ContentDropped.MEMORY
    first.release()
    assert pool.held == 0
    assert (await content_of([line] * 9 + [b"x\r\n.\r\n"], 900, first)).dropped is ContentDropped.SIZE
    first.release()
    found = await content_of([line] * 5_000 + [b".\r\n"], 900, pool.open("first"))
    assert (found.octets, found.dropped, pool.held) == (b"", ContentDropped.SIZE, 0)
    assert found.size == pytest.approx(500_000, abs=10)


async def test_content_that_arrives_gives_way_to_an_account_that_holds_less() -> None:
    pool = memory(1_000)
    large = pool.open("large")
    reader, wire = fed([], end=False)
    reading = asyncio.create_task(reader.content(10_000, large, lambda _size: None))
    reader.feed(b"x" * 900, wire)
    while pool.held < 900:
        await asyncio.sleep(0)
    pool.open("small").take(200)

    assert (large.revoked, pool.held) == (True, 200)
    reader.feed(b"y" * 50 + CONTENT_END, wire)
    found = await reading
    assert (found.dropped, found.octets, found.size, pool.held) == (ContentDropped.MEMORY, b"", 952, 200)


async def test_content_that_gives_way_just_when_its_end_arrives_still_ends() -> None:
    pool = memory(1_000)
    reader, wire = fed([], end=False)
    reading = asyncio.create_task(reader.content(10_000, pool.open("large"), lambda _size: None))
    reader.feed(b"x" * 900, wire)
    while pool.held < 900:
        await asyncio.sleep(0)

    reader.feed(b"y" * 50 + CONTENT_END + b"QUIT\r\n", wire)
    pool.open("small").take(200)

    found = await asyncio.wait_for(reading, PATIENCE_S)
    assert (found.dropped, found.size, pool.held) == (ContentDropped.MEMORY, 952, 200)
    assert (await reader.line(commands.max_line_octets)).octets == b"QUIT"


async def test_a_client_that_leaves_gets_no_content() -> None:
    reader, _ = fed([b"x" * 500, b"y" * 100])
    with pytest.raises(ClientGone):
        await reader.content(10_000, memory(1_000).open("an account"), lambda _size: None)


async def test_a_client_far_ahead_is_held_back_until_somebody_reads() -> None:
    reader, wire = fed([])
    reader.feed(b"x" * MAX_UNREAD, wire)
    assert wire.paused == 0
    reader.feed(b"NOOP\r\n", wire)
    reader.feed(b"NOOP\r\n", wire)
    assert (wire.paused, wire.resumed) == (1, 0)
    found = await reader.line(lambda _line: 100)
    assert found.flaw is LineFlaw.LONG
    assert (await reader.line(lambda _line: 100)).octets == b"NOOP"
    with pytest.raises(ClientGone):
        await reader.line(lambda _line: 100)


async def test_clients_that_send_much_content_take_turns() -> None:
    readers = [fed([], end=False) for _ in range(3)]
    reading = [asyncio.create_task(reader.line(lambda _line: 100)) for reader, _ in readers]
    await asyncio.sleep(0)
    for reader, wire in readers:
        reader.feed(b"x" * TURN_OCTETS, wire)
        assert wire.paused == 0
        reader.feed(b"x", wire)
    await until(lambda: all(wire.resumed == 1 for _, wire in readers))
    assert [wire.paused for _, wire in readers] == [1, 1, 1]
    for task in reading:
        task.cancel()


# -- lines -------------------------------------------------------------------------------------------


@given(
    st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"").replace(b"\r", b"")), max_size=5),
    st.lists(st.integers(0, 100), max_size=6),
)
async def test_lines_are_the_same_however_they_are_cut(lines: list[bytes], places: list[int]) -> None:
    reader, _ = fed(cut(b"".join(line + b"\r\n" for line in lines), places))
    for line in lines:
        found = await reader.line(lambda _line: 8)
        assert found == (ReceivedLine(line) if len(line) <= 8 else ReceivedLine(b"", LineFlaw.LONG))
    with pytest.raises(ClientGone):
        await reader.line(lambda _line: 8)


@pytest.mark.parametrize("places", [[], [1], [2], [1, 2, 3, 4, 5]])
async def test_a_bare_line_feed_ends_no_line(places: list[int]) -> None:
    reader, _ = fed(cut(b"a\nb\r\n", places))
    assert (await reader.line(lambda _line: 8)).flaw is LineFlaw.BARE
    assert (await reader.line(lambda _line: 8)).octets == b"b"


async def test_an_endless_line_is_not_listened_to_for_ever() -> None:
    reader, _ = fed([b"x" * 1_000_000] * (MAX_DISCARDED // 1_000_000 + 2))
    with pytest.raises(ClientGone):
        await reader.line(lambda _line: 510)
    assert len(reader._buffer._octets) <= 2_000_000


def refusal_of(read: Callable[[], object]) -> str | None:
    """The reply that a command is refused with."""
    try:
        read()
    except BadCommand as error:
        return error.reply
    return None


# -- commands ----------------------------------------------------------------------------------------


@given(st.text(max_size=60))
def test_any_argument_is_read_or_refused_with_a_reply(text: str) -> None:
    for argument in (text, f"FROM:<{text}>", f"FROM:<a@b.test> {text}", f"TO:<{text}>"):
        for extended in (True, False):
            for read in (
                lambda: commands.parse_mail(argument, extended=extended, max_octets=1_000),  # noqa: B023 - called at once
                lambda: commands.parse_rcpt(argument, smtputf8=extended, extended=extended),  # noqa: B023 - as above
            ):
                assert (refusal_of(read) or "5")[0] == "5"


@given(st.binary(max_size=40))
def test_any_line_is_a_command_or_refused(line: bytes) -> None:
    refusal = refusal_of(lambda: commands.parse_command(line))
    controls = any(octet < 0x20 or octet == 0x7F for octet in line)
    if controls or refusal is not None:
        assert (refusal or "").startswith("501 5.5.2 ")


def test_addresses_are_bounded() -> None:
    long = "a" * 243 + "@people.test"
    assert len(long) == 255
    with pytest.raises(BadCommand, match=r"553 5\.1\.3"):
        commands.parse_rcpt(f"TO:<{long}>", smtputf8=False, extended=True)
    assert commands.parse_rcpt(f"TO:<{long[1:]}>", smtputf8=False, extended=True) == long[1:]


# -- replies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(ErrorType))
def test_every_refusal_has_a_reply_that_names_its_type(kind: ErrorType) -> None:
    reply = replies.refusal_reply(Refusal(kind, "It is so: ü\r\n250 ok" + "x" * 1_000))
    code, enhanced, name = reply.split(" ")[:3]
    assert name == f"[{kind.value}]"
    assert code[0] == enhanced[0]
    assert len(code) == 3
    assert reply.isascii()
    assert reply.isprintable()
    assert len(reply) <= replies.MAX_REPLY
    transient = REGISTRY[kind].status in (429, 503)
    assert code[0] == ("4" if transient else "5")


# -- PROXY -------------------------------------------------------------------------------------------


def version_2(command: int, family: int, addresses: bytes, more: bytes = b"") -> bytes:
    tail = addresses + more
    return proxy_protocol.SIGNATURE + bytes((command, family)) + len(tail).to_bytes(2, "big") + tail


V4 = bytes((192, 0, 2, 7, 198, 51, 100, 1, 0x9C, 0x40, 0x02, 0x4B))
V6 = ip_address("2001:db8::7").packed + ip_address("2001:db8::1").packed + b"\x9c\x40\x02\x4b"


@pytest.mark.parametrize(
    ("octets", "client"),
    [
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 587\r\n", "192.0.2.7"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 587\r\n", "2001:db8::7"),
        (b"PROXY TCP6 ::ffff:192.0.2.7 ::ffff:198.51.100.1 40000 25\r\n", "192.0.2.7"),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", None),
        (version_2(0x21, 0x11, V4), "192.0.2.7"),
        (version_2(0x21, 0x21, V6), "2001:db8::7"),
        (version_2(0x21, 0x11, V4, b"\x04\x00\x03abc"), "192.0.2.7"),
        (version_2(0x20, 0x00, b""), None),
        (version_2(0x21, 0x00, b"whatever"), None),
    ],
)
def test_a_proxy_header_is_read_at_its_last_octet_and_no_sooner(octets: bytes, client: str | None) -> None:
    for length in range(len(octets)):
        assert proxy_protocol.parse_proxy_header(octets[:length]) is None
    expected = proxy_protocol.ProxyHeader(None if client is None else ip_address(client), len(octets))
    assert proxy_protocol.parse_proxy_header(octets) == expected
    assert proxy_protocol.parse_proxy_header(octets + b"\x16\x03\x01EHLO\r\n") == expected


@pytest.mark.parametrize(
    "octets",
    [
        b"EHLO x\r\n", b"PROXY\r\n\r\n", b"PROXY TCP4\r\n", b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1 x\r\n", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n",
        b"PROXY TCP4 2001:db8::7 2001:db8::1 1 2\r\n", b"PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n",
        b"PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n", b"PROXY TCP4 127.1 5.6.7.8 1 2\r\n", b"PROXY TCP4 \xff 5.6.7.8 1 2\r\n",
        b"PROXY " + b"x" * 200, version_2(0x11, 0x11, V4), version_2(0x22, 0x11, V4), version_2(0x21, 0x31, V4),
        version_2(0x21, 0x11, V4[:-1]), version_2(0x21, 0x21, V4), version_2(0x21, 0x12, V4),
        version_2(0x21, 0x11, V4, b"x" * 5_000),
    ],
)  # fmt: skip
def test_what_is_no_proxy_header_is_refused(octets: bytes) -> None:
    with pytest.raises(proxy_protocol.BadProxyHeader):
        proxy_protocol.parse_proxy_header(octets)


@given(st.binary(max_size=60))
def test_any_octets_are_a_header_or_not(octets: bytes) -> None:
    for start in (b"", b"PROXY ", proxy_protocol.SIGNATURE, proxy_protocol.SIGNATURE + b"\x21\x11\x00\x0c"):
        try:
            found = proxy_protocol.parse_proxy_header(start + octets)
        except proxy_protocol.BadProxyHeader:
            continue
        assert found is None or found.length <= len(start + octets)
