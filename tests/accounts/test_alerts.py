"""`/v1/alerts`: rules, their limits and their test; measuring is tested in tests/accounts/test_alerts_measure.py."""

import asyncio
from typing import Any

import asyncpg
import orjson
import pytest

from engine.accounts.alerts.types import DEFAULT_SET, TERMS, AlertKind
from tests.harness.accounts import TestAccount
from tests.harness.api import Api
from tests.harness.people import make_person


async def make(api: Api, account: TestAccount, **fields: object) -> dict[str, Any]:
    answer = await api.post("/v1/alerts/rules", account.token, {"kind": "quota_usage", "threshold": 0.8} | fields)
    assert answer.status == 201, answer.body
    return dict(answer.json)


async def test_a_rule_is_created_changed_and_deleted(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    made = await make(api, account, kind="bounce_rate", threshold=0.1, windowDays=7)
    assert made == {
        "id": made["id"], "kind": "bounce_rate", "threshold": 0.1, "windowDays": 7, "cooldownMinutes": 1440,
        "notifyEmail": True, "notifyWebhook": True, "enabled": True, "state": "unknown", "firingSince": None,
        "lastValue": None, "lastMeasuredAt": None, "createdAt": made["createdAt"], "updatedAt": made["createdAt"],
    }  # fmt: skip
    assert made["id"].startswith("alr_")

    change = {"threshold": 0.05, "cooldownMinutes": 5, "windowDays": 1, "notifyEmail": False, "enabled": False}
    changed = await api.patch(f"/v1/alerts/rules/{made['id']}", account.token, change)
    assert changed.status == 200
    assert {name: changed.json[name] for name in change} == change
    listed = (await api.get("/v1/alerts/rules", account.token)).json
    assert (listed["data"], listed["nextCursor"]) == ([changed.json], None)
    assert (await api.patch(f"/v1/alerts/rules/{made['id']}", account.token, {"kind": "blocklist"})).status == 400
    assert (await api.delete(f"/v1/alerts/rules/{made['id']}", account.token)).status == 204
    assert (await api.delete(f"/v1/alerts/rules/{made['id']}", account.token)).status == 404
    assert (await api.patch(f"/v1/alerts/rules/{made['id']}", account.token, change)).status == 404
    rows = await pool.fetch(
        "SELECT payload FROM events WHERE account_id = $1 AND type LIKE 'alert_rule.%' ORDER BY seq", account.id
    )
    told = [orjson.loads(row["payload"]) for row in rows]
    assert [one["type"] for one in told] == ["alert_rule.created", "alert_rule.updated", "alert_rule.deleted"]
    assert sorted(told[1]["detail"]["changed"]) == sorted(change)


@pytest.mark.parametrize("body", [b"", b"{}", b" { } "])
async def test_without_a_body_the_missing_rules_of_the_default_set_are_created(
    api: Api, account: TestAccount, body: bytes
) -> None:
    own = await make(api, account, kind="blocklist", threshold=2)
    answer = await api.post("/v1/alerts/rules", account.token, body=body)
    assert answer.status == 201
    assert [(one["kind"], one["threshold"], one["windowDays"]) for one in answer.json["data"]] == [
        ("complaint_rate", 0.001, 1), ("bounce_rate", 0.05, 1), ("quota_usage", 0.8, 1), ("dns_drift", 1.0, 1),
    ]  # fmt: skip
    again = await api.post("/v1/alerts/rules", account.token, body=body)
    assert (again.status, again.error["type"]) == (409, "conflict")

    listed = (await api.get("/v1/alerts/rules", account.token)).json
    assert {one["kind"] for one in listed["data"]} == set(DEFAULT_SET)
    assert own in listed["data"]
    words = {one["kind"]: one for one in listed["vocabulary"]}
    assert [words[kind]["unit"] for kind in AlertKind] == [
        "fraction", "fraction", "fraction", "records", "lists", "endpoints",
    ]  # fmt: skip
    assert [kind for kind in AlertKind if not words[kind]["preset"]] == [AlertKind.WEBHOOK_FAILING]
    for kind, terms in TERMS.items():
        assert words[kind]["maximum"] == terms.maximum
        assert words[kind]["defaults"]["threshold"] == terms.threshold
        assert words[kind]["defaults"]["windowDays"] == terms.window_days
    pages = [(await api.get("/v1/alerts/rules?limit=3", account.token)).json]
    pages.append((await api.get(f"/v1/alerts/rules?limit=3&before={pages[0]['nextCursor']}", account.token)).json)
    assert [one for page in pages for one in page["data"]] == listed["data"]
    assert pages[1]["nextCursor"] is None


async def test_there_is_one_rule_per_kind_under_parallel_requests(api: Api, account: TestAccount) -> None:
    body = {"kind": "dns_drift", "threshold": 1}
    answers = await asyncio.gather(*(api.post("/v1/alerts/rules", account.token, body) for _ in range(8)))

    assert sorted(one.status for one in answers) == [201] + [409] * 7
    made = next(one.json["id"] for one in answers if one.status == 201)
    assert {one.error["id"] for one in answers if one.status == 409} == {made}


@pytest.mark.parametrize(
    ("body", "status", "kind", "field"),
    [
        ({"enabled": False}, 400, "invalid_request", "kind"),
        ({"threshold": 0.1}, 400, "invalid_request", "kind"),
        ({"kind": "bounce_rate"}, 400, "invalid_request", "threshold"),
        ({"kind": "latency", "threshold": 1}, 400, "invalid_request", "kind"),
        ({"kind": "bounce_rate", "threshold": 0.16}, 422, "threshold_refused", None),
        ({"kind": "complaint_rate", "threshold": 0.006}, 422, "threshold_refused", None),
        ({"kind": "quota_usage", "threshold": 1.1}, 400, "invalid_request", "threshold"),
        ({"kind": "dns_drift", "threshold": 1.5}, 400, "invalid_request", "threshold"),
        ({"kind": "blocklist", "threshold": 0}, 400, "invalid_request", "threshold"),
        ({"kind": "blocklist", "threshold": 1, "windowDays": 31}, 400, "invalid_request", "windowDays"),
        ({"kind": "blocklist", "threshold": 1, "cooldownMinutes": 4}, 400, "invalid_request", "cooldownMinutes"),
        ({"kind": "blocklist", "threshold": 1, "state": "ok"}, 400, "invalid_request", "state"),
    ],
)
async def test_an_unusable_rule_names_its_field(
    api: Api, account: TestAccount, body: dict[str, object], status: int, kind: str, field: str | None
) -> None:
    answer = await api.post("/v1/alerts/rules", account.token, body)

    assert (answer.status, answer.error["type"], answer.error.get("field")) == (status, kind, field)


async def test_a_change_is_checked_as_a_new_rule_is(api: Api, account: TestAccount) -> None:
    made = await make(api, account, kind="complaint_rate", threshold=0.001)
    answer = await api.patch(f"/v1/alerts/rules/{made['id']}", account.token, {"threshold": 0.0051})
    assert (answer.status, answer.error["type"], answer.error["limit"]) == (422, "threshold_refused", 0.005)
    assert (await api.patch(f"/v1/alerts/rules/{made['id']}", account.token, {"threshold": 0.005})).status == 200


async def test_a_test_mails_owners_and_admins_once_and_leaves_the_state(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    for role in ("owner", "admin", "member"):
        await make_person(pool, account.id, role=role)
    await api.post("/v1/webhooks", account.token, {"url": "https://hook.example.com/", "eventTypes": ["alert.fired"]})
    made = await make(api, account)
    answer = await api.post(f"/v1/alerts/rules/{made['id']}/test", account.token)

    assert (answer.status, answer.json) == (202, {
        "ruleId": made["id"], "kind": "quota_usage", "value": 0.0, "threshold": 0.8, "reached": False,
        "channels": ["email", "webhook"],
    })  # fmt: skip
    mails = await pool.fetch(
        "SELECT m.detail FROM system_mail m JOIN users u ON u.email = m.address JOIN members b ON b.user_id = u.id"
        " WHERE b.account_id = $1 AND m.kind = 'alert_fired'",
        account.id,
    )
    assert len(mails) == 2
    assert orjson.loads(mails[0]["detail"])["summary"].startswith("[Test] ")
    payload = orjson.loads(
        await pool.fetchval(
            "SELECT e.payload FROM webhook_queue q JOIN events e ON e.account_id = q.account_id AND e.seq = q.seq"
            " WHERE q.account_id = $1 AND e.type = 'alert.fired'",
            account.id,
        )
    )
    assert (payload["detail"]["test"], payload["detail"]["id"], payload["detail"]["rule_id"]) == (
        True,
        None,
        made["id"],
    )
    assert (await api.get("/v1/alerts/rules", account.token)).json["data"] == [made]
    assert (await api.get("/v1/alerts/events", account.token)).json["data"] == []
    again = await api.post(f"/v1/alerts/rules/{made['id']}/test", account.token)
    assert (again.status, again.error["type"]) == (429, "rate_limited")
