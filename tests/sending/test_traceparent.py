"""`traceparent` of a send: kept on the message, in the detail of its events, and in no mail."""

from typing import Any

import asyncpg
import orjson
import pytest

from engine.base import clock, ids
from engine.sending.complaint import Complaint, complain
from engine.sending.settle import Settler
from tests.harness.accounts import TestAccount
from tests.harness.api import Answer, Api
from tests.harness.schedules import within
from tests.harness.sending import DEFERRED, DELIVERED, attempt_at, rows_of

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b8-00"
HEADER = {"traceparent": GIVEN}


async def post(api: Api, account: TestAccount, **fields: object) -> Answer:
    answer = await api.post("/v1/emails", account.token, account.email(**fields), headers=HEADER)
    assert answer.status in {200, 202}, answer
    return answer


async def shown(api: Api, account: TestAccount, answer: Answer) -> dict[str, Any]:
    return dict((await api.get(f"/v1/messages/{answer.json['id']}", account.token)).json)


async def payloads(pool: asyncpg.Pool, answer: Answer) -> list[str]:
    message = ids.parse_id(ids.Kind.MESSAGE, answer.json["id"])
    rows = await pool.fetch("SELECT payload FROM events WHERE message_id = $1 ORDER BY seq", message)
    return [row["payload"] for row in rows]


async def test_a_message_and_all_its_events_show_it(
    api: Api, account: TestAccount, pool: asyncpg.Pool, settler: Settler
) -> None:
    answer = await post(api, account, to=["a@one.test", "b@two.test"])
    for row in await rows_of(pool, ids.parse_id(ids.Kind.MESSAGE, answer.json["id"])):
        assert row.traceparent == GIVEN
        assert await settler.settle(attempt_at(row, DEFERRED))

    found = await shown(api, account, answer)

    assert found["traceparent"] == GIVEN
    assert [one["detail"]["traceparent"] for one in found["waybill"]] == [GIVEN] * len(found["waybill"])
    assert len(found["waybill"]) == 5  # accepted, and for each domain attempted and deferred
    assert all('"detail":{"traceparent":"' in one for one in await payloads(pool, answer))


async def test_a_send_without_one_and_with_an_invalid_one_has_none(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    for headers in ({}, {"traceparent": GIVEN.upper()}, {"traceparent": f"{GIVEN},{OTHER}"}):
        answer = await api.post("/v1/emails", account.token, account.email(), headers=headers)
        assert answer.status == 202
        assert (await shown(api, account, answer))["traceparent"] is None
        assert all("traceparent" not in one for one in await payloads(pool, answer))


async def test_every_message_of_a_batch_has_it(api: Api, account: TestAccount) -> None:
    answer = await api.post(
        "/v1/emails/batch", account.token, {"messages": [account.email(), account.email()]}, headers=HEADER
    )

    listed = (await api.get("/v1/messages", account.token)).json["data"]

    assert answer.json["accepted"] == 2
    assert [one["traceparent"] for one in listed] == [GIVEN] * 2


async def test_a_send_of_an_agent_has_it(api: Api, account: TestAccount) -> None:
    mail = account.email()
    dry = await api.post("/v1/agent-sends", account.token, {"email": mail, "dryRun": True}, headers=HEADER)
    body = {"email": mail, "token": dry.json["token"]}
    sent = (await api.post("/v1/agent-sends", account.token, body, headers=HEADER)).json["messageId"]

    assert (await api.get(f"/v1/messages/{sent}", account.token)).json["traceparent"] == GIVEN


async def test_a_scheduled_message_keeps_it_for_its_change_and_its_cancellation(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    answer = await post(api, account, scheduledAt=within(hours=3))
    path = f"/v1/emails/{answer.json['id']}/schedule"

    assert (await api.patch(path, account.token, {"scheduledAt": within(hours=2)})).status == 200
    assert (await api.delete(path, account.token)).status == 200

    details = [orjson.loads(one)["detail"] for one in await payloads(pool, answer)]
    assert [one["traceparent"] for one in details] == [GIVEN] * 3


async def test_an_answer_to_a_key_ignores_another_one(api: Api, account: TestAccount) -> None:
    first = await post(api, account, idempotencyKey="once")
    again = await api.post(
        "/v1/emails", account.token, account.email(idempotencyKey="once"), headers={"traceparent": OTHER}
    )

    assert again.json == {"id": first.json["id"], "status": "duplicate"}
    assert (await shown(api, account, first))["traceparent"] == GIVEN


@pytest.mark.parametrize("name", ["traceparent", "Traceparent"])
async def test_a_header_of_the_message_counts_before_that_of_the_request_and_is_not_sent(
    api: Api, account: TestAccount, name: str
) -> None:
    own = {name: OTHER, "TraceState": "vendor=1", "X-Kept": "yes"}
    answer = await post(api, account, headers=own, idempotencyKey="once")

    raw = (await api.get(f"/v1/messages/{answer.json['id']}/raw", account.token)).body.lower()

    assert (await shown(api, account, answer))["traceparent"] == OTHER
    assert b"x-kept: yes" in raw
    assert b"trace" not in raw
    again = await post(api, account, headers=own | {name: GIVEN}, idempotencyKey="once")
    assert again.json == {"id": answer.json["id"], "status": "duplicate"}  # without `bodyDiffers`


@pytest.mark.parametrize("option", ["", "X-Waybill-Template: hello\r\n"])
async def test_a_composed_message_names_it_in_a_header_that_is_removed(
    api: Api, account: TestAccount, option: str
) -> None:
    made = {"id": "hello", "subject": "Hello", "text": "Hello!"}
    assert (await api.post("/v1/templates", account.token, made)).status == 201
    head = f"Traceparent: {OTHER}\r\nTracestate: a=b\r\n{option}From: {account.sender}\r\nTo: ann@people.test\r\n"
    octets = (head + ("" if option else "Subject: Hi\r\n\r\nHello\r\n")).encode()
    sent = [("Content-Type", "message/rfc822"), ("traceparent", GIVEN)]
    answer = await api.post("/v1/emails/raw", account.token, body=octets, headers=sent)
    assert answer.status == 202, answer

    raw = (await api.get(f"/v1/messages/{answer.json['id']}/raw", account.token)).body.lower()

    assert (await shown(api, account, answer))["traceparent"] == OTHER
    assert b"trace" not in raw


async def test_events_that_come_late_have_it_too(
    api: Api, account: TestAccount, pool: asyncpg.Pool, settler: Settler
) -> None:
    answer = await post(api, account, to="ann@late.test")
    message = ids.parse_id(ids.Kind.MESSAGE, answer.json["id"])
    [row] = await rows_of(pool, message)
    assert await settler.settle(attempt_at(row, DELIVERED))
    assert await complain(pool, message, 0, at=clock.now()) is Complaint.RECORDED

    details = [orjson.loads(one)["detail"] for one in await payloads(pool, answer)]
    assert [one["traceparent"] for one in details] == [GIVEN] * 4
