"""Every list that is newest first stays so while eight clients add to it: who knows its newest row misses none."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import asyncpg
import pytest
from msgspec import Struct

from api.http.operation import Operation
from api.routes import all_operations
from engine.base import ids
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.sending.domains.service import add_domain
from tests.harness.accounts import TestAccount, add_key, make_account
from tests.harness.api import Answer, Api, name_of
from tests.harness.broadcasts import with_stream
from tests.harness.people import TestPerson, make_person
from tests.harness.pictures import picture
from tests.harness.sampling import sampled

CLIENTS = 8
# Ordered by when a message was accepted or an event happened, which is before its commit: their descriptions say so,
# and name the log, which has no gaps.
BY_THEIR_OWN_TIME = {"/v1/messages", "/v1/webhooks/{id}/deliveries", "/v1/inbound/messages"}
# Written under the lock of the account's head: invoices, alerts as they fire, one alert rule of each kind, and the log.
ONE_WRITER = {"/v1/billing/invoices", "/v1/alerts/events", "/v1/alerts/rules", "/v1/bounces"}
APPENDED = {"/v1/local/sink"}  # one process appends to the index: tests/sending/test_local_sink.py
OF_ALL_ACCOUNTS = {"/v1/operator/accounts"}  # the operator's: tests/accounts/test_operator_accounts.py pages through it
# What few rows a person has, made one at a time, and members: tests/people/test_auth_sessions.py, test_passkeys.py,
# test_identity_links.py and test_team.py page through them.
OF_A_PERSON = {"/v1/auth/sessions", "/v1/auth/passkeys", "/v1/auth/idp/identities"}
OF_OTHER_SERVICES = {"/v1/compat/resend/emails", "/v1/compat/resend/domains"}  # the same rows as our own lists
IN_BATCHES = {"/v1/requests"}  # each process writes its own once a second: the description says so


class Client(Struct):
    """What calls the API for one account: its key, and its owner's session for what only people may do."""

    api: Api
    account: TestAccount
    owner: TestPerson
    pool: asyncpg.Pool
    settings: Settings
    list_id: str = ""

    async def get(self, path: str) -> Any:
        answer = await self.api.get(path, person=self.owner)
        assert answer.status == 200, answer.body
        return answer.json

    async def post(self, path: str, body: object) -> Answer:
        return await self.api.post(path, None, body, person=self.owner)


Add = Callable[[Client, int], Awaitable[Answer]]


def adding(path: str, **fields: object) -> Add:
    """Posts to `path`; `{n}` in a text becomes the number of the row."""

    async def add(client: Client, number: int) -> Answer:
        told = {name: value.format(n=number) if isinstance(value, str) else value for name, value in fields.items()}
        return await client.post(path, told)

    return add


async def next_version(client: Client, number: int) -> Answer:
    return await client.api.patch("/v1/templates/order", json={"text": f"Hello {number}"}, person=client.owner)


async def next_segment(client: Client, number: int) -> Answer:
    body = {"name": f"Segment {number}", "filter": {"field": "plan", "value": "pro"}}
    return await client.post("/v1/segments", body)


async def next_address(client: Client, number: int) -> Answer:
    return await client.post("/v1/inbound/addresses", {"address": f"n{number}@{client.account.domain}"})


async def next_route(client: Client, number: int) -> Answer:
    claimed = (await next_address(client, number)).json
    return await client.post("/v1/inbound/routes", {"address": claimed["address"], "action": "webhook"})


async def next_policy(client: Client, number: int) -> Answer:
    name = f"n{number}.{client.account.domain}"
    added = False
    while not added:  # an account's keys are made one at a time, and a busy machine takes longer than a request waits
        with suppress(Refusal):
            await add_domain(client.pool, client.settings, client.account.id, name, vouched=True)
            added = True
    path = f"/v1/inbound/mta-sts/{name}"
    return await client.api.put(path, client.account.token, {"mode": "testing"})


