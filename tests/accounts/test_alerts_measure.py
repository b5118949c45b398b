"""Measuring alert rules: what fires, who is told, and that it is told once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import orjson
import pytest
from msgspec import Struct

from engine.accounts.alerts import measure, rule_actions, rules, service, store
from engine.accounts.alerts.types import AlertEvent, AlertKind, AlertRule
from engine.accounts.sub_accounts.service import open_sub_account
from engine.base import clock, ids
from engine.base.settings import Settings
from engine.ledger import log
from engine.ledger.events import append_events
from engine.store.database_errors import DatabaseUnavailable
from engine.store.postgres import open_pool
from ops.local.dns import DnsBehaviour, Responder
from tests.conftest import NewDatabase
from tests.harness.accounts import TestAccount, make_account, set_status
from tests.harness.domains import Place
from tests.harness.people import make_person

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


class AlertPlace(Struct):
    """A database of its own, whose rules the tests alone measure, and an account with an owner and an admin."""

    pool: asyncpg.Pool
    settings: Settings
    account: TestAccount
    at: datetime

    async def rule(self, kind: AlertKind, **fields: object) -> AlertRule:
        made = await service.create(self.pool, self.account.id, kind, rules.defaults(kind), actor="tests")
        return await service.change(self.pool, self.account.id, made.id, fields, actor="tests") if fields else made

    async def measured(self, *, later: timedelta = MINUTE) -> AlertRule:
        """Measure after `later`; return the account's newest rule."""
        self.at += later
        await measure.measure_due(self.pool, self.settings, self.at)
        return await self.now()

    async def now(self) -> AlertRule:
        [row, *_] = await store.LIST.fetch(self.pool, self.account.id, None, 10)
        return row

    async def alerts(self) -> list[AlertEvent]:
        return await store.EVENTS.fetch(self.pool, self.account.id, None, 10)

    async def outcomes(self, *, at: datetime | None = None, detail: object = None, **counts: int) -> None:
        """Append outcomes to the account log as settling does: `delivered=5`."""
        moment = at or clock.now()
        text = log.detail_text(detail or {"recipient": "ann@people.test", "scope": "recipient"})
        entries = [
            log.Entry(self.account.id, kind, text, moment, one, ids.format_id(ids.Kind.MESSAGE, one))
            for kind, count in counts.items()
            for one in ids.uuid7s(count, clock.milliseconds(moment))
        ]
        async with self.pool.acquire() as connection, connection.transaction():
            await append_events(connection, entries)

    async def told(self) -> list[tuple[str, dict[str, Any]]]:
        """The account's `alert.…` events, in order."""
        rows = await self.pool.fetch(
            "SELECT payload FROM events WHERE account_id = $1 AND type IN ('alert.fired', 'alert.ended') ORDER BY seq",
            self.account.id,
        )
        found = [orjson.loads(row["payload"]) for row in rows]
        return [(one["type"], one["detail"]) for one in found]

    async def mails(self) -> list[tuple[str, dict[str, Any]]]:
        rows = await self.pool.fetch(
            "SELECT m.address, m.detail FROM system_mail m JOIN users u ON u.email = m.address"
            " JOIN members b ON b.user_id = u.id WHERE b.account_id = $1 AND m.kind = 'alert_fired' ORDER BY b.role",
            self.account.id,
        )
        return [(row["address"], orjson.loads(row["detail"])) for row in rows]

    async def posts(self) -> list[str]:
        """The types of events that wait to be posted."""
        rows = await self.pool.fetch(
            "SELECT e.type FROM webhook_queue q JOIN events e ON e.account_id = q.account_id AND e.seq = q.seq"
            " WHERE q.account_id = $1 ORDER BY e.seq",
            self.account.id,
        )
        return [row["type"] for row in rows]


@pytest.fixture(scope="module")
async def alone(settings: Settings, lasting_database: NewDatabase) -> AsyncIterator[asyncpg.Pool]:
    pool = await open_pool(await lasting_database(), name="tests", largest=8)
    yield pool
    await pool.close()


@pytest.fixture
async def here(alone: asyncpg.Pool, settings: Settings) -> AlertPlace:
    account = await make_account(alone)
    for role in ("owner", "admin", "member"):
        await make_person(alone, account.id, role)
    await alone.execute("UPDATE alert_rules SET enabled = false")  # those of other tests
    await alone.execute(
        "INSERT INTO webhooks (id, account_id, url, event_types, sealed_secret)"
        " VALUES ($1, $2, 'http://127.0.0.1:9/', '{alert.fired,alert.ended}', '\\x00')",
        ids.uuid7(), account.id,
    )  # fmt: skip
    return AlertPlace(alone, settings, account, clock.now())


