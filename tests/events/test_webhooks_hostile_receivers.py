"""Hostile webhook receivers: one attempt each, limited in time and memory, and recorded."""

import asyncio
import gzip
import resource
import socket
import struct

import pytest

from engine.store.http_client import HttpFailure, HttpReply
from ops.local.dns import DnsBehaviour, Responder
from tests.harness.patience import PATIENCE_S
from tests.harness.receiver import Hostile, Receiver, World, client_of, failed, post, request_of, saying

HEAD = b"HTTP/1.1 200 OK\r\n"
OK = HEAD + b"Content-Length: 2\r\n\r\nok"


async def met(hostile: Hostile, *, timeout_s: float = PATIENCE_S) -> HttpReply | HttpFailure:
    async with hostile, client_of() as client:
        return await post(client, hostile.url, timeout_s=timeout_s)


# -- time -----------------------------------------------------------------------------------------


async def test_one_byte_at_a_time_ends_at_the_total_time() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    trickle = saying(HEAD + b"Content-Length: 100\r\n\r\n", *[b"x"] * 50, pause_s=0.2)
    found = failed(await met(Hostile(trickle), timeout_s=1.0))

    assert 0.9 < loop.time() - began < 9.0  # the trickle takes ten seconds
    assert (found.kind, found.text, found.status) == ("timeout", "the response was incomplete within 1 s", 200)


async def test_headers_one_byte_at_a_time_end_at_the_total_time() -> None:
    found = failed(await met(Hostile(saying(*[bytes([one]) for one in HEAD * 3], pause_s=0.1)), timeout_s=1.0))

    assert (found.kind, found.status) == ("timeout", None)


async def test_interim_answers_without_end_are_no_answer() -> None:
    found = failed(await met(Hostile(saying(*[b"HTTP/1.1 100 Continue\r\n\r\n"] * 100, pause_s=0.05)), timeout_s=1.0))

    assert found.kind == "timeout"


async def test_an_interim_answer_before_the_answer_is_harmless() -> None:
    found = await met(Hostile(saying(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + OK)))

    assert found == HttpReply(200, b"ok")


async def test_names_that_are_not_answered_for_end_in_time(zone: Responder) -> None:
    zone.behave("a.test", DnsBehaviour(drop=True))
    async with client_of(zone) as client:
        found = failed(await post(client, "http://a.test/", timeout_s=0.5))

    assert found.kind == "timeout"


# -- size -----------------------------------------------------------------------------------------


