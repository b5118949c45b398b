"""Move an account with one of everything between two cells: every row arrives, nothing else changes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest
from msgspec import Struct, structs

from engine.accounts.audit import store as audit
from engine.base.settings import Settings
from engine.cells import locator
from engine.cells.directory import Cell, Directory
from engine.store.postgres import close_pool, open_pool
from ops.account_moves import copy_rows, fence
from ops.account_moves import move as moves
from ops.account_moves.account_rows import STAY, TABLES
from ops.account_moves.fence import MoveRefused
from ops.account_moves.move import STEPS, Moved, MoveEnds, MoveFailed
from ops.backup.tables import connected
from tests.conftest import NewDatabase, ServeApi
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api
from tests.harness.everything import Estate, furnish
from tests.harness.people import make_person
from tests.retention.test_erase import NOBODYS, holding, logged, tables

Cells = tuple["CellHere", "CellHere"]


class CellHere(Struct, frozen=True):
    """A cell of this test: its database and its API."""

    name: str
    url: str
    pool: asyncpg.Pool
    api: Api
    settings: Settings


@pytest.fixture(scope="module")
async def cells(lasting_database: NewDatabase, settings: Settings, serve: ServeApi) -> AsyncIterator[Cells]:
    """Run two cells with databases of their own."""
    made = []
    for name in ("one", "two"):
        url = await lasting_database()
        own = structs.replace(settings, database_url=url)
        made.append(CellHere(name, url, await open_pool(url, name="tests", largest=4), serve(own), own))
    yield made[0], made[1]
    for one in made:
        await close_pool(one.pool)


@pytest.fixture
async def directory(new_directory: NewDatabase) -> AsyncIterator[Directory]:
    opened = await Directory.open(await new_directory())
    for name in ("one", "two"):
        await opened.put_cell(Cell(name, f"http://{name}.test", None, None, "open", 100))
    yield opened
    await opened.close()


def between(source: CellHere, target: CellHere, **changes: Any) -> MoveEnds:
    ends = MoveEnds(source.url, target.url, source.name, target.name, known_s=0.1, fronts_know_s=0.0, drain_s=5.0)
    return structs.replace(ends, **changes)


async def moved(
    directory: Directory, ends: MoveEnds, account: TestAccount, step: Callable[[str], None] = lambda _: None
) -> Moved:
    return await moves.move(directory, ends, account.id, step=step, say=lambda *_: None)


async def snapshot(cell: CellHere, account: TestAccount) -> dict[str, list[str]]:
    """Every row of the unit in every declared table, as text."""
    found = {}
    async with connected(cell.url, "tests") as connection:
        around = await fence.unit_around(connection, account.id)
        unit = await fence.unit_of(connection, account.id, around)
        for one in await copy_rows.moved_tables(connection):
            rows = await connection.fetch(
                f"SELECT ROW({one.listed})::text AS row FROM {one.name} t WHERE {one.mine}", *unit.arguments
            )
            found[one.table.name] = sorted(row["row"] for row in rows)
    return found


async def furnished(cell: CellHere, directory: Directory) -> Estate:
    account = await make_account(cell.pool)
    estate = await furnish(cell.api, cell.pool, account, cell.settings)
    await logged(cell.pool, await cell.api.get("/v1/me", account.token))
    await cell.pool.execute("DELETE FROM source_assignments WHERE account_id = $1", account.id)
    async with connected(cell.url, "tests") as connection:
        around = await fence.unit_around(connection, account.id)
    await directory.place_many([one.id for one in around], cell.name)
    return estate


def test_a_front_without_the_directory_notices_before_the_old_cell_deletes() -> None:
    assert locator.POLL_S + locator.FOLLOW_S < moves.FRONTS_KNOW_S


async def test_every_table_is_an_accounts_or_has_a_reason(cells: Cells) -> None:
    known = set(await tables(cells[0].pool))

    assert known == set(TABLES) | set(STAY) | set(NOBODYS)
    assert not set(TABLES) & (set(STAY) | set(NOBODYS))
    assert set(NOBODYS) >= {"account_moves", "account_move_drains"}


async def test_every_row_arrives_as_it_was(cells: Cells, directory: Directory) -> None:
    one, two = cells
    estate = await furnished(one, directory)
    bystander = await furnished(one, directory)
    untouched = await holding(one.pool, bystander.needles)
    before = await snapshot(one, estate.account)
    empty = {name for name, rows in before.items() if not rows}
    assert not empty - {"deletions"}, "furnish leaves these tables empty"

    result = await moved(directory, between(one, two), estate.account)

    after = await snapshot(two, estate.account)
    # Last uses of keys are written some seconds later; ties to other accounts end, and holds of the cell's own.
    assert {name for name in before if before[name] != after[name]} <= {"api_keys", "users", "queue"}
    assert {name: len(rows) for name, rows in after.items()} == {name: len(rows) for name, rows in before.items()}
    assert result.rows >= sum(len(rows) for rows in before.values()) // 4
    assert result.events > 0
    placement = await directory.cell_of(estate.account.id)
    assert placement is not None
    assert (placement.cell, placement.moving_to) == ("two", None)
    assert (await audit.verify(two.pool, estate.account.id)).broken is None
    assert (await two.api.get("/v1/me", estate.account.token)).status == 200
    assert (await two.api.get("/v1/auth/sessions", person=estate.owner)).status == 200
    left = await holding(one.pool, estate.needles)
    assert set(left) <= {*STAY, "tls_reports", "blocklist_listings"}
    assert await holding(one.pool, bystander.needles) == untouched
    assert await one.pool.fetchval("SELECT count(*) FROM account_moves") == 0


async def test_there_and_back_again(cells: Cells, directory: Directory) -> None:
    one, two = cells
    estate = await furnished(one, directory)
    await moved(directory, between(one, two), estate.account)
    sent = await two.api.post("/v1/emails", estate.account.token, estate.account.email())
    assert sent.status == 202
    before = await snapshot(two, estate.account)

    await moved(directory, between(two, one), estate.account)

    after = await snapshot(one, estate.account)
    assert {name for name in before if len(before[name]) != len(after[name])} <= {"api_requests"}
    assert (await audit.verify(one.pool, estate.account.id)).broken is None
    assert (await one.api.get(f"/v1/messages/{sent.json['id']}", estate.account.token)).status == 200


@pytest.mark.parametrize("step", STEPS)
async def test_a_move_may_be_broken_off_at_each_step(cells: Cells, directory: Directory, step: str) -> None:
    one, two = cells
    account = await make_account(one.pool)
    await make_person(one.pool, account.id, "owner")
    await directory.place(account.id, "one")
    sent = await one.api.post("/v1/emails", account.token, account.email())
    before = await snapshot(one, account)

    class Killed(BaseException):
        pass

    def kill(now: str) -> None:
        if now == step:
            raise Killed

    with pytest.raises(Killed):
        await moved(directory, between(one, two), account, kill)
    placement = await directory.cell_of(account.id)
    assert placement is not None
    is_placed = STEPS.index(step) >= STEPS.index("placed")
    assert placement.cell == ("two" if is_placed else "one")
    answers = [
        (
            await cell.api.post(
                "/v1/emails",
                account.token,
                account.email(),
            )
        ).status
        for cell in cells
    ]
    assert answers.count(202) <= 1, "never active in both"
    if step == "removed":
        with pytest.raises(MoveRefused, match="already"):
            await moved(directory, between(one, two), account)
    else:
        await moved(directory, between(one, two), account)

    after = await snapshot(two, account)
    assert len(after["messages"]) == len(before["messages"]) + answers.count(202)
    assert (await two.api.get(f"/v1/messages/{sent.json['id']}", account.token)).status == 200
    assert (await audit.verify(two.pool, account.id)).broken is None
    assert await holding(one.pool, [str(account.id)]) in ({}, {"cache_changes": 1}) or not await one.pool.fetchval(
        "SELECT count(*) FROM accounts WHERE id = $1", account.id
    )
    for cell in cells:
        assert await cell.pool.fetchval("SELECT count(*) FROM account_moves WHERE account_id = $1", account.id) == 0


async def test_requests_of_a_moving_account_are_told_to_retry(cells: Cells, directory: Directory) -> None:
    one, _ = cells
    account, other = await make_account(one.pool), await make_account(one.pool)
    person = await make_person(one.pool, account.id, "owner")
    await directory.place(account.id, "one")
    unit = copy_rows.Unit([account.id], [person.id], [])
    async with connected(one.url, "tests") as source:
        await fence.leave(source, unit, "two")
        await fence.close_logs(source, unit, most_s=5.0)
        refused = await one.api.post("/v1/emails", account.token, account.email())
        while refused.status == 202:
            await asyncio.sleep(0.05)
            refused = await one.api.post("/v1/emails", account.token, account.email())
        assert (refused.status, refused.error["type"]) == (503, "unavailable")
        assert (await one.api.post("/v1/emails", other.token, other.email())).status == 202
        await fence.reopen(source, unit, arrived=False)
    again = await one.api.post("/v1/emails", account.token, account.email())
    while again.status == 503:
        await asyncio.sleep(0.05)
        again = await one.api.post("/v1/emails", account.token, account.email())
    assert again.status == 202


async def test_an_event_that_comes_late_is_not_written(cells: Cells) -> None:
    one, _ = cells
    account = await make_account(one.pool)
    unit = copy_rows.Unit([account.id], [], [])
    async with connected(one.url, "tests") as source:
        await fence.leave(source, unit, "two")
        await fence.close_logs(source, unit, most_s=5.0)
    with pytest.raises(asyncpg.CheckViolationError, match="account_heads_closed"):
        async with connected(one.url, "tests") as late:
            await late.execute("UPDATE account_heads SET seq = seq + 1 WHERE account_id = $1", account.id)
    with pytest.raises(asyncpg.CheckViolationError, match="accounts_moving"):
        async with connected(one.url, "tests") as late:
            await late.execute("UPDATE accounts SET status = 'active' WHERE id = $1", account.id)


async def test_a_target_that_is_down_changes_nothing(cells: Cells, directory: Directory) -> None:
    one, two = cells
    account = await make_account(one.pool)
    await directory.place(account.id, "one")
    ends = between(one, two, target_url="postgresql://nobody@127.0.0.1:1/none")

    with pytest.raises(MoveFailed, match="stays in one"):
        await moved(directory, ends, account)
    assert (await one.api.post("/v1/emails", account.token, account.email())).status == 202


async def test_a_name_that_the_target_has_cancels_the_move(cells: Cells, directory: Directory) -> None:
    one, two = cells
    account = await make_account(one.pool)
    person = await make_person(one.pool, account.id, "owner")
    await two.pool.execute("INSERT INTO users (id, email) VALUES (gen_random_uuid(), $1)", person.email)
    await directory.place(account.id, "one")

    with pytest.raises(MoveFailed, match=r"users_email_key.*stays in one"):
        await moved(directory, between(one, two), account)
    placement = await directory.cell_of(account.id)
    assert placement is not None
    assert (placement.cell, placement.moving_to) == ("one", None)
    assert await one.pool.fetchval("SELECT status FROM accounts WHERE id = $1", account.id) == "active"


async def test_cells_with_different_schemas_are_refused(
    cells: Cells, directory: Directory, lasting_database: NewDatabase
) -> None:
    one, two = cells
    account = await make_account(one.pool)
    await directory.place(account.id, "one")
    other = await lasting_database()
    async with connected(other, "tests") as connection:
        await connection.execute("DELETE FROM schema_migrations WHERE number = 97")

    with pytest.raises(MoveRefused, match="schema"):
        await moved(directory, between(one, two, target_url=other), account)


async def test_accounts_that_share_people_move_together(cells: Cells, directory: Directory) -> None:
    one, two = cells
    first, second, third = [await make_account(one.pool) for _ in range(3)]
    person = await make_person(one.pool, first.id, "owner")
    await one.pool.execute(
        "INSERT INTO members (account_id, user_id, role) VALUES ($1, $2, 'member')", second.id, person.id
    )
    await directory.place_many([first.id, second.id, third.id], "one")

    result = await moved(directory, between(one, two), first)

    assert set(result.accounts) == {first.id, second.id}
    assert result.people == 1
    assert (await two.api.get("/v1/me", second.token)).status == 200
    assert (await one.api.get("/v1/me", third.token)).status == 200


async def test_a_move_that_fails_lets_the_whole_unit_stay(cells: Cells, directory: Directory) -> None:
    one, two = cells
    first, second = await make_account(one.pool), await make_account(one.pool)
    person = await make_person(one.pool, first.id, "owner")
    await one.pool.execute(
        "INSERT INTO members (account_id, user_id, role) VALUES ($1, $2, 'member')", second.id, person.id
    )
    await directory.place_many([first.id, second.id], "one")

    def fail(now: str) -> None:
        if now == "announced":
            raise OSError("the network is down")

    with pytest.raises(MoveFailed, match="stays in one"):
        await moved(directory, between(one, two), first, fail)
    for account in (first, second):
        await stays_in_one(one, directory, account)


async def stays_in_one(one: CellHere, directory: Directory, account: TestAccount) -> None:
    placement = await directory.cell_of(account.id)
    assert placement is not None
    assert (placement.cell, placement.moving_to) == ("one", None)
    assert await one.pool.fetchval("SELECT status FROM accounts WHERE id = $1", account.id) == "active"


@pytest.mark.parametrize("step", ["announced", "marked", "closed", "copied"])
async def test_an_interrupted_move_lets_the_account_stay(cells: Cells, directory: Directory, step: str) -> None:
    one, two = cells
    account = await make_account(one.pool)
    await directory.place(account.id, "one")

    def interrupt(now: str) -> None:  # as Ctrl-C does
        task = asyncio.current_task()
        assert task is not None
        if now == step:
            task.cancel()

    with pytest.raises(MoveFailed, match=r"interrupted\. The account stays in one"):
        await asyncio.create_task(moved(directory, between(one, two), account, interrupt))
    await stays_in_one(one, directory, account)
    await moved(directory, between(one, two), account)


async def test_a_move_whose_session_ends_lets_the_account_stay(cells: Cells, directory: Directory) -> None:
    one, two = cells
    account = await make_account(one.pool)
    await directory.place(account.id, "one")
    ending = []

    def end(now: str) -> None:
        if now == "marked":
            ending.append(asyncio.create_task(end_sessions(one, moves.OWN_NAME)))

    with pytest.raises(MoveFailed, match="stays in one"):
        await moved(directory, between(one, two), account, end)
    await asyncio.gather(*ending)
    await stays_in_one(one, directory, account)


async def end_sessions(cell: CellHere, name: str) -> None:
    await cell.pool.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = $1 AND datname = current_database()",
        name,
    )


async def test_a_pause_that_would_be_too_long_lets_the_account_stay(cells: Cells, directory: Directory) -> None:
    one, two = cells
    account = await make_account(one.pool)
    await directory.place(account.id, "one")

    with pytest.raises(MoveFailed, match=r"too long\. The account stays in one"):
        await moved(directory, between(one, two, known_s=60.0, max_pause_s=0.5), account)
    await stays_in_one(one, directory, account)


async def test_a_delivery_under_way_is_waited_for(cells: Cells, directory: Directory) -> None:
    one, two = cells
    account = await make_account(one.pool)
    await directory.place(account.id, "one")
    await one.pool.execute(
        "INSERT INTO shard_members (id, name, weight, started_at, expires_at)"
        " VALUES (gen_random_uuid(), 'silent', 1, now(), now() + interval '1 hour')"
    )
    try:
        with pytest.raises(MoveFailed, match=r"delivering their mail.*stays in one"):
            await moved(directory, between(one, two, drain_s=0.5), account)
    finally:
        await one.pool.execute("DELETE FROM shard_members WHERE name = 'silent'")
    assert await one.pool.fetchval("SELECT status FROM accounts WHERE id = $1", account.id) == "active"
