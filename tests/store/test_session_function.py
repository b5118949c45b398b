"""A function of the session exists in every session that calls it, whatever became of earlier transactions."""

from pathlib import Path
from typing import Any

import asyncpg
import pytest

from engine.store import queries
from engine.store.queries import REGISTRY, Queries, SessionFunction

TEXT = """
-- name: doubled
-- Return twice :number.
BEGIN
    RETURN 2 * :number;
END;

-- name: planned
-- Return how statements of the function are planned.
BEGIN
    RETURN current_setting('plan_cache_mode');
END;
"""


@pytest.fixture
def doubled(tmp_path: Path) -> SessionFunction:
    return declared(tmp_path, "doubled", returns="integer", types={"number": "integer"})


def declared(folder: Path, name: str, **how: Any) -> SessionFunction:
    (folder / "functions.sql").write_text(TEXT)
    found = Queries(folder / "functions.sql").session_function(name, **how)
    REGISTRY.remove(found)  # the contract test compares the registry with the program's own files
    return found


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


async def test_statements_of_a_function_are_planned_for_all_arguments(tmp_path: Path, pool: asyncpg.Pool) -> None:
    planned = declared(tmp_path, "planned", returns="text", types={})
    async with pool.acquire() as session:
        assert await planned.run(session) == "force_generic_plan"
        assert await session.fetchval("SHOW plan_cache_mode") == "auto"


async def test_a_session_discards_plans_that_are_too_old(
    tmp_path: Path, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "REPLAN_S", 0.0)
    doubled = declared(tmp_path, "doubled", returns="integer", types={"number": "integer"})
    statements: list[str] = []
    async with pool.acquire() as session:
        with session.query_logger(lambda one: statements.append(one.query)):
            for number in range(3):
                await doubled.run(session, number=number)
    assert [one for one in statements if "doubled(" not in one] == ["DISCARD PLANS"] * 2
