"""`GET /v1/analytics/delivery`: rates and times, counted from the account log."""

import math
import random
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.receiving.analytics import delivery, delivery_page, rules
from engine.receiving.analytics.delivery_rules import GroupCounts
from engine.receiving.analytics.histogram import bucket_of, percentile, value_of
from engine.receiving.analytics.types import DeliveryWanted, GroupBy
from engine.receiving.reports import read_reports
from engine.sending.complaint import complain
from tests.harness.accounts import PEPPER, TestAccount, add_key, make_account
from tests.harness.api import Api
from tests.harness.report_mails import add, failed, mail
from tests.harness.settling import settle
from tests.receiving.test_late_bounce import token


async def read(api: Api, account: TestAccount, **params: str) -> dict[str, Any]:
    answer = await api.get("/v1/analytics/delivery", account.token, params=params)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


async def send(api: Api, account: TestAccount, *to: str, **fields: object) -> str:
    answer = await api.post("/v1/emails", account.token, account.email(to=list(to), **fields))
    assert answer.status == 202, answer
    return str(answer.json["id"])


async def took(pool: asyncpg.Pool, message: str, milliseconds: int) -> None:
    """Let the delivery of a message have taken that long."""
    await pool.execute(
        "UPDATE events d SET occurred_at = a.occurred_at + $2 FROM events a"
        " WHERE a.message_id = $1 AND a.type = 'accepted' AND d.message_id = $1 AND d.type = 'delivered'",
        ids.parse_id(ids.Kind.MESSAGE, message), timedelta(milliseconds=milliseconds),
    )  # fmt: skip


