"""`ops bench provider`: the relay that delays."""

import asyncio
import time
from contextlib import suppress

from loadtests.bench.distance import Distance, round_trip_ms
from mta.smtp.client.connection import Envelope, SmtpConnection
from ops.local.sink import Sink

RTT_S = 0.1


async def test_a_reply_takes_a_round_trip_and_the_greeting_two() -> None:
    async with Sink() as sink, Distance(0, sink.address[1], RTT_S) as distance:
        began = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", distance.port)
        await reader.readline()
        greeted_s = time.monotonic() - began
        writer.close()

        assert greeted_s >= 2 * RTT_S - 0.01  # timers of the loop fire up to a millisecond early, four in a row here
        assert await round_trip_ms(distance.port) >= 1000 * RTT_S - 5


async def test_octets_pass_unchanged_and_the_end_of_the_connection_too() -> None:
    async with Sink() as sink, Distance(0, sink.address[1], RTT_S) as distance:
        connection = await SmtpConnection.open(("127.0.0.1", distance.port), server_name="sink.test", helo="mail.test")
        content = b"Subject: Hello\r\n\r\n" + b"x" * 70 * 1024 + b"\r\n"
        sent = await connection.send(Envelope("shop@mail.test", ("ann@sink.test",), (content,)))
        await connection.close()

        assert sent.answers[0].outcome.code == 250  # type: ignore[union-attr]
        assert sink.messages[0].content == content


async def test_a_client_is_dropped_when_the_server_takes_no_connection() -> None:
    async with Sink() as sink:
        port = sink.address[1]
    async with Distance(0, port, RTT_S) as distance:
        reader, writer = await asyncio.open_connection("127.0.0.1", distance.port)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
