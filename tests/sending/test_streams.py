"""Message streams over the API: opening, closing, and what a closed stream still does."""

import asyncio
from typing import Any

import asyncpg
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base import clock
from engine.base.slugs import is_slug, slug_of
from tests.harness.accounts import TestAccount, add_stream, make_account
from tests.harness.actors import key_of
from tests.harness.api import Answer, Api, refuses
from tests.harness.emails import send
from tests.mail.drafts import THOROUGH


async def open_stream(api: Api, account: TestAccount, **fields: object) -> dict[str, Any]:
    answer = await api.post("/v1/streams", account.token, fields)
    assert answer.status == 201, answer
    found: dict[str, Any] = answer.json
    return found


async def close(api: Api, account: TestAccount, slug: str) -> Answer:
    return await api.request("DELETE", f"/v1/streams/{slug}", token=account.token)


async def listed(api: Api, account: TestAccount) -> list[str]:
    return [row["id"] for row in (await api.get("/v1/streams", account.token)).json["data"]]


async def test_every_account_has_the_transactional_stream(api: Api, account: TestAccount) -> None:
    (row,) = (await api.get("/v1/streams", account.token)).json["data"]

    assert clock.parse_iso(row.pop("createdAt")) <= clock.now()
    assert row == {
        "id": "transactional", "name": "Transactional", "deletable": False, "retainContent": True, "contentUntil": None,
    }  # fmt: skip


async def test_a_new_stream_takes_mail_at_once(api: Api, account: TestAccount) -> None:
    assert (await send(api, account, stream="receipts")).status == 400
    found = await open_stream(api, account, id="receipts", name="Receipts")

    assert found == {
        "id": "receipts", "name": "Receipts", "deletable": True, "retainContent": True, "contentUntil": None,
        "createdAt": found["createdAt"],
    }  # fmt: skip
    assert (await send(api, account, stream="receipts")).status == 202
    assert await listed(api, account) == ["receipts", "transactional"]


@pytest.mark.parametrize(
    ("fields", "slug", "name"),
    [
        ({"id": "a-1"}, "a-1", "a-1"),
        ({"name": "Product News"}, "product-news", "Product News"),
        ({"id": "news", "name": "Große Neuigkeiten"}, "news", "Große Neuigkeiten"),
        ({"name": "Große Neuigkeiten!"}, "grosse-neuigkeiten", "Große Neuigkeiten!"),
        ({"id": "news", "name": ""}, "news", "news"),
        ({"id": "news", "name": None}, "news", "news"),
        ({"id": "a" * 64}, "a" * 64, "a" * 64),
    ],
)
async def test_a_stream_is_known_by_its_slug(
    api: Api, account: TestAccount, fields: dict[str, object], slug: str, name: str
) -> None:
    found = await open_stream(api, account, **fields)

    assert (found["id"], found["name"]) == (slug, name)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "id"),
        ({"name": ""}, "id"),
        ({"name": "通知"}, "id"),
        ({"id": "News"}, "id"),
        ({"id": "a--b"}, "id"),
        ({"id": "-a"}, "id"),
        ({"id": ""}, "id"),
        ({"id": "news\n"}, "id"),
        ({"id": "a" * 65}, "id"),
        ({"id": 5}, "id"),
        ({"id": "news", "name": "a\0"}, "name"),
        ({"id": "news", "name": "n" * 121}, "name"),
        ({"id": "news", "kind": "bulk"}, "kind"),
    ],
)
async def test_a_bad_field_is_named(api: Api, account: TestAccount, fields: dict[str, object], field: str) -> None:
    assert refuses(await api.post("/v1/streams", account.token, fields), field)
    assert await listed(api, account) == ["transactional"]


async def test_a_stream_there_already_is_a_conflict_that_names_it(api: Api, account: TestAccount) -> None:
    await open_stream(api, account, id="news")
    for slug in ("news", "transactional"):
        answer = await api.post("/v1/streams", account.token, {"id": slug})
        assert (answer.status, answer.error["type"], answer.error["id"]) == (409, "conflict", slug)


async def test_a_plan_with_one_stream_refuses_another(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="free")
    answer = await api.post("/v1/streams", account.token, {"id": "news"})

    assert answer.status == 403
    assert {name: answer.error[name] for name in ("type", "resource", "limit", "used")} == {
        "type": "plan_limit_reached",
        "resource": "streams",
        "limit": 1,
        "used": 1,
    }


@pytest.mark.parametrize(("plan", "limit"), [("starter", 3), ("growth", 10), ("scale", 25)])
async def test_the_transactional_stream_counts_against_the_plan(
    api: Api, pool: asyncpg.Pool, plan: str, limit: int
) -> None:
    account = await make_account(pool, plan=plan)
    for number in range(limit - 1):
        await open_stream(api, account, id=f"s{number}")
    answer = await api.post("/v1/streams", account.token, {"id": "more"})

    assert (answer.status, answer.error["limit"], answer.error["used"]) == (403, limit, limit)
    assert (await close(api, account, "s0")).status == 204
    await open_stream(api, account, id="more")


