"""A function of the session exists in every session that calls it, whatever became of earlier transactions."""

from pathlib import Path

import asyncpg
import pytest

from engine.store.queries import REGISTRY, Queries, SessionFunction

TEXT = """
-- name: doubled
-- Return twice :number.
BEGIN
    RETURN 2 * :number;
END;
"""


@pytest.fixture
def doubled(tmp_path: Path) -> SessionFunction:
    (tmp_path / "doubled.sql").write_text(TEXT)
    declared = Queries(tmp_path / "doubled.sql").session_function(
        "doubled", returns="integer", types={"number": "integer"}
    )
    REGISTRY.remove(declared)  # the contract test compares the registry with the program's own files
    return declared


async def test_sessions_create_the_function_before_they_call_it(doubled: SessionFunction, pool: asyncpg.Pool) -> None:
    async with pool.acquire() as one, pool.acquire() as other:
        assert [await doubled.run(one, number=2), await doubled.run(other, number=3)] == [4, 6]
        assert await doubled.run(one, number=4) == 8


async def test_a_function_that_was_rolled_back_is_created_again(doubled: SessionFunction, pool: asyncpg.Pool) -> None:
    async with pool.acquire() as session:
        transaction = session.transaction()
        await transaction.start()
        assert await doubled.run(session, number=2) == 4
        await transaction.rollback()
        assert await doubled.run(session, number=5) == 10
