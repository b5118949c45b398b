"""`ops shards` and `ops nodes`: a plan first, then rows, then watching; nothing is lost when nobody watches."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import asyncpg
import msgspec
import pytest
from click.testing import CliRunner, Result

from engine.base.settings import Settings, to_environ
from engine.delivery.partition import parts_of, shard_of
from engine.store import process_list, process_registry
from engine.store.postgres import open_pool
from engine.store.process_registry import ProcessLoad, ProcessRegistration, Rate
from ops.cli import cli
from shards import admin
from shards.load import ShardLoad
from tests.conftest import NewDatabase
from tests.shards.test_member import SHARDS, Process, Start, shared_out, start, until

__all__ = ["start"]

TABLES = ("shard_pins", "shard_places", "shard_plan", "shard_splits", "shard_rehomings")
Run = Callable[..., Coroutine[None, None, Result]]


@pytest.fixture
async def here(settings: Settings, new_database: NewDatabase) -> Settings:
    """The settings of a service whose members the test starts."""
    return msgspec.structs.replace(settings, database_url=await new_database(), shards=SHARDS)


@pytest.fixture
async def own_pool(here: Settings) -> AsyncIterator[asyncpg.Pool]:
    """On its database."""
    assert here.database_url is not None
    pool = await open_pool(here.database_url, name="members", largest=6)
    yield pool
    await pool.close()


@pytest.fixture
async def ops(here: Settings) -> Run:
    """An operator's command beside it."""

    async def run(*words: object) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, cli, list(map(str, words)), env=to_environ(here))

    return run


async def written(pool: asyncpg.Pool) -> dict[str, list[Any]]:
    return {table: await pool.fetch(f"SELECT * FROM {table}") for table in TABLES}


def answer(done: Result) -> Any:
    """What it printed with `--json`, among what the members of this process log."""
    text = done.stdout
    return msgspec.json.decode(text[text.index("{\n") : text.rindex("}") + 1])


async def pair(start: Start) -> tuple[Process, Process]:
    one, two = start("north:/srv/one:mta-1"), start("south:/srv/two:mta-1")
    await until(lambda: shared_out(one, two))
    return one, two


async def test_a_dry_run_shows_the_plan_and_changes_nothing(start: Start, own_pool: asyncpg.Pool, ops: Run) -> None:
    one, two = await pair(start)
    shard = min(one.owned)
    before = await written(own_pool), one.owned, two.owned

    moved = await ops("shards", "move", shard, "--to", "south", "--dry-run", "--json")
    drained = await ops("shards", "drain", "north:mta-1", "--dry-run")
    split = await ops("shards", "split", "hot.test", "--parts", 4, "--dry-run")

    assert [one.exit_code for one in (moved, drained, split)] == [0, 0, 0], moved.output
    plan = answer(moved)
    assert {"shard": shard, "from": "north:mta-1", "to": "south:mta-1", "rate": 0.0} in plan["steps"]
    assert "north:mta-1" in drained.stdout
    assert "hot.test" in split.stdout
    assert (await written(own_pool), one.owned, two.owned) == before


async def test_shards_are_moved_and_let_go_again(start: Start, ops: Run) -> None:
    one, two = await pair(start)
    wanted = sorted(one.owned)[:2]

    done = await ops("shards", "move", *wanted, "--to", "south:mta-1", "--reason", "new disk", "--json")

    assert done.exit_code == 0, done.output
    assert answer(done)["left"] == 0
    assert two.owned >= set(wanted)
    shown = answer(await ops("shards", "--all", "--json"))
    pinned = {row["shard"]: (row["owner"], row["pinned"]) for row in shown["shards"] if row["pinned"]}
    assert pinned == dict.fromkeys(wanted, ("south:mta-1", "south:mta-1"))
    assert len(shown["shards"]) == SHARDS
    assert (await ops("shards", "move", *wanted, "--unpin")).exit_code == 0
    assert "south:mta-1" in (await ops("shards")).stdout


async def test_an_interrupted_drain_goes_on_and_is_watched_by_the_same_command(
    start: Start, own_pool: asyncpg.Pool, here: Settings, ops: Run
) -> None:
    one, two = await pair(start)
    one.may_release.clear()
    plan = await admin.plan_place(own_pool, here, "north", weight=None, draining=True, why="kernel")
    await admin.carry_out(own_pool, plan)
    async for left in admin.watch(own_pool, plan, 60):
        assert left == SHARDS // 2
        break  # as with Ctrl-C

    again = asyncio.create_task(ops("shards", "drain", "north", "--json"))
    await asyncio.sleep(0.5)
    one.may_release.set()
    done = await again

    assert done.exit_code == 0, done.output
    assert len(two.owned) == SHARDS
    undone = await ops("shards", "drain", "north", "--undo", "--json")
    assert undone.exit_code == 0
    assert shared_out(one, two)
    assert (await written(own_pool))["shard_places"] == []


