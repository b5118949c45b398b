"""`POST /v1/emails/batch`: each message on its own, in order, in one commit."""

import asyncio
from collections import Counter
from typing import Any

import aiohttp
import asyncpg
import orjson
import pytest
from msgspec import structs

from engine.base import ids
from engine.base.settings import Settings
from engine.sending.suppressions import store as suppressions
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Answer, Api, serving
from tests.harness.emails import sent_today
from tests.harness.schedules import within

PDF = {"filename": "a.pdf", "contentType": "application/pdf", "content": "aGk="}


async def send(api: Api, account: TestAccount, *messages: object) -> Answer:
    return await api.post("/v1/emails/batch", account.token, {"messages": list(messages)})


def errors(answer: Answer) -> list[tuple[str, object] | None]:
    """(type, field) of each item's refusal; None where it has none."""
    assert answer.status == 200, answer
    return [
        (one["error"]["type"], one["error"].get("field")) if one["status"] == "refused" else None
        for one in answer.json["data"]
    ]


# -- what is answered -------------------------------------------------------------------------


async def test_every_message_of_a_batch_is_accepted_in_order(api: Api, account: TestAccount) -> None:
    answer = await send(api, account, *[account.email(subject=f"Number {n}") for n in range(100)])

    assert answer.status == 200
    body = answer.json
    assert (body["accepted"], body["duplicates"], body["refused"]) == (100, 0, 0)
    assert [(one["index"], one["status"]) for one in body["data"]] == [(n, "queued") for n in range(100)]
    assert all(set(one) == {"index", "id", "status"} for one in body["data"])
    for n in (0, 57, 99):
        found = (await api.get(f"/v1/messages/{body['data'][n]['id']}", account.token)).json
        assert (found["subject"], found["status"]) == (f"Number {n}", "queued")
        assert [event["type"] for event in found["waybill"]] == ["accepted"]
    assert await sent_today(api, account) == 100


