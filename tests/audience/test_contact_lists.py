"""Contact lists over the API: names, members with kept counts, the plan's limit, and lists that broadcasts await."""

import asyncio
from typing import Any

import asyncpg
import orjson
import pytest

from engine.base import ids
from tests.audience.test_contacts import create, make_list
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api


async def read(api: Api, account: TestAccount, list_id: str) -> dict[str, Any]:
    return dict((await api.get(f"/v1/lists/{list_id}", account.token)).json)


async def test_a_list_is_created_changed_and_deleted(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    answer = await api.post("/v1/lists", account.token, {"name": " News ", "description": "Monthly"})
    made = answer.json
    assert answer.status == 201
    assert made == {
        "id": made["id"], "name": "News", "description": "Monthly", "contacts": 0, "createdAt": made["createdAt"],
        "updatedAt": made["createdAt"],
    }  # fmt: skip
    assert await read(api, account, made["id"]) == made
    assert (await api.get("/v1/lists", account.token)).json == {"data": [made], "nextCursor": None}

    changed = (await api.patch(f"/v1/lists/{made['id']}", account.token, {"name": "NEWS", "description": None})).json
    assert (changed["name"], changed["description"]) == ("NEWS", None)
    contact = await create(api, account, "ann@x.test", lists=[made["id"]])
    assert (await api.delete(f"/v1/lists/{made['id']}", account.token)).status == 204
    assert (await api.get(f"/v1/lists/{made['id']}", account.token)).status == 404
    assert (await api.get(f"/v1/contacts/{contact['id']}", account.token)).json["lists"] == []
    kinds = await pool.fetch(
        "SELECT type FROM events WHERE account_id = $1 AND type LIKE 'list.%' ORDER BY seq", account.id
    )
    assert [row["type"] for row in kinds] == ["list.created", "list.updated", "list.deleted"]


async def test_a_name_is_unique_in_any_case(api: Api, account: TestAccount) -> None:
    made, other = await make_list(api, account, "École"), await make_list(api, account, "Other")

    again = await api.post("/v1/lists", account.token, {"name": "ÉCOLE "})
    assert (again.status, again.error["type"], again.error["id"]) == (409, "conflict", made)
    renamed = await api.patch(f"/v1/lists/{other}", account.token, {"name": "école"})
    assert (renamed.status, renamed.error["id"]) == (409, made)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"), ({"name": " "}, "name"), ({"name": "x" * 121}, "name"), ({"name": "a\nb"}, "name"),
        ({"name": "a", "description": "x" * 501}, "description"), ({"name": "a", "contacts": 3}, "contacts"),
    ],
)  # fmt: skip
async def test_an_unusable_list_names_its_field(
    api: Api, account: TestAccount, body: dict[str, object], field: str
) -> None:
    answer = await api.post("/v1/lists", account.token, body)

    assert (answer.status, answer.error["field"]) == (400, field)


async def test_members_are_added_once_and_unknown_ids_are_returned(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    news = await make_list(api, account, "News")
    ann, bob = [(await create(api, account, f"{name}@x.test"))["id"] for name in ("ann", "bob")]
    other = await make_account(pool)
    stranger = (await create(api, other, "ann@x.test"))["id"]
    path = f"/v1/lists/{news}/members"

    added = await api.post(path, account.token, {"contacts": [ann, stranger, ann, "con_nothing"]})
    assert (added.status, added.json) == (200, {"added": 1, "already": 0, "notFound": [stranger, "con_nothing"]})
    both = await api.post(path, account.token, {"contacts": [ann, bob]})
    assert both.json == {"added": 1, "already": 1, "notFound": []}
    assert (await read(api, account, news))["contacts"] == 2

    for _ in range(2):
        assert (await api.delete(f"{path}/{ann}", account.token)).status == 204
    assert (await api.delete(f"{path}/{stranger}", account.token)).status == 404
    assert (await read(api, account, news))["contacts"] == 1


async def test_members_are_1_to_1000_ids_of_contacts(api: Api, account: TestAccount) -> None:
    news = await make_list(api, account, "News")
    for contacts in ([], ["con_1"] * 1_001, [news], [5]):
        answer = await api.post(f"/v1/lists/{news}/members", account.token, {"contacts": contacts})
        assert answer.status == 400
    unknown = ids.format_id(ids.Kind.LIST, ids.uuid7())
    assert (await api.post(f"/v1/lists/{unknown}/members", account.token, {"contacts": ["con_1"]})).status == 404


async def test_the_count_is_exact_under_parallel_changes(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    news = await make_list(api, account, "News")
    made = [(await create(api, account, f"a{number}@x.test"))["id"] for number in range(12)]

    async def changed(number: int) -> None:
        await api.post(f"/v1/lists/{news}/members", account.token, {"contacts": made[number : number + 6]})
        await api.delete(f"/v1/lists/{news}/members/{made[number]}", account.token)
        await api.delete(f"/v1/contacts/{made[number + 6]}", account.token)

    await asyncio.gather(*map(changed, range(6)))

    real = await pool.fetchval(
        "SELECT count(*) FROM contact_list_members WHERE list_id = $1", ids.parse_id(ids.Kind.LIST, news)
    )
    assert (await read(api, account, news))["contacts"] == real


async def test_the_plan_limits_lists(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="free")
    answers = await asyncio.gather(
        *(api.post("/v1/lists", account.token, {"name": f"List {number}"}) for number in range(5))
    )

    assert sorted(answer.status for answer in answers) == [201, 201, 403, 403, 403]
    refused = next(answer.error for answer in answers if answer.status == 403)
    assert (refused["type"], refused["resource"], refused["limit"]) == ("plan_limit_reached", "lists", 2)
    made = next(answer.json["id"] for answer in answers if answer.status == 201)
    assert (await api.delete(f"/v1/lists/{made}", account.token)).status == 204
    assert (await api.post("/v1/lists", account.token, {"name": "One more"})).status == 201


async def test_the_log_names_contacts_by_id_alone(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    news = await make_list(api, account, "News")
    made = await create(api, account, "very-private@x.test", name="Very Private", lists=[news])
    await api.patch(f"/v1/contacts/{made['id']}", account.token, {"name": "Still Private"})
    await api.delete(f"/v1/lists/{news}/members/{made['id']}", account.token)
    await api.delete(f"/v1/contacts/{made['id']}", account.token)

    rows = await pool.fetch("SELECT payload FROM events WHERE account_id = $1 ORDER BY seq", account.id)
    assert len(rows) == 5
    assert not any("rivate" in row["payload"] for row in rows)
    assert orjson.loads(rows[3]["payload"])["detail"]["contact_id"] == made["id"]
