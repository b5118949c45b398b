"""`ops erasure`: an operator requests the erasure of a recipient and reads what came of it."""

import asyncpg
import pytest

from engine.base import clock
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.retention import erase_address
from ops.commands import erasure as erasures
from tests.harness import history
from tests.harness.accounts import make_account


async def test_an_operator_erases_a_recipient(pool: asyncpg.Pool, settings: Settings) -> None:
    account = await make_account(pool)
    await history.write(pool, account, clock.now())
    made = await erasures.request(pool, account.public_id, "ANN@people.test")
    again = await erasures.request(pool, account.public_id, "ann@people.test")

    assert (made["state"], again["id"]) == ("queued", made["id"])
    while (await erasures.listed(pool, account.public_id, limit=5))[0]["state"] != "completed":
        await erase_address.erase_requested(pool, settings, hold_known_s=0.0)
    (row,) = await erasures.listed(pool, account.public_id, limit=5)
    assert row["counts"]["messages"] == 1
    assert row["erased"] == sum(row["counts"].values())
    assert row["finishedAt"] is not None
    assert await pool.fetchval("SELECT address FROM erasures WHERE account_id = $1", account.id) is None
    actor = await pool.fetchval(
        "SELECT payload::jsonb -> 'detail' ->> 'actor' FROM events"
        " WHERE account_id = $1 AND type = 'erasure.requested'",
        account.id,
    )
    assert actor == "operator"


async def test_a_wrong_address_is_refused(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    with pytest.raises(Refusal, match="not an email address"):
        await erasures.request(pool, account.public_id, "nobody")
