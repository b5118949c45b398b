"""`scheduledAt`, `deliverBy` and `DELETE /v1/emails/{id}/schedule` as customers meet them."""

from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any

import asyncpg
import orjson
import pytest

from engine.base import clock, ids
from engine.base.plans import CAPS, Plan
from engine.sending.suppressions import store as suppressions
from tests.harness.accounts import TestAccount, add_key, make_account
from tests.harness.api import Answer, Api
from tests.harness.emails import send, sent_today
from tests.harness.schedules import within

PDF = {"filename": "a.pdf", "contentType": "application/pdf", "content": "aGk="}


async def message(api: Api, account: TestAccount, answer: Answer) -> Any:
    return (await api.get(f"/v1/messages/{answer.json['id']}", account.token)).json


# -- scheduling -------------------------------------------------------------------------------


async def test_a_message_for_later_is_scheduled(api: Api, account: TestAccount) -> None:
    at = within(hours=3)
    answer = await send(api, account, scheduledAt=at, cc=["bob@other.test"], attachments=[PDF])

    assert (answer.status, answer.json) == (202, {"id": answer.json["id"], "status": "scheduled"})
    found = await message(api, account, answer)
    assert (found["status"], found["scheduledAt"]) == ("scheduled", at)
    assert {one["status"] for one in found["recipients"]} == {"scheduled"}
    [event] = found["waybill"]
    assert event["type"] == "scheduled"
    [file] = event["detail"].pop("attachments")
    assert (file["filename"], file["content_type"], file["size_bytes"]) == ("a.pdf", "application/pdf", 2)
    assert event["detail"] == {
        "source": "api", "to_domain": "people.test", "from_domain": account.domain, "stream": "transactional",
        "scheduled_at": at,
    }  # fmt: skip
    assert await sent_today(api, account) == 0


async def test_a_scheduled_event_names_attachments_only_where_there_are_any(api: Api, account: TestAccount) -> None:
    found = await message(api, account, await send(api, account, scheduledAt=within(hours=3)))

    assert "attachments" not in found["waybill"][0]["detail"]


async def test_an_offset_is_the_same_moment(api: Api, account: TestAccount) -> None:
    at = (datetime.now(UTC) + timedelta(hours=5)).replace(microsecond=0)
    local = at.astimezone().isoformat() if at.astimezone().utcoffset() else at.isoformat()
    answers = [
        await send(api, account, scheduledAt=text)
        for text in (local, (at + timedelta(hours=2)).isoformat().replace("+00:00", "+02:00"))
    ]

    assert [(await message(api, account, one))["scheduledAt"] for one in answers] == [clock.iso(at)] * 2


@pytest.mark.parametrize("seconds", [-3600, 0, 50])
async def test_a_time_in_the_past_or_within_a_minute_is_at_once(api: Api, account: TestAccount, seconds: int) -> None:
    answer = await send(api, account, scheduledAt=within(seconds=seconds))

    assert (answer.status, answer.json["status"]) == (202, "queued")
    found = await message(api, account, answer)
    assert (found["scheduledAt"], found["waybill"][0]["type"]) == (None, "accepted")
    assert found["waybill"][0]["detail"]["source"] == "api"


@pytest.mark.parametrize("plan", list(Plan))
async def test_a_plan_says_how_far_ahead(api: Api, pool: asyncpg.Pool, plan: Plan) -> None:
    account = await make_account(pool, plan=plan.value)
    days = CAPS[plan].schedule_days

    assert (await send(api, account, scheduledAt=within(days=days, seconds=-5))).status == 202
    answer = await send(api, account, scheduledAt=within(days=days, seconds=30))
    assert (answer.status, answer.error["type"]) == (400, "invalid_request")
    assert (answer.error["field"], answer.error["limit"]) == ("scheduledAt", days)