async def endless(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def test_an_endless_body_is_read_to_4_kb_and_its_status_decides() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = await met(Hostile(saying(HEAD + b"\r\n", then=endless)))

    assert found == HttpReply(200, b"x" * 4_096)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024  # KiB


async def test_a_gzip_bomb_is_not_decompressed() -> None:
    bomb = gzip.compress(bytes(20_000_000), 9)
    head = HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    found = await met(Hostile(saying(head + bomb)))

    assert found == HttpReply(200, bomb[:4_096])


@pytest.mark.parametrize(
    "head",
    [HEAD + b"X-Long: ", HEAD, b"HTTP/1.1 200 "],
    ids=["one header", "many headers", "reason"],
)
async def test_a_gigabyte_of_header_is_cut_off(head: bytes) -> None:
    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        part = b"".join(b"X-%d: y\r\n" % number for number in range(7_000)) if head == HEAD else b"y" * 65_536
        for _ in range(16_384):
            writer.write(part)
            await writer.drain()

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = await met(Hostile(saying(head, then=flood)))

    if head.endswith(b"\r\n") or b"X-Long" in head:
        assert found == HttpReply(200, b"")
    else:
        assert failed(found).kind in {"protocol", "connect"}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


async def test_an_endless_chunk_is_cut_off() -> None:
    found = await met(Hostile(saying(HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", then=endless)))

    assert found == HttpReply(200, b"x" * 4_096)


# -- nonsense -------------------------------------------------------------------------------------


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request_of(reader)
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (reset, "connect"),
        (saying(), "connect"),
        (saying(b"hello there\n"), "protocol"),  # HTTP/0.9
        (saying(b"220 mail.test ESMTP\r\n"), "protocol"),
        (saying(b"HTTP/9.9 200 OK\r\n\r\n"), "protocol"),
        (saying(b"HTTP/1.1 abc OK\r\n\r\n"), "protocol"),
        (saying(b"\x16\x03\x01\x02\x00\x01\x00"), "protocol"),
        (saying(b"HTTP/1.1 200 OK"), "connect"),
        (saying(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nok"), "protocol"),
    ],
    ids=["rst", "closed", "http-0.9", "smtp", "version", "status", "tls", "half a line", "interim only"],
)
async def test_what_is_no_answer_is_a_failure(script: object, kind: str) -> None:
    found = failed(await met(Hostile(script)))  # type: ignore[arg-type]

    assert found.kind == kind
    assert found.text.isprintable()
    assert found.text


async def test_a_body_cut_off_leaves_the_status() -> None:
    found = await met(Hostile(saying(HEAD + b"Content-Length: 500\r\n\r\nhalf")))

    assert isinstance(found, HttpReply)
    assert found.status == 200


CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("pause_s", [0.0, 0.05], ids=["one segment", "two segments"])
@pytest.mark.parametrize(
    ("status", "behind"),
    [
        (204, b"Content-Length: 2\r\n\r\nok"),
        (204, b"Connection: close\r\nContent-Length: 2\r\n\r\nok"),
        (204, CHUNKED + b"2\r\nok\r\n0\r\n\r\n"),
        (204, b"\r\nok"),
        (200, CHUNKED + b"zz\r\nok"),
        (200, CHUNKED + b"2\r\nokay\r\n0\r\n\r\n"),
        (200, CHUNKED + b"5\r\nok"),
        (200, b"Content-Length: 2\r\n" + CHUNKED + b"2\r\nok\r\n0\r\n\r\n"),
        (202, b"Content-Length: 2\r\n\r\nok and more"),
        (201, b"Content-Length: 500\r\n\r\nhalf"),
        (200, b"Content-Length: -5\r\n\r\n"),
        (200, b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        (200, b"X: a\0b\r\n\r\n"),
        (299, b""),
        (410, b"Content-Length: -5\r\n\r\n"),
    ],
)
async def test_the_status_line_decides_whatever_follows_it(status: int, behind: bytes, pause_s: float) -> None:
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 %d Fine\r\n" % status
    script = saying(head, behind, pause_s=pause_s) if pause_s else saying(head + behind)
    found = await met(Hostile(script))

    assert isinstance(found, HttpReply)
    assert found.status == status


async def test_octets_behind_an_answer_do_not_spoil_the_next_one() -> None:
    async def each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await request_of(reader):
            writer.write(b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)
            writer.write(b"ok")

    async with Hostile(each) as hostile, client_of() as client:
        for pause_s in (0.0, 0.0, 0.05):
            found = await post(client, hostile.url)
            assert isinstance(found, HttpReply)
            assert found.status == 204
            await asyncio.sleep(pause_s)


async def test_nobody_listens() -> None:
    async with client_of() as client:
        found = failed(await post(client, "http://127.0.0.1:9/"))

    assert found.kind == "connect"
    assert "refused" in found.text.lower()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with Receiver() as canary, Receiver() as receiver, client_of() as client:
        receiver.status = status
        receiver.headers = {"Location": canary.url}
        found = await post(client, receiver.url)

    assert isinstance(found, HttpReply)
    assert found.status == status
    assert canary.got == []


async def test_a_cookie_is_not_kept() -> None:
    async with Receiver() as receiver, client_of() as client:
        receiver.headers = {"Set-Cookie": "who=me; Path=/"}
        for _ in range(2):
            await post(client, receiver.url)

    assert [got.headers.get("cookie") for got in receiver.got] == [None, None]


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Receiver() as proxy, Receiver() as receiver, client_of() as client:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        await post(client, receiver.url)

    assert (len(proxy.got), len(receiver.got)) == (0, 1)


async def test_a_connection_closed_while_idle_costs_no_attempt() -> None:
    closing: list[asyncio.StreamWriter] = []

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(OK)
        await writer.drain()
        closing.append(writer)
        await request_of(reader)  # the second request dies with its connection

    async with Hostile(once) as hostile, client_of() as client:
        assert await post(client, hostile.url) == HttpReply(200, b"ok")
        assert await post(client, hostile.url) == HttpReply(200, b"ok")
        assert hostile.connections == 2


async def test_connections_are_given_up_in_time_though_never_idle() -> None:
    async with Receiver() as receiver, client_of() as client:
        for age_s in (0.0, 0.0, 301.0):
            client._opened_at -= age_s
            await post(client, receiver.url)

    first, second, third = (got.port for got in receiver.got)
    assert first == second != third


# -- as a delivery --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        (saying(HEAD + b"Content-Length: 9\r\n\r\n", *[b"x"] * 9, pause_s=0.3), 200, ("the response was incomplete")),
        (saying(b"junk\r\n\r\n"), None, "the response is not HTTP"),
        (saying(b"HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\n\xff\0ab"), 500, "responded with 500"),
        (reset, None, "reset"),
    ],
    ids=["trickle", "junk", "binary", "rst"],
)
async def test_what_went_wrong_stands_in_the_history(
    here: World, script: object, status: int | None, error: str
) -> None:
    async with Hostile(script) as hostile:  # type: ignore[arg-type]
        endpoint = await here.endpoint(hostile.url)
        event = await here.event(endpoint.account)
        async with here.posting(webhook_timeout_s=1.0 if "complete" in error else 20.0):
            [attempt] = await here.until_attempts(endpoint, event, 1)

    assert (attempt.delivered, attempt.status_code) == (False, status)
    assert error in str(attempt.error).lower() or error in str(attempt.error)
    row = await here.delivery(endpoint, event)
    assert row.due_at is not None
    if error == "responded with 500":
        assert row.answer == "\ufffd\ufffdab"


async def test_a_private_address_is_refused_in_live_mode(here: World) -> None:
    async with Receiver() as canary:
        endpoint = await here.endpoint(canary.url)
        event = await here.event(endpoint.account)
        async with here.posting(delivery="live"):
            [attempt] = await here.until_attempts(endpoint, event, 1)

    assert canary.got == []
    assert attempt.error == "127.0.0.1 is not a public address"