async def test_who_stops_watching_is_told_what_is_left(start: Start, ops: Run) -> None:
    one, _ = await pair(start)
    one.may_release.clear()

    done = await ops("shards", "drain", "north", "--timeout", 1, "--json")

    assert done.exit_code == 1
    assert answer(done)["left"] == SHARDS // 2


REFUSED: dict[tuple[object, ...], str] = {
    ("move", 0, "--to", "west"): "There is no member or node west. There are: north:mta-1, south:mta-1",
    ("move", 0, "--to", "mta-1"): "mta-1 is ambiguous. Give one of: north:mta-1, south:mta-1",
    ("move", 99, "--to", "north"): "Shards are numbered from 0 to 15",
    ("move", 0): "Give either --to or --unpin",
    ("weight", "north", 0): "Invalid value",
    ("split", "hot.test", "--parts", 1): "needs at least 2",
    ("split", "hot.test", "--parts", 17): "Give 2 to 16",
    ("split", "not a domain", "--parts", 2): "'not a domain' is not a domain name",
    ("merge", "cool.test", "--by-rule"): "cool.test is not split",
    ("balance",): "No load was measured",
}


async def test_what_can_not_be_is_refused_in_plain_words(start: Start, own_pool: asyncpg.Pool, ops: Run) -> None:
    await pair(start)
    for words, said in REFUSED.items():
        refused = await ops("shards", *words)
        assert refused.exit_code != 0
        assert said in refused.output

    assert all(not rows for rows in (await written(own_pool)).values())


async def test_the_last_member_can_not_be_drained(start: Start, ops: Run) -> None:
    one, two = await pair(start)
    assert (await ops("shards", "drain", "north")).exit_code == 0

    refused = await ops("shards", "drain", "south")

    assert "No other mta process could take" in refused.output
    assert (len(one.owned), len(two.owned)) == (0, SHARDS)


async def test_a_split_is_written_with_its_errands_and_shown_with_its_reason(own_pool: asyncpg.Pool, ops: Run) -> None:
    done = await ops("shards", "split", "HOT.test.", "--parts", 4, "--reason", "a third of all", "--no-wait", "--json")

    assert done.exit_code == 0, done.output
    then = {step["shard"] for step in answer(done)["steps"] if step["then"]}
    assert then == set(parts_of("hot.test", SHARDS, 4))
    [split] = answer(await ops("shards", "--json"))["splits"]
    assert (split["domain"], split["parts"], split["whose"], split["why"], split["shardsToLookAt"]) == (
        "hot.test", 4, "operator", "a third of all", 1,
    )  # fmt: skip
    assert [row["shard"] for row in (await written(own_pool))["shard_rehomings"]] == [shard_of("hot.test", SHARDS)]


async def test_measured_load_moves_shards_from_the_busy_to_the_idle(
    start: Start, own_pool: asyncpg.Pool, ops: Run
) -> None:
    one, two = await pair(start)
    load = ShardLoad()
    load.rotate(one.owned)
    for shard in one.owned:
        for _ in range(100):
            load.count(shard, f"d{shard}.test")
    await load.write(own_pool, "north")

    done = await ops("shards", "balance", "--json")

    assert done.exit_code == 0, done.output
    assert len(one.owned) < SHARDS // 2 < len(two.owned)
    assert "operator" in answer(await ops("shards", "--json"))["balancedBy"]
    assert (await ops("shards", "balance", "--by-count")).exit_code == 0
    assert shared_out(one, two)


async def test_processes_show_themselves_and_the_dead_are_named(own_pool: asyncpg.Pool) -> None:
    rate = Rate()
    rate.add(120)
    here = ProcessRegistration(own_pool, kind="mta", name="mta-1", figures=lambda: ProcessLoad(128, 7, rate.of()))
    dead = ProcessRegistration(own_pool, kind="worker", name="worker", figures=ProcessLoad)
    await here.show()
    await dead.show()
    await own_pool.execute("UPDATE processes SET seen_at = now() - interval '1 minute' WHERE kind = 'worker'")

    found = await process_list.listing(own_pool)

    by_name = {one.name: one for one in found.processes}
    mta = by_name["mta-1"]
    assert (found.hosts, found.gone) == (1, 1)
    assert (mta.state, mta.shards, mta.in_hand) == ("here", 128, 7)
    assert mta.rate is not None
    assert mta.rate > 0
    assert by_name["worker"].state == "gone"
    await own_pool.execute("UPDATE processes SET seen_at = now() - interval '1 hour' WHERE kind = 'worker'")
    await process_registry.forget(own_pool)
    assert [one.name for one in (await process_list.listing(own_pool)).processes] == ["mta-1"]
