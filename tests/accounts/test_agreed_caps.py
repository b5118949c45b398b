"""Limits that an agreement raises above the plan's: each is enforced at its new figure, and ends with the agreement.

A limit that comes new to the largest plan fails the first test until it has a check here.
"""

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import pytest
from click.testing import CliRunner

from engine.accounts.sub_accounts.service import open_sub_account
from engine.base import clock
from engine.base.plans import AGREEABLE, CAPS, MAX_AGREED, MAX_AGREED_DAYS, Caps, Plan
from engine.people.account.agreed_caps import AgreedCaps
from engine.receiving.analytics import delivery
from engine.receiving.analytics.delivery_rules import GroupCounts
from engine.receiving.reports import read_reports
from ops.commands import account as commands
from tests.contracts.test_plan_caps import CASES, Customer, limit_shown
from tests.harness import history
from tests.harness.accounts import TestAccount, add_key, make_account
from tests.harness.api import Answer
from tests.harness.old_mail import ago, left, purged
from tests.harness.operators import OperatorWorld
from tests.harness.people import make_person

PLAN: Final = CAPS[Plan.ENTERPRISE]
MONTH: Final = "date_trunc('month', now() AT TIME ZONE 'UTC')::date"
TODAY: Final = "(now() AT TIME ZONE 'UTC')::date"

Check = Callable[[OperatorWorld, TestAccount, int], Awaitable[None]]


async def agree(here: OperatorWorld, account: TestAccount, plan: str | None, **caps: int | None) -> Answer:
    path = f"/v1/operator/accounts/{account.public_id}/agreement"
    body = {"plan": plan} | ({"caps": caps} if caps else {})
    return await here.api.post(path, None, body, person=here.operator)


async def me(here: OperatorWorld, account: TestAccount) -> dict[str, Any]:
    answer = await here.api.get("/v1/me", account.token)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


def camel(name: str) -> str:
    return dict(zip(AgreedCaps.__struct_fields__, AgreedCaps.__struct_encode_fields__, strict=True))[name]


def figures(caps: Caps) -> dict[str, int]:
    return {name: getattr(caps, name) for name in AGREEABLE}


def shown(me: dict[str, Any]) -> dict[str, int]:
    """The limits of `GET /v1/me` that can be agreed, by their names in `Caps`."""
    counted = {"inbound_addresses": "inbound_addresses", "monthly_verifications": "verifications"}
    counted["monthly_address_checks"] = "address_checks"
    found = {name: limit_shown(me, resource)["limit"] for name, resource in counted.items()}
    direct = ("retention_days", "schedule_days", "analytics_days", "requests_per_second")
    return found | {name: me[camel(name)] for name in direct} | {"monthly_emails": me["sending"]["monthlyLimit"]}


# enforcement -------------------------------------------------------------------------------------


async def monthly_emails(here: OperatorWorld, account: TestAccount, agreed: int) -> None:
    fill = f"UPDATE account_heads SET day = {TODAY}, month = {MONTH}, sent_this_month = $2 WHERE account_id = $1"
    await here.pool.execute(fill, account.id, agreed - 1)

    assert (await here.api.post("/v1/emails", account.token, account.email())).status == 202
    refused = await here.api.post("/v1/emails", account.token, account.email())
    assert (refused.status, refused.error["limit"]) == (429, agreed)


async def retention_days(here: OperatorWorld, account: TestAccount, agreed: int) -> None:
    keeper = await make_account(here.pool)  # with the longest retention, whose records go by the week
    await agree(here, keeper, "enterprise", retentionDays=agreed + 30)
    await history.write(here.pool, account, ago(agreed, hours=2), ago(agreed, hours=-2))
    await purged(here.pool)

    assert await left(here.pool, account) == 1


async def schedule_days(here: OperatorWorld, account: TestAccount, agreed: int) -> None:
    for hours, status in ((-1, 202), (1, 400)):
        at = clock.iso(clock.now() + timedelta(days=agreed, hours=hours))
        answer = await here.api.post("/v1/emails", account.token, account.email(scheduledAt=at))
        assert answer.status == status, answer
    assert answer.error["limit"] == agreed


async def counted(here: OperatorWorld, account: TestAccount, agreed: int, field: str) -> None:
    [case] = [one for one in CASES if one.field == field]
    await here.pool.execute(case.fill, account.id, agreed - 1)
    one = Customer(here.api, account, await make_person(here.pool, account.id), [account.token])

    assert (await case.spend(one, 0)).status in {200, 201, 202}
    refused = await case.spend(one, 1)
    assert (refused.status, refused.error["limit"], refused.error["used"]) == (403, agreed, agreed)


