"""The bell's notices: derived from the present state, marked by each person for themselves."""

from datetime import UTC, datetime
from typing import Any

import asyncpg

from engine.accounts.alerts import rules as alert_rules
from engine.accounts.alerts import service as alerts
from engine.accounts.alerts.types import AlertKind
from engine.accounts.notices import rules
from engine.accounts.notices.types import NeededRow, SendingUse
from engine.base import ids
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api
from tests.harness.people import TestPerson, make_person

AT = datetime(2026, 11, 20, 10, tzinfo=UTC)


async def notices(api: Api, person: TestPerson) -> dict[str, Any]:
    answer = await api.get("/v1/notices", person=person)
    assert answer.status == 200, answer.body
    return dict(answer.json)


async def marked(api: Api, person: TestPerson, ids_: list[str], mark: str) -> dict[str, Any]:
    answer = await api.post("/v1/notices/marks", None, {"ids": ids_, "mark": mark}, person=person)
    assert answer.status == 200, answer.body
    return dict(answer.json)


async def add_webhook(pool: asyncpg.Pool, account: TestAccount, *, failures: int, status: str = "active") -> str:
    webhook = ids.uuid7()
    await pool.execute(
        "INSERT INTO webhooks (id, account_id, url, status, sealed_secret, failures, failing_since)"
        " VALUES ($1, $2, 'https://hooks.test/in?key=secret', $3, '', $4, now())",
        webhook, account.id, status, failures,
    )  # fmt: skip
    return ids.format_id(ids.Kind.WEBHOOK, webhook)


