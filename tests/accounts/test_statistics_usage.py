"""`GET /v1/usage`: what a month has used, day by day, and what is left of it."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from engine.base import clock
from engine.base.errors import Refusal
from engine.sending.statistics import jobs, rules, store
from tests.harness import history
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api
from tests.harness.settling import settle

OUTCOMES = ("delivered", "bounced", "complained", "failed")
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


async def usage(api: Api, account: TestAccount, **params: str) -> dict[str, Any]:
    answer = await api.get("/v1/usage", account.token, params=params)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


async def test_the_present_month_up_to_today_is_the_default(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="starter")
    found = await usage(api, account)
    today = datetime.now(UTC).date()

    assert found["month"] == f"{today:%Y-%m}"
    assert found["from"] == f"{today:%Y-%m}-01T00:00:00.000Z"
    assert clock.parse_iso(found["until"]).day == 1
    assert [row["date"] for row in found["data"]] == [f"{today:%Y-%m}-{day:02}" for day in range(1, today.day + 1)]
    assert all(row[name] == 0 for row in found["data"] for name in ("accepted", *OUTCOMES))
    assert {name: found[name] for name in ("accepted", *OUTCOMES)} == dict.fromkeys(("accepted", *OUTCOMES), 0)
    assert (found["limit"], found["remaining"]) == (100_000, 100_000)


async def test_accepted_is_what_the_allowance_has_counted(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, monthly_cap=5)
    for number in range(7):
        await api.post("/v1/emails", account.token, account.email(idempotencyKey=f"k{number % 6}"))
    await api.post("/v1/emails", account.token, account.email(subject="a\nb"))

    for _ in range(2):
        found = await usage(api, account)
        sending = (await api.get("/v1/me", account.token)).json["sending"]
        assert (found["accepted"], found["limit"], found["remaining"]) == (5, 5, 0)
        assert found["accepted"] == sending["sentThisMonth"] == found["data"][-1]["accepted"]
        assert await jobs.count_ahead(pool, everything=True)


async def test_outcomes_count_recipients_on_the_day_they_came(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    people = [f"{name}@people.test" for name in ("ann", "bob", "cid")]
    message = (await api.post("/v1/emails", account.token, account.email(to=people))).json["id"]
    await settle(pool, message, (people[1], 550, "5.1.1 nobody"), (people[2], 451, "4.2.0 never"))
    found = await usage(api, account)

    assert found["data"][-1].pop("date") == datetime.now(UTC).date().isoformat()
    expected = {"accepted": 1, "delivered": 1, "bounced": 1, "complained": 0, "failed": 1}
    assert found["data"][-1] == expected
    assert {name: found[name] for name in expected} == expected


async def test_days_are_those_of_utc_and_add_up(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    month = rules.month_of(None, clock.now() - timedelta(days=40))
    first = datetime(month.year, month.month, 1, tzinfo=UTC)
    moments = [
        first - timedelta(milliseconds=1), first, first + timedelta(hours=23, minutes=59), first + timedelta(days=1),
        first + timedelta(days=9),
    ]  # fmt: skip
    await history.write(pool, account, *moments)
    await history.write(pool, account, first + timedelta(days=9), status="scheduled")
    days = rules.days_of(month, clock.now())

    for _ in range(2):
        found = await store.used(pool, account.id, days)
        assert [row.day for row in found] == days
        assert {row.day.day: row.accepted for row in found if row.accepted} == {1: 2, 2: 1, 10: 1}
        assert await jobs.count_ahead(pool, everything=True)


async def test_a_month_that_is_over_has_no_limit(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    before = rules.month_of(None, clock.now()) - timedelta(days=1)
    await history.write(pool, account, datetime(before.year, before.month, 3, tzinfo=UTC))
    found = await usage(api, account, month=f"{before:%Y-%m}")

    assert (found["accepted"], found["limit"], found["remaining"]) == (1, None, None)
    assert (len(found["data"]), found["data"][2]["accepted"]) == (before.day, 1)
    assert found["data"][-1]["date"] == before.isoformat()


@pytest.mark.parametrize(
    ("text", "month"),
    [
        (None, date(2026, 11, 1)), ("2026-11", date(2026, 11, 1)), ("2026-01", date(2026, 1, 1)),
        ("2025-11", date(2025, 11, 1)),
    ],
)  # fmt: skip
def test_a_year_back_is_kept(text: str | None, month: date) -> None:
    assert rules.month_of(text, NOON) == month


@pytest.mark.parametrize(
    "text",
    ["2025-10", "2026-12", "2026-13", "2026-00", "0000-01", "26-11", "2026-1", "2026-11-01", "2026/11", "", "٢٠٢٦-١١"],
)
def test_no_other_month_is(text: str) -> None:
    with pytest.raises(Refusal, match="2025-11 to 2026-11"):
        rules.month_of(text, NOON)


def test_the_kept_days_cover_the_oldest_month_and_the_longest_series() -> None:
    oldest = rules.month_of("2025-11", datetime(2026, 11, 30, 23, 59, tzinfo=UTC))

    assert (date(2026, 11, 30) - oldest).days < rules.KEPT_DAYS
    assert rules.KEPT_DAYS > 366


@pytest.mark.parametrize(("field", "value"), [("month", "2026-1"), ("month", "1999-01"), ("month", ""), ("days", "3")])
async def test_a_bad_parameter_is_refused_by_name(api: Api, pool: asyncpg.Pool, field: str, value: str) -> None:
    account = await make_account(pool)
    answer = await api.get("/v1/usage", account.token, params={field: value})

    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", field)
