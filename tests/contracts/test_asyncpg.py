"""What Waybill replaces inside asyncpg is still there, and arguments are still encoded as before."""

from typing import Any

import asyncpg
import asyncpg.protocol.protocol
import pytest

from engine.store.array_arguments import ARRAY_TYPES
from engine.store.database_errors import BadData

driver: Any = asyncpg.protocol.protocol


def test_asyncpg_tests_elements_by_the_names_that_are_replaced() -> None:
    assert driver.IterableABC is driver.SizedABC is ARRAY_TYPES
    assert driver.MappingABC is dict


@pytest.mark.parametrize("given", [["a", "b"], ("a", "b"), {"a": 1, "b": 2}.keys(), {1: "a", 2: "b"}.values()])
async def test_sequences_and_views_are_arrays(given: object, pool: asyncpg.Pool) -> None:
    assert await pool.fetchval("SELECT $1::text[]", given) == ["a", "b"]


async def test_sets_and_nested_lists_are_arrays(pool: asyncpg.Pool) -> None:
    assert sorted(await pool.fetchval("SELECT $1::text[]", {"a", "b"})) == ["a", "b"]
    assert await pool.fetchval("SELECT $1::int[]", [[1, 2], [3, 4]]) == [[1, 2], [3, 4]]


@pytest.mark.parametrize("given", ["ab", b"ab", {"a": 1}, 7])
async def test_text_bytes_mappings_and_numbers_are_no_arrays(given: object, pool: asyncpg.Pool) -> None:
    with pytest.raises((BadData, asyncpg.DataError)):
        await pool.fetchval("SELECT $1::text[]", given)
