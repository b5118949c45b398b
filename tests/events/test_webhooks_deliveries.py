"""What was posted to an endpoint, as the API shows it, and posted once more."""

from typing import Any
from uuid import UUID

import asyncpg
import pytest

from engine.base import ids
from engine.base.settings import Settings
from engine.events.webhooks.deliveries import DeliveryFilter, chosen
from engine.events.webhooks.types import CandidateRow
from tests.harness.accounts import TestAccount
from tests.harness.api import Answer, Api
from tests.harness.receiver import World

URL = "https://hooks.example.com/in?key=1"
JSON = {"Content-Type": "application/json"}


async def patch(api: Api, token: str, webhook: str, body: bytes) -> Answer:
    return await api.request("PATCH", f"/v1/webhooks/{webhook}", token=token, body=body, headers=JSON)


async def made(api: Api, account: TestAccount, url: str = URL, **fields: object) -> dict[str, Any]:
    answer = await api.post("/v1/webhooks", account.token, {"url": url} | fields)
    assert answer.status == 201, answer.body
    return dict(answer.json)


@pytest.fixture
def here(settings: Settings, pool: asyncpg.Pool) -> World:
    return World(settings, pool)


async def test_a_test_event_is_queued_and_shown_as_pending(api: Api, account: TestAccount) -> None:
    new = await made(api, account, eventTypes=["bounced"])
    answer = await api.post(f"/v1/webhooks/{new['id']}/test", account.token, {})
    page = (await api.get(f"/v1/webhooks/{new['id']}/deliveries", account.token)).json

    assert answer.status == 202
    assert answer.json["webhooks"] == [new["id"]]
    [row] = page["data"]
    assert row | {"createdAt": None, "nextAttemptAt": None} == {
        "id": answer.json["id"], "type": "webhook.test", "messageId": None, "recipient": None, "subject": None,
        "createdAt": None, "state": "pending", "attempt": 0,
        "statusCode": None, "milliseconds": None, "answer": None, "error": None, "nextAttemptAt": None, "attempts": [],
    }  # fmt: skip
    assert row["nextAttemptAt"] is not None
    assert page["nextCursor"] is None


async def test_deliveries_show_every_attempt_newest_event_first(
    api: Api, account: TestAccount, pool: asyncpg.Pool, here: World
) -> None:
    new = await made(api, account)
    webhook = ids.parse_id(ids.Kind.WEBHOOK, new["id"])
    delivered, failed, waiting = await here.events(account, ["accepted", "attempted", "delivered"])
    for event, attempt, code, error in (
        (delivered, 1, 500, "responded with 500"), (delivered, 2, 200, None), (failed, 1, 410, "responded with 410"),
        (waiting, 1, None, "there was no response within 10 s"),
    ):  # fmt: skip
        await pool.execute(
            "INSERT INTO webhook_attempts (id, webhook_id, event_id, seq, attempt, started_at, milliseconds, "
            "delivered, status_code, answer, error) "
            "SELECT $1, $2, $3, seq, $4, now(), 12, $5, $6, $7, $8 FROM events WHERE id = $3",
            ids.uuid7(), webhook, event, attempt, code == 200, code, code and f"said {code}", error,
        )  # fmt: skip
    await pool.execute("DELETE FROM webhook_queue WHERE event_id = ANY($1)", [delivered, failed])
    path = f"/v1/webhooks/{new['id']}/deliveries"
    rows = (await api.get(path, account.token)).json["data"]

    assert [(row["type"], row["state"], row["attempt"], row["statusCode"], row["answer"]) for row in rows] == [
        ("delivered", "pending", 1, None, None),
        ("attempted", "failed", 1, 410, "said 410"),
        ("accepted", "delivered", 2, 200, "said 200"),
    ]
    assert [row["nextAttemptAt"] is None for row in rows] == [False, True, True]
    assert rows[0]["error"] == "there was no response within 10 s"
    first, second = rows[2]["attempts"]
    assert (first["attempt"], first["statusCode"], first["milliseconds"], first["error"]) == (
        1,
        500,
        12,
        "responded with 500",
    )
    assert (second["attempt"], second["statusCode"], second["error"]) == (2, 200, None)
    pages = []
    cursor = ""
    while True:
        page = (await api.get(f"{path}?limit=1{cursor}", account.token)).json
        pages += [row["id"] for row in page["data"]]
        if page["nextCursor"] is None:
            break
        cursor = f"&before={page['nextCursor']}"
    assert pages == [row["id"] for row in rows]


async def test_a_cursor_of_another_kind_is_refused(api: Api, account: TestAccount) -> None:
    new = await made(api, account)
    answer = await api.get(f"/v1/webhooks/{new['id']}/deliveries?before={new['id']}", account.token)

    assert (answer.status, answer.error["field"]) == (400, "before")


async def test_a_delivery_whose_event_was_purged_is_still_shown(
    api: Api, account: TestAccount, pool: asyncpg.Pool, here: World
) -> None:
    new = await made(api, account)
    event = await here.event(account)
    await pool.execute("DELETE FROM events WHERE id = $1", event)
    [row] = (await api.get(f"/v1/webhooks/{new['id']}/deliveries", account.token)).json["data"]

    assert (row["id"], row["type"]) == (ids.format_id(ids.Kind.EVENT, event), None)
    assert row["createdAt"].endswith("Z")