class Listed(Struct):
    """A list: how a row comes into it, what names a row, where its rows stand in the answer."""

    add: Add
    name: str = "id"
    rows: str = "data"
    each: int = 3  # rows that a client adds


async def next_broadcast(client: Client, number: int) -> Answer:
    """Create a draft to a list of its own."""
    await with_stream(client.pool, client.account)
    made = (await client.post("/v1/lists", {"name": f"List for broadcast {number}"})).json["id"]
    body = {"name": f"News {number}", "from": client.account.sender, "list": made}
    return await client.post("/v1/broadcasts", body)


async def next_opt_out(client: Client, number: int) -> Answer:
    path = f"/v1/lists/{client.list_id}/opt-outs"
    return await client.post(path, {"addresses": [f"n{number}@people.test"]})


async def next_erasure(client: Client, number: int) -> Answer:
    return await client.api.post("/v1/erasures", json={"address": f"n{number}@people.test"}, person=client.owner)


async def next_agent_send(client: Client, number: int) -> Answer:
    key = await add_key(client.pool, client.account.id, scopes=["emails:send"], approval="required")
    email = client.account.email(subject=f"Number {number}")
    return await client.api.post("/v1/agent-sends", key, {"email": email})


async def next_image(client: Client, number: int) -> Answer:
    return await client.post("/v1/images", {"filename": "x.png", "content": picture(size=(number + 1, 1))})


LISTS = {
    "/v1/agent-sends": Listed(next_agent_send),
    "/v1/broadcasts": Listed(next_broadcast),
    "/v1/contacts": Listed(adding("/v1/contacts", email="n{n}@people.test", consent="customer")),
    "/v1/domains": Listed(adding("/v1/domains", name="n{n}.example.com"), each=1),  # keys take 0.1 s of CPU
    "/v1/erasures": Listed(next_erasure),
    "/v1/images": Listed(next_image),
    "/v1/layouts": Listed(adding("/v1/layouts", name="l{n}", html="{{" * 3 + "content" + "}}" * 3)),
    "/v1/lists": Listed(adding("/v1/lists", name="List {n}")),
    "/v1/lists/{id}/opt-outs": Listed(next_opt_out, name="address"),
    "/v1/segments": Listed(next_segment),
    "/v1/webhooks": Listed(adding("/v1/webhooks", url="https://hook.example.com/{n}")),
    "/v1/api-keys": Listed(adding("/v1/api-keys", name="Key {n}", scopes=["account:read"])),
    "/v1/sub-accounts": Listed(adding("/v1/sub-accounts", name="Shop {n}")),
    "/v1/streams": Listed(adding("/v1/streams", name="s{n}")),
    "/v1/templates": Listed(adding("/v1/templates", name="t{n}", subject="Hello", text="Hello")),
    "/v1/templates/{id}/versions": Listed(next_version, name="version"),
    "/v1/suppressions": Listed(adding("/v1/suppressions", address="n{n}@people.test"), name="address"),
    "/v1/audit/events": Listed(adding("/v1/suppressions", address="n{n}@people.test"), name="seq"),
    "/v1/inbound/addresses": Listed(next_address),
    "/v1/inbound/routes": Listed(next_route),
    "/v1/inbound/mta-sts": Listed(next_policy, name="domain", each=1),
    "/v1/inbound/domains": Listed(adding("/v1/domains", name="n{n}.example.com"), each=1),
    "/v1/team": Listed(adding("/v1/team/invites", email="n{n}@people.test", role="member"), rows="invites"),
}


def paged() -> Iterator[str]:
    """The paths of all lists that have pages."""
    for one in all_operations():
        if one.path.endswith("/count"):
            continue  # takes the filters of a list with its paging, which it ignores
        if one.query is not None and {"before", "limit"} <= set(one.query.__struct_fields__):
            yield one.path


@pytest.fixture
async def client(api: Api, pool: asyncpg.Pool, settings: Settings) -> Client:
    account = await make_account(pool, plan="enterprise")
    return Client(api, account, await make_person(pool, account.id), pool, settings)