async def test_rates_and_times_by_domain_and_tag(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    for time_ms in (100, 200, 4000):
        message = await send(api, account, "ann@People.test", tags=["welcome", "new"])
        await settle(pool, message)
        await took(pool, message, time_ms)
    bounced = await send(api, account, "ann@people.test", "bob@far.test", tags=["welcome"])
    await settle(pool, bounced, ("ann@people.test", 550, "5.1.1 nobody"), ("bob@far.test", 450, "4.2.0 later"))
    await send(api, account, "bob@far.test")

    found = await read(api, account)
    assert (found["groupBy"], found["days"], found["nextCursor"]) == ("domain", 7, None)
    assert found["data"] == [
        {
            "domain": "people.test", "deliveries": 4, "settled": 4, "delivered": 3, "bounced": 1, "failed": 0,
            "complained": 0, "deliveryRate": 0.75, "p50Ms": 200, "p95Ms": pytest.approx(4000, rel=0.01), "samples": 3,
        },
        {
            "domain": "far.test", "deliveries": 2, "settled": 1, "delivered": 0, "bounced": 0, "failed": 1,
            "complained": 0, "deliveryRate": 0.0, "p50Ms": None, "p95Ms": None, "samples": 0,
        },
    ]  # fmt: skip
    tags = (await read(api, account, groupBy="tag"))["data"]
    assert [(row["tag"], row["deliveries"], row["samples"]) for row in tags] == [("welcome", 5, 3), ("new", 3, 3)]
    assert [row["domain"] for row in (await read(api, account, tag="new"))["data"]] == ["people.test"]
    assert (await read(api, account, stream="news"))["data"] == []


async def test_nothing_settled_is_null_and_never_zero(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    assert (await read(api, account))["data"] == []
    await send(api, account, "ann@people.test")
    (row,) = (await read(api, account))["data"]

    assert (row["deliveries"], row["settled"]) == (1, 0)
    assert (row["deliveryRate"], row["p50Ms"], row["p95Ms"]) == (None, None, None)


async def test_a_late_bounce_takes_its_sample_out_and_a_complaint_keeps_it(
    api: Api, pool: asyncpg.Pool, settings: Settings
) -> None:
    account = await make_account(pool)
    late, reported, kept = [await send(api, account, "ann@people.test") for _ in range(3)]
    for message, time_ms in ((late, 9000), (reported, 50), (kept, 50)):
        await settle(pool, message)
        await took(pool, message, time_ms)
    (before,) = (await read(api, account))["data"]
    assert (before["delivered"], before["samples"], before["p95Ms"]) == (3, 3, pytest.approx(9000, rel=0.01))
    await add(pool, mail(failed("ann@people.test"), local=token(_id(late))))
    await read_reports.read_due(pool, settings)
    await complain(pool, _id(reported), 0, at=clock.now())
    (row,) = (await read(api, account))["data"]

    assert (row["deliveries"], row["delivered"], row["bounced"], row["complained"]) == (3, 1, 1, 1)
    assert (row["settled"], row["deliveryRate"], row["samples"], row["p95Ms"]) == (3, 0.666667, 2, 50)


async def test_a_complaint_about_a_bounce_changes_no_figure(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    message = await send(api, account, "ann@people.test")
    await settle(pool, message, ("ann@people.test", 550, "5.1.1 nobody"))
    await complain(pool, _id(message), 0, at=clock.now())
    (row,) = (await read(api, account))["data"]

    assert (row["bounced"], row["complained"], row["delivered"], row["settled"]) == (1, 0, 0, 1)


async def test_the_worker_and_readers_count_each_event_once(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    for _ in range(3):
        await settle(pool, await send(api, account, "ann@people.test"))
        assert await delivery.count_ahead(pool, everything=True)
        await read(api, account)
    assert await delivery.count_ahead(pool, everything=True)

    assert (await read(api, account))["data"][0]["delivered"] == 3


async def test_the_plan_limits_the_days(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="free")
    answer = await api.get("/v1/analytics/delivery", account.token, params={"days": "8"})

    assert (answer.status, answer.error["type"]) == (403, "plan_limit_reached")
    assert (answer.error["resource"], answer.error["limit"], answer.error["used"]) == ("analytics_days", 7, 8)
    assert (await read(api, account, days="7"))["days"] == 7
    for plan, days, status in (("starter", 30, 200), ("starter", 31, 403), ("scale", 90, 200), ("free", 8, 403)):
        await pool.execute("UPDATE accounts SET plan = $2 WHERE id = $1", account.id, plan)
        found = await api.get("/v1/analytics/delivery", account.token, params={"days": str(days)})
        assert found.status == status, (plan, days)


async def test_pages_show_every_row_once_and_keep_until(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await send(api, account, *[f"ann@d{n}.test" for n in range(5)], "bob@d3.test")
    first = await read(api, account, limit="2")
    second = await read(api, account, limit="2", cursor=first["nextCursor"])
    third = await read(api, account, limit="2", cursor=second["nextCursor"])

    names = [row["domain"] for page in (first, second, third) for row in page["data"]]
    assert names == ["d3.test", "d0.test", "d1.test", "d2.test", "d4.test"]
    assert third["nextCursor"] is None
    assert first["until"] == second["until"] == third["until"]
    yesterday = clock.now().date() - timedelta(days=1)
    old = await read(api, account, cursor=delivery_page.cursor(PEPPER, account.id, yesterday, 0))
    assert old["until"] == f"{yesterday + timedelta(days=1)}T00:00:00.000Z"
    other = await make_account(pool)
    earlier = first["nextCursor"].replace(str(clock.now().date()), str(yesterday))
    foreign = delivery_page.cursor(PEPPER, other.id, yesterday, 0)
    beyond = delivery_page.cursor(PEPPER, account.id, yesterday, 1_000_001)
    for cursor in ("x", "2026-13-01~0", earlier, foreign, beyond):
        answer = await api.get("/v1/analytics/delivery", account.token, params={"cursor": cursor})
        assert (answer.status, answer.error["field"]) == (400, "cursor")


async def test_a_cursor_does_not_expire(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    last = clock.now().date() - timedelta(days=60)
    groups = [
        GroupCounts("", last, f"d{n}.test", "transactional", account.domain, deliveries=9 - n, delivered=1)
        for n in range(3)
    ]
    async with pool.acquire() as connection:
        await delivery.add(connection, account.id, groups)
    second = await read(api, account, limit="1", cursor=delivery_page.cursor(PEPPER, account.id, last, 1))
    ancient = delivery_page.cursor(PEPPER, account.id, clock.now().date() - timedelta(days=900), 1)
    gone = await read(api, account, cursor=ancient)

    assert [row["domain"] for row in second["data"]] == ["d1.test"]
    assert second["nextCursor"] == delivery_page.cursor(PEPPER, account.id, last, 2)
    assert (gone["data"], gone["nextCursor"]) == ([], None)


async def test_a_key_limited_to_domains_sees_their_mail_only(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await send(api, account, "ann@people.test")
    other = await make_account(pool)
    await pool.execute("UPDATE api_keys SET domains = '{elsewhere.test}' WHERE account_id = $1", other.id)
    today = clock.now().date()
    groups = [
        GroupCounts("", today, "people.test", "transactional", sender, deliveries=1)
        for sender in ("elsewhere.test", "hidden.test")
    ]
    async with pool.acquire() as connection:
        await delivery.add(connection, other.id, groups)

    assert [row["deliveries"] for row in (await read(api, other))["data"]] == [1]


async def test_a_key_limited_to_streams_sees_their_mail_only(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    limited = await add_key(pool, account.id, streams=["news"])
    groups = [
        GroupCounts("", clock.now().date(), "people.test", stream, account.domain, deliveries=1)
        for stream in ("news", "transactional")
    ]
    async with pool.acquire() as connection:
        await delivery.add(connection, account.id, groups)

    for query, found in (("", [1]), ("?stream=news", [1]), ("?stream=transactional", [])):
        rows = (await api.get(f"/v1/analytics/delivery{query}", limited)).json["data"]
        assert [row["deliveries"] for row in rows] == found
    assert (await api.get("/v1/analytics/dmarc", limited)).status == 403  # reports tell nothing of streams


async def test_mail_counts_on_the_day_of_its_acceptance(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    message = await send(api, account, "ann@people.test")
    before = clock.now() - timedelta(days=3)
    await pool.execute("UPDATE events SET occurred_at = $2 WHERE message_id = $1", _id(message), before)
    await settle(pool, message)

    assert (await read(api, account, days="3"))["data"] == []
    (row,) = (await read(api, account, days="4"))["data"]
    assert (row["delivered"], row["p50Ms"]) == (1, pytest.approx(3 * 86_400_000, rel=0.01))


async def test_a_long_period_counts_each_day_once_by_whole_weeks_and_single_days(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    today = clock.now()
    days = range(0, 40, 3)
    groups = []
    for n in days:
        for tag, domain in (("", "people.test"), ("new", ""), ("new", "people.test")):
            day = (today - timedelta(days=n)).date()
            key = (tag, day, domain, "transactional", "shop.test")
            groups.append(GroupCounts(*key, deliveries=2, delivered=1, samples={100 + n: 1}))
    async with pool.acquire() as connection:
        await delivery.add(connection, account.id, groups)

    for length in range(1, 41):
        period = rules.period(length, today)
        expected = len([n for n in days if n < length])
        for by, only in ((GroupBy.DOMAIN, None), (GroupBy.DOMAIN, "new"), (GroupBy.TAG, None)):
            wanted = DeliveryWanted(by=by, period=period, tag=only)
            [row], _ = await delivery.rows(pool, account.id, wanted, limit=9, offset=0)
            assert (row.sums.deliveries, row.sums.delivered, row.samples) == (2 * expected, expected, expected)


def test_percentiles_are_within_one_percent_of_the_nearest_rank() -> None:
    dice = random.Random(7)
    for spread in (1.0, 3.0, 6.0):
        times = sorted(int(dice.lognormvariate(6, spread)) for _ in range(5_000))
        times = [min(one, 72 * 3_600_000) for one in times]
        samples: dict[int, int] = {}
        for one in times:
            samples[bucket_of(one)] = samples.get(bucket_of(one), 0) + 1
        for share in (0.01, 0.5, 0.95, 0.99, 1.0):
            exact = times[math.ceil(share * len(times)) - 1]
            found = percentile(samples, share)
            assert found is not None
            assert abs(found - exact) <= 0.01 * exact
    assert percentile({}, 0.5) is None


def test_every_time_is_within_one_percent_of_what_stands_for_its_bucket() -> None:
    for one in (*range(20_000), *range(20_000, 300_000_000, 99_991)):
        assert abs(value_of(bucket_of(one)) - one) <= 0.01 * one
    assert bucket_of(-5) == 0


def _id(message: str) -> UUID:
    return ids.parse_id(ids.Kind.MESSAGE, message)