async def test_parallel_requests_never_pass_the_limit(api: Api, pool: asyncpg.Pool) -> None:
    for _ in range(20):
        account = await make_account(pool, plan="starter")
        answers = await asyncio.gather(
            *(api.post("/v1/streams", account.token, {"id": f"s{number}"}) for number in range(6))
        )

        assert sorted(answer.status for answer in answers) == [201] * 2 + [403] * 4
        assert len(await listed(api, account)) == 3


async def test_of_parallel_requests_for_one_slug_one_wins(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="enterprise")
    for turn in range(20):
        answers = await asyncio.gather(
            *(api.post("/v1/streams", account.token, {"id": f"one-{turn}"}) for _ in range(4))
        )
        assert sorted(answer.status for answer in answers) == [201, 409, 409, 409]


async def test_deleted_stream_refuses_new_mail(api: Api, account: TestAccount) -> None:
    await open_stream(api, account, id="news")
    assert (await send(api, account, stream="news")).status == 202
    answer = await close(api, account, "news")

    assert (answer.status, answer.body) == (204, b"")
    assert refuses(await send(api, account, stream="news"), "stream")
    assert await listed(api, account) == ["transactional"]


async def test_mail_of_a_deleted_stream_keeps_its_name_and_still_goes(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    await open_stream(api, account, id="news")
    message = (await send(api, account, stream="news")).json["id"]
    await close(api, account, "news")

    read = (await api.get(f"/v1/messages/{message}", account.token)).json
    assert (read["stream"], read["status"]) == ("news", "queued")
    found = (await api.get("/v1/messages?stream=news", account.token)).json["data"]
    assert [row["id"] for row in found] == [message]
    assert await pool.fetchval("SELECT count(*) FROM queue WHERE account_id = $1", account.id) == 1


async def test_a_deleted_streams_slug_may_be_used_again(api: Api, account: TestAccount) -> None:
    await open_stream(api, account, id="news", name="Old")
    await close(api, account, "news")
    found = await open_stream(api, account, id="news", name="New")

    assert found["name"] == "New"
    assert (await send(api, account, stream="news")).status == 202


async def test_the_transactional_stream_stays(api: Api, account: TestAccount) -> None:
    answer = await close(api, account, "transactional")

    assert (answer.status, answer.error["type"]) == (409, "invalid_state")
    assert (await send(api, account)).status == 202


async def test_a_stream_is_deleted_once(api: Api, account: TestAccount) -> None:
    await open_stream(api, account, id="news")
    answers = await asyncio.gather(*(close(api, account, "news") for _ in range(4)))

    assert sorted(answer.status for answer in answers) == [204, 404, 404, 404]


async def test_streams_of_others_do_not_exist(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    stranger = await make_account(pool)
    await open_stream(api, account, id="news")

    assert await listed(api, stranger) == ["transactional"]
    assert (await close(api, stranger, "news")).status == 404
    assert refuses(await api.get("/v1/streams?before=news", stranger.token), "before")
    assert refuses(await send(api, stranger, stream="news"), "stream")


async def test_pages_follow_each_other_without_gap_or_repeat(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="scale")
    for number in range(6):
        await open_stream(api, account, id=f"s{number}")
    found, cursor = [], ""
    while True:
        page = (await api.get(f"/v1/streams?limit=2{cursor}", account.token)).json
        found += [row["id"] for row in page["data"]]
        if page["nextCursor"] is None:
            break
        await close(api, account, page["nextCursor"])  # a cursor outlives what it names
        cursor = f"&before={page['nextCursor']}"

    assert found == ["s5", "s4", "s3", "s2", "s1", "s0", "transactional"]


async def test_a_hundred_streams_are_one_page(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="enterprise")
    for number in range(99):
        await add_stream(pool, account.id, f"s{number}")
    page = (await api.get("/v1/streams", account.token)).json

    assert (len(page["data"]), page["nextCursor"]) == (100, None)


async def test_each_change_is_in_the_account_log(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await open_stream(api, account, id="news", name="News")
    await close(api, account, "news")
    rows = await pool.fetch("SELECT type, payload FROM events WHERE account_id = $1 ORDER BY seq", account.id)

    assert [(row["type"], orjson.loads(row["payload"])["detail"]) for row in rows] == [
        ("stream.created", {"id": "news", "name": "News", "actor": await key_of(pool, account)}),
        ("stream.deleted", {"id": "news", "actor": await key_of(pool, account)}),
    ]


@THOROUGH
@given(st.text() | st.text("Aa1-_ ßÉ№", max_size=80))
def test_a_name_makes_a_slug_or_nothing(name: str) -> None:
    made = slug_of(name)

    assert made is None or is_slug(made)
    assert made is None or slug_of(made) == made


@pytest.mark.parametrize("text", ["", "-", "a-", "-a", "a--b", "A", "a_b", "a\n", "é", "a" * 65, "١"])
def test_what_is_no_slug(text: str) -> None:
    assert not is_slug(text)
