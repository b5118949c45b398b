"""`GET /v1/stats/messages` by the hour, and with `from` and `until`."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import asyncpg
import pytest

from engine.base import clock
from engine.base.errors import Refusal
from engine.sending.statistics import rules
from engine.sending.statistics.types import Bucket
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def quarter(at: datetime) -> datetime:
    return at.replace(minute=at.minute // 15 * 15, second=0, microsecond=0)


async def stats(api: Api, account: TestAccount, **params: str) -> Any:
    answer = await api.get("/v1/stats/messages", account.token, params=params)
    assert answer.status == 200, answer
    return answer.json


async def test_a_message_counts_in_its_hour(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    since = quarter(clock.now()) - timedelta(hours=2)
    assert (await api.post("/v1/emails", account.token, account.email())).status == 202
    until = quarter(clock.now()) + timedelta(minutes=15)
    given = {"bucket": "hour", "from": clock.iso(since), "until": clock.iso(until)}
    found = await stats(api, account, **given)

    assert (found["bucket"], found["from"], found["until"]) == ("hour", given["from"], given["until"])
    assert [row["total"] for row in found["data"]] == [0] * (len(found["data"]) - 1) + [1]
    assert found["data"][0]["startsAt"] == given["from"]
    assert {clock.parse_iso(row["startsAt"]).minute for row in found["data"][1:]} == {0}
    assert found["totals"]["queued"] == 1
    earlier = await stats(api, account, **given | {"until": clock.iso(since + timedelta(minutes=15))})
    assert earlier["totals"]["total"] == 0


async def test_by_the_hour_the_present_day_is_the_default(api: Api, pool: asyncpg.Pool) -> None:
    found = await stats(api, await make_account(pool), bucket="hour")

    assert (len(found["data"]), found["days"]) == (24, 1)
    assert len((await stats(api, await make_account(pool)))["data"]) == 30


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"from": "2026-11-20T08:10:00Z"}, "from"),
        ({"until": "2026-11-20T08:15:00"}, "until"),
        ({"from": "2020-01-01T00:00:00Z"}, "from"),
        ({"from": "2098-01-01T00:00:00Z", "until": "2097-01-01T00:00:00Z"}, "until"),
        ({"bucket": "hour", "days": "40"}, "days"),
        ({"bucket": "week"}, "bucket"),
        ({"days": "3", "from": "2026-11-20T08:15:00Z"}, "days"),
    ],
)
async def test_a_bad_period_is_refused_by_name(
    api: Api, pool: asyncpg.Pool, params: dict[str, str], field: str
) -> None:
    answer = await api.get("/v1/stats/messages", (await make_account(pool)).token, params=params)
    assert (answer.status, answer.error["field"]) == (400, field)


def period(tz: str, bucket: Bucket, since: datetime, until: datetime) -> list[datetime]:
    found = rules.period(ZoneInfo(tz), until, bucket, days=None, since=since, until=until)
    assert found.ends_at == until
    return [day.starts_at for day in found.days]


@pytest.mark.parametrize("tz", ["UTC", "Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe", "America/St_Johns"])
@pytest.mark.parametrize("month", [3, 4, 10, 11])
def test_hours_leave_no_gap_and_begin_on_quarter_hours_across_clock_changes(tz: str, month: int) -> None:
    since = datetime(2026, month, 1, 0, 15, tzinfo=UTC)
    starts = period(tz, Bucket.HOUR, since, since + timedelta(days=30))

    assert starts[0] == since
    assert starts == sorted(set(starts))
    assert all((one - since) % rules.QUARTER == timedelta(0) for one in starts)
    assert all(one.astimezone(ZoneInfo(tz)).minute in {0, 30} for one in starts[1:])
    assert max(b - a for a, b in pairwise(starts)) <= timedelta(hours=1, minutes=30)


def test_the_first_and_last_day_are_cut_to_the_period() -> None:
    starts = period("Europe/Berlin", Bucket.DAY, NOON - timedelta(days=2), NOON)
    assert starts == [
        NOON - timedelta(days=2), datetime(2026, 11, 18, 23, tzinfo=UTC), datetime(2026, 11, 19, 23, tzinfo=UTC),
    ]  # fmt: skip


def test_a_period_of_hours_is_bounded() -> None:
    with pytest.raises(Refusal, match="31 days"):
        period("UTC", Bucket.HOUR, NOON - timedelta(days=40), NOON)
