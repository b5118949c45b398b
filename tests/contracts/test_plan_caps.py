"""Every limit of a plan is exact under parallel requests, shown by `GET /v1/me`, and refused with its figures.

A limit that comes new to `Caps` fails the first test until it has a row here. Rows are filled up to the limit in the
tables, so that each case costs about 50 requests.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from msgspec import Struct
from msgspec.structs import fields

from engine.accounts.sub_accounts.service import open_sub_account
from engine.base import clock, ids
from engine.base.plans import CAPS, MAX_SEGMENTS, Caps, Plan
from engine.base.settings import Settings
from engine.receiving.receive import Receiver
from engine.receiving.types import ReceiveOutcome
from tests.harness.accounts import TestAccount, add_domain, add_key, make_account
from tests.harness.api import Answer, Api
from tests.harness.people import TestPerson, make_person
from tests.harness.received_mail import claim, receive

PARALLEL = 50
MONTHLY = 60  # the monthly limit of these accounts, by agreement
UNCOUNTED = {"retention_days", "schedule_days", "analytics_days", "requests_per_second"}  # windows and rates
MONTH = "date_trunc('month', now() AT TIME ZONE 'UTC')::date"
TODAY = "(now() AT TIME ZONE 'UTC')::date"
_NUMBERS = itertools.count()


class Customer(Struct, frozen=True):
    """An account with its owner; `tokens`: keys enough for 50 requests a second on its plan."""

    api: Api
    account: TestAccount
    owner: TestPerson
    tokens: Sequence[str]

    async def post(self, path: str, body: object) -> Answer:
        """Send a request with one key after the other."""
        return await self.api.post(path, self.tokens[next(_NUMBERS) % len(self.tokens)], body)


Spend = Callable[[Customer, int], Awaitable[Answer]]


class CountedCap(Struct, frozen=True, kw_only=True):
    """A limit: its field of `Caps`, the statement that fills $2 of account $1, and the request that takes one more."""

    field: str
    resource: str
    fill: str
    spend: Spend
    plan: Plan = Plan.GROWTH
    limit: int | None = None  # where the plan does not say it
    parent_pays: bool = False  # a sub-account's use counts on its parent

    @property
    def most(self) -> int:
        """Return the limit."""
        found = self.limit if self.limit is not None else getattr(CAPS[self.plan], self.field)
        assert found is not None
        return int(found)


def posting(path: str, body: Callable[[Customer, int], dict[str, Any]]) -> Spend:
    """Return a request with a key."""

    async def spend(customer: Customer, number: int) -> Answer:
        return await customer.post(path, body(customer, number))

    return spend


def signed_in(path: str, body: Callable[[Customer, int], dict[str, Any]]) -> Spend:
    """Return a request of the owner."""

    async def spend(customer: Customer, number: int) -> Answer:
        return await customer.api.post(path, json=body(customer, number), person=customer.owner)

    return spend


def later() -> str:
    return clock.iso(clock.now() + timedelta(hours=3))


def monthly_use(resource: str) -> str:
    return f"INSERT INTO plan_usage (account_id, resource, month, used) VALUES ($1, '{resource}', {MONTH}, $2)"


def totals(column: str) -> str:
    return (
        f"INSERT INTO contact_totals AS t (account_id, {column}) VALUES ($1, $2)"
        f" ON CONFLICT (account_id) DO UPDATE SET {column} = excluded.{column}"
    )


CASES = (
    CountedCap(
        field="sending_domains", resource="domains", plan=Plan.FREE,
        fill="UPDATE domains SET deleted_at = now() WHERE account_id = $1 AND $2 = 0",
        spend=posting("/v1/domains", lambda _, n: {"name": f"d{n}-{ids.encode(ids.uuid7())}.test"}),
    ),
    CountedCap(
        field="templates", resource="templates",
        fill="INSERT INTO templates (account_id, slug, version) SELECT $1, 'x-' || n, 1 FROM generate_series(1, $2) n",
        spend=posting("/v1/templates", lambda _, n: {"id": f"t-{n}", "subject": "Hello", "text": "Hello"}),
    ),
    CountedCap(
        field="templates", resource="layouts",  # as many as templates
        fill="INSERT INTO layouts (account_id, slug, version, created_at, updated_at)"
             " SELECT $1, 'x-' || n, 1, now(), now() FROM generate_series(1, $2) n",
        spend=posting("/v1/layouts", lambda _, n: {"id": f"l-{n}", "html": "{{{content}}}"}),
    ),
    CountedCap(
        field="streams", resource="streams",  # the transactional one is there
        fill="INSERT INTO streams (account_id, slug, name) SELECT $1, 'fill-' || n, 'x' FROM generate_series(2, $2) n",
        spend=posting("/v1/streams", lambda _, n: {"id": f"s-{n}"}),
    ),
    CountedCap(
        field="inbound_addresses", resource="inbound_addresses",
        fill="INSERT INTO inbound_addresses (id, account_id, address, canonical, created_at) SELECT gen_random_uuid(),"
             " $1::uuid, n || '@' || $1::uuid, n || '@' || $1::uuid, now() FROM generate_series(1, $2) n",
        spend=posting("/v1/inbound/addresses", lambda one, n: {"address": f"a{n}@{one.account.domain}"}),
    ),
    CountedCap(
        field="monthly_verifications", resource="verifications", parent_pays=True, fill=monthly_use("verifications"),
        spend=posting("/v1/verifications", lambda one, n: {"to": f"v{n}@people.test", "from": one.account.sender}),
    ),
    CountedCap(
        field="monthly_address_checks", resource="address_checks", parent_pays=True, fill=monthly_use("address_checks"),
        spend=posting("/v1/address-checks", lambda _, n: {"addresses": [f"not an address {n}"]}),
    ),
    CountedCap(
        field="webhooks", resource="webhooks",
        fill="INSERT INTO webhooks (id, account_id, url, status, sealed_secret) SELECT gen_random_uuid(), $1,"
             " 'http://127.0.0.1:9/', 'disabled', '\\x00' FROM generate_series(1, $2) n",
        spend=posting("/v1/webhooks", lambda _, n: {"url": f"http://127.0.0.1:9/{n}"}),
    ),
    CountedCap(
        field="api_keys", resource="api_keys",  # one is there
        fill="INSERT INTO api_keys (id, key_id, account_id, name, digest, scopes) SELECT gen_random_uuid(),"
             " left(md5(random()::text), 12), $1, 'x', '\\x00', '{}' FROM generate_series(2, $2) n",
        spend=signed_in("/v1/api-keys", lambda _, n: {"name": f"k{n}", "scopes": ["account:read"]}),
    ),
    CountedCap(
        field="contacts", resource="contacts", fill=totals("contacts"),
        spend=posting("/v1/contacts", lambda _, n: {"email": f"c{n}@people.test", "consent": "customer"}),
    ),
    CountedCap(
        field="lists", resource="lists", fill=totals("lists"),
        spend=posting("/v1/lists", lambda _, n: {"name": f"List {n}"}),
    ),
    CountedCap(
        field="", resource="segments", limit=MAX_SEGMENTS, fill=totals("segments"),
        spend=posting(
            "/v1/segments",
            lambda _, n: {"name": f"Segment {n}", "filter": {"field": "plan", "op": "eq", "value": "pro"}},
        ),
    ),
    CountedCap(
        field="seats", resource="seats",  # the owner has one
        fill="INSERT INTO invites (id, account_id, email, role, digest, created_at, expires_at)"
             " SELECT gen_random_uuid(), $1, n || '@fill.test', 'member', uuid_send(gen_random_uuid()), now(),"
             " now() + interval '1 day' FROM generate_series(2, $2) n",
        spend=signed_in("/v1/team/invites", lambda one, n: {"email": f"p{n}@{one.account.domain}", "role": "member"}),
    ),
    CountedCap(
        field="sub_accounts", resource="sub_accounts",
        fill="INSERT INTO accounts (id, name, plan, parent_id)"
             " SELECT gen_random_uuid(), 'x', 'growth', $1 FROM generate_series(1, $2) n",
        spend=signed_in("/v1/sub-accounts", lambda _, n: {"name": f"Shop {n}"}),
    ),
    CountedCap(
        field="", resource="scheduled_messages", limit=MONTHLY,
        fill="UPDATE account_heads SET scheduled = $2 WHERE account_id = $1",
        spend=posting("/v1/emails", lambda one, _: one.account.email(scheduledAt=later())),
    ),
)  # fmt: skip
IDS = [case.resource for case in CASES]


async def customer(api: Api, pool: asyncpg.Pool, plan: Plan) -> Customer:
    account = await make_account(pool, plan=plan.value, monthly_cap=MONTHLY)
    owner = await make_person(pool, account.id)
    tokens = [account.token]
    if plan is Plan.FREE:  # its keys have 10 requests a second each
        tokens = [await add_key(pool, account.id) for _ in range(5)]
    return Customer(api, account, owner, tokens)


async def below(pool: asyncpg.Pool, parent: Customer) -> Customer:
    """Open a sub-account with a key and a verified domain."""
    row = await open_sub_account(pool, parent.account.id, name="Shop", monthly_limit=None, actor="operator")
    domain = f"{ids.encode(row.id)}.test"
    await add_domain(pool, row.id, domain)
    token = await add_key(pool, row.id)
    return Customer(parent.api, TestAccount(row.id, token, domain), parent.owner, [token])


async def shown(customer: Customer) -> dict[str, Any]:
    answer = await customer.api.get("/v1/me", customer.tokens[0])
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


def limit_shown(me: dict[str, Any], resource: str) -> dict[str, Any]:
    [found] = [one for one in me["limits"] if one["resource"] == resource]
    return {"limit": found["limit"], "used": found["used"]}


def check_refused(answer: Answer, case: CountedCap) -> None:
    assert (answer.status, answer.error["type"]) == (403, "plan_limit_reached"), answer
    figures = {name: answer.error[name] for name in ("resource", "limit", "used")}
    assert figures == {"resource": case.resource, "limit": case.most, "used": case.most}
    assert "pgrade your plan" in answer.error["message"]
    assert ("retry-after" in answer.headers) is case.field.startswith("monthly_")


def test_every_limit_of_the_plans_is_walked() -> None:
    walked = {case.field for case in CASES} | {"monthly_emails", "monthly_received"}

    assert {field.name for field in fields(Caps)} - UNCOUNTED <= walked


@pytest.mark.parametrize("case", CASES, ids=IDS)
async def test_one_below_the_limit_exactly_one_of_50_parallel_requests_succeeds(
    api: Api, pool: asyncpg.Pool, case: CountedCap
) -> None:
    one = await customer(api, pool, case.plan)
    await pool.execute(case.fill, one.account.id, case.most - 1)
    assert limit_shown(await shown(one), case.resource) == {"limit": case.most, "used": case.most - 1}

    answers = await asyncio.gather(*[case.spend(one, number) for number in range(PARALLEL)])

    refused = [answer for answer in answers if answer.status >= 300]
    assert len(refused) == PARALLEL - 1, Counter(answer.status for answer in answers)
    for answer in refused:
        check_refused(answer, case)
    assert limit_shown(await shown(one), case.resource) == {"limit": case.most, "used": case.most}


@pytest.mark.parametrize(
    "case", [one for one in CASES if one.plan is Plan.GROWTH and one.resource not in {"seats", "sub_accounts"}],
    ids=lambda case: case.resource,
)  # fmt: skip
async def test_a_sub_account_has_things_of_its_own_and_shares_the_month(
    api: Api, pool: asyncpg.Pool, case: CountedCap
) -> None:
    parent = await customer(api, pool, case.plan)
    child = await below(pool, parent)
    await pool.execute(case.fill, parent.account.id, case.most)

    if case.resource == "api_keys":  # which people of the parent create for it
        body = {"name": "k", "scopes": ["account:read"], "subAccountId": child.account.public_id}
        answer = await api.post("/v1/api-keys", json=body, person=parent.owner)
    else:
        answer = await case.spend(child, 0)

    used = limit_shown(await shown(child), case.resource)
    assert used["limit"] == case.most
    if case.parent_pays:
        check_refused(answer, case)
        assert used["used"] == case.most
    else:
        assert answer.status in {200, 201, 202}, answer
        assert 1 <= used["used"] <= 3


@pytest.mark.parametrize(
    ("kind", "fill", "used", "left"),
    [
        (
            "monthly_limit_reached",
            f"UPDATE account_heads SET day = {TODAY}, month = {MONTH}, sent_this_month = $2 WHERE account_id = $1",
            "sentThisMonth",
            "remainingThisMonth",
        ),
        (
            "daily_limit_reached",
            f"UPDATE account_heads SET day = {TODAY}, month = {MONTH}, sent_today = $2 WHERE account_id = $1",
            "sentToday",
            "remainingToday",
        ),
    ],
)
async def test_one_below_the_limit_of_messages_exactly_one_more_is_accepted(
    api: Api, pool: asyncpg.Pool, kind: str, fill: str, used: str, left: str
) -> None:
    one = await customer(api, pool, Plan.GROWTH)
    child = await below(pool, one)
    limit = MONTHLY if kind == "monthly_limit_reached" else 100_000
    await pool.execute(fill, one.account.id, limit - 1)
    senders = (one, child) if kind == "monthly_limit_reached" else (one,)
    assert [(await shown(sender))["sending"][left] for sender in senders] == [1] * len(senders)

    answers = await asyncio.gather(
        *[(sender := senders[n % len(senders)]).post("/v1/emails", sender.account.email()) for n in range(PARALLEL)]
    )

    refused = [answer for answer in answers if answer.status != 202]
    assert len(refused) == PARALLEL - 1
    for answer in refused:
        assert (answer.status, answer.error["type"]) == (429, kind)
        assert (answer.error["limit"], answer.error[used]) == (limit, limit)
        assert int(answer.headers["retry-after"]) > 0
    assert [(await shown(sender))["sending"][left] for sender in senders] == [0] * len(senders)
    sending = (await shown(one))["sending"]
    assert sending[used] == limit


async def test_one_below_the_limit_of_received_messages_exactly_one_more_is_stored(
    api: Api, pool: asyncpg.Pool, settings: Settings
) -> None:
    one = await customer(api, pool, Plan.GROWTH)
    child = await below(pool, one)
    limit = CAPS[Plan.GROWTH].monthly_received
    assert limit is not None
    await pool.execute(monthly_use("received_messages"), one.account.id, limit - 1)
    addresses = [await claim(pool, sender.account) for sender in (one, child)]
    doors = [Receiver(pool, settings), Receiver(pool, settings)]

    outcomes = await asyncio.gather(
        *[receive(doors[n // 2 % 2], addresses[n % 2].recipient()) for n in range(PARALLEL)]
    )

    assert Counter(outcomes) == {ReceiveOutcome.STORED: 1, ReceiveOutcome.MONTH_USED: PARALLEL - 1}
    for sender in (one, child):
        assert limit_shown(await shown(sender), "received_messages") == {"limit": limit, "used": limit}