async def test_a_replay_goes_to_the_endpoints_that_had_the_event(api: Api, account: TestAccount, here: World) -> None:
    had = [(await made(api, account))["id"] for _ in range(2)]
    event = ids.format_id(ids.Kind.EVENT, await here.event(account))
    later = (await made(api, account))["id"]
    path = f"/v1/webhooks/deliveries/{event}/replay"

    answer = await api.request("POST", path, token=account.token, headers=JSON)
    assert (answer.status, answer.json) == (202, {"id": event, "webhooks": had})
    assert (await api.post(path, account.token, {"webhookId": None})).json["webhooks"] == had
    answer = await api.post(f"/v1/webhooks/deliveries/{event}/replay", account.token, {"webhookId": had[1]})
    assert answer.json == {"id": event, "webhooks": [had[1]]}
    answer = await api.post(path, account.token, {"webhookId": later})
    assert answer.json == {"id": event, "webhooks": [later]}


async def test_a_replay_spares_endpoints_that_are_disabled_or_deleted(
    api: Api, account: TestAccount, here: World
) -> None:
    active, disabled, deleted = [(await made(api, account))["id"] for _ in range(3)]
    event = ids.format_id(ids.Kind.EVENT, await here.event(account))
    await patch(api, account.token, disabled, b'{"status": "disabled"}')
    await api.request("DELETE", f"/v1/webhooks/{deleted}", token=account.token)
    path = f"/v1/webhooks/deliveries/{event}/replay"

    assert (await api.post(path, account.token, {})).json["webhooks"] == [active]
    assert (await api.post(path, account.token, {"webhookId": disabled})).json["webhooks"] == [disabled]
    assert (await api.post(path, account.token, {"webhookId": deleted})).status == 404


async def test_a_replay_of_what_nobody_had_is_not_found(
    api: Api, account: TestAccount, stranger: TestAccount, here: World
) -> None:
    foreign = (await made(api, stranger))["id"]
    unheard = ids.format_id(ids.Kind.EVENT, await here.event(account))
    own = (await made(api, account))["id"]
    path = f"/v1/webhooks/deliveries/{unheard}/replay"

    assert (await api.post(path, account.token, {})).status == 404
    assert (await api.post(path, account.token, {"webhookId": own})).status == 404
    assert (await api.post(path, account.token, {"webhookId": foreign})).status == 404
    wrong = await api.post(path, account.token, {"webhookId": "msg_01h455vb4pex5vsknk084sn02q"})
    assert (wrong.status, wrong.error["field"]) == (400, "webhookId")


