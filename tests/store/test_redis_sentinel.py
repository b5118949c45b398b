"""Three sentinels, a primary and two replicas: processes use the primary that the sentinels agree on."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from engine.base.settings import load
from engine.delivery.hints import Hints
from engine.store import redis as redis_store
from engine.store.redis import RedisClient, RedisUnavailable
from engine.store.redis_sentinel import WatchedPrimary, latest, read_watched
from loadtests.drill.valkey_servers import WATCHED, Sentinel, Valkey, sentinel_url, until, watched_servers
from ops.doctor.stores import redis
from tests.harness.patience import PATIENCE_S
from tests.store.redis_servers import unhurried
from tests.store.test_redis_failover import announced, arrives

Watched = tuple[list[Valkey], list[Sentinel]]
SEEN = WatchedPrimary(host="a", port=1, epoch=3, flags="master", replicas=2, sentinels=3, quorum=2)


@pytest.fixture
def watched() -> Iterator[Watched]:
    """The servers and their sentinels."""
    with unhurried(), watched_servers() as servers:
        yield servers


@pytest.fixture
async def client(watched: Watched) -> AsyncIterator[RedisClient]:
    opened = redis_store.connect(sentinel_url(watched[1]), timeout_s=PATIENCE_S)
    yield opened
    await opened.aclose()


def has_role(server: Valkey, role: str) -> bool:
    return server.answers() and server.info("role") == role


async def test_a_failover_of_the_sentinels_is_followed(watched: Watched, client: RedisClient) -> None:
    (primary, *replicas), sentinels = watched
    hints = Hints(client)
    assert await announced(hints, 1)

    primary.kill()
    assert not await announced(hints, 1)
    await asyncio.to_thread(
        until, lambda: any(has_role(one, "master") for one in replicas), PATIENCE_S, "no replica was promoted"
    )
    await arrives(hints, 1)
    await client.ping()
    followed = client.generation
    for sentinel in sentinels:
        sentinel.kill()

    assert await announced(hints, 1)  # the primary is known, and the sentinels' absence says nothing about it
    assert client.generation == followed


async def test_a_primary_that_is_retired_is_left_at_its_first_refusal(watched: Watched, client: RedisClient) -> None:
    (primary, *_), sentinels = watched
    hints = Hints(client)
    assert await announced(hints, 1)

    sentinels[0].command("SENTINEL", "FAILOVER", WATCHED)
    await asyncio.to_thread(until, lambda: has_role(primary, "slave"), PATIENCE_S, "the primary was not retired")

    await arrives(hints, 1)


async def test_a_replica_that_is_promoted_by_hand_is_not_used_while_the_sentinels_name_another(
    watched: Watched, client: RedisClient
) -> None:
    (primary, replica, other), sentinels = watched
    for sentinel in sentinels[1:]:
        sentinel.kill()  # one alone can't fail over
    primary.kill()
    replica.command("REPLICAOF", "NO", "ONE")

    with pytest.raises(RedisUnavailable, match="no primary was found"):
        await client.ping()
    assert has_role(other, "slave")


async def test_the_doctor_names_the_sentinels_and_the_servers(watched: Watched) -> None:
    (primary, *_), sentinels = watched
    settings = load({"WAYBILL_REDIS_URL": sentinel_url(sentinels)}).settings

    good = await redis(settings)
    sentinels[2].kill()
    [fewer, *_] = await redis(settings)
    sentinels[1].kill()
    [alone, *_] = await redis(settings)
    sentinels[0].kill()
    none = await redis(settings)

    assert [(one.check, one.ok) for one in good] == [
        ("redis sentinels", True), ("redis", True), ("redis servers", True), ("redis memory", True),
    ]  # fmt: skip
    assert f"3 of 3 answer, quorum 2, {WATCHED} is {primary.address}" in good[0].found
    assert good[2].found.count("replica") == 2
    assert not fewer.ok
    assert "2 of 3 answer" in fewer.found
    assert "can't fail over" in alone.found
    assert [(one.check, one.ok) for one in none] == [("redis sentinels", False)]


async def test_the_doctor_says_that_the_sentinels_do_not_know_the_name(watched: Watched) -> None:
    url = sentinel_url(watched[1]).replace(f"/{WATCHED}?", "/other?")

    [found] = await redis(load({"WAYBILL_REDIS_URL": url}).settings)

    assert not found.ok
    assert "No such master" in found.found


async def test_a_wrong_password_of_the_sentinels_is_told_and_not_printed(watched: Watched) -> None:
    url = sentinel_url(watched[1]).replace("sentinel_password=", "sentinel_password=not-")

    [found] = await redis(load({"WAYBILL_REDIS_URL": url}).settings)

    assert not found.ok
    assert "not-" not in found.found


def test_the_sentinel_that_knows_the_latest_failover_is_believed() -> None:
    stale = WatchedPrimary(host="b", port=1, epoch=2, flags="master", replicas=2, sentinels=3, quorum=2)

    assert latest([stale, "away", SEEN]) is SEEN
    assert latest(["away"]) is None


def test_the_reply_of_a_sentinel_is_read() -> None:
    reply = [
        b"name", b"mymaster", b"ip", b"a", b"port", b"1", b"flags", b"master", b"num-slaves", b"2",
        b"num-other-sentinels", b"2", b"quorum", b"2", b"config-epoch", b"3",
    ]  # fmt: skip

    assert read_watched(reply) == SEEN


@pytest.mark.parametrize(
    "reply",
    [
        [b"name", b"mymaster"], [b"ip", b"a", b"port", b"x"], [b"ip", b"a", b"port", b"70000"],
        [b"ip", b"", b"port", b"1"], [b"ip", [b"a"], b"port", b"1"], None, 1, b"OK",
    ],
)  # fmt: skip
def test_a_reply_of_another_kind_of_server_names_no_primary(reply: object) -> None:
    assert read_watched(reply) == "its reply names no primary"