async def inbound_addresses(here: OperatorWorld, account: TestAccount, agreed: int) -> None:
    await counted(here, account, agreed, "inbound_addresses")


async def monthly_verifications(here: OperatorWorld, account: TestAccount, agreed: int) -> None:
    await counted(here, account, agreed, "monthly_verifications")


async def monthly_address_checks(here: OperatorWorld, account: TestAccount, agreed: int) -> None:
    await counted(here, account, agreed, "monthly_address_checks")


async def analytics_days(here: OperatorWorld, account: TestAccount, agreed: int) -> None:
    other = await make_account(here.pool, plan="enterprise")
    day = clock.now().date() - timedelta(days=agreed - 1)
    group = GroupCounts("", day, "people.test", "transactional", account.domain, deliveries=1, delivered=1)
    async with here.pool.acquire() as connection:
        for one in (account, other):
            await delivery.add(connection, one.id, [group])
    await read_reports.forget_old(here.pool, clock.now() + timedelta(days=20))

    kept = "SELECT count(*) FROM delivery_groups WHERE account_id = $1"
    assert [await here.pool.fetchval(kept, one.id) for one in (account, other)] == [0, 0], "20 days later it is past"
    async with here.pool.acquire() as connection:
        for one in (account, other):
            await delivery.add(connection, one.id, [group])
    await read_reports.forget_old(here.pool, clock.now())
    assert [await here.pool.fetchval(kept, one.id) for one in (account, other)] == [1, 0]
    path = "/v1/analytics/delivery"
    answer = await here.api.get(path, account.token, params={"days": str(agreed)})
    assert [row["delivered"] for row in answer.json["data"]] == [1]
    for token, days in ((account.token, agreed + 1), (other.token, 91)):
        refused = await here.api.get(path, token, params={"days": str(days)})
        assert (refused.status, refused.error["field"]) == (400, "days")


async def requests_per_second(here: OperatorWorld, account: TestAccount, agreed: int) -> None:
    answer = await here.api.get("/v1/messages", account.token)
    assert answer.headers["ratelimit-policy"] == f'"key";q={2 * agreed};w=2'
    owner = await make_person(here.pool, account.id)
    answer = await here.api.get("/v1/me", person=owner)
    assert answer.headers["ratelimit-policy"] == f'"user";q={2 * agreed};w=2'


CHECKS: Final[dict[str, Check]] = {
    check.__name__: check
    for check in (
        monthly_emails, retention_days, schedule_days, inbound_addresses, monthly_verifications,
        monthly_address_checks, analytics_days, requests_per_second,
    )
}  # fmt: skip


def test_every_limit_of_the_largest_plan_can_be_agreed() -> None:
    finite = [name for name in Caps.__struct_fields__ if getattr(PLAN, name) is not None]

    assert list(AGREEABLE) == finite
    assert set(CHECKS) == set(AgreedCaps.__struct_fields__) == set(finite)


@pytest.mark.parametrize("name", AGREEABLE)
async def test_an_agreed_limit_is_enforced_at_its_figure(here: OperatorWorld, name: str) -> None:
    account = await make_account(here.pool, plan="free")
    agreed = getattr(PLAN, name) + 30
    answer = await agree(here, account, "enterprise", **{camel(name): agreed})

    assert answer.json["agreedCaps"] == dict.fromkeys(map(camel, AGREEABLE)) | {camel(name): agreed}
    assert shown(await me(here, account)) == figures(PLAN) | {name: agreed}
    assert (await commands.agreement(here.pool, account=account.public_id))["caps"][camel(name)] == agreed
    await CHECKS[name](here, account, agreed)


# the agreement -----------------------------------------------------------------------------------


async def test_agreed_limits_change_one_by_one_and_end_with_the_agreement(here: OperatorWorld) -> None:
    account = await make_account(here.pool)
    child = await open_sub_account(here.pool, account.id, name="Shop", monthly_limit=None, actor="operator")
    token = await add_key(here.pool, child.id)
    below = TestAccount(child.id, token, account.domain)
    await agree(here, account, "enterprise", scheduleDays=40, retentionDays=900)
    await agree(here, account, "enterprise", scheduleDays=50)
    raised = figures(PLAN) | {"schedule_days": 50, "retention_days": 900}
    assert [shown(await me(here, one)) for one in (account, below)] == [raised, raised]
    younger = await open_sub_account(here.pool, account.id, name="Café", monthly_limit=None, actor="operator")
    assert await here.pool.fetchval("SELECT agreed_caps FROM accounts WHERE id = $1", younger.id) is not None

    await agree(here, account, "enterprise", scheduleDays=None)
    assert shown(await me(here, below)) == figures(PLAN) | {"retention_days": 900}
    assert (await agree(here, account, None)).json["agreedCaps"] == dict.fromkeys(map(camel, AGREEABLE))
    # Records stay for a while after a longer retention, as after a larger plan.
    ended = figures(CAPS[Plan.FREE]) | {"retention_days": 900}
    assert [shown(await me(here, one)) for one in (account, below)] == [ended, ended]
    events = await here.events(account.id, "account.limits_agreed")
    assert [event["after"] for event in events] == [
        {"schedule_days": 40, "retention_days": 900}, {"schedule_days": 50, "retention_days": 900},
        {"retention_days": 900}, {},
    ]  # fmt: skip
    assert {event["actor"] for event in events} == {here.actor}