async def test_a_rate_that_crosses_fires_with_event_mail_and_post(here: AlertPlace) -> None:
    await set_status(here.pool, here.account.id, "suspended")  # its people are told all the same
    rule = await here.rule(AlertKind.BOUNCE_RATE)
    await here.outcomes(delivered=95, bounced=4)
    assert (await here.measured()).state == "ok"
    await here.outcomes(bounced=6)
    row = await here.measured()

    assert (row.state, row.firing_since, row.last_measured_at) == ("firing", here.at, here.at)
    [event] = await here.alerts()
    assert (event.rule_id, event.fired_at, event.ended_at) == (rule.id, here.at, None)
    assert (event.value, event.threshold, event.channels) == (10 / 105, 0.05, ["email", "webhook"])
    assert orjson.loads(event.detail) == {"settled": 105, "bounced": 10}
    mails = await here.mails()
    assert len(mails) == len({address for address, _ in mails}) == 2
    assert "10 of 105 recipients" in mails[0][1]["what"]
    [(kind, detail)] = await here.told()
    assert kind == "alert.fired"
    assert (detail["id"], detail["value"], detail["threshold"]) == (event.public_id, event.value, 0.05)
    assert await here.posts() == ["alert.fired"]
    sent = await here.pool.fetchval("SELECT sent_today FROM account_heads WHERE account_id = $1", here.account.id)
    assert sent == 0


async def test_simulated_mail_and_refusals_of_the_service_count_in_no_rate(here: AlertPlace) -> None:
    await here.rule(AlertKind.BOUNCE_RATE)
    await here.outcomes(delivered=49)
    await here.outcomes(bounced=40, detail={"recipient": "bounced@x.test", "simulated": True})
    await here.outcomes(bounced=40, detail={"recipient": "ann@x.test", "scope": "site"})
    row = await here.measured()
    assert (row.state, row.unknown_because) == ("unknown", "few_settled")

    await here.outcomes(delivered=1)
    assert ((await here.measured()).state, (await here.now()).last_value) == ("ok", 0.0)


async def test_an_alert_ends_after_two_measurements_below_and_is_told(here: AlertPlace) -> None:
    await here.rule(AlertKind.COMPLAINT_RATE, threshold=0.005)
    await here.outcomes(delivered=100, complained=1)
    await here.measured()
    await here.outcomes(delivered=200)
    assert (await here.measured()).state == "firing"
    row = await here.measured()

    assert (row.state, row.firing_since, row.event_id) == ("ok", None, None)
    [event] = await here.alerts()
    assert (event.ended_at, event.value) == (here.at, 0.01)
    assert [kind for kind, _ in await here.told()] == await here.posts() == ["alert.fired", "alert.ended"]
    assert (await here.told())[1][1]["ended_at"] == clock.iso(here.at)
    assert len(await here.mails()) == 2  # none about the end


async def test_unknown_neither_fires_nor_ends(here: AlertPlace) -> None:
    await here.rule(AlertKind.BOUNCE_RATE)
    await here.outcomes(delivered=40, bounced=10)
    await here.measured()
    await here.pool.execute("DELETE FROM outcome_quarters WHERE account_id = $1", here.account.id)
    for _ in range(3):
        row = await here.measured()

    assert (row.state, row.last_value, row.unknown_because) == ("firing", None, "few_settled")
    assert [one.ended_at for one in await here.alerts()] == [None]


async def test_neither_an_edit_nor_off_and_on_arms_an_alert_anew(here: AlertPlace) -> None:
    rule = await here.rule(AlertKind.BOUNCE_RATE, cooldown_minutes=5)
    await here.outcomes(delivered=40, bounced=10)
    since = (await here.measured()).firing_since

    async def change(**fields: object) -> AlertRule:
        return await service.change(here.pool, here.account.id, rule.id, fields, actor="tests")

    await change(threshold=0.1)
    assert (await here.measured(later=10 * MINUTE)).firing_since == since
    off = await change(enabled=False)
    still = await here.measured(later=10 * MINUTE)
    assert (still.state, still.last_measured_at) == ("firing", off.last_measured_at)
    await change(enabled=True)
    assert (await here.measured(later=10 * MINUTE)).firing_since == since
    assert len(await here.alerts()) == len(await here.told()) == 1
    assert len(await here.mails()) == 2


