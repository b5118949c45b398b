"""Opt-outs of contact lists over the API: added once, listed, imported, exported, taken back, and left out of mail."""

import asyncio
from typing import Any

import asyncpg
import orjson
import pytest

from engine.base import ids
from tests.audience.test_contacts import create, make_list
from tests.harness.accounts import TestAccount
from tests.harness.api import Api
from tests.harness.unsubscribing import audience_events, store_link


@pytest.fixture
async def news(api: Api, account: TestAccount) -> str:
    return await make_list(api, account, "News")


async def listed(api: Api, account: TestAccount, topic: str) -> list[dict[str, Any]]:
    return list((await api.get(f"/v1/lists/{topic}/opt-outs", account.token)).json["data"])


async def test_people_opt_out_of_a_list_once(api: Api, pool: asyncpg.Pool, account: TestAccount, news: str) -> None:
    path = f"/v1/lists/{news}/opt-outs"
    given = ["Ann@People.test", "bob@people.test", "nobody", "ann@people.test"]
    first = await api.post(path, account.token, {"addresses": given})
    assert first.status == 200
    assert (first.json["added"], first.json["already"]) == (2, 0)
    [refused] = first.json["refused"]
    assert (refused["index"], refused["error"]["type"], refused["error"]["address"]) == (2, "invalid_address", "nobody")
    again = await api.post(path, account.token, {"addresses": ["bob@people.test", "carl@people.test"]})
    assert again.json == {"added": 1, "already": 1, "refused": []}

    rows = await listed(api, account, news)
    assert [row["address"] for row in rows] == ["carl@people.test", "bob@people.test", "ann@people.test"]
    assert {row["source"] for row in rows} == {"api"}
    events = await audience_events(pool, account)
    assert [(kind, detail["address"]) for kind, detail in events] == [
        ("contact.unsubscribed", f"{name}@people.test") for name in ("ann", "bob", "carl")
    ]
    detail = events[0][1]
    assert (detail["scope"], detail["list_id"], detail["source"], detail["broadcast_id"]) == (
        "topic",
        news,
        "api",
        None,
    )
    assert detail["actor"].startswith("key_")


async def test_a_contact_shows_the_lists_that_the_person_left(api: Api, account: TestAccount, news: str) -> None:
    offers = await make_list(api, account, "Offers")
    made = await create(api, account, "Ann@People.test", lists=[news, offers])
    assert made["optedOutOf"] == []
    await api.post(f"/v1/lists/{offers}/opt-outs", account.token, {"addresses": ["ann@people.test"]})

    shown = (await api.get(f"/v1/contacts/{made['id']}", account.token)).json
    assert (shown["lists"], shown["optedOutOf"], shown["suppressed"]) == ([news, offers], [offers], False)
    exported = await api.get("/v1/contacts/export", account.token)
    assert orjson.loads(exported.body)["optedOutOf"] == [offers]
    as_csv = (await api.get("/v1/contacts/export?format=csv", account.token)).body.decode()
    back = {"format": "csv", "content": as_csv, "consent": "customer"}
    imported = await api.post("/v1/contacts/import/file", account.token, back)
    assert (imported.json["unchanged"], imported.json["invalid"]) == (1, [])


async def test_an_opt_out_is_taken_back(api: Api, pool: asyncpg.Pool, account: TestAccount, news: str) -> None:
    await api.post(f"/v1/lists/{news}/opt-outs", account.token, {"addresses": ["a/b@people.test"]})
    answers = [
        (await api.delete(f"/v1/lists/{news}/opt-outs/{address}", account.token)).status
        for address in ("A%2FB%40People.test", "a%2Fb%40people.test", "nobody")
    ]
    assert answers == [204, 404, 404]
    assert await listed(api, account, news) == []
    assert [kind for kind, _ in await audience_events(pool, account)] == [
        "contact.unsubscribed",
        "contact.resubscribed",
    ]


async def test_who_used_a_link_is_listed_with_it(api: Api, pool: asyncpg.Pool, account: TestAccount, news: str) -> None:
    token = await store_link(pool, account, "ann@people.test", topic=ids.parse_id(ids.Kind.LIST, news))
    assert (await api.request("POST", f"/u/{token}?choice=topic")).status == 200

    [row] = await listed(api, account, news)
    assert (row["address"], row["source"]) == ("ann@people.test", "link")
    same = await api.post(f"/v1/lists/{news}/opt-outs", account.token, {"addresses": ["ann@people.test"]})
    assert same.json["already"] == 1


async def test_files_are_imported_and_exported(api: Api, account: TestAccount, news: str) -> None:
    names = [f"n{number}@people.test" for number in range(1_500)]
    content = "Name;E-Mail\n" + "".join(f"x;{name}\n" for name in [*names, "nobody"])
    reply = await api.post(
        f"/v1/lists/{news}/opt-outs/import/file", account.token, {"format": "csv", "content": content}
    )
    assert (reply.json["added"], reply.json["already"], reply.json["refused"][0]["index"]) == (1_500, 0, 1_500)
    lines = '{"address": "n1@people.test"}\n{"email": "=cmd@people.test"}\n'
    reply = await api.post(
        f"/v1/lists/{news}/opt-outs/import/file", account.token, {"format": "ndjson", "content": lines}
    )
    assert (reply.json["added"], reply.json["already"]) == (1, 1)

    as_json = await api.get(f"/v1/lists/{news}/opt-outs/export", account.token)
    rows = [orjson.loads(line) for line in as_json.body.splitlines()]
    assert sorted(row["address"] for row in rows) == sorted([*names, "=cmd@people.test"])
    as_csv = (await api.get(f"/v1/lists/{news}/opt-outs/export?format=csv", account.token)).body.decode().splitlines()
    assert as_csv[0] == "address,source,createdAt"
    assert as_csv[1].startswith("'=cmd@people.test,api,")
    assert len(as_csv) == 1_502


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "addresses"), ({"addresses": []}, "addresses"), ({"addresses": ["a@x.test"] * 1_001}, "addresses"),
        ({"addresses": [7]}, "addresses[0]"), ({"address": "a@x.test"}, "address"),
    ],
)  # fmt: skip
async def test_an_unusable_request_names_its_field(
    api: Api, account: TestAccount, news: str, body: dict[str, object], field: str
) -> None:
    answer = await api.post(f"/v1/lists/{news}/opt-outs", account.token, body)
    assert (answer.status, answer.error["field"]) == (400, field)
    assert (await api.get(f"/v1/lists/{news}/opt-outs?before=sup_x", account.token)).error["field"] == "before"


async def test_parallel_imports_count_each_person_once(
    api: Api, pool: asyncpg.Pool, account: TestAccount, news: str
) -> None:
    names = [f"n{number}@people.test" for number in range(50)]
    path = f"/v1/lists/{news}/opt-outs"
    replies = await asyncio.gather(*(api.post(path, account.token, {"addresses": names[::-1]}) for _ in range(8)))
    assert sum(reply.json["added"] for reply in replies) == 50
    assert sum(reply.json["already"] for reply in replies) == 350
    assert len(await audience_events(pool, account)) == 50
