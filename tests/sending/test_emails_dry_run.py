"""`dryRun`: every check and the composition of a send, and no message."""

from datetime import timedelta
from typing import Any

import asyncpg

from engine.base import clock
from tests.harness.accounts import TestAccount
from tests.harness.api import Answer, Api


async def dry(api: Api, account: TestAccount, **fields: object) -> Answer:
    return await api.post("/v1/emails", account.token, account.email(**fields) | {"dryRun": True})


async def state(pool: asyncpg.Pool, account: TestAccount) -> Any:
    """The account's head, which every event and count changes, and its number of messages."""
    return await pool.fetchrow(
        "SELECT xmin::text, seq, sent_today, (SELECT count(*) FROM messages WHERE account_id = $1),"
        " (SELECT count(*) FROM queue WHERE account_id = $1) FROM account_heads WHERE account_id = $1",
        account.id,
    )


async def test_a_dry_run_answers_200_with_the_message_and_changes_nothing(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    before = await state(pool, account)
    answer = await dry(
        api, account, to=["Ann <ann@x.test>"], bcc=["bob@x.test"], subject="Grüße", text="Hi", html="<p>Hi</p>",
        tags=["a"], attachments=[{"filename": "a.txt", "contentType": "text/plain", "content": "aGk="}],
    )  # fmt: skip

    assert (answer.status, answer.json["dryRun"], answer.json["status"]) == (200, True, "queued")
    assert "id" not in answer.json
    message = answer.json["message"]
    assert (message["to"], message["bcc"], message["subject"]) == (["Ann <ann@x.test>"], ["bob@x.test"], "Grüße")
    assert (message["text"].strip(), message["html"].strip(), message["tags"]) == ("Hi", "<p>Hi</p>", ["a"])
    assert message["attachments"][0]["size_bytes"] == 2
    assert message["sizeBytes"] > 300
    assert await state(pool, account) == before


async def test_a_dry_run_is_refused_as_the_send_would_be_and_writes_no_event(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    await api.post("/v1/suppressions", account.token, {"address": "ann@x.test", "reason": "manual"})
    before = await state(pool, account)

    for fields, status, kind in (
        ({"to": "ann@x.test"}, 422, "suppressed"),
        ({"to": "nobody"}, 422, "invalid_address"),
        ({"from": "a@other.test"}, 403, "domain_not_verified"),
        ({"scheduledAt": clock.iso(clock.now() + timedelta(days=900))}, 400, "invalid_request"),
    ):
        answer = await dry(api, account, **fields)
        assert (answer.status, answer.error["type"]) == (status, kind)
    assert await state(pool, account) == before


async def test_a_dry_run_reports_used_up_allowances(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await api.post("/v1/emails", account.token, account.email())
    await pool.execute("UPDATE accounts SET daily_cap = 1 WHERE id = $1", account.id)

    assert (await dry(api, account)).error["type"] == "daily_limit_reached"


async def test_a_dry_run_knows_used_keys_and_leaves_a_new_one_unused(api: Api, account: TestAccount) -> None:
    assert (await dry(api, account, idempotencyKey="k")).json["status"] == "queued"
    sent = await api.post("/v1/emails", account.token, account.email(idempotencyKey="k"))
    assert sent.status == 202

    answer = await dry(api, account, idempotencyKey="k")
    assert (answer.json["status"], answer.json["id"]) == ("duplicate", sent.json["id"])
    assert "bodyDiffers" not in answer.json
    assert (await dry(api, account, idempotencyKey="k", subject="Other")).json["bodyDiffers"] is True


async def test_a_dry_run_of_a_batch_foresees_each_message_as_if_they_came_in_turn(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    await pool.execute("UPDATE accounts SET daily_cap = 1 WHERE id = $1", account.id)
    before = await state(pool, account)
    later = clock.iso(clock.now() + timedelta(hours=2))
    messages = [account.email(), account.email(), account.email(scheduledAt=later), account.email(to="nobody")]
    answer = await api.post(
        "/v1/emails/batch", account.token, {"messages": messages[2:] + messages[:2], "dryRun": True}
    )

    assert (answer.status, answer.json["dryRun"], answer.json["accepted"], answer.json["refused"]) == (200, True, 2, 2)
    rows = answer.json["data"]
    assert [row["status"] for row in rows] == ["scheduled", "refused", "queued", "refused"]
    assert rows[0]["message"]["scheduledAt"] == later
    assert "id" not in rows[0]
    assert rows[3]["error"]["type"] == "daily_limit_reached"
    assert await state(pool, account) == before