def test_every_list_with_pages_is_tried() -> None:
    others = APPENDED | BY_THEIR_OWN_TIME | IN_BATCHES | ONE_WRITER | OF_ALL_ACCOUNTS | OF_A_PERSON
    others |= OF_OTHER_SERVICES
    assert set(paged()) == set(LISTS) | others


READ = [
    one
    for one in all_operations()
    if one.method == "GET" and one.path in {*paged()} - OF_ALL_ACCOUNTS - OF_OTHER_SERVICES
]


@pytest.mark.parametrize("operation", READ, ids=name_of)
async def test_a_page_that_can_not_be_is_refused(client: Client, operation: Operation) -> None:
    foreign = f"before={ids.format_id(ids.Kind.CHECKOUT, ids.uuid7())}"
    queries = [
        "limit=0",
        "limit=-1",
        "limit=10000",
        "limit=x",
        "limit=9223372036854775808",
        "limit=2&limit=3",
        "before=",
        "before=x",
        "nobodys=1",
        foreign,
    ]
    path = re.sub(r"\{\w+\}", "x", operation.path)
    answers = {query: await client.api.get(f"{path}?{query}", person=client.owner) for query in queries}
    # An operation may look for the id of its path before it reads the cursor.
    usual = {400, 404} if "{" in operation.path else {400}

    assert {query: one.body for query, one in answers.items() if one.status not in usual} == {}
    fields = {query: one.error["field"] for query, one in answers.items() if one.status == 400}
    assert fields == {query: query.partition("=")[0] for query in fields}


def test_lists_by_their_own_time_say_what_to_follow_instead() -> None:
    for one in all_operations():
        if one.method == "GET" and one.path in BY_THEIR_OWN_TIME:
            assert "/v1/events" in one.note


async def watch(client: Client, path: str, listed: Listed, ended: asyncio.Event) -> list[object]:
    """The names of the rows in the order in which a poller meets them; each must stand above all that it knew."""
    known: list[object] = []
    while True:
        last = ended.is_set()
        rows = (await client.get(path))[listed.rows]
        names = [row[listed.name] for row in rows]
        fresh = [name for name in names if name not in known]
        assert names[: len(fresh)] == fresh, f"{path}: a row appeared below one that was there before"
        known += reversed(fresh)
        if last:
            return known


async def walked(client: Client, path: str, listed: Listed) -> list[dict[str, Any]]:
    """All rows, two a page."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = await client.get(f"{path}?limit=2{cursor}")
        assert page[listed.rows], "a full last page has no cursor"
        found += page[listed.rows]
        if page["nextCursor"] is None:
            return found
        cursor = f"&before={page['nextCursor']}"


@pytest.mark.parametrize("path", sampled(LISTS, 4))
async def test_a_row_appears_above_all_that_are_there_and_pages_hold_each_once(client: Client, path: str) -> None:
    listed, ended = LISTS[path], asyncio.Event()
    await client.post("/v1/templates", {"id": "order", "name": "Order", "subject": "Hello", "text": "Hello"})
    if path.startswith("/v1/lists/{id}"):
        client.list_id = (await client.post("/v1/lists", {"name": "Order"})).json["id"]
    real = path.replace("{id}", client.list_id or "order")

    async def adds(number: int) -> None:
        for step in range(listed.each):
            answer = await listed.add(client, number * listed.each + step)
            assert answer.status in {200, 201, 202}, answer.body

    whole = f"{real}?limit=100" if listed.rows == "data" else real
    poller = asyncio.create_task(watch(client, whole, listed, ended))
    await asyncio.gather(*map(adds, range(CLIENTS)))
    ended.set()
    known = await poller

    assert len(known) >= CLIENTS * listed.each
    if listed.rows == "data":
        rows = await walked(client, real, listed)
        assert [row[listed.name] for row in reversed(rows)] == known
        times = [row["createdAt"] for row in rows if "createdAt" in row]
        assert times == sorted(times, reverse=True)
