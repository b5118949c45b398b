"""Saved views: filters under a name, of one person or shared with the account."""

from typing import Any

import asyncpg
import pytest

from engine.people.views.types import MAX_VIEWS
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Answer, Api
from tests.harness.people import TestPerson, make_person

BOUNCED = {"page": "messages", "name": "Bounced", "query": "status=bounced&tag=receipt"}


async def save(api: Api, person: TestPerson, **fields: object) -> dict[str, Any]:
    answer = await api.post("/v1/views", None, BOUNCED | fields, person=person)
    assert answer.status == 201, answer.body
    return dict(answer.json)


async def names(api: Api, person: TestPerson, page: str = "") -> list[str]:
    params = {"page": page} if page else None
    return [one["name"] for one in (await api.get("/v1/views", person=person, params=params)).json["data"]]


async def change(api: Api, person: TestPerson, view: str, **fields: object) -> Answer:
    return await api.patch(f"/v1/views/{view}", None, fields, person=person)


async def test_a_view_is_saved_changed_and_deleted(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    ann = await make_person(pool, account.id)
    made = await save(api, ann, name="  Bounced ", query="?status=bounced")
    changed = await change(api, ann, made["id"], name="All bounces", shared=True)

    assert made["id"].startswith("viw_")
    assert (made["name"], made["query"], made["shared"], made["own"]) == ("Bounced", "status=bounced", False, True)
    assert (changed.json["name"], changed.json["query"], changed.json["shared"]) == (
        "All bounces", "status=bounced", True,
    )  # fmt: skip
    assert (await api.delete(f"/v1/views/{made['id']}", None, person=ann)).status == 204
    assert (await api.delete(f"/v1/views/{made['id']}", None, person=ann)).status == 404


async def test_own_views_come_first_and_only_shared_ones_of_others_are_seen(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    ann, bob = await make_person(pool, account.id), await make_person(pool, account.id, "member")
    stranger = await make_person(pool, (await make_account(pool)).id)
    await save(api, ann, name="A shared", shared=True)
    await save(api, ann, name="B private")
    await save(api, bob, name="Z own", page="contacts")

    assert await names(api, bob) == ["Z own", "A shared"]
    assert await names(api, ann) == ["A shared", "B private"]
    assert await names(api, bob, "messages") == ["A shared"]
    assert await names(api, stranger) == []


async def test_members_change_their_own_views_admins_and_the_owner_also_shared_ones(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    owner, bob, eve = [await make_person(pool, account.id, role) for role in ("owner", "member", "member")]
    shared, private = await save(api, bob, shared=True), await save(api, bob)

    assert (await change(api, eve, shared["id"], name="Mine")).status == 403
    assert (await change(api, eve, private["id"], name="Mine")).status == 404
    assert (await change(api, owner, private["id"], name="Mine")).status == 404
    assert (await change(api, owner, shared["id"], name="Ours")).json["name"] == "Ours"
    assert (await change(api, bob, private["id"], name="Still mine")).status == 200


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": " "}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "x" * 61}, "name"),
        ({"query": "x" * 2_001}, "query"),
        ({"query": "a=\u202eb"}, "query"),
        ({"query": "a#b"}, "query"),
        ({"page": "billing"}, "page"),
    ],
)
async def test_an_unusable_view_is_refused(
    api: Api, pool: asyncpg.Pool, account: TestAccount, fields: dict[str, str], field: str
) -> None:
    person = await make_person(pool, account.id)
    answer = await api.post("/v1/views", None, BOUNCED | fields, person=person)

    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", field)


async def test_a_person_saves_a_bounded_number_of_views(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    ann, bob = await make_person(pool, account.id), await make_person(pool, account.id, "member")
    await save(api, ann)
    await pool.execute(
        "INSERT INTO saved_views SELECT gen_random_uuid(), account_id, user_id, page, name, query, shared, now(), now()"
        " FROM saved_views, generate_series(2, $2) WHERE account_id = $1",
        account.id, MAX_VIEWS,
    )  # fmt: skip
    answer = await api.post("/v1/views", None, BOUNCED, person=ann)

    assert (answer.status, answer.error["type"]) == (409, "conflict")
    assert (await save(api, bob))["own"]