@pytest.mark.parametrize("name", AGREEABLE)
async def test_an_agreement_never_lowers_a_limit_of_the_plan(here: OperatorWorld, name: str) -> None:
    account = await make_account(here.pool, plan="enterprise")
    lowest = getattr(PLAN, name)
    refused = await agree(here, account, "enterprise", **{camel(name): lowest - 1})

    assert (refused.status, refused.error["field"]) == (400, f"caps.{camel(name)}")
    assert f"{lowest:,} already" in refused.error["message"]
    assert (await commands.agreement(here.pool, account=account.public_id))["agreement"] is False
    assert (await agree(here, account, "enterprise", **{camel(name): lowest})).json["agreedCaps"][camel(name)] is None
    most = MAX_AGREED_DAYS if name.endswith("_days") else MAX_AGREED
    assert (await agree(here, account, "enterprise", **{camel(name): most + 1})).status == 400


async def test_a_larger_plan_stands_above_what_was_agreed_on_a_smaller_one(here: OperatorWorld) -> None:
    account = await make_account(here.pool, plan="free")
    await agree(here, account, "starter", monthlyEmails=150_000, scheduleDays=5)
    assert shown(await me(here, account))["monthly_emails"] == 150_000
    await agree(here, account, "growth")

    assert shown(await me(here, account)) == figures(CAPS[Plan.GROWTH])


async def test_an_agreement_lifts_a_limit_below_the_plans_that_the_account_was_made_with(here: OperatorWorld) -> None:
    account = await make_account(here.pool, plan="growth", monthly_cap=10)
    assert (await commands.agreement(here.pool, account=account.public_id))["caps"]["monthlyEmails"] is None
    assert shown(await me(here, account))["monthly_emails"] == 10
    await agree(here, account, "growth")

    assert shown(await me(here, account)) == figures(CAPS[Plan.GROWTH])


async def test_a_sub_account_shares_its_parents_agreement(here: OperatorWorld) -> None:
    parent = await make_account(here.pool, plan="growth")
    child = await open_sub_account(here.pool, parent.id, name="Shop", monthly_limit=None, actor="operator")
    refused = await agree(here, TestAccount(child.id, "", ""), "enterprise")

    assert (refused.status, refused.error["type"], refused.error["parentId"]) == (
        409,
        "invalid_state",
        parent.public_id,
    )


async def test_an_ended_agreement_takes_no_limits(here: OperatorWorld) -> None:
    account = await make_account(here.pool)
    await agree(here, account, "enterprise")
    refused = await agree(here, account, None, scheduleDays=40)

    assert (refused.status, refused.error["field"]) == (400, "caps")


# the command -------------------------------------------------------------------------------------


def test_the_command_agrees_shows_and_ends(here: OperatorWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.commands.base.attached", lambda: here.settings)

    def run(*arguments: str) -> dict[str, Any]:
        done = CliRunner().invoke(commands.account, ["agreement", here.customer.public_id, *arguments, "--json"])
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    none = dict.fromkeys(map(camel, AGREEABLE))
    assert run("--plan", "enterprise", "--schedule-days", "40", "--retention-days", "900")["agreement"] is True
    assert run()["caps"] == none | {"scheduleDays": 40, "retentionDays": 900}
    assert run("--plan", "enterprise", "--schedule-days", "0")["caps"] == none | {"retentionDays": 900}
    ended = run("--end")
    assert (ended["plan"], ended["agreement"], ended["caps"]) == ("free", False, none)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--schedule-days", "40"], 1),
        (["--end", "--schedule-days", "40"], 1),
        (["--end", "--plan", "scale"], 1),
        (["--plan", "scale", "--retention-days", "36501"], 2),
        (["--plan", "scale", "--retention-days", "-1"], 2),
    ],
)
def test_options_that_make_no_agreement_are_refused(arguments: list[str], status: int) -> None:
    assert CliRunner().invoke(commands.account, ["agreement", "acc_x", *arguments]).exit_code == status
