"""Waiting rows of a split or merged domain go where they belong now, and none of them is delivered twice."""

import asyncio
from uuid import UUID

import pytest
from msgspec import structs

from engine.base import clock, ids
from engine.delivery import queue, splits
from engine.delivery.partition import parts_of, shard_of
from engine.delivery.queue import Row
from engine.delivery.splits import SplitAuthor
from mta.outbound import resharding
from mta.outbound.active_queue import ActiveQueue
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.resharding import Resharder
from mta.outbound.row_moves import RowMoves
from mta.outbound.source_ips.unspent_quota import UnspentQuota
from shards.ownership import ShardOwnership
from tests.harness.outbound import World

HOT = "hot.test"


async def split(here: World, parts: int) -> None:
    async with here.pool.acquire() as connection, connection.transaction():
        await splits.change(
            connection, HOT, parts, shards=here.settings.shards, whose=SplitAuthor.OPERATOR, why="tests"
        )


async def shards_of(here: World) -> dict[UUID, int]:
    rows = await here.pool.fetch("SELECT message_id, shard FROM queue WHERE domain = $1", HOT)
    return {row["message_id"]: row["shard"] for row in rows}


def homes(here: World, messages: list[UUID], parts: int) -> dict[UUID, int]:
    count = here.settings.shards
    return {one: shard_of(HOT, count, split={HOT: parts}, message_id=one) for one in messages}


async def member(here: World, *owned: int) -> UUID:
    """A member whose lease stands, and which owns these shards."""
    fresh = ids.uuid7()
    await here.pool.execute(
        "INSERT INTO shard_members (id, name, expires_at) VALUES ($1, 'owner', now() + interval '1 hour')", fresh
    )
    await here.pool.execute("INSERT INTO shard_owners (shard, owner) SELECT unnest($1::int[]), $2", owned, fresh)
    return fresh


async def resharder(
    here: World, *owned: int, row_moves: RowMoves | None = None, in_hand: frozenset[UUID] = frozenset(),
    lease: UUID | None = None,
) -> Resharder:  # fmt: skip
    ownership = ShardOwnership(here.settings.shards)
    ownership.member_id = lease or await member(here, *owned)
    ownership.add(owned)
    active = ActiveQueue(100, UnspentQuota())
    for row in await queue.load(here.pool, [(message, HOT) for message in in_hand]):
        active.add(ActiveDelivery(row, 0.0))
    return Resharder(here.pool, row_moves=row_moves or RowMoves(), active=active, ownership=ownership)


async def test_rows_go_to_the_shards_that_the_split_says_and_back(here: World) -> None:
    messages = await here.send_many(40, lambda number: f"reader{number}@{HOT}")
    every = range(here.settings.shards)
    work = await resharder(here, *every)
    due = await here.pool.fetch("SELECT message_id, due_at FROM queue ORDER BY message_id")

    await split(here, 4)
    await work.work()
    assert await shards_of(here) == homes(here, messages, 4)
    assert set((await shards_of(here)).values()) == set(parts_of(HOT, len(every), 4))
    await split(here, 1)
    await work.work()

    assert await shards_of(here) == homes(here, messages, 1)
    assert await here.pool.fetch("SELECT message_id, due_at FROM queue ORDER BY message_id") == due


async def test_what_is_in_hand_stays_until_it_is_settled(here: World) -> None:
    messages = await here.send_many(20, lambda number: f"reader{number}@{HOT}")
    held = frozenset(messages[::2])
    home = shard_of(HOT, here.settings.shards)
    await split(here, 4)

    await (await resharder(here, home, in_hand=held)).work()

    wanted = homes(here, messages, 4) | dict.fromkeys(held, home)
    assert await shards_of(here) == wanted
    assert await here.pool.fetchval("SELECT count(*) FROM shard_rehomings") == 1  # a later walk finds them


async def test_who_has_lost_the_shard_or_the_lease_moves_nothing(here: World) -> None:
    messages = await here.send_many(20, lambda number: f"reader{number}@{HOT}")
    home = shard_of(HOT, here.settings.shards)
    own = await member(here, home)
    work = await resharder(here, home, lease=own)
    await split(here, 4)

    await here.pool.execute("UPDATE shard_owners SET owner = NULL")
    await work.work()
    assert await shards_of(here) == homes(here, messages, 1)
    await here.pool.execute("UPDATE shard_owners SET owner = $1", own)
    await here.pool.execute("DELETE FROM shard_members")
    await work.work()

    assert await shards_of(here) == homes(here, messages, 1)


