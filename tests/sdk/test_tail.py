"""The tail of the Python client: it resumes where it stopped, misses nothing and shows nothing twice."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.harness import logbook
from tests.harness.accounts import make_account
from tests.harness.patience import PATIENCE_S
from tests.harness.receiver import request_of
from tests.harness.tcp import listening


@contextlib.asynccontextmanager
async def cutting(api_url: str, *after_bytes: int) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Run a proxy that cuts its first connections after so many octets; yield its URL and the heads of the requests."""
    target = urlsplit(api_url)
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await request_of(reader)
        heads.append(head)
        left = after_bytes[len(heads) - 1] if len(heads) <= len(after_bytes) else 2**40
        source, sink = await asyncio.open_connection(target.hostname, target.port)
        sink.write(head)
        with contextlib.suppress(asyncio.CancelledError):  # at the end of the test the tail is still open
            while left > 0 and (chunk := await source.read(min(left, 65_536))):
                writer.write(chunk)
                await writer.drain()
                left -= len(chunk)
        sink.close()

    async with listening(serve) as (host, port):
        yield f"http://{host}:{port}", heads


async def test_a_tail_that_is_cut_anywhere_shows_every_event_once(
    waybill_client: Any, api_url: str, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 90)
    async with (
        cutting(api_url, 1_000, 5_001, 3_000) as (url, heads),
        waybill_client.AsyncWaybill(account.token, base_url=url) as client,
        contextlib.aclosing(client.events.tail(replay=90)) as tail,
        asyncio.timeout(PATIENCE_S),
    ):
        seen = [(await anext(tail))["seq"] for _ in range(90)]
    assert seen == list(range(1, 91))
    assert len(heads) == 4
    assert b"replay=90" in heads[0]
    assert all(b"replay" not in head for head in heads[1:])
    assert all(b"\r\nLast-Event-ID: " in head for head in heads[1:])


async def test_the_synchronous_tail_follows_messages_too(waybill_client: Any, api_url: str, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 20)

    def follow(url: str) -> list[int]:
        with waybill_client.Waybill(account.token, base_url=url) as client:
            tail = client.messages.tail(replay=20)
            return [next(tail)["seq"] for _ in range(20)]

    async with cutting(api_url, 3_000) as (url, _heads), asyncio.timeout(PATIENCE_S):
        assert await asyncio.to_thread(follow, url) == list(range(1, 21))


async def test_lost_events_and_a_refused_key_end_the_tail(
    waybill_client: Any, api_url: str, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 3)
    async with waybill_client.AsyncWaybill(account.token, base_url=api_url) as client:
        with pytest.raises(waybill_client.EventsLostError, match="after 9"):  # as of a log restored from a backup
            await anext(client.events.tail(after=9))
    async with waybill_client.AsyncWaybill("svc_live_x", base_url=api_url) as client:
        with pytest.raises(waybill_client.UnauthorizedError):
            await anext(client.events.tail())


def test_events_survive_any_cut_of_the_stream(waybill_client: Any) -> None:
    from waybill_client import sse  # type: ignore[import-not-found]  # from the wheel

    stream = 'id: 1\nevent: event\ndata: {"a":"x\u2028y"}\n\n: note\r\nid: 2\r\ndata: 1\r\ndata: 2\r\n\r\n'.encode()
    wanted = [("event", "1", '{"a":"x\u2028y"}'), ("message", "2", "1\n2")]
    for cut in range(len(stream)):
        parser = sse.EventParser()
        assert [tuple(one) for part in (stream[:cut], stream[cut:]) for one in parser.feed(part)] == wanted


@pytest.mark.parametrize("is_async", [True, False])
async def test_catching_up_hands_over_the_events_of_the_log_as_webhooks_bring_them(
    is_async: bool, waybill_client: Any, api_url: str, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 1_500)
    seen: list[dict[str, Any]] = []

    async def handle(event: dict[str, Any]) -> None:
        seen.append(event)

    if is_async:
        async with waybill_client.AsyncWaybill(account.token, base_url=api_url) as client:
            position = await client.events.catch_up(7, handle)
    else:
        with waybill_client.Waybill(account.token, base_url=api_url) as client:
            position = await asyncio.to_thread(client.events.catch_up, 7, seen.append)
    assert position == 1_500
    assert [event["seq"] for event in seen] == list(range(8, 1_501))
    assert set(seen[0]) == {"id", "type", "createdAt", "seq", "data"}
    assert set(seen[0]["data"]) == {"messageId", "detail"}


async def test_catching_up_after_removed_events_says_so(waybill_client: Any, api_url: str, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 20)
    await pool.execute("UPDATE account_heads SET purged_through_seq = 9 WHERE account_id = $1", account.id)
    async with waybill_client.AsyncWaybill(account.token, base_url=api_url) as client:
        with pytest.raises(waybill_client.EventsLostError, match="up to 9"):
            await client.events.catch_up(3, pytest.fail)