async def test_an_account_in_order_has_no_notices(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    person = await make_person(pool, account.id)
    await add_webhook(pool, account, failures=2)

    assert await notices(api, person) == {"data": [], "unread": 0}


async def test_each_thing_that_needs_a_person_is_a_notice_the_most_severe_first(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    person = await make_person(pool, account.id)
    failing = await add_webhook(pool, account, failures=3)
    disabled = await add_webhook(pool, account, failures=0, status="disabled")
    await pool.execute("UPDATE domains SET status = 'failed' WHERE account_id = $1", account.id)
    rule = await alerts.create(
        pool, account.id, AlertKind.BOUNCE_RATE, alert_rules.defaults(AlertKind.BOUNCE_RATE), actor="tests"
    )
    await pool.execute("UPDATE alert_rules SET firing_since = now(), last_value = 0.062 WHERE id = $1", rule.id)
    await pool.execute(
        "INSERT INTO broadcasts (id, account_id, name, list_id, stream, sender, from_domain, status, created_at,"
        " updated_at) VALUES ($1, $2, 'News', $1, 'broadcast', 'a@x.test', 'x.test', 'in_review', now(), now())",
        ids.uuid7(), account.id,
    )  # fmt: skip
    found = await notices(api, person)

    assert [(one["kind"], one["severity"]) for one in found["data"]] == [
        ("webhook_failing", "bad"), ("domain_unverified", "bad"), ("broadcast_in_review", "warn"),
        ("alert_firing", "warn"), ("webhook_disabled", "info"),
    ]  # fmt: skip
    texts = {one["kind"]: one["message"] for one in found["data"]}
    assert texts["webhook_failing"] == "Posts to the webhook endpoint https://hooks.test/in are failing."
    assert texts["alert_firing"] == "Bounce rate of 6.2%; the rule fires at 5%."
    assert texts["domain_unverified"] == f"{account.domain} is no longer verified: emails from it are refused."
    objects = {one["kind"]: one["objectId"] for one in found["data"]}
    assert (objects["webhook_failing"], objects["webhook_disabled"]) == (failing, disabled)
    assert objects["alert_firing"] == rule.public_id
    assert found["unread"] == 5


async def test_marks_count_for_the_person_alone(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    ann, bob = await make_person(pool, account.id), await make_person(pool, account.id, "member")
    await add_webhook(pool, account, failures=3)
    await add_webhook(pool, account, failures=0, status="disabled")
    first, second = [one["id"] for one in (await notices(api, ann))["data"]]
    seen = await marked(api, ann, [first, second], "seen")
    dismissed = await marked(api, ann, [second], "dismissed")
    again = await marked(api, ann, [second], "seen")

    assert (len(seen["data"]), seen["unread"]) == (2, 0)
    assert [one["id"] for one in dismissed["data"]] == [first]
    assert again == dismissed
    assert await notices(api, ann) == dismissed
    assert (await notices(api, bob))["unread"] == 2


async def test_what_happens_again_is_told_again_and_old_marks_go(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    person = await make_person(pool, account.id)
    await add_webhook(pool, account, failures=3)
    [before] = [one["id"] for one in (await notices(api, person))["data"]]
    assert (await marked(api, person, [before], "dismissed"))["data"] == []
    await pool.execute(
        "UPDATE webhooks SET failing_since = failing_since + interval '1 hour' WHERE account_id = $1", account.id
    )
    found = await notices(api, person)
    await marked(api, person, [found["data"][0]["id"], before, "unknown"], "seen")
    kept = await pool.fetch("SELECT notice FROM notice_marks WHERE account_id = $1", account.id)

    assert found["unread"] == 1
    assert [row["notice"] for row in kept] == [found["data"][0]["id"]]


async def test_notices_are_of_the_account_alone(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    other = await make_account(pool)
    await add_webhook(pool, other, failures=3)
    person, stranger = await make_person(pool, account.id), await make_person(pool, other.id)
    [theirs] = [one["id"] for one in (await notices(api, stranger))["data"]]
    await marked(api, person, [theirs], "dismissed")

    assert (await notices(api, person))["data"] == []
    assert (await notices(api, stranger))["unread"] == 1


async def test_too_many_or_empty_marks_are_refused(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    person = await make_person(pool, account.id)
    for body in ({"ids": [], "mark": "seen"}, {"ids": ["x"] * 201, "mark": "seen"}, {"ids": ["x"], "mark": "read"}):
        answer = await api.post("/v1/notices/marks", None, body, person=person)
        assert (answer.status, answer.error["type"]) == (400, "invalid_request")


def firing(kind: AlertKind, *, value: float | None, fired: float, threshold: float) -> NeededRow:
    return NeededRow("alert_firing", ids.uuid7(), kind, AT, value, threshold, fired)


def test_a_firing_rule_whose_value_has_fallen_tells_both_values() -> None:
    fallen = firing(AlertKind.BOUNCE_RATE, value=0.0116, fired=0.029, threshold=0.02)
    unknown = firing(AlertKind.BOUNCE_RATE, value=None, fired=0.029, threshold=0.02)
    texts = [rules.notices_of([row], use(today=0, month=0), AT)[0].message for row in (fallen, unknown)]

    assert texts == [
        "Bounce rate of 2.9% when the alert fired, now 1.16%.", "Bounce rate of 2.9%; the rule fires at 2%.",
    ]  # fmt: skip


def test_failing_endpoints_and_the_alert_about_them_are_one_notice() -> None:
    alert = firing(AlertKind.WEBHOOK_FAILING, value=1, fired=1, threshold=1)
    endpoint = NeededRow("webhook_failing", ids.uuid7(), "https://hooks.test/in", AT, None, None, None)
    alone, both = (rules.notices_of(rows, use(today=0, month=0), AT) for rows in ([alert], [alert, endpoint]))

    assert [one.kind for one in alone] == ["alert_firing"]
    assert [one.kind for one in both] == ["webhook_failing"]


def use(*, today: int, month: int) -> SendingUse:
    return SendingUse(sent_today=today, daily_limit=100, sent_this_month=month, monthly_limit=1_000)


def test_limits_are_told_at_80_percent_and_when_they_are_reached() -> None:
    none = rules.notices_of([], use(today=79, month=799), AT)
    near = rules.notices_of([], use(today=80, month=0), AT)
    reached = rules.notices_of([], use(today=100, month=1_000), AT)

    assert none == []
    assert [(one.kind, one.id, one.message) for one in near] == [
        ("limit_near", "limit_near.today.2026-11-20", "80 of the 100 emails of today are sent.")
    ]
    assert sorted((one.id, one.message) for one in reached) == [
        (
            "limit_reached.this_month.2026-11-01",
            "The limit of 1,000 emails this month is reached: more are refused until the 1st (UTC).",
        ),
        (
            "limit_reached.today.2026-11-20",
            "The limit of 100 emails today is reached: more are refused until midnight UTC.",
        ),
    ]


def test_a_name_with_braces_stays_text() -> None:
    row = NeededRow("broadcast_paused", ids.uuid7(), "{0.__class__} {name}", AT, None, None, None)

    assert rules.notices_of([row], use(today=0, month=0), AT)[0].message == (
        "The broadcast “{0.__class__} {name}” is paused."
    )