async def test_a_batch_is_one_transaction(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    await send(api, account, *[account.email() for _ in range(100)])

    rows = await pool.fetch("SELECT xmin::text FROM events WHERE account_id = $1", account.id)
    assert (len(rows), len({row["xmin"] for row in rows})) == (100, 1)


async def test_one_bad_message_never_fails_the_others(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    await suppressions.ADD.execute(pool, [account.id], ["gone@people.test"], ["bounce"], [None], [None])
    answer = await send(
        api, account,
        account.email(),
        account.email(to="nonsense"),
        account.email(to="gone@people.test"),
        account.email(**{"from": "a@elsewhere.test"}),
        account.email(attachments=[PDF | {"filename": "a.exe"}]),
        account.email(text=None),
        account.email(template="nobody-made-this", text=None),
        account.email(scheduledAt=within(hours=2)),
        account.email(),
    )  # fmt: skip

    assert errors(answer) == [
        None, ("invalid_address", "to"), ("suppressed", None), ("domain_not_verified", None),
        ("attachment_blocked", None), ("invalid_request", "text"), ("template_error", None), None, None,
    ]  # fmt: skip
    data = answer.json["data"]
    assert [one["status"] for one in data if "id" in one] == ["queued", "scheduled", "queued"]
    assert (answer.json["accepted"], answer.json["refused"]) == (3, 6)
    assert data[1]["error"]["address"] == "nonsense"
    assert (data[2]["error"]["address"], data[2]["error"]["reason"]) == ("gone@people.test", "bounce")
    assert data[3]["error"]["domain"] == "elsewhere.test"
    assert data[4]["error"]["filename"] == "a.exe"
    assert data[6]["error"]["template"] == "nobody-made-this"
    refused = [one["error"] for one in data if one["status"] == "refused"]
    assert all(error["message"] for error in refused)
    assert [error["docs"].rpartition("#")[2] for error in refused] == [error["type"] for error in refused]
    assert not any("retryAfter" in one["error"] for one in data if one["status"] == "refused")
    assert await sent_today(api, account) == 2


@pytest.mark.parametrize(
    ("item", "field"),
    [
        (b'{"to":"a@b.test"}', "from"),
        (b"null", "body"),
        (b"5", "body"),
        (b"[]", "body"),
        (b'"x"', "body"),
        (b"{}", "from"),
        (b'{"from":5}', "from"),
        (b'{"unknown":1}', "unknown"),
        (b'{"from":"a@b.test","to":["x"]}', "to[0]"),
        (b'{"subject":"\xff"}', "body"),
        (b'{"templateVersion":' + b"9" * 5000 + b"}", "templateVersion"),
        (b'{"text":1e999}', "text"),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_an_item_of_the_wrong_type_fails_alone(api: Api, account: TestAccount, item: bytes, field: str) -> None:
    good = orjson.dumps(account.email())
    body = b'{"messages":[' + good + b"," + item + b"," + good + b"]}"
    answer = await api.post("/v1/emails/batch", account.token, body=body)

    found = errors(answer)
    assert (found[0], found[2]) == (None, None)
    assert found[1] is not None
    assert found[1][0] == "invalid_request"
    assert found[1][1] in {field, "body"}
    assert await sent_today(api, account) == 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "body"), (b"{", "body"), (b"null", "body"), (b"[]", "body"), (b"{}", "messages"),
        (b'{"messages":[]}', "messages"), (b'{"messages":null}', "messages"), (b'{"messages":{}}', "messages"),
        (b'{"messages":[{}],"more":1}', "more"), (b'{"messages":[{},]}', "body"), (b'{"messages":[nul]}', "body"),
        (b'{"messages":[{"subject":"\\ud800"}]}', "body"),
        (b'{"messages":[' + b"[" * 100_000, "body"), (b'{"messages":[' + b"{}," * 100 + b"{}]}", "messages"),
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
async def test_only_a_batch_that_is_none_is_refused_as_a_whole(
    api: Api, account: TestAccount, body: bytes, field: str
) -> None:
    answer = await api.post("/v1/emails/batch", account.token, body=body)

    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", field)


async def test_a_batch_of_refusals_only_is_still_200(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    answer = await send(api, account, {}, account.email(to="x@"), 5)

    assert (answer.status, answer.json["accepted"], answer.json["refused"]) == (200, 0, 3)
    assert await pool.fetchval("SELECT count(*) FROM events WHERE account_id = $1", account.id) == 0


# -- keys -------------------------------------------------------------------------------------


async def test_the_second_of_two_items_with_one_key_is_the_duplicate(api: Api, account: TestAccount) -> None:
    one = account.email(idempotencyKey="k")
    answer = await send(api, account, one, account.email(), one, account.email(idempotencyKey="k", subject="Another"))

    data = answer.json["data"]
    assert [item["status"] for item in data] == ["queued", "queued", "duplicate", "duplicate"]
    assert data[2] == {"index": 2, "status": "duplicate", "id": data[0]["id"]}
    assert data[3] == {"index": 3, "status": "duplicate", "id": data[0]["id"], "bodyDiffers": True}
    assert (answer.json["accepted"], answer.json["duplicates"]) == (2, 2)
    assert await sent_today(api, account) == 2


async def test_a_replayed_batch_is_all_duplicates(api: Api, account: TestAccount) -> None:
    messages = [account.email(idempotencyKey=f"order-{n}") for n in range(20)]
    first, again = await send(api, account, *messages), await send(api, account, *messages)

    assert [one["id"] for one in again.json["data"]] == [one["id"] for one in first.json["data"]]
    assert (again.json["accepted"], again.json["duplicates"], again.json["refused"]) == (0, 20, 0)
    assert await sent_today(api, account) == 20


async def test_a_replay_in_a_batch_is_answered_though_it_would_be_refused_by_now(
    api: Api, account: TestAccount
) -> None:
    good, bad = account.email(idempotencyKey="k"), account.email(idempotencyKey="k", to="nonsense")
    other = account.email(idempotencyKey="other", to="nonsense")
    answer = await send(api, account, bad, good, bad, other)

    data = answer.json["data"]
    assert [one["status"] for one in data] == ["refused", "queued", "duplicate", "refused"]  # as one after the other
    assert (data[2]["id"], data[2]["bodyDiffers"]) == (data[1]["id"], True)
    again = (await send(api, account, bad, other)).json["data"]
    assert [one["status"] for one in again] == ["duplicate", "refused"]


async def test_parallel_batches_with_the_same_keys_send_each_once(api: Api, account: TestAccount) -> None:
    messages = [account.email(idempotencyKey=f"k{n}") for n in range(25)]
    answers = await asyncio.gather(*[send(api, account, *messages) for _ in range(8)])

    assert sum(answer.json["accepted"] for answer in answers) == 25
    assert sum(answer.json["duplicates"] for answer in answers) == 175
    for n in range(25):
        assert len({answer.json["data"][n]["id"] for answer in answers}) == 1
    assert await sent_today(api, account) == 25


# -- quota ------------------------------------------------------------------------------------


async def test_the_first_items_get_what_quota_is_left(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=5)
    answer = await send(api, account, *[account.email() for _ in range(8)])

    assert [one["status"] for one in answer.json["data"]] == ["queued"] * 5 + ["refused"] * 3
    error = answer.json["data"][5]["error"]
    assert (error["type"], error["limit"], error["sentToday"]) == ("daily_limit_reached", 5, 5)
    alone = await api.post("/v1/emails", account.token, account.email())
    left = int(alone.headers["retry-after"])
    assert left <= error["retryAfter"] <= left + 60
    assert "retryAfter" not in alone.error, "one request alone is told by the header"


async def test_a_refused_item_takes_no_quota_from_those_behind_it(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=2)
    answer = await send(api, account, account.email(to="x@"), account.email(), {}, account.email(), account.email())

    assert [one["status"] for one in answer.json["data"]] == ["refused", "queued", "refused", "queued", "refused"]


async def test_batches_and_single_sends_share_the_quota_exactly(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=50)
    batch = {"messages": [account.email() for _ in range(7)]}
    answers = await asyncio.gather(
        *[api.post("/v1/emails/batch", account.token, batch) for _ in range(8)],
        *[api.post("/v1/emails", account.token, account.email()) for _ in range(20)],
    )

    accepted = sum(one.json["accepted"] for one in answers if one.status == 200)
    single = Counter(one.status for one in answers if one.status != 200)
    assert set(single) <= {202, 429}
    assert accepted + single[202] == 50
    assert await sent_today(api, account) == 50
    assert await pool.fetchval("SELECT count(*) FROM messages WHERE account_id = $1", account.id) == 50


# -- sizes ------------------------------------------------------------------------------------


async def test_a_large_batch_is_taken(api: Api, account: TestAccount) -> None:
    answer = await send(api, account, *[account.email(text="word " * 60_000) for _ in range(10)])

    assert (answer.status, answer.json["accepted"]) == (200, 10)


async def test_what_templates_make_of_a_small_batch_is_bounded(
    settings: Settings, pool: asyncpg.Pool, http: aiohttp.ClientSession, tmp_path: Any, account: TestAccount
) -> None:
    own = structs.replace(settings, max_request_bytes=320 * 1024)
    with serving(own, tmp_path / "api.log") as url:
        api = Api(url, http)
        html = "<p>" + "{{word}}" * 25 + "</p>"
        made = await api.post("/v1/templates", account.token, {"id": "long", "subject": "Long", "html": html})
        assert made.status == 201, made
        item = account.email(text=None, template="long", variables={"word": "w" * 4000})
        answer = await send(api, account, *[item] * 4, account.email())

    assert answer.status == 200
    found = [one["status"] for one in answer.json["data"]]
    assert found == ["queued", "queued", "refused", "refused", "queued"]
    error = answer.json["data"][2]["error"]
    assert (error["type"], error["limit"]) == ("payload_too_large", 320 * 1024)


async def test_an_id_of_a_batch_is_a_message(api: Api, account: TestAccount) -> None:
    answer = await send(api, account, account.email())

    ids.parse_id(ids.Kind.MESSAGE, answer.json["data"][0]["id"])
