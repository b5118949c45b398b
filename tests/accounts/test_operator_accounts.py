"""The operator's part of the API: limits of sites, accounts and their plans, reviews of broadcasts."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from engine.accounts import account_admin
from engine.accounts.sub_accounts.service import open_sub_account
from engine.base import ids
from ops.commands import account as ops_accounts
from ops.commands import broadcasts as ops_broadcasts
from ops.commands import site as ops_sites
from tests.harness.accounts import make_account
from tests.harness.api import Answer, refused
from tests.harness.broadcasts import BroadcastWorld, broadcasting, make_list, with_stream
from tests.harness.operators import OperatorWorld

# sites -------------------------------------------------------------------------------------------


async def test_a_sites_limits_are_set_shown_and_removed(here: OperatorWorld) -> None:
    api, who = here.api, here.operator
    body = {"connections": 7, "ladderS": [60, 300], "family": "ipv4-only", "backOff": ["too fast"], "why": "they asked"}
    done = await api.patch("/v1/operator/sites/mx.limits.test", None, body, person=who)
    rule = {"connections": 7, "ladderS": [60.0, 300.0], "family": "ipv4-only", "backOff": ["too fast"]}
    assert done.json == {"name": "mx.limits.test", "rule": rule}
    change = await here.last_change()
    assert (change["action"], change["name"], change["actor"]) == ("set_site_rule", "mx.limits.test", here.actor)

    less = await api.patch("/v1/operator/sites/mx.limits.test", None, {"ladderS": None, "family": None}, person=who)
    assert less.json["rule"] == {"connections": 7, "backOff": ["too fast"]}
    shown = (await api.get("/v1/operator/sites/mx.limits.test", person=who)).json
    rules = {one["rule"]: (one["value"], one["because"]) for one in shown["rules"]}
    assert rules["connections"] == (7, "operator: mx.limits.test (they asked)")
    assert shown == await ops_sites.limits_of(here.pool, here.settings, "mx.limits.test")
    assert (await api.get("/v1/operator/sites", person=who)).json == await ops_sites.listing(here.pool)

    assert (await api.delete("/v1/operator/sites/mx.limits.test", person=who)).status == 204
    assert (await here.last_change())["action"] == "reset_site_rule"
    assert refused(await api.delete("/v1/operator/sites/mx.limits.test", person=who)) == (404, "not_found")


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("mx.a.test", {"connections": 0}, "connections"),
        ("mx.a.test", {"perSecond": -1}, "perSecond"),
        ("mx.a.test", {}, "body"),
        ("not%20a%20name", {"connections": 1}, "name"),
        ("a%00b", {"connections": 1}, "name"),
    ],
)
async def test_a_limit_that_no_site_can_have_is_refused(
    here: OperatorWorld, name: str, body: object, field: str
) -> None:
    answer = await here.api.patch(f"/v1/operator/sites/{name}", None, body, person=here.operator)

    assert (answer.status, answer.error["field"]) == (400, field)


async def test_the_rule_for_all_sites_has_a_name_too(here: OperatorWorld) -> None:
    done = await here.api.patch("/v1/operator/sites/*", None, {"perMinute": 600}, person=here.operator)

    assert done.json == {"name": "*", "rule": {"perMinute": 600.0}}
    assert (await here.api.delete("/v1/operator/sites/*", person=here.operator)).status == 204


# accounts ----------------------------------------------------------------------------------------


async def test_accounts_are_found_by_id_address_domain_and_beginning_of_the_name(here: OperatorWorld) -> None:
    other = await make_account(here.pool)
    await here.pool.execute("UPDATE accounts SET name = 'Ümlaut & Söhne 100%' WHERE id = $1", other.id)

    async def found(search: str) -> list[str]:
        answer = await here.api.get("/v1/operator/accounts", person=here.operator, params={"search": search})
        return [one["id"] for one in answer.json["data"]]

    assert await found(here.customer.public_id) == [here.customer.public_id]
    assert await found(here.owner.email.upper()) == [here.customer.public_id]
    assert await found(here.customer.domain) == [here.customer.public_id]
    assert await found("Ümlaut & s") == [other.public_id]
    assert await found("%") == await found("nobody@people.test") == []
    assert await found(ids.format_id(ids.Kind.ACCOUNT, ids.uuid7())) == []
    by_ops = await ops_accounts.listed(here.pool, limit=5, search="Ümlaut")
    assert [one["accountId"] for one in by_ops] == [other.public_id]


@pytest.mark.parametrize("query", ["limit=2", "limit=2&status=active", "limit=2&search=Account"])
async def test_accounts_are_paged_newest_first(here: OperatorWorld, query: str) -> None:
    made = [(await make_account(here.pool)).public_id for _ in range(3)]
    pages: list[dict[str, Any]] = []
    cursor = ""
    while not pages or pages[-1]["nextCursor"]:
        pages.append((await here.api.get(f"/v1/operator/accounts?{query}{cursor}", person=here.operator)).json)
        cursor = f"&before={pages[-1]['nextCursor']}"
    names = [one["id"] for page in pages for one in page["data"]]

    assert names[:3] == made[::-1]
    assert len(names) == len(set(names)) > 3


async def test_an_account_is_suspended_and_resumed_as_ops_does_it(here: OperatorWorld) -> None:
    account = await make_account(here.pool)
    child = await open_sub_account(here.pool, account.id, name="Shop", monthly_limit=None, actor="operator")
    done = await here.api.post(
        f"/v1/operator/accounts/{account.public_id}/suspend", None, {"reason": "spam traps"}, person=here.operator
    )
    shown = (await here.api.get(f"/v1/operator/accounts/{account.public_id}", person=here.operator)).json
    assert done.json == shown
    assert (shown["status"], shown["suspensions"][0]["cause"], shown["suspensions"][0]["reason"]) == (
        "suspended", "operator", "spam traps",
    )  # fmt: skip
    assert [one["status"] for one in shown["subAccounts"]] == ["suspended"]
    by_ops = await ops_accounts.shown(here.pool, account=account.public_id)
    assert by_ops == {"accountId": shown.pop("id")} | {name: shown[name] for name in shown if name != "erasure"}
    (event,) = await here.events(account.id, "account.suspended")
    assert event["actor"] == here.actor

    resumed = await here.api.post(f"/v1/operator/accounts/{account.public_id}/resume", None, {}, person=here.operator)
    assert (resumed.json["status"], resumed.json["suspensions"]) == ("active", [])
    (event,) = await here.events(account.id, "account.resumed")
    assert event["actor"] == here.actor
    assert (await account_admin.show(here.pool, child.id)).status == "active"


async def test_the_platform_account_is_not_suspended(here: OperatorWorld) -> None:
    platform = here.platform.public_id
    path = f"/v1/operator/accounts/{platform}/suspend"

    assert refused(await here.api.post(path, None, {"reason": "x"}, person=here.operator)) == (409, "invalid_state")


@pytest.mark.parametrize("reason", ["", "  ", "a\0b", "x" * 201])
async def test_a_suspension_needs_a_reason_of_one_line(here: OperatorWorld, reason: str) -> None:
    path = f"/v1/operator/accounts/{here.customer.public_id}/suspend"
    answer = await here.api.post(path, None, {"reason": reason}, person=here.operator)

    assert (answer.status, answer.error["field"]) == (400, "reason")


async def test_a_plan_is_set_and_agreed(here: OperatorWorld) -> None:
    account = await make_account(here.pool)

    async def set_plan(plan: str, name: str = account.public_id) -> Answer:
        return await here.api.post(f"/v1/operator/accounts/{name}/plan", None, {"plan": plan}, person=here.operator)

    async def agree(plan: str | None) -> Answer:
        name, body = account.public_id, {"plan": plan}
        return await here.api.post(f"/v1/operator/accounts/{name}/agreement", None, body, person=here.operator)

    assert (await set_plan("scale")).json["plan"] == "scale"
    (event,) = await here.events(account.id, "account.plan_changed")
    assert (event["after"], event["actor"]) == ("scale", here.actor)
    assert refused(await agree(None)) == (409, "invalid_state")
    assert (await agree("enterprise")).json["plan"] == "enterprise"
    assert refused(await set_plan("free")) == (409, "invalid_state")
    assert (await agree(None)).json["plan"] == "free"
    assert refused(await set_plan("free", ids.format_id(ids.Kind.ACCOUNT, ids.uuid7()))) == (404, "not_found")


async def test_what_remains_of_an_erased_account_is_shown(here: OperatorWorld) -> None:
    account = ids.uuid7()
    await here.pool.execute(
        "INSERT INTO erased_accounts (account_id, opened_at, requested_at, erased_at, seq, hash)"
        " VALUES ($1, now(), now(), now(), 7, '\\x01')",
        account,
    )
    name = ids.format_id(ids.Kind.ACCOUNT, account)
    shown = (await here.api.get(f"/v1/operator/accounts/{name}", person=here.operator)).json

    assert (shown["status"], shown["name"], shown["erasure"]["events"]) == ("erased", None, 7)
    assert (await ops_accounts.shown(here.pool, account=name))["lastHash"] == "01"


# reviews -----------------------------------------------------------------------------------------


@pytest.fixture
async def broadcasts(here: OperatorWorld) -> AsyncIterator[BroadcastWorld]:
    async with broadcasting(here.settings) as world:
        yield world


async def test_broadcasts_are_reviewed(here: OperatorWorld, broadcasts: BroadcastWorld) -> None:
    api, who, account = here.api, here.operator, await with_stream(here.pool, await make_account(here.pool))
    large = await make_list(here.pool, account, 1_001)
    kept, dropped = [
        ids.format_id(ids.Kind.BROADCAST, await broadcasts.sent(account, large, name=name)) for name in ("One", "Two")
    ]
    first = (await api.get("/v1/operator/reviews?limit=1", person=who)).json
    second = (await api.get(f"/v1/operator/reviews?limit=1&after={first['nextCursor']}", person=who)).json
    assert [one["id"] for one in (*first["data"], *second["data"])] == [kept, dropped]
    assert first["data"] + second["data"] == await ops_broadcasts.reviews(here.pool)
    assert second["nextCursor"] is None
    shown = (await api.get(f"/v1/operator/reviews/{kept}", person=who)).json
    assert (shown["recipients"], shown["consents"], shown["text"]) == (1_001, {"customer": 1_001}, "Hello {{email}}")
    assert shown == await ops_broadcasts.review_of(here.pool, kept)

    approved = await api.post(f"/v1/operator/reviews/{kept}/approve", None, {}, person=who)
    rejected = await api.post(f"/v1/operator/reviews/{dropped}/reject", None, {"note": "Who are they?"}, person=who)
    assert (approved.json["status"], rejected.json["status"]) == ("sending", "canceled")
    assert rejected.json["reviewNote"] == "Who are they?"
    (let,) = await here.events(account.id, "broadcast.approved")
    (stopped,) = await here.events(account.id, "broadcast.rejected")
    assert (let["actor"], stopped["actor"]) == (here.actor, here.actor)
    again = await api.post(f"/v1/operator/reviews/{kept}/approve", None, {}, person=who)
    assert refused(again) == (409, "invalid_state")
    nobody = ids.format_id(ids.Kind.BROADCAST, ids.uuid7())
    assert refused(await api.get(f"/v1/operator/reviews/{nobody}", person=who)) == (404, "not_found")
