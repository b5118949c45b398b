"""Members on one database: fair shares, exclusive leases, hand-over, and outages."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection

import asyncpg
import pytest

from engine.base import ids
from engine.store.migrate import migrate
from engine.store.postgres import open_pool
from ops.host.temporary_servers import temporary_servers
from shards import lease
from shards.member import ShardMember
from shards.ownership import ShardOwnership
from tests.harness.patience import PATIENCE_S

NewDatabase = Callable[[], Awaitable[str]]
SHARDS = 16
LEASE_S = 1.0
LONG_S = 9.0  # a lease in tests of what does not wait for it; renewed every third
BUSY_S = PATIENCE_S  # that a busy machine may take longer


class Process:
    """A member and the callbacks that it got."""

    def __init__(self, pool: asyncpg.Pool, name: str, *, lease_s: float = LEASE_S) -> None:
        self.gained: list[frozenset[int]] = []
        self.released: list[frozenset[int]] = []
        self.fenced = 0
        self.may_release = asyncio.Event()
        self.may_release.set()
        self.on_gain: Callable[[], None] = lambda: None
        self.may_settle = asyncio.Event()
        self.may_settle.set()
        self.settling = False
        self.ownership = ShardOwnership(SHARDS)
        self.member = ShardMember(
            pool,
            name=name,
            ownership=self.ownership,
            lease_s=lease_s,
            before_take=self._settle_left,
            on_gain=self._gain,
            on_release=self._release,
            on_fenced=self._fenced,
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def owned(self) -> frozenset[int]:
        return self.member.owned

    def start(self) -> "Process":
        self._task = asyncio.create_task(self.member.run())
        return self

    async def kill(self) -> None:
        """Stop as a killed process does, without releasing shards."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _settle_left(self) -> None:
        self.settling = True
        await self.may_settle.wait()

    async def _gain(self, shards: Collection[int]) -> None:
        self.gained.append(frozenset(shards))
        self.on_gain()

    async def _release(self, shards: Collection[int]) -> None:
        await self.may_release.wait()
        self.released.append(frozenset(shards))

    def _fenced(self) -> None:
        self.fenced += 1


Start = Callable[..., Process]


@contextlib.asynccontextmanager
async def starting(pool: asyncpg.Pool) -> AsyncIterator[Start]:
    started: list[Process] = []

    def start(name: str, *, lease_s: float = LEASE_S, settles: bool = True) -> Process:
        started.append(Process(pool, name, lease_s=lease_s))
        if not settles:
            started[-1].may_settle.clear()
        return started[-1].start()

    yield start
    for process in started:
        process.may_release.set()
        process.may_settle.set()
        await process.kill()


@pytest.fixture
async def own_pool(new_database: NewDatabase) -> AsyncIterator[asyncpg.Pool]:
    """A database without other members."""
    pool = await open_pool(await new_database(), name="members", largest=6)
    yield pool
    await pool.close()


@pytest.fixture
async def start(own_pool: asyncpg.Pool) -> AsyncIterator[Start]:
    async with starting(own_pool) as start:
        yield start


async def until(condition: Callable[[], bool], *, within_s: float = PATIENCE_S) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within_s, f"not within {within_s} s"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


def shared_out(*processes: Process) -> bool:
    """Return True if every shard has one owner, and the owners' numbers of shards differ by at most one."""
    counts = [len(process.owned) for process in processes]
    whole = frozenset().union(*[process.owned for process in processes])
    return len(whole) == SHARDS == sum(counts) and max(counts) - min(counts) <= 1


async def epochs(pool: asyncpg.Pool) -> dict[int, int]:
    return {row["shard"]: row["epoch"] for row in await pool.fetch("SELECT shard, epoch FROM shard_owners")}


async def test_a_lone_member_takes_every_shard(start: Start, own_pool: asyncpg.Pool) -> None:
    alone = start("a")

    await until(lambda: shared_out(alone))

    assert alone.member.holds
    assert alone.gained == [frozenset(range(SHARDS))]
    owners = await own_pool.fetch("SELECT DISTINCT owner, epoch FROM shard_owners")
    assert [tuple(row) for row in owners] == [(alone.member.id, 1)]


async def test_a_member_finds_the_shards_that_it_took_without_a_reply(start: Start, own_pool: asyncpg.Pool) -> None:
    one = start("one")
    await until(lambda: shared_out(one))
    before = await epochs(own_pool)

    one.member._ownership.remove({1, 2})  # as if the connection had been lost after the commit

    await until(lambda: shared_out(one))
    assert await epochs(own_pool) == before


async def test_three_members_share_evenly(start: Start) -> None:
    processes = [start(name) for name in "abc"]

    await until(lambda: shared_out(*processes))

    await asyncio.sleep(LEASE_S)
    assert shared_out(*processes)  # and it stays so
    assert [process.fenced for process in processes] == [0, 0, 0]


