"""A primary with a replica, promoted by hand: processes follow without a restart."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from engine.base import ids
from engine.delivery.hints import HintReader, Hints, WakeListener, WokenShards
from engine.store import redis as redis_store
from engine.store.redis import RedisClient, RedisUnavailable
from engine.store.redis_primary import read_role
from loadtests.drill.valkey_servers import Valkey, linked, until, valkey_servers
from tests.harness.patience import PATIENCE_S
from tests.store.redis_servers import eventually, unhurried


@pytest.fixture
def pair() -> Iterator[list[Valkey]]:
    """A primary and its replica."""
    with unhurried(), valkey_servers(2) as servers:
        primary, replica = servers
        replica.command("REPLICAOF", "127.0.0.1", primary.port)
        until(lambda: linked(replica), PATIENCE_S, "the replica did not follow")
        yield servers


@pytest.fixture
async def client(pair: list[Valkey]) -> AsyncIterator[RedisClient]:
    primary, replica = pair
    urls = f"redis://{replica.address},{primary.address}"  # the order says nothing
    opened = redis_store.connect(urls, timeout_s=PATIENCE_S)
    yield opened
    await opened.aclose()


async def announced(hints: Hints, shard: int) -> bool:
    lost = hints.lost
    hints.announce({shard: [ids.uuid7()]})
    await hints.drain()
    return hints.lost == lost


async def arrives(hints: Hints, shard: int) -> None:
    """Announce until it goes through."""
    async with asyncio.timeout(PATIENCE_S):
        while not await announced(hints, shard):
            await asyncio.sleep(0.1)


async def test_a_promotion_after_the_primarys_death_is_followed(pair: list[Valkey], client: RedisClient) -> None:
    primary, replica = pair
    hints, reader = Hints(client), HintReader(client)
    woken = WokenShards()
    listening = asyncio.create_task(WakeListener(client).run(woken))
    await eventually(woken._event.is_set)
    assert await announced(hints, 1)
    assert len((await reader.read([1])).messages) == 1

    primary.kill()
    assert not await announced(hints, 1)
    with pytest.raises(RedisUnavailable):
        await client.ping()
    replica.command("REPLICAOF", "NO", "ONE")
    await arrives(hints, 1)
    await client.ping()
    await eventually(woken._event.is_set)  # it listens at the new one
    woken.take([])
    assert await announced(hints, 7)
    await woken.wait(PATIENCE_S)
    assert woken.take([7]) == [7]

    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening


async def test_a_primary_that_is_made_a_replica_is_left_at_its_first_refusal(
    pair: list[Valkey], client: RedisClient
) -> None:
    primary, replica = pair
    hints = Hints(client)
    assert await announced(hints, 1)
    replica.command("REPLICAOF", "NO", "ONE")
    primary.command("REPLICAOF", "127.0.0.1", replica.port)

    await arrives(hints, 1)

    assert replica.info("role") == "master"
    assert int(replica.command("XLEN", "wb:{s1}:hints")) >= 1


async def test_of_two_primaries_the_one_promoted_last_is_taken_by_everybody(
    pair: list[Valkey], client: RedisClient
) -> None:
    primary, replica = pair
    replica.command("REPLICAOF", "NO", "ONE")  # and the old one goes on
    await client.one("SET", "who", "wrote")
    other = redis_store.connect(f"redis://{primary.address},{replica.address}", timeout_s=PATIENCE_S)
    try:
        assert await other.one("GET", "who") == b"wrote"
    finally:
        await other.aclose()

    assert replica.command("GET", "who") == "wrote"
    assert primary.command("GET", "who") is None


async def test_a_lone_url_of_a_demoted_server_answers_with_its_refusal_and_follows_the_name(
    pair: list[Valkey],
) -> None:
    hints = Hints(lone := redis_store.connect(f"redis://{pair[1].address}", timeout_s=PATIENCE_S))
    try:
        assert not await announced(hints, 1)
        assert hints.away
        pair[1].command("REPLICAOF", "NO", "ONE")
        assert await announced(hints, 1)
        assert not hints.away
    finally:
        await lone.aclose()


def test_what_a_server_says_of_its_role_is_read() -> None:
    role = read_role("# Replication\r\nrole:master\r\nconnected_slaves:2\r\nmaster_replid:a\r\nmaster_replid2:b\r\n")

    assert (role.primary, role.replicas, role.lineage, role.before) == (True, 2, "a", "b")
    assert not read_role("role:slave\r\n").primary
    assert not read_role("").primary
