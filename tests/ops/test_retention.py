"""`ops purge` and `ops account retention`: what the operator's commands do and print."""

import json
from datetime import timedelta

import asyncpg
import pytest

from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.flows.retention import purge as purging
from ops import retention
from ops.cli import main
from tests.harness import history
from tests.harness.accounts import make_account


async def test_a_dry_run_tells_what_the_purge_then_takes(own_pool: asyncpg.Pool) -> None:
    await make_account(own_pool, plan="scale")
    account = await make_account(own_pool, plan="free")
    await history.write(own_pool, account, *[clock.now() - timedelta(days=40)] * 5)
    told = await retention.purge(own_pool, dry_run=True)
    taken = await retention.purge(own_pool, dry_run=False)

    assert (told["messages"], told["events"]) == (taken["messages"], taken["events"]) == (5, 15)
    assert set(told) == {"accounts", "messages", "received", "events", "idempotencyKeys", "partitions"}
    assert set(taken) == set(told) | {"figures", "finished"}


async def test_a_purge_beside_another_is_refused_in_a_sentence(own_pool: asyncpg.Pool) -> None:
    async with own_pool.acquire() as connection:
        await connection.execute("SELECT pg_advisory_lock($1)", purging._LOCK)
        with pytest.raises(RuntimeError, match="Try again"):
            await retention.purge(own_pool, dry_run=False)
        await connection.execute("SELECT pg_advisory_unlock($1)", purging._LOCK)


async def test_an_agreement_is_written_to_the_accounts_log(own_pool: asyncpg.Pool) -> None:
    account = await make_account(own_pool, plan="free")
    longer = await retention.agree(own_pool, account=account.public_id, days=100)
    back = await retention.agree(own_pool, account=account.public_id, days=None)
    events = await own_pool.fetch("SELECT type, payload FROM events WHERE account_id = $1 ORDER BY seq", account.id)

    assert longer == {"accountId": account.public_id, "agreedDays": 100, "retentionDays": 100}
    assert back["retentionDays"] == 30
    assert [row["type"] for row in events] == ["account.retention_agreed"] * 2
    assert json.loads(events[0]["payload"])["detail"] == {
        "agreed_days": 100, "retention_days": 100, "actor": "operator"
    }  # fmt: skip
    assert await history.chain_holds(own_pool, account)


async def test_an_unknown_account_makes_no_agreement(own_pool: asyncpg.Pool) -> None:
    with pytest.raises(Refusal):
        await retention.agree(own_pool, account=ids.format_id(ids.Kind.ACCOUNT, ids.uuid7()), days=1)


@pytest.mark.parametrize("days", ["0", "-1", "36501", "x"])
def test_days_out_of_range_are_refused(days: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["account", "retention", "--account", "acc_x", "--days", days]) == 2
    assert "--days" in capsys.readouterr().err