async def test_within_the_cooldown_a_notice_waits_and_goes_if_it_still_fires(here: AlertPlace) -> None:
    await here.rule(AlertKind.QUOTA_USAGE, cooldown_minutes=30)
    used = "UPDATE account_heads SET sent_this_month = $2, month = $3 WHERE account_id = $1"

    async def use(sent: int) -> AlertRule:
        await here.pool.execute(used, here.account.id, sent, clock.first_of_month(here.at.date()))
        return await here.measured()

    here.at = here.at.replace(day=2)
    for sent in (240_000, 100, 100, 250_000):  # of 300,000: fires, ends, fires again
        await use(sent)
    assert [one.channels for one in await here.alerts()] == [[], ["email", "webhook"]]
    assert [kind for kind, _ in await here.told()] == ["alert.fired", "alert.ended"]
    here.at += 30 * MINUTE
    await use(299_000)

    [late, first] = await here.alerts()
    assert (late.channels, late.value, first.value) == (["email", "webhook"], 250_000 / 300_000, 0.8)
    assert orjson.loads(late.detail) == {"sent": 250_000, "limit": 300_000, "month": f"{here.at:%Y-%m}"}
    assert [kind for kind, _ in await here.told()] == ["alert.fired", "alert.ended", "alert.fired"]
    assert len(await here.mails()) == 4


async def test_last_months_mail_uses_nothing_and_a_parents_counts_for_its_sub_account(here: AlertPlace) -> None:
    parent = here.account
    await here.pool.execute(
        "UPDATE account_heads SET sent_this_month = 300000, month = $2 WHERE account_id = $1",
        parent.id, clock.first_of_month((here.at - 40 * DAY).date()),
    )  # fmt: skip
    await here.rule(AlertKind.QUOTA_USAGE)
    assert (await here.measured()).last_value == 0.0

    below = (await open_sub_account(here.pool, parent.id, name="Shop", monthly_limit=None, actor="tests")).id
    await service.create(here.pool, below, AlertKind.QUOTA_USAGE, rules.defaults(AlertKind.QUOTA_USAGE), actor="tests")
    await here.pool.execute(
        "UPDATE account_heads SET sent_this_month = 270000, month = $2 WHERE account_id = $1",
        parent.id, clock.first_of_month((here.at + MINUTE).date()),
    )  # fmt: skip
    await here.measured()
    [row] = await store.LIST.fetch(here.pool, below, None, 10)
    assert (row.state, row.last_value) == ("firing", 0.9)
    assert len(await here.mails()) == 4  # the parent's people hear of both


async def test_a_longer_window_counts_whole_days(here: AlertPlace) -> None:
    await here.rule(AlertKind.BOUNCE_RATE, window_days=7)
    day = here.at.date() - 3 * DAY
    for one, bounced in ((day, 30), (day - 4 * DAY, 900)):
        await here.pool.execute("INSERT INTO outcome_days VALUES ($1, $2, 100, $3, 0)", here.account.id, one, bounced)
    await here.outcomes(delivered=100)

    assert (await here.measured()).last_value == 0.15


async def test_without_a_webhook_channel_the_log_alone_has_the_event(here: AlertPlace) -> None:
    await here.rule(AlertKind.BOUNCE_RATE, notify_webhook=False, notify_email=False)
    await here.outcomes(delivered=40, bounced=10)
    await here.measured()
    await here.outcomes(delivered=1_000)
    await here.measured()
    await here.measured()

    assert [one.channels for one in await here.alerts()] == [[]]
    assert [kind for kind, _ in await here.told()] == ["alert.fired", "alert.ended"]
    assert (await here.posts(), await here.mails()) == ([], [])


async def test_a_closing_account_is_not_measured(here: AlertPlace) -> None:
    await here.rule(AlertKind.BOUNCE_RATE)
    await here.outcomes(delivered=40, bounced=10)
    await set_status(here.pool, here.account.id, "closing")

    assert (await here.measured()).last_measured_at is None


async def test_deleting_a_rule_that_fires_ends_its_alert(here: AlertPlace) -> None:
    rule = await here.rule(AlertKind.BOUNCE_RATE)
    await here.outcomes(delivered=40, bounced=10)
    await here.measured()
    await rule_actions.delete_rule(here.pool, here.account.id, rule.id, here.at, actor="tests")

    [event] = await here.alerts()
    assert event.ended_at == here.at
    [_, (kind, detail)] = await here.told()
    assert (kind, detail["because"], detail["id"]) == ("alert.ended", "rule_deleted", event.public_id)


async def test_workers_that_measure_together_tell_once(here: AlertPlace) -> None:
    for kind in (AlertKind.BOUNCE_RATE, AlertKind.COMPLAINT_RATE):
        await here.rule(kind)
    await here.outcomes(delivered=40, bounced=10, complained=1)
    here.at += MINUTE
    await asyncio.gather(*(measure.measure_due(here.pool, here.settings, here.at) for _ in range(6)))

    assert sorted(one.kind for one in await here.alerts()) == ["bounce_rate", "complaint_rate"]
    assert len(await here.told()) == 2
    assert len(await here.mails()) == 4


