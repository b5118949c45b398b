"""`POST /v1/messages/{id}/resend` and `POST /v1/messages/resend`: the same content as a new message."""

from datetime import UTC, datetime
from email import message_from_bytes
from email.policy import default
from typing import Any

import asyncpg
import pytest

from engine.base import ids
from engine.mail.resent import renewed
from engine.sending.emails.resent import UNFINISHED
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Answer, Api
from tests.harness.emails import sent_id
from tests.harness.settling import settle


async def delivered(api: Api, pool: asyncpg.Pool, account: TestAccount, **fields: object) -> str:
    message = await sent_id(api, account, **fields)
    await settle(pool, message)
    return message


async def again(api: Api, account: TestAccount, message: str, **body: object) -> Answer:
    return await api.post(f"/v1/messages/{message}/resend", account.token, body)


async def raw(api: Api, account: TestAccount, message: str) -> Any:
    answer = await api.get(f"/v1/messages/{message}/raw", account.token)
    return message_from_bytes(answer.body, policy=default)


async def test_the_new_message_has_the_content_of_the_first_and_a_date_and_id_of_its_own(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    first = await delivered(
        api, pool, account, to=["Ann <ann@x.test>"], cc=["bob@x.test"], bcc=["carl@y.test"], subject="Grüße",
        html="<p>Hi</p>", text="Hi", tags=["a"], metadata={"b": "c"}, replyTo="help@x.test",
        headers={"X-Order": "17", "References": "<a@b>"},
        attachments=[{"filename": "a.txt", "contentType": "text/plain", "content": "aGk="}],
    )  # fmt: skip
    answer = await again(api, account, first)
    assert (answer.status, answer.json["status"]) == (202, "queued")
    second = answer.json["id"]

    old = (await api.get(f"/v1/messages/{first}", account.token)).json
    new = (await api.get(f"/v1/messages/{second}", account.token)).json
    same = ("from", "to", "cc", "bcc", "subject", "text", "html", "tags", "metadata", "stream", "replyTo")
    assert {name: new[name] for name in same} == {name: old[name] for name in same}
    assert (new["resentFrom"], new["status"], new["source"]) == (first, "queued", "api")
    assert [event["type"] for event in new["waybill"]] == ["accepted"]
    (attachment,) = new["attachments"]
    path = f"/v1/messages/{second}/attachments/{attachment['id']}"
    assert (await api.get(path, account.token)).body == b"hi"
    before, after = await raw(api, account, first), await raw(api, account, second)
    assert after["Message-ID"] == f"<{ids.body_of(second)}@{account.domain}>" != before["Message-ID"]
    assert (after["X-Order"], after["References"], after["Bcc"]) == ("17", "<a@b>", None)
    assert (
        await pool.fetchval("SELECT count(*) FROM queue WHERE message_id = $1", ids.parse_id(ids.Kind.MESSAGE, second))
        == 2
    )


async def test_a_repeated_key_answers_with_the_first_new_message(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    first, other = await delivered(api, pool, account), await delivered(api, pool, account)
    second = (await again(api, account, first, idempotencyKey="k")).json["id"]

    repeated = await again(api, account, first, idempotencyKey="k")
    assert (repeated.status, repeated.json) == (200, {"id": second, "status": "duplicate"})
    different = await again(api, account, other, idempotencyKey="k")
    assert different.json == {"id": second, "status": "duplicate", "bodyDiffers": True}
    await pool.execute("DELETE FROM message_bodies WHERE message_id = $1", ids.parse_id(ids.Kind.MESSAGE, first))
    assert (await again(api, account, first, idempotencyKey="k")).status == 200


@pytest.mark.parametrize("status", sorted(UNFINISHED))
async def test_a_message_on_its_way_is_409(api: Api, pool: asyncpg.Pool, account: TestAccount, status: str) -> None:
    message = await sent_id(api, account)
    await pool.execute("UPDATE messages SET status = $2 WHERE id = $1", ids.parse_id(ids.Kind.MESSAGE, message), status)

    answer = await again(api, account, message)
    assert (answer.status, answer.error["type"], answer.error["status"]) == (409, "invalid_state", status)


async def test_an_erased_content_and_one_that_is_private_are_409_and_an_unknown_message_404(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    message = await delivered(api, pool, account)
    stranger = await make_account(pool)
    assert (await again(api, stranger, message)).status == 404
    found = ids.parse_id(ids.Kind.MESSAGE, message)
    for source in ("verification", "forward"):
        await pool.execute("UPDATE messages SET source = $2 WHERE id = $1", found, source)
        assert (await again(api, account, message)).error["type"] == "invalid_state"
    await pool.execute("UPDATE messages SET source = 'api' WHERE id = $1", found)
    await pool.execute("DELETE FROM message_bodies WHERE message_id = $1", found)

    answer = await again(api, account, message)
    assert (answer.status, answer.error["type"], answer.error["status"]) == (409, "invalid_state", "delivered")
    assert "erased" in answer.error["message"]


async def test_a_resend_is_checked_as_any_send(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    message = await delivered(api, pool, account, to="ann@x.test")
    suppressed = await api.post("/v1/suppressions", account.token, {"address": "ann@x.test", "reason": "manual"})
    assert suppressed.status == 201, suppressed

    assert (await again(api, account, message)).error["type"] == "suppressed"
    reader = await make_account(pool, scopes=["messages:read"])
    assert (await again(api, reader, message)).error["scope"] == "emails:send"


async def test_many_are_sent_again_each_with_an_outcome_of_its_own(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    good, busy = await delivered(api, pool, account), await sent_id(api, account)
    unknown = ids.format_id(ids.Kind.MESSAGE, ids.uuid7())
    body = {"ids": [good, busy, unknown, "x"], "idempotencyKey": "click-1"}
    answer = await api.post("/v1/messages/resend", account.token, body)

    assert answer.status == 200, answer
    assert (answer.json["accepted"], answer.json["duplicates"], answer.json["refused"]) == (1, 0, 3)
    rows = answer.json["data"]
    assert [row["status"] for row in rows] == ["queued", "refused", "refused", "refused"]
    assert [row["resentFrom"] for row in rows] == body["ids"]
    assert [row["error"]["type"] for row in rows[1:]] == ["invalid_state", "not_found", "not_found"]
    await settle(pool, busy)
    repeated = (await api.post("/v1/messages/resend", account.token, body)).json
    assert [row["status"] for row in repeated["data"]] == ["duplicate", "queued", "refused", "refused"]
    assert repeated["data"][0]["id"] == rows[0]["id"]


@pytest.mark.parametrize("given", [[], ["msg_x"] * 101, ["msg_x", "msg_x"]])
async def test_a_bulk_request_holds_1_to_100_messages_each_once(
    api: Api, account: TestAccount, given: list[str]
) -> None:
    answer = await api.post("/v1/messages/resend", account.token, {"ids": given})
    assert (answer.status, answer.error["type"]) == (400, "invalid_request")


def test_only_date_identity_and_complaint_address_are_replaced() -> None:
    old = b"Received: x\r\nDate: a\r\nMessage-ID:\r\n <old@x>\r\nCFBL-Address: fbl@x\r\nSubject: s\r\n\r\nDate: b\r\n"
    at = datetime(2026, 11, 20, tzinfo=UTC)
    new = renewed(old, message_id="new@x", at=at, cfbl="CFBL-Address: fbl@y\r\n")
    assert new == (
        b"Date: Fri, 20 Nov 2026 00:00:00 +0000\r\nMessage-ID: <new@x>\r\nCFBL-Address: fbl@y\r\n"
        b"Received: x\r\nSubject: s\r\n\r\nDate: b\r\n"
    )
    assert b"CFBL-Address: fbl@x" in renewed(old, message_id="new@x", at=at, cfbl="")