async def test_acceptance_queues_its_event_for_the_endpoint(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    new = await made(api, account)
    await api.post("/v1/emails", account.token, account.email())
    [row] = (await api.get(f"/v1/webhooks/{new['id']}/deliveries", account.token)).json["data"]
    tip = await pool.fetchval("SELECT seq FROM account_heads WHERE account_id = $1", account.id)

    assert (row["type"], row["state"]) == ("accepted", "pending")
    assert tip == await pool.fetchval("SELECT seq FROM webhook_queue WHERE account_id = $1", account.id)


@pytest.mark.parametrize(("body", "status"), [(b"", 202), (b"{}", 415)])
async def test_a_media_type_matters_only_where_there_is_a_body(
    api: Api, account: TestAccount, body: bytes, status: int
) -> None:
    new = await made(api, account)
    event = (await api.post(f"/v1/webhooks/{new['id']}/test", account.token, {})).json["id"]

    answer = await api.request(
        "POST", f"/v1/webhooks/deliveries/{event}/replay", token=account.token, body=body,
        headers={"Content-Type": "application/octet-stream"},
    )  # fmt: skip

    assert answer.status == status


async def moved(pool: asyncpg.Pool, webhook: str, event: UUID, code: int) -> None:
    """Record an attempt that ended the delivery of an event with the answer `code`."""
    owner = ids.parse_id(ids.Kind.WEBHOOK, webhook)
    await pool.execute(
        "INSERT INTO webhook_attempts (id, webhook_id, event_id, seq, attempt, started_at, milliseconds, delivered, "
        "status_code) SELECT $1, $2, $3, seq, 1, now(), 12, $4, $5 FROM events WHERE id = $3",
        ids.uuid7(), owner, event, code == 200, code,
    )  # fmt: skip
    await pool.execute("DELETE FROM webhook_queue WHERE webhook_id = $1 AND event_id = $2", owner, event)


async def shown(api: Api, account: TestAccount, webhook: str, query: str) -> list[tuple[str, str]]:
    page = (await api.get(f"/v1/webhooks/{webhook}/deliveries?{query}", account.token)).json
    return [(row["type"], row["state"]) for row in page["data"]]


async def test_deliveries_are_filtered_by_state_type_and_time(
    api: Api, account: TestAccount, pool: asyncpg.Pool, here: World
) -> None:
    webhook = (await made(api, account))["id"]
    first, second, _ = await here.events(account, ["accepted", "delivered", "delivered"])
    await moved(pool, webhook, first, 200)
    await moved(pool, webhook, second, 410)

    assert await shown(api, account, webhook, "state=failed") == [("delivered", "failed")]
    assert await shown(api, account, webhook, "state=pending") == [("delivered", "pending")]
    assert await shown(api, account, webhook, "type=accepted") == [("accepted", "delivered")]
    assert await shown(api, account, webhook, "type=delivered&state=delivered") == []
    assert len(await shown(api, account, webhook, "from=2026-01-01T00:00:00Z")) == 3
    assert await shown(api, account, webhook, "until=2026-01-01T00:00:00Z") == []
    page = (await api.get(f"/v1/webhooks/{webhook}/deliveries?type=delivered&limit=1", account.token)).json
    rest = f"/v1/webhooks/{webhook}/deliveries?type=delivered&limit=1&before={page['nextCursor']}"
    assert [row["state"] for row in (await api.get(rest, account.token)).json["data"]] == ["failed"]
    refused = await api.get(f"/v1/webhooks/{webhook}/deliveries?from=yesterday", account.token)
    assert (refused.status, refused.error["field"]) == (400, "from")


def test_a_filtered_page_goes_on_where_its_reading_ended() -> None:
    found = [CandidateRow(UUID(int=100 - at), at, "failed" if at % 2 else "pending", "bounced") for at in range(6)]
    failed = DeliveryFilter(state="failed")

    assert chosen(found, failed, limit=2, scanned=6) == ([found[1], found[3]], found[3].event_id)
    assert chosen(found, failed, limit=3, scanned=6) == ([found[1], found[3], found[5]], found[5].event_id)
    assert chosen(found, failed, limit=9, scanned=7) == ([found[1], found[3], found[5]], None)
    assert chosen(found, DeliveryFilter(type="delivered"), limit=2, scanned=6) == ([], found[5].event_id)
    assert chosen([], failed, limit=2, scanned=6) == ([], None)


async def test_a_window_is_replayed_once(api: Api, account: TestAccount, pool: asyncpg.Pool, here: World) -> None:
    webhook = (await made(api, account))["id"]
    events = await here.events(account, ["accepted", "delivered", "bounced", "bounced"])
    for event, code in zip(events, (200, 410, 410, 410), strict=True):
        await moved(pool, webhook, event, code)
    path = f"/v1/webhooks/{webhook}/replay"

    one = await api.post(f"/v1/webhooks/{webhook}/replay", account.token, {"type": "bounced", "limit": 1})
    assert (one.status, one.json["queued"]) == (202, 1)
    assert one.json["nextCursor"] == ids.format_id(ids.Kind.EVENT, events[3])
    left = await api.post(path, account.token, {"type": "bounced", "before": one.json["nextCursor"]})
    assert left.json == {"queued": 1, "nextCursor": None}
    assert (await api.post(path, account.token, {})).json == {"queued": 1, "nextCursor": None}
    assert (await api.post(path, account.token, {})).json == {"queued": 0, "nextCursor": None}
    queued = await pool.fetch(
        "SELECT event_id, attempts, ladder_from FROM webhook_queue WHERE account_id = $1 ORDER BY event_id", account.id
    )
    assert [tuple(row) for row in queued] == [(event, 1, 1) for event in sorted(events[1:])]
    assert (await api.post(path, account.token, {"state": "delivered"})).json["queued"] == 1


async def test_what_waits_for_a_retry_is_posted_now(
    api: Api, account: TestAccount, pool: asyncpg.Pool, here: World
) -> None:
    webhook = (await made(api, account))["id"]
    await here.events(account, ["bounced", "bounced", "delivered"])
    later = "UPDATE webhook_queue SET due_at = now() + interval '6 hours', attempts = 5 WHERE account_id = $1"
    await pool.execute(later, account.id)
    path, body = f"/v1/webhooks/{webhook}/replay", {"state": "pending", "type": "bounced"}

    assert (await api.post(path, account.token, body)).json == {"queued": 2, "nextCursor": None}
    assert (await api.post(path, account.token, body)).json == {"queued": 0, "nextCursor": None}

    rows = await pool.fetch(
        "SELECT due_at <= now() AS due, attempts FROM webhook_queue WHERE account_id = $1", account.id
    )
    assert sorted(tuple(row) for row in rows) == [(False, 5), (True, 5), (True, 5)]


async def test_an_endpoint_has_a_description(api: Api, account: TestAccount) -> None:
    new = await made(api, account, description=" Shop ")
    path = f"/v1/webhooks/{new['id']}"

    assert new["description"] == "Shop"
    assert (await patch(api, account.token, new["id"], b'{"url": "https://a.example.com/"}')).json[
        "description"
    ] == "Shop"
    assert (await patch(api, account.token, new["id"], b'{"description": ""}')).json["description"] == ""
    assert (await api.get(path, account.token)).json["description"] == ""
    refused = await patch(api, account.token, new["id"], b'{"description": "two\\nlines"}')
    assert (refused.status, refused.error["field"]) == (400, "description")
