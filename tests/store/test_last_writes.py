"""Any process knows when a credential last wrote, or that it does not know."""

import asyncio
import math
import time
from collections.abc import AsyncIterator

import pytest

from engine.base import ids
from engine.store import redis as redis_store
from engine.store.last_writes import COVERED_S, LastWrites
from engine.store.redis import RedisClient
from tests.harness.patience import PATIENCE_S

KEEP_S = 60.0


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[RedisClient]:
    opened = redis_store.connect(redis_url, timeout_s=PATIENCE_S)
    yield opened
    await opened.aclose()


def credential() -> str:
    return f"key:{ids.encode(ids.uuid7())}"


def known(at: float | None) -> float:
    assert at is not None
    return at


async def test_another_process_knows_of_a_write(client: RedisClient) -> None:
    writer, reader, name = LastWrites(client, KEEP_S), LastWrites(client, KEEP_S), credential()
    before = time.monotonic()
    await writer.note(name)
    after = time.monotonic()
    last = known(await reader.last(name))
    assert last >= before + COVERED_S
    assert known(await reader.last(credential())) < after + COVERED_S  # others wrote nothing


async def test_the_writes_of_a_moment_share_a_note_that_covers_them(client: RedisClient) -> None:
    writer, name = LastWrites(client, KEEP_S), credential()
    await writer.note(name)
    noted = await client.one("GET", f"wb:wrote:{name}", key=f"wb:wrote:{name}")
    covered_until = writer._covered[name]
    await writer.note(name)
    same = await client.one("GET", f"wb:wrote:{name}", key=f"wb:wrote:{name}") == noted
    assert same or time.monotonic() >= covered_until  # a busy machine may take longer than the note covers


async def test_a_note_expires_once_no_replica_can_lag_behind_it(client: RedisClient) -> None:
    name = credential()
    await LastWrites(client, KEEP_S).note(name)
    left_ms = await client.one("PTTL", f"wb:wrote:{name}", key=f"wb:wrote:{name}")
    assert 0 < left_ms <= KEEP_S * 1000


async def test_without_redis_it_is_unknown_when_a_credential_wrote() -> None:
    nowhere = redis_store.connect("unix:///nonexistent/valkey.sock")
    writes, name = LastWrites(nowhere, KEEP_S), credential()
    await writes.note(name)
    assert await writes.last(name) is None
    await nowhere.aclose()


async def test_a_write_that_could_not_be_noted_counts_for_all_credentials(client: RedisClient) -> None:
    nowhere = redis_store.connect("unix:///nonexistent/valkey.sock")
    writer, reader, bystander = LastWrites(nowhere, KEEP_S), LastWrites(client, KEEP_S), credential()
    await reader.last(bystander)
    await writer.note(credential())
    wrote_at = time.monotonic()
    writer._client = client  # it answers again
    assert known(await writer.last(bystander)) >= wrote_at
    assert known(await reader.last(bystander)) >= wrote_at - 0.001  # the time of the server has microseconds
    await nowhere.aclose()


async def test_the_next_note_makes_up_for_a_lost_one_in_a_process_that_reads_nothing(client: RedisClient) -> None:
    nowhere = redis_store.connect("unix:///nonexistent/valkey.sock")
    writer, reader, lost = LastWrites(nowhere, KEEP_S), LastWrites(client, KEEP_S), credential()
    await reader.last(lost)
    await writer.note(lost)
    wrote_at = time.monotonic()
    writer._client = client  # it answers again
    await writer.note(credential())
    assert known(await reader.last(lost)) >= wrote_at - 0.001
    await nowhere.aclose()


async def test_a_write_that_takes_longer_than_a_note_covers_is_noted_again(client: RedisClient) -> None:
    writer, reader, name = LastWrites(client, KEEP_S), LastWrites(client, KEEP_S), credential()

    async def write() -> float:
        await asyncio.sleep(2 * COVERED_S)
        return time.monotonic()

    assert known(await reader.last(name)) < await writer.during(name, write()) <= known(await reader.last(name))


async def test_a_write_that_is_refused_says_why(client: RedisClient) -> None:
    async def write() -> None:
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        await LastWrites(client, KEEP_S).during(credential(), write())


async def test_after_a_loss_of_redis_every_credential_may_have_written(client: RedisClient) -> None:
    reader, name = LastWrites(client, KEEP_S), credential()
    await reader.last(name)
    await client.one("DEL", "wb:wrote:*", key="wb:wrote:*")
    lost_at = time.monotonic()
    last = known(await reader.last(name))
    assert last >= lost_at - 0.001
    assert last < math.inf