async def test_scheduling_is_checked_as_a_send_is(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    await suppressions.ADD.execute(pool, [account.id], ["gone@people.test"], ["bounce"], [None], [None])
    at = within(hours=1)

    for fields, status, kind in (
        ({"from": "a@elsewhere.test"}, 403, "domain_not_verified"),
        ({"to": "gone@people.test"}, 422, "suppressed"),
        ({"attachments": [PDF | {"filename": "a.exe"}]}, 422, "attachment_blocked"),
        ({"stream": "none"}, 400, "invalid_request"),
    ):
        answer = await send(api, account, scheduledAt=at, **fields)
        assert (answer.status, answer.error["type"]) == (status, kind)
    events = await pool.fetch("SELECT type, message_id FROM events WHERE account_id = $1", account.id)
    assert [tuple(row) for row in events] == [("suppressed", None)]


async def test_a_day_that_is_used_up_cannot_be_waited_for(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=1)
    await send(api, account)
    now = datetime.now(UTC)
    left = timedelta(seconds=clock.seconds_until_next_day(now))
    tomorrow = await send(api, account, scheduledAt=clock.iso(now + left + timedelta(minutes=5)))

    assert tomorrow.json["status"] == "scheduled"
    if left > timedelta(minutes=3):  # else today has no later time left
        answer = await send(api, account, scheduledAt=clock.iso(now + timedelta(minutes=2)))
        assert (answer.status, answer.error["type"]) == (429, "daily_limit_reached")
        assert (answer.error["limit"], answer.error["sentToday"]) == (1, 1)
        assert int(answer.headers["retry-after"]) > 0


async def test_a_month_that_is_used_up_cannot_be_waited_for(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="scale", monthly_cap=1)
    await send(api, account)
    now = datetime.now(UTC)
    later = [now + timedelta(days=days) for days in (0.01, 13)]

    for at in later:
        answer = await send(api, account, scheduledAt=clock.iso(at))
        if at.month == now.month:
            assert (answer.status, answer.error["type"]) == (429, "monthly_limit_reached")
        else:
            assert answer.json["status"] == "scheduled"


async def test_a_key_is_replayed_for_a_scheduled_message(api: Api, account: TestAccount) -> None:
    first = await send(api, account, scheduledAt=within(hours=1), idempotencyKey="k")
    again = await send(api, account, scheduledAt=within(hours=1), idempotencyKey="k")

    assert (again.status, again.json["status"], again.json["id"]) == (200, "duplicate", first.json["id"])
    assert again.json["bodyDiffers"]  # its time was another


async def test_deliver_by_is_read_back_while_the_message_waits(api: Api, account: TestAccount) -> None:
    end = within(hours=5)
    for given in ({"deliverBy": end}, {"deliverBy": end, "scheduledAt": within(hours=3)}):
        assert (await message(api, account, await send(api, account, **given)))["deliverBy"] == end
    assert (await message(api, account, await send(api, account)))["deliverBy"] is None


async def test_deliver_by_is_kept_for_the_retries(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    end = clock.now() + timedelta(minutes=10)
    answer = await send(api, account, deliverBy=clock.iso(end))

    assert answer.json["status"] == "queued"
    stored = await pool.fetchval(
        "SELECT deliver_by FROM queue WHERE message_id = $1", ids.parse_id(ids.Kind.MESSAGE, answer.json["id"])
    )
    assert stored == end


# -- another time -------------------------------------------------------------------------------


async def move(api: Api, account: TestAccount, id_: str, at: object, token: str | None = None) -> Answer:
    body = orjson.dumps({"scheduledAt": at})
    headers = {"Content-Type": "application/json"}
    return await api.request(
        "PATCH", f"/v1/emails/{id_}/schedule", token=token or account.token, body=body, headers=headers
    )


async def test_a_scheduled_message_can_be_given_another_time(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    before, after = within(hours=3), within(hours=5)
    # A line of the body that looks like our Date must stay what it is.
    dated = format_datetime(clock.parse_iso(before).replace(microsecond=0))
    made = await send(api, account, scheduledAt=before, text=f"Hello\r\nDate: {dated}\r\n", attachments=[PDF])
    answer = await move(api, account, made.json["id"], after)

    assert (answer.status, answer.json) == (200, {"id": made.json["id"], "status": "scheduled", "scheduledAt": after})
    found = await message(api, account, made)
    assert (found["status"], found["scheduledAt"]) == ("scheduled", after)
    first, second = found["waybill"]
    assert second["type"] == "scheduled"
    assert second["detail"].pop("actor").startswith("key_")
    assert second["detail"] == first["detail"] | {"scheduled_at": after, "previously_at": before}
    raw = (await api.get(f"/v1/messages/{made.json['id']}/raw", account.token)).body
    assert parsedate_to_datetime(message_from_bytes(raw)["Date"]) == clock.parse_iso(after).replace(microsecond=0)
    assert f"Date: {dated}" in found["text"]
    row = await pool.fetchrow("SELECT due_at, look_at FROM schedules WHERE account_id = $1", account.id)
    assert row is not None
    assert [clock.iso(at) for at in row] == [after, after]
    assert await pool.fetchval("SELECT scheduled FROM account_heads WHERE account_id = $1", account.id) == 1


async def test_another_time_that_has_come_is_now(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    made = await send(api, account, scheduledAt=within(hours=3))
    answer = await move(api, account, made.json["id"], "2020-01-01T00:00:00Z")

    assert clock.parse_iso(answer.json["scheduledAt"]) <= clock.now()
    assert await pool.fetchval("SELECT look_at <= now() FROM schedules WHERE account_id = $1", account.id)


async def test_another_time_is_held_to_what_the_first_one_was(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="starter", daily_cap=1)
    ahead = CAPS[Plan.STARTER].schedule_days
    tomorrow = within(days=1)
    made = (await send(api, account, scheduledAt=tomorrow, deliverBy=within(days=1, hours=2))).json["id"]
    reader = await add_key(pool, account.id, scopes=["messages:read"])

    far = await move(api, account, made, within(days=ahead, minutes=1))
    late = await move(api, account, made, within(days=1, hours=2))
    bad = await move(api, account, made, "soon")
    assert (far.status, far.error["field"]) == (400, "scheduledAt")
    assert (late.status, late.error["field"]) == (400, "scheduledAt")
    assert "deliverBy" in late.error["message"]
    assert (bad.status, bad.error["field"]) == (400, "scheduledAt")
    assert (await move(api, account, made, None)).status == 400
    assert (await move(api, account, made, tomorrow, reader)).error["scope"] == "emails:send"
    assert (await send(api, account)).status == 202
    full = await move(api, account, made, "2020-01-01T00:00:00Z")
    assert (full.status, full.error["type"]) == (429, "daily_limit_reached")
    shown = (await api.get(f"/v1/messages/{made}", account.token)).json
    assert (shown["scheduledAt"], len(shown["waybill"])) == (tomorrow, 1)


async def test_a_key_for_other_domains_or_streams_leaves_the_schedule_alone(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    at = within(hours=3)
    made = (await send(api, account, scheduledAt=at)).json["id"]
    for column, value in (("domains", "other.test"), ("streams", "news")):
        limited = await add_key(pool, account.id)
        await pool.execute(
            f"UPDATE api_keys SET {column} = ARRAY[$3] WHERE account_id = $1 AND key_id = $2",
            account.id, limited[9:21], value,
        )  # fmt: skip
        moved = await move(api, account, made, within(hours=4), limited)
        canceled = await api.request("DELETE", f"/v1/emails/{made}/schedule", token=limited)
        assert [(one.status, one.error["type"]) for one in (moved, canceled)] == [(404, "not_found")] * 2
    assert (await api.get(f"/v1/messages/{made}", account.token)).json["scheduledAt"] == at


async def test_what_does_not_wait_gets_no_other_time(api: Api, account: TestAccount) -> None:
    sent = (await send(api, account)).json["id"]
    canceled = (await send(api, account, scheduledAt=within(hours=3))).json["id"]
    await api.request("DELETE", f"/v1/emails/{canceled}/schedule", token=account.token)

    for id_, status in ((sent, "queued"), (canceled, "canceled")):
        answer = await move(api, account, id_, within(hours=4))
        assert (answer.status, answer.error["type"], answer.error["status"]) == (409, "invalid_state", status)
    unknown = ids.format_id(ids.Kind.MESSAGE, ids.uuid7())
    for id_ in (unknown, "msg_x", "evt_" + unknown[4:]):
        assert (await move(api, account, id_, within(hours=4))).status == 404


# -- canceling --------------------------------------------------------------------------------


async def test_a_scheduled_message_can_be_canceled(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    at = within(hours=3)
    made = await send(api, account, scheduledAt=at, to=["ann@one.test", "bob@two.test"])
    answer = await api.request("DELETE", f"/v1/emails/{made.json['id']}/schedule", token=account.token)

    assert (answer.status, answer.json) == (200, {"id": made.json["id"], "status": "canceled"})
    found = await message(api, account, made)
    assert found["status"] == "canceled"
    assert {one["status"] for one in found["recipients"]} == {"canceled"}
    assert [event["type"] for event in found["waybill"]] == ["scheduled", "schedule_canceled"]
    key = (await api.get("/v1/api-keys", account.token)).json["data"][0]["id"]
    assert found["waybill"][1]["detail"] == {"scheduled_at": at, "actor": key}
    assert await pool.fetchval("SELECT scheduled FROM account_heads WHERE account_id = $1", account.id) == 0
    assert await pool.fetchval("SELECT count(*) FROM schedules WHERE account_id = $1", account.id) == 0
    assert await sent_today(api, account) == 0


async def test_what_does_not_wait_cannot_be_canceled(api: Api, account: TestAccount) -> None:
    sent = await send(api, account)
    waiting = await send(api, account, scheduledAt=within(hours=3))
    path = f"/v1/emails/{waiting.json['id']}/schedule"
    await api.request("DELETE", path, token=account.token)

    for id_, status in ((sent.json["id"], "queued"), (waiting.json["id"], "canceled")):
        answer = await api.request("DELETE", f"/v1/emails/{id_}/schedule", token=account.token)
        assert (answer.status, answer.error["type"], answer.error["status"]) == (409, "invalid_state", status)


async def test_a_canceled_message_is_posted_to_webhooks(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    webhook = ids.uuid7()
    await pool.execute(
        "INSERT INTO webhooks (id, account_id, url, sealed_secret) VALUES ($1, $2, 'https://x.test', '')",
        webhook,
        account.id,
    )
    made = await send(api, account, scheduledAt=within(hours=3))
    await api.request("DELETE", f"/v1/emails/{made.json['id']}/schedule", token=account.token)

    rows = await pool.fetch(
        "SELECT e.type, e.payload FROM webhook_queue q JOIN events e ON e.id = q.event_id "
        "WHERE q.webhook_id = $1 ORDER BY e.seq",
        webhook,
    )
    assert [row["type"] for row in rows] == ["scheduled", "schedule_canceled"]
    assert {orjson.loads(row["payload"])["messageId"] for row in rows} == {made.json["id"]}
    await pool.execute("UPDATE webhooks SET status = 'deleted' WHERE id = $1", webhook)
