"""`ops alerts`: rules with the reason for their state, and what has fired."""

from datetime import timedelta

import asyncpg

from engine.accounts.alerts import measure, rules, service
from engine.accounts.alerts.types import AlertKind
from engine.base import clock
from engine.base.settings import Settings
from engine.store.postgres import open_pool
from ops.commands import alerts
from tests.conftest import NewDatabase
from tests.harness.accounts import make_account


async def test_it_says_why_a_rule_is_unknown_waits_or_fires(settings: Settings, new_database: NewDatabase) -> None:
    pool: asyncpg.Pool = await open_pool(await new_database(), name="tests", largest=4)
    account = await make_account(pool)
    for kind in AlertKind:
        await service.create(pool, account.id, kind, rules.defaults(kind), actor="tests")
    await service.create(
        pool, (await make_account(pool)).id, AlertKind.DNS_DRIFT, rules.defaults(AlertKind.DNS_DRIFT), actor="tests"
    )
    await pool.execute("UPDATE domains SET records_drifted = 2 WHERE account_id = $1", account.id)
    assert {one["why"] for one in await alerts.rules(pool, account=None, state=None, limit=9)} == {
        "no worker has measured it; is a worker running?"
    }

    await measure.measure_due(pool, settings, clock.now() + timedelta(minutes=1))
    shown = {one["kind"]: one for one in await alerts.rules(pool, account=account.public_id, state=None, limit=9)}
    assert len(shown) == len(AlertKind)
    assert (shown["dns_drift"]["state"], shown["dns_drift"]["why"]) == ("firing", "its notice went out")
    assert shown["bounce_rate"]["why"] == "fewer than 50 recipients were settled in its window"
    assert "no trusted blocklist" in shown["blocklist"]["why"]
    assert shown["quota_usage"]["why"] == "below its threshold"
    [fired] = await alerts.firings(pool, account=None, open_only=True, limit=9)
    assert (fired["accountId"], fired["kind"], fired["value"]) == (account.public_id, "dns_drift", 2.0)
    assert len(await alerts.rules(pool, account=None, state="unknown", limit=9)) == 3
    await pool.close()
