"""The directory of cells: placements, moves and claims, on a real PostgreSQL."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from engine.cells.directory import Cell, Claim, ClaimedElsewhere, Directory, DirectoryConflict
from engine.store.migrate import MigrationError
from tests.conftest import NewDatabase


@pytest.fixture
async def directory(new_directory: NewDatabase) -> AsyncIterator[Directory]:
    """Yield a directory with the cells `one` and `two`."""
    opened = await Directory.open(await new_directory())
    for name in ("one", "two"):
        await opened.put_cell(Cell(name, f"http://{name}.test", None, None, "open", 100))
    yield opened
    await opened.close()


async def place(directory: Directory, cell: str = "one") -> UUID:
    account = uuid4()
    await directory.place(account, cell)
    return account


async def test_a_database_without_the_tables_is_refused(own_database: str) -> None:
    with pytest.raises(MigrationError):
        await Directory.open(own_database)


async def test_a_cell_that_is_put_again_keeps_its_state(directory: Directory) -> None:
    assert await directory.set_state("two", "closed")
    await directory.put_cell(Cell("two", "http://new.test", "mail.test:587", None, "open", 5))

    assert await directory.cells() == [
        Cell("one", "http://one.test", None, None, "open", 100),
        Cell("two", "http://new.test", "mail.test:587", None, "closed", 5),
    ]
    assert not await directory.set_state("three", "open")


async def test_an_account_is_placed_once(directory: Directory) -> None:
    account = await place(directory)
    await directory.place(account, "one")

    with pytest.raises(DirectoryConflict):
        await directory.place(account, "two")
    placement = await directory.cell_of(account)
    assert placement is not None
    assert placement.cell == "one"
    assert await directory.count_placed() == {"one": 1}


async def test_changes_come_in_order_and_tell_of_removed_accounts(directory: Directory) -> None:
    first, second = await place(directory), await place(directory, "two")
    seen = await directory.version()
    assert await directory.remove([first, second], "one", older_s=0) == 1

    [change] = await directory.changes(seen, 10)
    assert (change.account_id, change.cell) == (first, None)
    assert await directory.cell_of(first) is None
    assert [one.account_id for one in await directory.changes(0, 10)] == [second, first]


async def test_a_move_changes_accounts_and_claims_at_once(directory: Directory) -> None:
    account, person = await place(directory), uuid4()
    await directory.claim("email", "ann@a.test", cell="one", holder=person)
    await directory.begin_move([account], source="one", to="two")
    began = await directory.begin_move([account], source="one", to="two")
    moving = await directory.cell_of(account)
    assert moving is not None
    assert (moving.cell, moving.moving_to) == ("one", "two")

    for _ in range(2):
        await directory.finish_move([account], [person], to="two", began=began)
    moved = await directory.cell_of(account)
    assert moved is not None
    assert (moved.cell, moved.moving_to) == ("two", None)
    assert moved.version > moving.version
    claim = await directory.claimed("email", "ann@a.test")
    assert claim is not None
    assert claim.cell == "two"


async def test_a_unit_moves_whole_or_not_at_all(directory: Directory) -> None:
    here, elsewhere = await place(directory), await place(directory, "two")

    with pytest.raises(DirectoryConflict):
        await directory.begin_move([here, elsewhere], source="one", to="two")
    with pytest.raises(DirectoryConflict):
        await directory.finish_move([here], [], to="two", began=await directory.version())
    stays = await directory.cell_of(here)
    assert stays is not None
    assert stays.moving_to is None


async def test_a_canceled_move_leaves_the_account_where_it_was(directory: Directory) -> None:
    account = await place(directory)
    await directory.begin_move([account], source="one", to="two")
    assert await directory.remove([account], "one", older_s=0) == 0
    for _ in range(2):
        await directory.cancel_move([account])

    stays = await directory.cell_of(account)
    assert stays is not None
    assert (stays.cell, stays.moving_to) == ("one", None)


async def test_a_reader_of_pages_misses_no_change(directory: Directory) -> None:
    unit = [uuid4() for _ in range(5)]
    other = await place(directory)
    seen = await directory.version()
    await directory.cancel_move([other])
    await directory.place_many(unit, "one")
    await directory.begin_move([other], source="one", to="two")

    found = set()
    while page := await directory.changes(seen, 2):
        found |= {one.account_id for one in page}
        seen = max(one.version for one in page)
    assert found == {*unit, other}


async def test_all_that_began_to_move_together_stays_together(directory: Directory) -> None:
    unit, other = [await place(directory), await place(directory)], await place(directory)
    await directory.begin_move(unit, source="one", to="two")
    await directory.begin_move([other], source="one", to="two")
    await directory.cancel_move(unit[:1])

    moving = {one: placed.moving_to for one in (*unit, other) if (placed := await directory.cell_of(one))}
    assert moving == {unit[0]: None, unit[1]: None, other: "two"}


async def test_a_mover_that_was_replaced_places_nothing(directory: Directory) -> None:
    account = await place(directory)
    stale = await directory.begin_move([account], source="one", to="two")
    await directory.cancel_move([account])
    began = await directory.begin_move([account], source="one", to="two")

    with pytest.raises(DirectoryConflict):
        await directory.finish_move([account], [], to="two", began=stale)
    moving = await directory.cell_of(account)
    assert moving is not None
    assert (moving.cell, moving.moving_to) == ("one", "two")
    await directory.finish_move([account], [], to="two", began=began)


async def test_a_name_has_one_cell(directory: Directory) -> None:
    mine, theirs = uuid4(), uuid4()
    await directory.claim("domain", "a.test", cell="one", holder=mine)
    await directory.claim("domain", "a.test", cell="one", holder=theirs)  # their database decides

    with pytest.raises(ClaimedElsewhere) as refused:
        await directory.claim("domain", "a.test", cell="two", holder=mine)
    assert refused.value.claim == Claim("domain", "a.test", "one", mine)
    await directory.claim("receiving", "a.test", cell="two", holder=mine)


async def test_a_young_claim_is_not_released_as_unused(directory: Directory) -> None:
    await directory.claim("domain", "a.test", cell="one", holder=uuid4())

    assert await directory.claims_of("one", ("", ""), 10, older_s=60) == []
    assert await directory.release([("domain", "a.test")], "one", older_s=60) == 0
    assert await directory.release([("domain", "a.test")], "two", older_s=0) == 0
    assert await directory.release([("domain", "a.test")], "one", older_s=0) == 1
    assert await directory.claimed("domain", "a.test") is None


async def test_many_claims_leave_those_of_other_cells(directory: Directory) -> None:
    holder = uuid4()
    await directory.claim("domain", "a.test", cell="two", holder=holder)
    names = [Claim("domain", name, "one", holder) for name in ("a.test", "b.test", "c.test")]

    assert await directory.claim_many(names, "one") == 2
    assert await directory.claim_many(names, "one") == 0
    page = await directory.claims_of("one", ("domain", "b.test"), 10, older_s=0)
    assert [one.name for one in page] == ["c.test"]