@pytest.mark.exhaustive
async def test_no_shard_has_two_owners_while_members_come_and_go(start: Start) -> None:
    processes = [start("a")]

    async def watch() -> None:
        while True:
            holding = [process.owned for process in processes if process.member.holds]
            assert sum(map(len, holding)) == len(frozenset().union(*holding)), "a shard is held twice"
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch())
    await until(lambda: shared_out(*processes))
    processes.append(start("b"))
    await until(lambda: shared_out(*processes))
    processes.append(start("c"))
    await until(lambda: shared_out(*processes))
    await processes[0].kill()
    await until(lambda: shared_out(*processes[1:]))
    await processes[1].kill()
    await processes[1].member.leave()
    await until(lambda: shared_out(processes[2]))
    assert not watching.done() or watching.result()
    watching.cancel()


async def test_a_killed_members_shards_are_taken_within_seconds(start: Start, own_pool: asyncpg.Pool) -> None:
    killed, heir = start("a"), start("b")
    await until(lambda: shared_out(killed, heir))
    await asyncio.sleep(LEASE_S)  # both have been renewing steadily

    await killed.kill()
    took_s = await until(lambda: shared_out(heir))

    assert took_s < 3 * LEASE_S + BUSY_S
    assert heir.fenced == 0
    assert [row["name"] for row in await own_pool.fetch("SELECT name FROM shard_members")] == ["b"]


async def test_a_restarted_process_does_not_wait_for_its_own_lease(start: Start, own_pool: asyncpg.Pool) -> None:
    first = start("a", lease_s=LONG_S)
    await until(lambda: shared_out(first))
    await first.kill()

    again = start("a", lease_s=LONG_S)

    took_s = await until(lambda: shared_out(again))
    assert took_s < LONG_S
    assert await own_pool.fetchval("SELECT count(*) FROM shard_members") == 1


async def test_the_shards_of_an_earlier_run_are_not_free_before_what_it_left_is_settled(
    start: Start, own_pool: asyncpg.Pool
) -> None:
    first, other = start("a", lease_s=LONG_S), start("b", lease_s=LONG_S)
    await until(lambda: shared_out(first, other))
    left, kept = first.owned, other.owned
    await first.kill()
    other.may_settle.clear()

    again = start("a", lease_s=LONG_S, settles=False)
    await until(lambda: again.settling)

    owned = "SELECT count(*) FROM shard_owners o JOIN shard_members m ON m.id = o.owner WHERE o.shard = ANY($1::int[])"
    assert await own_pool.fetchval(owned, list(left)) == len(left)
    assert other.owned == kept
    again.may_settle.set()
    other.may_settle.set()
    await until(lambda: shared_out(again, other))


async def test_two_members_of_one_name_do_not_remove_each_other_repeatedly(start: Start) -> None:
    first = start("a")
    await until(lambda: shared_out(first))
    second = start("a")

    await until(lambda: shared_out(first, second))
    await asyncio.sleep(2 * LEASE_S)

    assert shared_out(first, second)
    assert (first.fenced, second.fenced) == (1, 0)


async def test_a_member_stops_before_another_may_take_over(start: Start, own_pool: asyncpg.Pool) -> None:
    killed, heir = start("a"), start("b")
    await until(lambda: shared_out(killed, heir))
    await asyncio.sleep(LEASE_S)
    held_at_gain: list[bool] = []
    heir.on_gain = lambda: held_at_gain.append(killed.member.holds)

    await killed.kill()
    left = "SELECT extract(epoch FROM expires_at - clock_timestamp())::float8 FROM shard_members WHERE id = $1"
    leased_s = await own_pool.fetchval(left, killed.member.id)
    held_s = killed.ownership.held_until - time.monotonic()
    await until(lambda: shared_out(heir))

    assert leased_s - held_s > LEASE_S * 0.2
    assert held_at_gain == [False]


async def test_shards_of_a_leaving_member_are_taken_without_waiting_for_the_lease(start: Start) -> None:
    leaving, heir = start("a", lease_s=LONG_S), start("b", lease_s=LONG_S)
    await until(lambda: shared_out(leaving, heir))
    await leaving.kill()
    await leaving.member.leave()

    took_s = await until(lambda: shared_out(heir))

    assert took_s < LONG_S
    assert not leaving.member.holds
    assert leaving.owned == frozenset()


