"""Contacts over the API: identity, fields, consent, suppression beside them, search, pages and the plan's limit."""

import asyncio
from typing import Any

import asyncpg
import pytest

from engine.base import clock, ids
from tests.harness.account_log import logged
from tests.harness.accounts import TestAccount, make_account
from tests.harness.actors import key_of
from tests.harness.api import Answer, Api


async def create(api: Api, account: TestAccount, email: str, **fields: object) -> dict[str, Any]:
    answer = await api.post("/v1/contacts", account.token, {"email": email, "consent": "customer"} | fields)
    assert answer.status == 201, answer
    return dict(answer.json)


async def make_list(api: Api, account: TestAccount, name: str) -> str:
    answer = await api.post("/v1/lists", account.token, {"name": name})
    assert answer.status == 201, answer
    return str(answer.json["id"])


async def found(api: Api, account: TestAccount, **params: str) -> list[str]:
    answer = await api.get("/v1/contacts", account.token, params=params)
    assert answer.status == 200, answer
    return [row["email"] for row in answer.json["data"]]


async def test_a_contact_is_created_read_and_listed(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    news = await make_list(api, account, "News")
    fields = {"plan": "pro", "seats": 12, "share": 0.25, "whole": 5.0, "big": 2**62, "trial": False}
    made = await create(api, account, "Ann@Example.COM", name=" Ann Lee ", fields=fields, lists=[news, news])

    actor = await key_of(pool, account)
    assert made == {
        "id": made["id"], "email": "Ann@example.com", "name": "Ann Lee", "fields": fields, "consent": "customer",
        "consentAt": made["createdAt"], "consentBy": actor, "confirmed": True, "lists": [news], "suppressed": False,
        "suppressionReason": None, "optedOutOf": [], "createdAt": made["createdAt"], "updatedAt": made["createdAt"],
    }  # fmt: skip
    assert clock.parse_iso(made["createdAt"]) <= clock.now()
    assert {name: type(value) for name, value in made["fields"].items()} == {n: type(v) for n, v in fields.items()}
    assert (await api.get(f"/v1/contacts/{made['id']}", account.token)).json == made
    assert (await api.get("/v1/contacts", account.token)).json == {"data": [made], "nextCursor": None}
    detail = {"id": made["id"], "consent": "customer", "lists": [news], "actor": actor}
    assert await logged(pool, account.id, "contact.") == [("contact.created", detail)]


@pytest.mark.parametrize(
    ("first", "again"),
    [("ann@x.test", "ANN@X.test"), ("a@münchen.example", "a@xn--mnchen-3ya.example"), ("é@x.test", "É@x.test")],
)
async def test_an_address_in_another_notation_is_a_conflict_with_the_id(
    api: Api, account: TestAccount, first: str, again: str
) -> None:
    made = await create(api, account, first)
    answer = await api.post("/v1/contacts", account.token, {"email": again, "consent": "signed_up"})

    assert (answer.status, answer.error["type"], answer.error["id"]) == (409, "conflict", made["id"])


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"consent": "customer"}, 400, "email"), ({"email": "a@x.test"}, 400, "consent"),
        ({"email": "a@x.test", "consent": "maybe"}, 400, "consent"),
        ({"email": "at-x.test", "consent": "customer"}, 422, "email"),
        ({"email": "Ann <a@x.test>", "consent": "customer"}, 422, "email"),
        ({"email": "a@x.test", "consent": "customer", "name": "x" * 321}, 400, "name"),
        ({"email": "a@x.test", "consent": "customer", "name": "a\nb"}, 400, "name"),
        ({"email": "a@x.test", "consent": "customer", "lists": ["con_1"]}, 400, "lists[0]"),
        ({"email": "a@x.test", "consent": "customer", "colour": 1}, 400, "colour"),
    ],
)  # fmt: skip
async def test_an_unusable_contact_names_its_field(
    api: Api, account: TestAccount, body: dict[str, object], status: int, field: str
) -> None:
    answer = await api.post("/v1/contacts", account.token, body)

    assert (answer.status, answer.error["field"]) == (status, field)


