"""`GET /v1/stats/messages`: messages by local day and status, counted ahead or not."""

import asyncio
import random
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import asyncpg
import pytest

from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.sending.statistics import jobs, rules, store
from engine.sending.statistics.types import Counts
from tests.harness import history
from tests.harness.accounts import TestAccount, add_domain, make_account
from tests.harness.api import Api
from tests.harness.settling import settle

STATUSES = tuple(history.EVENTS)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


async def stats(api: Api, account: TestAccount, **params: str) -> dict[str, Any]:
    answer = await api.get("/v1/stats/messages", account.token, params=params)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


def statuses(figures: dict[str, Any]) -> dict[str, int]:
    """Those that are not 0."""
    return {name: figures[name] for name in STATUSES if figures[name]}


async def count_everything(pool: asyncpg.Pool) -> None:
    assert await jobs.count_ahead(pool, everything=True)


async def counted(pool: asyncpg.Pool, account: TestAccount, *, days: int = 30, tz: str = "UTC") -> list[Counts]:
    wanted = rules.local_days(ZoneInfo(tz), clock.now(), days)
    return await store.by_day(pool, account.id, wanted)


# -- the answer --------------------------------------------------------------------------------------


async def test_every_day_has_a_row_and_an_account_without_mail_has_no_rates(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    before = datetime.now(UTC).date()
    found = await stats(api, account)
    today = date.fromisoformat(found["data"][-1]["date"])

    assert before <= today <= datetime.now(UTC).date()
    assert (found["tz"], found["domain"], found["days"]) == ("UTC", None, 30)
    assert [row["date"] for row in found["data"]] == [
        (today - timedelta(days=n)).isoformat() for n in range(29, -1, -1)
    ]
    assert found["data"][0]["startsAt"] == found["from"] == f"{today - timedelta(days=29)}T00:00:00.000Z"
    assert found["until"] == f"{today + timedelta(days=1)}T00:00:00.000Z"
    assert found["totals"] == {
        **dict.fromkeys(("total", "accepted", "settled", *STATUSES), 0),
        "deliveryRate": None, "bounceRate": None, "complaintRate": None,
    }  # fmt: skip
    assert all(row.items() >= found["totals"].items() for row in found["data"])


async def test_a_message_counts_at_once_and_moves_with_its_status(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    sent = [(await api.post("/v1/emails", account.token, account.email())).json["id"] for _ in range(4)]
    assert statuses((await stats(api, account))["totals"]) == {"queued": 4}

    await settle(pool, sent[0])
    await settle(pool, sent[1], ("ann@people.test", 550, "5.1.1 nobody"))
    await settle(pool, sent[2], ("ann@people.test", 451, "4.2.0 later"), again_after=timedelta(hours=1))
    found = (await stats(api, account, days="1"))["totals"]

    assert statuses(found) == {"queued": 1, "sending": 1, "delivered": 1, "bounced": 1}
    assert (found["total"], found["accepted"], found["settled"]) == (4, 4, 2)
    assert (found["deliveryRate"], found["bounceRate"], found["complaintRate"]) == (0.5, 0.5, 0.0)


async def test_refused_sends_and_replays_count_nowhere(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=1)
    for _ in range(3):
        await api.post("/v1/emails", account.token, account.email(idempotencyKey="once"))
    assert (await api.post("/v1/emails", account.token, account.email())).status == 429

    assert (await stats(api, account))["totals"]["total"] == 1


async def test_a_complaint_was_delivered_first(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    at = clock.now() - timedelta(hours=1)
    await history.write(pool, account, *[at] * 3)
    await history.write(pool, account, at, status="complained")
    found = (await stats(api, account, days="2"))["totals"]

    assert (found["deliveryRate"], found["complaintRate"]) == (1.0, 0.25)


async def test_accepted_leaves_out_what_was_never_taken_for_delivery(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    at = clock.now() - timedelta(minutes=1)
    for status in STATUSES:
        await history.write(pool, account, at, status=status)
    await history.write(pool, account, at, status="rejected", events=("scheduled", "schedule_failed"), scheduled=True)
    await history.write(
        pool, account, at, status="rejected", events=("scheduled", "accepted", "suppressed"), scheduled=True
    )
    await history.write(pool, account, at, events=("scheduled", "accepted", "attempted", "delivered"), scheduled=True)

    for _ in range(2):
        found = (await stats(api, account, days="2"))["totals"]
        assert statuses(found) == dict.fromkeys(STATUSES, 1) | {"rejected": 3, "delivered": 2}
        assert (found["total"], found["accepted"]) == (12, 9)  # not: scheduled, canceled, refused at its release
        await count_everything(pool)


async def test_a_scheduled_message_is_accepted_only_once_it_is_released(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    soon = clock.iso(clock.now() + timedelta(hours=1))
    sent = await api.post("/v1/emails", account.token, account.email(scheduledAt=soon))
    waiting = (await stats(api, account))["totals"]
    assert (statuses(waiting), waiting["accepted"]) == ({"scheduled": 1}, 0)

    await count_everything(pool)
    assert (await api.request("DELETE", f"/v1/emails/{sent.json['id']}/schedule", token=account.token)).status == 200
    withdrawn = (await stats(api, account))["totals"]
    assert (statuses(withdrawn), withdrawn["accepted"]) == ({"canceled": 1}, 0)


async def test_the_figures_are_those_of_the_list(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    rng = random.Random(7)
    for status in STATUSES:
        moments = sorted(clock.now() - timedelta(minutes=rng.randrange(1, 12 * 1440)) for _ in range(rng.randrange(9)))
        await history.write(pool, account, *moments, status=status)
    await count_everything(pool)
    found = await stats(api, account, days="10", tz="Asia/Kathmandu")
    starts = [row["startsAt"] for row in found["data"]] + [found["until"]]

    for row, (low, high) in zip(found["data"], pairwise(starts), strict=True):
        query = {"from": low, "until": high, "limit": "100"}
        listed = (await api.get("/v1/messages", account.token, params=query)).json["data"]
        assert statuses(row) == Counter(one["status"] for one in listed), low
        assert row["total"] == len(listed)
    assert found["totals"]["total"] == sum(row["total"] for row in found["data"])


async def test_a_sending_domain_may_be_given_in_any_form(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    at = clock.now() - timedelta(minutes=20)
    await add_domain(pool, account.id, "xn--bcher-kva.test")
    await history.write(pool, account, at, at)
    await history.write(pool, account, at, domain="xn--bcher-kva.test", status="bounced")

    for _ in range(2):
        for name in ("bücher.test", "XN--BCHER-KVA.test", "Bücher.Test"):
            found = await stats(api, account, days="2", domain=name)
            assert (found["domain"], statuses(found["totals"])) == ("xn--bcher-kva.test", {"bounced": 1}), name
        assert statuses((await stats(api, account, days="2", domain=account.domain))["totals"]) == {"delivered": 2}
        assert (await stats(api, account, domain="nobodys.test"))["totals"]["total"] == 0
        assert (await stats(api, account, days="2"))["totals"]["total"] == 3
        await count_everything(pool)


async def test_another_accounts_mail_counts_nowhere(api: Api, pool: asyncpg.Pool) -> None:
    account, other = await make_account(pool), await make_account(pool)
    await history.write(pool, other, clock.now() - timedelta(minutes=2), domain=account.domain)
    await count_everything(pool)

    assert (await stats(api, account))["totals"]["total"] == 0
    assert (await stats(api, other))["totals"]["total"] == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("days", "0"), ("days", "366"), ("days", "1.5"), ("days", "x"), ("days", ""), ("days", "9" * 30),
        ("days", "-1"), ("tz", ""), ("tz", "Mars/Olympus"), ("tz", "Europe"), ("tz", "../UTC"),
        ("tz", "/etc/localtime"), ("tz", "x" * 65), ("tz", "utc"), ("tz", "Etc/GMT 5"), ("tz", "UTC\0"),
        ("tz", "Europe/Berlin\n"), ("tz", "localtime"), ("tz", "posix/UTC"), ("domain", ""), ("domain", "a@b.test"),
        ("domain", "x y"), ("domain", "x" * 254), ("domain", "a\0.test"), ("stream", "A Stream"), ("tag", ""),
        ("tag", "x" * 65), ("tag", "a\0"), ("by", "tag"),
    ],
)  # fmt: skip
async def test_a_bad_parameter_is_refused_by_name(api: Api, pool: asyncpg.Pool, field: str, value: str) -> None:
    account = await make_account(pool)
    answer = await api.get("/v1/stats/messages", account.token, params={field: value})

    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", field)


@pytest.mark.parametrize("tz", ["UTC", "Etc/GMT+5", "America/Argentina/Buenos_Aires", "Asia/Kathmandu", "GB-Eire"])
async def test_zones_are_known_by_every_character_they_may_have(api: Api, pool: asyncpg.Pool, tz: str) -> None:
    account = await make_account(pool)

    assert (await stats(api, account, tz=tz))["tz"] == tz


# -- days --------------------------------------------------------------------------------------------


def hours(tz: str, at: datetime, count: int) -> dict[str, float]:
    found = rules.local_days(rules.zone_of(tz), at, count)
    ends = [*(day.starts_at for day in found.days[1:]), found.ends_at]
    return {
        day.date.isoformat(): (end - day.starts_at).total_seconds() / 3600
        for day, end in zip(found.days, ends, strict=True)
    }


@pytest.mark.parametrize(
    ("tz", "day", "length"),
    [
        ("Europe/Berlin", "2026-03-29", 23), ("Europe/Berlin", "2026-10-25", 25), ("Europe/Berlin", "2026-10-26", 24),
        ("Australia/Lord_Howe", "2026-04-05", 24.5), ("Australia/Lord_Howe", "2026-10-04", 23.5),
        ("America/Santiago", "2026-09-06", 23),  # midnight itself is skipped
        ("America/Havana", "2026-11-01", 25),  # midnight itself comes twice
        ("Africa/Cairo", "2026-10-29", 25),  # back from midnight to the evening before
        ("UTC", "2026-10-25", 24),
    ],
)  # fmt: skip
def test_a_clock_change_makes_its_day_longer_or_shorter(tz: str, day: str, length: float) -> None:
    assert hours(tz, NOON, 365)[day] == length


@pytest.mark.parametrize(
    ("tz", "at", "today"),
    [
        ("Pacific/Kiritimati", datetime(2026, 11, 20, 9, 59, tzinfo=UTC), "2026-11-20"),
        ("Pacific/Kiritimati", datetime(2026, 11, 20, 10, 0, tzinfo=UTC), "2026-11-21"),
        ("Pacific/Pago_Pago", datetime(2026, 11, 20, 10, 59, tzinfo=UTC), "2026-11-19"),
        ("America/Santiago", datetime(2026, 9, 6, 3, 59, tzinfo=UTC), "2026-09-05"),
        ("America/Santiago", datetime(2026, 9, 6, 4, 0, tzinfo=UTC), "2026-09-06"),
    ],
)
def test_the_last_day_is_the_zones_own_today(tz: str, at: datetime, today: str) -> None:
    assert list(hours(tz, at, 3))[-1] == today


def test_every_zones_days_begin_on_a_quarter_hour_and_leave_no_gap() -> None:
    known = rules._names()
    assert known <= available_timezones() | {"UTC"}
    for name in known:
        zone = rules.zone_of(name)
        found = rules.local_days(zone, NOON, 365)
        starts = [*(day.starts_at for day in found.days), found.ends_at]
        assert all(clock.milliseconds(start) % 900_000 == 0 for start in starts), name
        assert all(timedelta(hours=22) <= end - start <= timedelta(hours=26) for start, end in pairwise(starts)), name
        assert starts[-2] <= NOON < starts[-1], name
        # Whatever lies in a day has that day's date on the zone's clock.
        assert all(start.astimezone(zone).date() == day.date for start, day in zip(starts, found.days, strict=False))
        assert all((end - clock._MILLISECOND).astimezone(zone).date() == day.date
                   for end, day in zip(starts[1:], found.days, strict=True))  # fmt: skip


def test_an_unknown_zone_is_refused_with_a_hint_for_a_plus_that_became_a_space() -> None:
    with pytest.raises(Refusal, match="%2B"):
        rules.zone_of("Etc/GMT 5")


async def test_a_message_of_the_last_local_second_belongs_to_that_day(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    zone = ZoneInfo("Asia/Kolkata")
    today = clock.now().astimezone(zone).date()
    midnight = datetime.combine(today, time(), zone).astimezone(UTC)
    await history.write(pool, account, midnight - timedelta(milliseconds=1), midnight)

    for _ in range(2):
        found = await counted(pool, account, days=2, tz="Asia/Kolkata")
        assert [one.delivered for one in found] == [1, 1]
        await count_everything(pool)


# -- counting ahead ----------------------------------------------------------------------------------


async def test_counting_ahead_changes_no_figure_whatever_happens_before_or_after(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    rng = random.Random(11)
    expected: Counter[tuple[date, str]] = Counter()
    made = []
    for _ in range(12):
        status = rng.choice(["queued", "sending", "delivered"])
        ages = sorted((rng.randrange(1, 5 * 1440) for _ in range(rng.randrange(1, 9))), reverse=True)
        moments = [clock.now() - timedelta(minutes=age) for age in ages]
        written = await history.write(pool, account, *moments, status=status, told_at=clock.now())
        made += [(one, status) for one in written]
        rng.shuffle(made)
        for _ in range(min(3, len(made))):  # late outcomes, of old messages too
            message, status = made.pop()
            await move(pool, account, message, "bounced")
            made.insert(0, (message, "bounced"))
        if rng.random() < 0.6:
            await jobs.count_ahead(pool, everything=True)
        expected = Counter((day_of(message), status) for message, status in made)
        found = await counted(pool, account, days=7)
        first = clock.now().date() - timedelta(days=6)
        assert {
            (first + timedelta(days=place), name): getattr(one, name)
            for place, one in enumerate(found)
            for name in STATUSES
            if getattr(one, name)
        } == expected


async def move(pool: asyncpg.Pool, account: TestAccount, message: Any, status: str) -> None:
    """A late outcome, as settling writes it: status and event in one transaction."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("UPDATE messages SET status = $2 WHERE id = $1", message, status)
        await history.tell(connection, account, [(message, status, clock.now())])


def day_of(message: Any) -> date:
    return datetime.fromtimestamp(ids.milliseconds_of(message) / 1000, UTC).date()


async def test_a_long_log_is_counted_in_bounded_steps(pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    account = await make_account(pool)
    await history.write(pool, account, *[clock.now() - timedelta(minutes=n) for n in range(40, 0, -1)])
    monkeypatch.setattr(jobs, "MAX_OF_ONE", 7)
    monkeypatch.setattr(jobs, "MAX_EVENTS", 10)
    await count_everything(pool)

    row = await pool.fetchrow("SELECT * FROM account_records WHERE account_id = $1", account.id)
    assert row is not None
    assert row["counted_seq"] == 120
    assert await pool.fetchval("SELECT sum(messages) FROM accepted_days WHERE account_id = $1", account.id) == 40
    assert sum(one.delivered for one in await counted(pool, account)) == 40


async def test_two_workers_count_each_event_once(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    for _ in range(5):
        await history.write(pool, account, *[clock.now() - timedelta(seconds=3)] * 10)
        await asyncio.gather(*(jobs.count_ahead(pool, everything=True) for _ in range(4)))

    assert await pool.fetchval("SELECT sum(messages) FROM accepted_days WHERE account_id = $1", account.id) == 50
    assert sum(one.delivered for one in await counted(pool, account, days=2)) == 50


async def test_a_quiet_account_is_counted_every_ten_minutes_and_a_busy_one_every_minute(pool: asyncpg.Pool) -> None:
    quiet, busy = await make_account(pool), await make_account(pool)
    await count_everything(pool)
    for account, count in ((quiet, 1), (busy, 400)):
        await history.write(pool, account, *[clock.now() - timedelta(seconds=5)] * count)
        await pool.execute("INSERT INTO account_records (account_id) VALUES ($1) ON CONFLICT DO NOTHING", account.id)

    async def counted_after(age: timedelta) -> list[bool]:
        for account in (quiet, busy):
            await pool.execute(
                "UPDATE account_records SET counted_seq = 0, counted_at = $2 WHERE account_id = $1",
                account.id, clock.now() - age,
            )  # fmt: skip
        assert await jobs.count_ahead(pool)
        return [
            await pool.fetchval("SELECT counted_seq > 0 FROM account_records WHERE account_id = $1", account.id)
            for account in (quiet, busy)
        ]

    assert await counted_after(timedelta(seconds=50)) == [False, False]
    assert await counted_after(timedelta(minutes=2)) == [False, True]
    assert await counted_after(timedelta(minutes=11)) == [True, True]