async def test_a_shard_is_handed_over_only_after_its_deliveries_finish(start: Start) -> None:
    old = start("a")
    await until(lambda: shared_out(old))
    old.may_release.clear()
    new = start("b")

    await until(lambda: len(old.owned) == SHARDS // 2)  # it takes nothing new of those that are to go
    await asyncio.sleep(1.5 * LEASE_S)
    assert new.owned == frozenset()
    assert old.member.holds  # heartbeats go on meanwhile
    assert old.fenced == 0
    old.may_release.set()
    took_s = await until(lambda: shared_out(old, new))

    assert took_s < 2 * LEASE_S + BUSY_S
    assert frozenset().union(*old.released) == new.owned
    assert old.owned.isdisjoint(new.owned)


async def test_a_fault_during_a_hand_over_ends_the_process_and_strands_no_shard(start: Start) -> None:
    old = start("a")
    await until(lambda: shared_out(old))

    async def failing(_shards: Collection[int]) -> None:
        raise RuntimeError("a fault while finishing")

    old.member._on_release = failing
    new = start("b")

    await until(lambda: shared_out(new))
    assert not old.member.holds
    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        await old.kill()
    old._task = None


async def test_each_change_of_owner_is_a_new_epoch(start: Start, own_pool: asyncpg.Pool) -> None:
    first = start("a")
    await until(lambda: shared_out(first))
    await first.kill()
    await first.member.leave()
    before = await epochs(own_pool)
    second = start("b")
    await until(lambda: shared_out(second))

    after = await epochs(own_pool)
    assert all(after[shard] > before[shard] for shard in range(SHARDS))


async def test_a_fenced_member_drops_all_shards_and_rejoins_under_a_new_id(
    start: Start, own_pool: asyncpg.Pool
) -> None:
    process = start("a")
    await until(lambda: shared_out(process))
    before = process.member.id

    await own_pool.execute("DELETE FROM shard_members WHERE id = $1", before)
    await until(lambda: process.fenced == 1)
    await until(lambda: shared_out(process))

    assert process.member.id != before
    assert process.member.holds
    assert process.fenced == 1
    members = await own_pool.fetch("SELECT id FROM shard_members")
    assert [row["id"] for row in members] == [process.member.id]


async def test_a_fenced_member_drops_its_deliveries_although_the_reply_to_its_join_was_lost(
    start: Start, own_pool: asyncpg.Pool
) -> None:
    process = start("a")
    await process.kill()  # before it ran
    joined = process.member.id
    await lease.MAKE.execute(own_pool, SHARDS)
    await lease.JOIN.execute(own_pool, joined, "a", 1.0, LONG_S)  # as if the connection had been lost after the commit

    process.start()
    await until(lambda: shared_out(process))
    assert process.member.id == joined
    assert process.fenced == 0
    await own_pool.execute("DELETE FROM shard_members WHERE id = $1", joined)

    await until(lambda: process.member.id != joined and shared_out(process))
    assert process.fenced == 1


async def test_a_member_that_slept_through_its_lease_is_fenced_and_rejoins(
    start: Start, own_pool: asyncpg.Pool
) -> None:
    sleeper, awake = start("a"), start("b")
    await until(lambda: shared_out(sleeper, awake))
    await asyncio.sleep(LEASE_S)
    before = sleeper.member.id

    await sleeper.kill()
    await until(lambda: shared_out(awake))
    assert not sleeper.member.holds
    sleeper.start()  # as after SIGCONT
    await until(lambda: shared_out(sleeper, awake))

    assert sleeper.fenced == 1
    assert sleeper.member.id != before


async def test_shards_of_a_member_that_never_existed_are_free(start: Start, own_pool: asyncpg.Pool) -> None:
    for shard in range(SHARDS):
        await own_pool.execute("INSERT INTO shard_owners (shard, owner) VALUES ($1, $2)", shard, ids.uuid7())

    alone = start("a", lease_s=LONG_S)

    assert await until(lambda: shared_out(alone)) < LONG_S


@pytest.mark.exhaustive
async def test_an_outage_of_postgres_fences_no_member() -> None:
    with temporary_servers() as servers:
        await migrate(servers.database_url)
        pool = await open_pool(servers.database_url, name="members", largest=6)
        async with starting(pool) as start:
            processes = [start(name) for name in "abc"]
            await until(lambda: shared_out(*processes))
            await asyncio.sleep(LEASE_S)
            before = [(process.member.id, process.owned) for process in processes]

            servers.postgres.kill()
            await asyncio.sleep(1.5 * LEASE_S)
            assert not any(process.member.holds for process in processes)  # nobody may send meanwhile
            servers.postgres.start()
            await until(lambda: all(process.member.holds for process in processes))
            await asyncio.sleep(2 * LEASE_S)

            assert [(process.member.id, process.owned) for process in processes] == before
            assert [process.fenced for process in processes] == [0, 0, 0]
            await until(lambda: all(process.member.holds for process in processes))
        pool.terminate()