async def test_a_killed_measurement_leaves_nothing_and_is_made_up_for(here: AlertPlace) -> None:
    await here.rule(AlertKind.BOUNCE_RATE)
    await here.outcomes(delivered=40, bounced=10)
    async with here.pool.acquire() as other, other.transaction():
        await other.execute("SELECT 1 FROM account_heads WHERE account_id = $1 FOR UPDATE", here.account.id)
        task = asyncio.create_task(here.measured())  # waits for the head, with the rule locked
        await kill_waiting(here.pool)
        with pytest.raises(DatabaseUnavailable):
            await task
    assert (await here.alerts(), await here.told(), await here.mails()) == ([], [], [])

    assert (await here.measured()).state == "firing"
    assert (len(await here.alerts()), len(await here.told()), len(await here.mails())) == (1, 1, 2)


async def kill_waiting(pool: asyncpg.Pool) -> None:
    """End the session that waits for a lock, once there is one."""
    kill = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    while not await pool.fetch(kill):
        await asyncio.sleep(0.02)


async def test_a_record_that_was_correct_drifts_after_two_looks(here: AlertPlace) -> None:
    async with Responder() as zone:
        place = Place(here.pool, here.settings, zone)
        domain = await place.verified(here.account, f"{ids.encode(ids.uuid7())}.test")
        await here.rule(AlertKind.DNS_DRIFT)
        assert (await here.measured()).last_value == 0.0
        zone.set(f"_dmarc.{domain.name}", "TXT", [])
        await place.verify(here.account, domain)
        assert (await here.measured()).state == "ok"
        await place.verify(here.account, domain)
        assert (await here.measured()).state == "firing"

        [event] = await here.alerts()
        [named] = orjson.loads(event.detail)["domains"]
        assert (named["name"], event.value) == (domain.name, 1.0)
        assert [(one["host"], one["status"]) for one in named["records"]] == [(f"_dmarc.{domain.name}", "missing")]
        assert f"TXT _dmarc.{domain.name}: missing" in (await here.mails())[0][1]["facts"]

        zone.behave(f"_dmarc.{domain.name}", DnsBehaviour(rcode="SERVFAIL"))
        await place.verify(here.account, domain)
        for _ in range(3):
            row = await here.measured()
    assert (row.state, row.last_value, row.unknown_because) == ("firing", None, "no_answer")


async def test_lists_that_can_be_trusted_are_counted(here: AlertPlace) -> None:
    await here.rule(AlertKind.BLOCKLIST, threshold=2)
    assert (await here.measured()).unknown_because == "not_measured"
    await here.pool.execute(
        "UPDATE domains SET blocklist_measured_until = now() + interval '1 day' WHERE account_id = $1", here.account.id
    )
    await listed(here, ["dbl.test"])
    assert ((await here.measured()).state, (await here.now()).last_value) == ("ok", 1.0)
    await listed(here, ["multi.test"])
    await here.measured()

    [event] = await here.alerts()
    detail = orjson.loads(event.detail)
    assert (event.value, detail["lists"]) == (2.0, ["dbl.test", "multi.test"])
    assert {one["target"] for one in detail["listings"]} == {here.account.domain}
    assert f"{here.account.domain} on dbl.test" in (await here.mails())[0][1]["facts"]


async def test_active_endpoints_that_fail_are_counted(here: AlertPlace) -> None:
    await here.rule(AlertKind.WEBHOOK_FAILING)
    assert ((await here.measured()).state, (await here.now()).last_value) == ("ok", 0.0)
    for failures, status in ((2, "active"), (3, "disabled"), (3, "active")):
        await here.pool.execute(
            "INSERT INTO webhooks (id, account_id, url, status, sealed_secret, failures, failing_since)"
            " VALUES ($1, $2, 'https://hooks.test/in?key=secret', $3, '', $4, now())",
            ids.uuid7(), here.account.id, status, failures,
        )  # fmt: skip
    await here.measured()

    [event] = await here.alerts()
    [named] = orjson.loads(event.detail)["endpoints"]
    assert (event.value, named["url"]) == (1.0, "https://hooks.test/in")
    mail = (await here.mails())[0][1]
    assert mail["summary"] == "Webhooks are failing (1 endpoint)"
    assert "https://hooks.test/in, since" in mail["facts"]
    await here.pool.execute("UPDATE webhooks SET failures = 0 WHERE account_id = $1", here.account.id)
    await here.measured()
    assert (await here.measured()).state == "ok"


async def listed(here: AlertPlace, zones: Sequence[str]) -> None:
    await here.pool.executemany(
        "INSERT INTO blocklist_listings (kind, target, zone, answer, listed_since, last_seen)"
        " VALUES ('domain', $1, $2, '127.0.0.2', now(), now())",
        [(here.account.domain, zone) for zone in zones],
    )