async def test_an_unknown_list_refuses_the_contact(api: Api, account: TestAccount) -> None:
    body = {"email": "a@x.test", "consent": "customer", "lists": [ids.format_id(ids.Kind.LIST, ids.uuid7())]}
    answer = await api.post("/v1/contacts", account.token, body)

    assert (answer.status, answer.error["type"]) == (404, "not_found")
    assert await found(api, account) == []


async def test_a_change_merges_fields_and_null_removes_one(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    made = await create(api, account, "ann@x.test", name="Ann", fields={"a": 1, "b": "two", "c": True})
    path = f"/v1/contacts/{made['id']}"

    changed = (await api.patch(path, account.token, {"fields": {"a": None, "b": "2", "d": 1.5, "zz": None}})).json
    assert (changed["fields"], changed["name"]) == ({"b": "2", "c": True, "d": 1.5}, "Ann")
    assert changed["consentAt"] == made["consentAt"]
    typed = (await api.patch(path, account.token, {"fields": {"c": 1}})).json
    assert typed["fields"]["c"] is not True
    nameless = (await api.patch(path, account.token, {"name": None})).json
    assert nameless["name"] is None
    again = (await api.patch(path, account.token, {"name": "", "fields": {"c": 1}})).json
    assert again == nameless
    assert [detail.get("changed") for _, detail in await logged(pool, account.id, "contact.")] == [
        None, ["fields.a", "fields.b", "fields.d"], ["fields.c"], ["name"],
    ]  # fmt: skip


async def test_fields_together_stay_within_their_limits(api: Api, account: TestAccount) -> None:
    made = await create(api, account, "ann@x.test", fields={f"f{n}": n for n in range(50)})
    answer = await api.patch(f"/v1/contacts/{made['id']}", account.token, {"fields": {"one_more": 1}})

    assert (answer.status, answer.error["field"]) == (400, "fields")
    swapped = await api.patch(f"/v1/contacts/{made['id']}", account.token, {"fields": {"one_more": 1, "f0": None}})
    assert swapped.status == 200


async def test_deleting_a_contact_keeps_its_suppression(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    news = await make_list(api, account, "News")
    made = await create(api, account, "Ann@x.test", lists=[news])
    await api.post("/v1/suppressions", account.token, {"address": "ann@x.test", "reason": "unsubscribe"})
    shown = (await api.get(f"/v1/contacts/{made['id']}", account.token)).json
    assert (shown["suppressed"], shown["suppressionReason"]) == (True, "unsubscribe")

    assert (await api.delete(f"/v1/contacts/{made['id']}", account.token)).status == 204
    assert (await api.delete(f"/v1/contacts/{made['id']}", account.token)).status == 404
    assert (await api.get("/v1/suppressions/ann@x.test", account.token)).status == 200
    assert (await api.get(f"/v1/lists/{news}", account.token)).json["contacts"] == 0
    assert (await create(api, account, "ann@x.test"))["suppressed"] is True
    assert await pool.fetchval("SELECT contacts FROM contact_totals WHERE account_id = $1", account.id) == 1


async def test_a_search_finds_parts_of_address_and_name_in_any_case(api: Api, account: TestAccount) -> None:
    await create(api, account, "ann@first.test", name="Ann O'Neil 100%")
    await create(api, account, "bob_b@second.test", name="ÉCOLE Nord")
    await create(api, account, "carl@münchen.example")

    for search, expected in {
        "FIRST": ["ann"], "o'nei": ["ann"], "0%": ["ann"], "%": ["ann"], "_": ["bob_b"], "b_b": ["bob_b"],
        "école": ["bob_b"], "MÜNCH": ["carl"], "xn--": ["carl"], ".test": ["bob_b", "ann"], "n%t": [], "zzzz": [],
        "test\\": [], "ann@first.testann": [],
    }.items():  # fmt: skip
        assert [email.partition("@")[0] for email in await found(api, account, search=search)] == expected, search


async def test_a_search_meets_contacts_that_the_newest_hide(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    news = await make_list(api, account, "News")
    old = await create(api, account, "needle@x.test", lists=[news])
    await create(api, account, "needless@x.test")
    for start in (0, 1_000, 2_000):
        rows = [{"email": f"n{number}@other.test"} for number in range(start, start + 1_000)]
        answer = await api.post("/v1/contacts/import", account.token, {"contacts": rows, "consent": "customer"})
        assert answer.json["created"] == 1_000

    assert await found(api, account, search="needle") == ["needless@x.test", "needle@x.test"]
    assert await found(api, account, search="needle", list=news) == [old["email"]]
    assert len(await found(api, account, search="other", limit="100")) == 100


async def test_pages_hold_each_contact_once_newest_first(api: Api, account: TestAccount) -> None:
    news = await make_list(api, account, "News")
    made = [
        (await create(api, account, f"a{number}@x.test", lists=[news] if number % 2 else []))["email"]
        for number in range(5)
    ]
    for filters, expected in (("", made[::-1]), ("&search=x.t", made[::-1]), (f"&list={news}", [made[3], made[1]])):
        emails: list[str] = []
        cursor = ""
        while True:
            page = (await api.get(f"/v1/contacts?limit=2{filters}{cursor}", account.token)).json
            emails += [row["email"] for row in page["data"]]
            if page["nextCursor"] is None:
                break
            cursor = f"&before={page['nextCursor']}"
        assert emails == expected


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("list=con_x", 400, "list"),
        ("search=", 400, "search"),
        ("search=a%00b", 400, "search"),
    ],
)
async def test_an_unusable_query_names_its_parameter(
    api: Api, account: TestAccount, query: str, status: int, field: str
) -> None:
    answer = await api.get(f"/v1/contacts?{query}", account.token)

    assert (answer.status, answer.error["field"]) == (status, field)


async def test_contacts_of_an_unknown_list_are_not_found(api: Api, account: TestAccount) -> None:
    unknown = ids.format_id(ids.Kind.LIST, ids.uuid7())

    assert (await api.get(f"/v1/contacts?list={unknown}", account.token)).status == 404


async def test_the_plan_limits_contacts_exactly_under_parallel_requests(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="free")
    rows = [{"email": f"a{number}@x.test"} for number in range(495)]
    await api.post("/v1/contacts/import", account.token, {"contacts": rows, "consent": "customer"})

    async def one(number: int) -> Answer:
        body = {"email": f"b{number}@x.test", "consent": "customer"}
        return await api.post("/v1/contacts", account.token, body)

    answers = await asyncio.gather(*map(one, range(12)))

    assert sorted(answer.status for answer in answers) == [201] * 5 + [403] * 7
    refused = next(answer for answer in answers if answer.status == 403)
    assert refused.error["type"] == "plan_limit_reached"
    assert [refused.error[name] for name in ("resource", "limit", "used")] == ["contacts", 500, 500]
    limits = {cap["resource"]: cap for cap in (await api.get("/v1/me", account.token)).json["limits"]}
    assert limits["contacts"] == {"resource": "contacts", "limit": 500, "used": 500}
    known = await api.post("/v1/contacts", account.token, {"email": "a1@x.test", "consent": "customer"})
    assert known.status == 409


async def test_a_contact_is_found_by_its_address_in_any_spelling(api: Api, account: TestAccount) -> None:
    made = await create(api, account, "Ann@Example.com", name="Ann")
    await create(api, account, "joann@example.com")

    async def found(query: str) -> list[str]:
        answer = await api.get(f"/v1/contacts?{query}", account.token)
        assert answer.status == 200
        assert answer.json["nextCursor"] is None
        return [row["id"] for row in answer.json["data"]]

    assert await found("email=ann%40EXAMPLE.com") == [made["id"]]
    assert await found("email=ann%40example.com&search=Ann") == [made["id"]]
    assert await found("email=ann%40example.com&search=Bob") == []
    assert await found("email=nobody%40example.com") == []
    wrong = await api.get("/v1/contacts?email=nobody", account.token)
    assert (wrong.status, wrong.error["type"], wrong.error["field"]) == (422, "invalid_address", "email")