async def test_a_hand_over_waits_for_the_step_under_way(here: World) -> None:
    """The step holds the ownership: were the shard given up meanwhile, its heir could take what is moved away."""
    await here.send_many(3, lambda number: f"reader{number}@{HOT}")
    home = shard_of(HOT, here.settings.shards)
    own = await member(here, home)
    async with here.pool.acquire() as connection, connection.transaction():
        messages = [row["message_id"] for row in await connection.fetch("SELECT message_id FROM queue")]

        moved = await resharding._MOVE.records(connection, messages, HOT, home, [0, 1, 2], own)
        giving_up = asyncio.create_task(here.pool.execute("UPDATE shard_owners SET owner = NULL"))
        await asyncio.sleep(0.2)
        assert not giving_up.done()
    await giving_up
    assert len(moved) == 3


async def test_an_errand_ends_once_nobody_can_know_the_old_parts(here: World) -> None:
    await here.send_many(5, lambda number: f"reader{number}@{HOT}")
    work = await resharder(here, *range(here.settings.shards))
    await split(here, 4)
    await work.work()
    await work.work()
    assert await here.pool.fetchval("SELECT count(*) FROM shard_rehomings") == 1
    assert await work.cache.get("splits") is True

    await here.pool.execute("UPDATE shard_rehomings SET began_at = began_at - interval '1 minute'")
    await work.work()

    assert await here.pool.fetchval("SELECT count(*) FROM shard_rehomings") == 0


@pytest.mark.exhaustive
async def test_split_and_merged_while_two_engines_deliver_nothing_comes_twice(here: World) -> None:
    here.sink.script(".", delay_s=0.02)
    here.domain(HOT)
    await here.send_many(150, lambda number: f"reader{number}@{HOT}")
    await here.mta("mta-1", site_connections=3, mta_active_limit=40)
    await here.mta("mta-2", site_connections=3, mta_active_limit=40)
    for parts in (4, 2, 8, 1):
        await split(here, parts)
        await here.send_many(25, lambda number, parts=parts: f"more{parts}-{number}@{HOT}")  # type: ignore[misc]
    await here.until(lambda: here.sink.count >= 250)  # a small hand puts some of it off for seconds
    await here.until_idle()

    came = [address for one in here.sink.messages for address in one.recipients]
    assert len(came) == len(set(came)) == 250


# -- rows on their way -------------------------------------------------------------------------


def a_row() -> Row:
    fresh = ids.uuid7()
    return Row(fresh, HOT, 3, fresh, "us.test", "[]", 1, clock.now(), 0, None, None, b"", smtputf8=False)


def test_a_row_read_before_its_move_was_committed_is_refused_where_it_was() -> None:
    row, leaving = a_row(), RowMoves()
    with leaving.reading():
        leaving.begin([row.key], row.shard)
        assert leaving.refuses(row)
        leaving.moved([row.key], row.shard)
        assert leaving.refuses(row)  # this read may have seen it there
        assert not leaving.refuses(structs.replace(row, shard=row.shard + 1))

    assert not leaving.refuses(row)  # whoever reads it there now reads the truth: it has come back


def test_a_row_that_leaves_again_is_not_freed_by_its_first_move() -> None:
    row, leaving = a_row(), RowMoves()
    with leaving.reading():
        leaving.begin([row.key], row.shard)
        leaving.moved([row.key], row.shard)
    with leaving.reading():
        leaving.begin([row.key], row.shard)
        with leaving.reading():
            pass
        assert leaving.refuses(row)
        leaving.moved([row.key], row.shard)
        assert leaving.refuses(row)
    assert not leaving.refuses(row)


def test_a_move_whose_answer_got_lost_is_in_doubt_for_longer_than_a_statement_lasts() -> None:
    row, leaving = a_row(), RowMoves()
    leaving.begin([row.key], row.shard)
    leaving.doubt([row.key], row.shard)
    with leaving.reading():
        pass

    assert leaving.refuses(row)
