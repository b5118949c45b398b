"""Broadcasts over the API: drafts and their checks, moves between states, tests, previews, review, and the counts."""

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import orjson
import pytest

from engine.audience.broadcasts import outcomes as broadcast_outcomes
from engine.audience.broadcasts import rules, service, store
from engine.audience.broadcasts.types import MAX_UNFINISHED, MAX_UNFINISHED_BYTES, BroadcastStatus, UnfinishedBroadcasts
from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.base.plans import CAPS, Plan
from tests.harness.accounts import TestAccount, add_domain, add_key, make_account
from tests.harness.api import Answer, Api
from tests.harness.broadcasts import broadcast_events, make_list, with_stream
from tests.harness.patience import PATIENCE_S
from tests.harness.people import make_person

Made = dict[str, Any]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    return await with_stream(pool, await make_account(pool))


async def listed(pool: asyncpg.Pool, account: TestAccount, people: Any = ("ann@x.test", "bob@x.test")) -> str:
    return ids.format_id(ids.Kind.LIST, await make_list(pool, account, people))


async def post(api: Api, account: TestAccount, **fields: object) -> Answer:
    return await api.post("/v1/broadcasts", account.token, {"name": "News", "from": account.sender} | fields)


async def draft(api: Api, pool: asyncpg.Pool, account: TestAccount, **fields: object) -> Made:
    given = {"list": await listed(pool, account), "text": "Hello {{email}}"} | fields
    answer = await post(api, account, **{name: value for name, value in given.items() if value is not None})
    assert answer.status == 201, answer
    return dict(answer.json)


async def act(api: Api, account: TestAccount, made: Made, action: str, body: object = None) -> Answer:
    content, broadcast = b"" if body is None else None, made["id"]
    if action == "send":
        return await api.post(f"/v1/broadcasts/{broadcast}/send", account.token, body, body=content)
    if action == "test":
        return await api.post(f"/v1/broadcasts/{broadcast}/test", account.token, body)
    if action == "pause":
        return await api.post(f"/v1/broadcasts/{broadcast}/pause", account.token, body=b"")
    if action == "resume":
        return await api.post(f"/v1/broadcasts/{broadcast}/resume", account.token, body=b"")
    return await api.post(f"/v1/broadcasts/{broadcast}/cancel", account.token, body=b"")


async def read(api: Api, account: TestAccount, made: Made) -> Made:
    answer = await api.get(f"/v1/broadcasts/{made['id']}", account.token)
    assert answer.status == 200, answer
    return dict(answer.json)


def refused(answer: Answer, status: int, kind: str, field: str | None = None) -> bool:
    """Whether the answer is this refusal; `field` is what it names."""
    return answer.status == status and answer.error["type"] == kind and answer.error.get("field") == field


async def stream_names(api: Api, account: TestAccount) -> set[str]:
    return {one["id"] for one in (await api.get("/v1/streams", account.token)).json["data"]}


async def test_the_first_broadcast_creates_its_default_stream(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    body = {"name": "News", "list": await listed(pool, account), "from": account.sender}
    refused_one = await api.post("/v1/broadcasts", account.token, body | {"from": "news@elsewhere.test"})
    assert refused_one.status == 403
    assert await stream_names(api, account) == {"transactional"}

    made = await api.post("/v1/broadcasts", account.token, body)

    assert (made.status, made.json["stream"]) == (201, "announcements"), made.body
    assert await stream_names(api, account) == {"transactional", "announcements"}
    again = await asyncio.gather(*[api.post("/v1/broadcasts", account.token, body) for _ in range(3)])
    assert [one.status for one in again] == [201] * 3


async def test_a_broadcast_of_a_plan_with_one_stream_goes_out_on_it(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="free")
    body = {"name": "News", "list": await listed(pool, account), "from": account.sender}

    made = await api.post("/v1/broadcasts", account.token, body)

    assert (made.status, made.json["stream"]) == (201, "transactional"), made.body
    assert await stream_names(api, account) == {"transactional"}


async def test_where_the_plan_has_no_room_the_missing_stream_is_named(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="starter")
    for number in range((CAPS[Plan.STARTER].streams or 0) - 1):
        assert (await api.post("/v1/streams", account.token, {"id": f"s{number}"})).status == 201
    body = {"name": "News", "list": await listed(pool, account), "from": account.sender}

    answer = await api.post("/v1/broadcasts", account.token, body)

    assert refused(answer, 400, "invalid_request", "stream"), answer.body
    assert "announcements" in answer.error["message"]


async def test_a_draft_is_created_read_changed_and_listed(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    news = await listed(pool, account)
    made = await draft(
        api, pool, account, list=news, subject="Hi {{name}}", text="Hello", replyTo="a@x.test", perMinute=60
    )
    assert made == {
        "id": made["id"], "name": "News", "list": news, "segment": None, "stream": "announcements",
        "from": account.sender, "replyTo": "a@x.test", "template": None, "templateVersion": None,
        "subject": "Hi {{name}}", "html": None, "text": "Hello", "blocks": None, "attachments": [], "perMinute": 60,
        "status": "draft", "pausedBecause": None,
        "stoppedBecause": None, "waitsFor": None, "reviewNote": None, "scheduledAt": None, "startedAt": None,
        "finishedAt": None, "resumesAt": None, "createdAt": made["createdAt"], "updatedAt": made["createdAt"],
    }  # fmt: skip
    zero = dict.fromkeys(
        ("accepted", "skipped", "delivered", "bounced", "complained", "failed", "rejected", "unsubscribed"), 0
    )
    assert await read(api, account, made) == made | {
        "counts": {"recipients": 2, "waiting": 2} | zero,
        "skipped": dict.fromkeys(("suppressed", "removed", "template_error", "unconfirmed", "unsubscribed"), 0),
    }
    image = {"filename": "p.png", "contentType": "image/png", "content": PIXEL, "disposition": "inline", "cid": "p"}
    body = {"html": "<img src='cid:p'>", "replyTo": None, "attachments": [image]}
    changed = (await api.patch(f"/v1/broadcasts/{made['id']}", account.token, body)).json
    assert (changed["html"], changed["text"], changed["replyTo"]) == (body["html"], "Hello", None)
    assert changed["attachments"] == [
        {"filename": "p.png", "contentType": "image/png", "sizeBytes": 70, "disposition": "inline", "cid": "p"}
    ]
    number = ids.parse_id(ids.Kind.BROADCAST, made["id"])
    await pool.execute(
        "UPDATE broadcasts SET finished_at = now() - interval '31 days', status = 'canceled' WHERE id = $1", number
    )
    await broadcast_outcomes.forget_old(pool, clock.now())
    assert await pool.fetchval("SELECT attachments IS NULL FROM broadcasts WHERE id = $1", number)
    assert (await read(api, account, made))["attachments"] == changed["attachments"]
    page = (await api.get("/v1/broadcasts", account.token)).json
    assert page["data"][0]["id"] == made["id"]
    assert "html" not in page["data"][0]
    assert [kind for kind, _ in await broadcast_events(pool, account)] == ["created", "updated"]


async def test_unfinished_broadcasts_are_bounded_in_number_and_size(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    first = await draft(api, pool, account)
    await pool.execute(
        """INSERT INTO broadcasts (id, account_id, name, list_id, stream, sender, from_domain, created_at, updated_at)
        SELECT gen_random_uuid(), b.account_id, b.name, b.list_id, b.stream, b.sender, b.from_domain, now(), now()
        FROM broadcasts b, generate_series(2, $2) WHERE b.account_id = $1""",
        account.id, MAX_UNFINISHED,
    )  # fmt: skip

    many = await post(api, account, list=first["list"], text="Hello")
    assert refused(many, 409, "invalid_state"), many
    assert "500 unfinished broadcasts" in many.error["message"]
    assert (await api.patch(f"/v1/broadcasts/{first['id']}", account.token, {"name": "Other"})).status == 200
    assert (await api.delete(f"/v1/broadcasts/{first['id']}", account.token)).status == 204
    assert (await post(api, account, list=first["list"], text="Hello")).status == 201

    rules.check_room(UnfinishedBroadcasts(MAX_UNFINISHED, MAX_UNFINISHED_BYTES))
    with pytest.raises(Refusal, match="bytes of content; the limit is 536,870,912"):
        rules.check_room(UnfinishedBroadcasts(1, MAX_UNFINISHED_BYTES + 1))


@pytest.mark.parametrize(
    ("fields", "status", "kind", "field"),
    [
        ({"from": "a@stranger.test"}, 403, "domain_not_verified", None),
        ({"stream": "transactional"}, 400, "invalid_request", "stream"),
        ({"stream": "nowhere"}, 400, "invalid_request", "stream"),
        ({"list": "lst_00000000000000000000000000"}, 404, "not_found", None),
        ({"list": "con_00000000000000000000000000"}, 400, "invalid_request", "list"),
        ({"list": None}, 400, "invalid_request", "list"),
        ({"segment": "seg_00000000000000000000000000"}, 400, "invalid_request", "segment"),
        ({"segment": "seg_00000000000000000000000000", "list": None}, 404, "not_found", None),
        ({"name": " "}, 400, "invalid_request", "name"),
        ({"html": "<p>{{#a}}</p>"}, 400, "invalid_request", "html"),
        ({"template": "none", "text": None}, 422, "template_error", None),
        ({"template": "none"}, 400, "invalid_request", "text"),
        ({"subject": "a\nb"}, 400, "invalid_request", "subject"),
        ({"replyTo": "nobody"}, 400, "invalid_request", "replyTo"),
        ({"perMinute": 0}, 400, "invalid_request", "perMinute"),
        (
            {"attachments": [{"filename": "a.exe", "contentType": "a/b", "content": ""}]},
            422,
            "attachment_blocked",
            None,
        ),
    ],
)
async def test_a_draft_is_checked_as_a_send_is(
    api: Api, pool: asyncpg.Pool, account: TestAccount, fields: Made, status: int, kind: str, field: str | None
) -> None:
    given: Made = {"list": await listed(pool, account), "text": "Hello"} | fields
    answer = await post(api, account, **{name: value for name, value in given.items() if value is not None})
    assert (answer.status, answer.error["type"]) == (status, kind)
    assert field is None or answer.error["field"] == field


async def test_a_plan_with_one_stream_sends_broadcasts_on_it(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="free")
    assert (await draft(api, pool, account))["stream"] == "transactional"


async def test_send_starts_schedules_and_moves_the_time(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    made = await draft(api, pool, account)
    at = clock.iso(clock.now() + timedelta(days=2))
    answer = await act(api, account, made, "send", {"scheduledAt": at})
    assert (answer.status, answer.json["status"], answer.json["scheduledAt"]) == (202, "scheduled", at)
    assert refused(await api.delete(f"/v1/lists/{made['list']}", account.token), 409, "invalid_state")
    assert refused(
        await act(api, account, made, "send", {"scheduledAt": clock.iso(clock.now() + timedelta(days=30))}),
        400, "invalid_request", "scheduledAt",
    )  # fmt: skip
    assert refused(await api.patch(f"/v1/broadcasts/{made['id']}", account.token, {"name": "x"}), 409, "invalid_state")
    assert (await act(api, account, made, "send")).json["status"] == "sending"
    assert refused(await act(api, account, made, "send"), 409, "invalid_state")


async def test_send_needs_content_recipients_and_the_domain(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    bare = await draft(api, pool, account, text=None)
    assert refused(await act(api, account, bare, "send"), 400, "invalid_request", "text")
    empty = (await api.post("/v1/lists", account.token, {"name": "Empty"})).json["id"]
    assert refused(await act(api, account, await draft(api, pool, account, list=empty), "send"), 409, "invalid_state")
    made = await draft(api, pool, account)
    await pool.execute("UPDATE domains SET status = 'failed' WHERE account_id = $1", account.id)
    await pool.execute("UPDATE stamps SET version = version + 1 WHERE kind = 'domains'")
    async with asyncio.timeout(PATIENCE_S):  # caches follow a stamp within half a second
        while (answer := await post(api, account, list=made["list"], text="Hi")).status == 201:
            await asyncio.sleep(0.05)
    assert refused(answer, 403, "domain_not_verified")
    assert refused(await act(api, account, made, "send"), 403, "domain_not_verified")


async def test_moves_between_states_are_those_of_the_table_and_repeating_is_no_error(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    made = await draft(api, pool, account)
    for action in ("pause", "resume"):
        assert refused(await act(api, account, made, action), 409, "invalid_state")
    await act(api, account, made, "send")
    for action, status in (("pause", "paused"), ("pause", "paused"), ("resume", "sending"), ("resume", "sending")):
        answer = await act(api, account, made, action)
        assert (answer.status, answer.json["status"]) == (200, status)
    assert refused(await api.delete(f"/v1/broadcasts/{made['id']}", account.token), 409, "invalid_state")
    for _ in range(2):
        answer = await act(api, account, made, "cancel")
        assert (answer.status, answer.json["status"]) == (200, "canceled")
        assert answer.json["finishedAt"] is not None
    assert (await read(api, account, made))["counts"]["waiting"] == 0
    for action in ("pause", "resume", "send"):
        assert refused(await act(api, account, made, action), 409, "invalid_state")
    assert (await api.delete(f"/v1/broadcasts/{made['id']}", account.token)).status == 204
    assert (await api.get(f"/v1/broadcasts/{made['id']}", account.token)).status == 404
    kinds = [kind for kind, _ in await broadcast_events(pool, account)]
    assert kinds == ["created", "paused", "resumed", "canceled", "deleted"]


@pytest.mark.parametrize("status", [BroadcastStatus.SENT, BroadcastStatus.STOPPED])
async def test_what_has_ended_stays_as_it_is(
    api: Api, pool: asyncpg.Pool, account: TestAccount, status: BroadcastStatus
) -> None:
    made = await draft(api, pool, account)
    broadcast = ids.parse_id(ids.Kind.BROADCAST, made["id"])
    async with pool.acquire() as connection:
        await store.move(connection, broadcast, status)
    await pool.execute(
        "INSERT INTO broadcast_progress (broadcast_id, recipients, accepted) VALUES ($1, 2, 2)", broadcast
    )
    for action in ("pause", "resume", "cancel", "send"):
        assert refused(await act(api, account, made, action), 409, "invalid_state")
    assert refused(await api.delete(f"/v1/broadcasts/{made['id']}", account.token), 409, "invalid_state")


async def test_a_test_goes_to_the_team_only_with_an_inert_link(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    ann = await make_person(pool, account.id)
    made = await draft(api, pool, account, subject="News {{name}}", html="<p>{{email}}</p>")
    answer = await act(api, account, made, "test", {"to": [ann.email]})
    assert answer.status == 202, answer
    [row] = answer.json["data"]
    assert (row["to"], row["status"]) == (ann.email, "queued")
    message = (await api.get(f"/v1/messages/{row['id']}", account.token)).json
    assert message["subject"] == "[Test] News "
    links = await pool.fetchval("SELECT count(*) FROM unsubscribe_links WHERE account_id = $1", account.id)
    assert links == 0
    assert (await read(api, account, made))["counts"]["accepted"] == 0
    assert refused(
        await act(api, account, made, "test", {"to": [ann.email, "eve@people.test"]}), 400, "invalid_request", "to"
    )
    assert (await act(api, account, made, "test", {"to": [ann.email] * 6})).status == 400


async def test_a_preview_shows_the_values_of_a_contact(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    news = await listed(pool, account, {"ann@x.test": {"plan": "a&b", "seats": 5.5}})
    made = await draft(api, pool, account, list=news, subject="{{plan}}", html="<p>{{plan}} {{seats}}</p>", text=None)
    contact = ids.format_id(
        ids.Kind.CONTACT,
        await pool.fetchval("SELECT id FROM contacts WHERE account_id = $1 AND address = 'ann@x.test'", account.id),
    )
    path = f"/v1/broadcasts/{made['id']}/preview"
    found = (await api.get(f"/v1/broadcasts/{made['id']}/preview", account.token, params={"contact": contact})).json
    assert (found["contact"], found["recipients"], found["subject"], found["text"]) == (contact, 1, "a&b", None)
    assert found["html"].startswith("<p>a&amp;b 5.5</p>")
    assert "/u/" in found["html"]
    assert (await api.get(path, account.token)).json["html"].startswith("<p> </p>")
    unknown = {"contact": "con_00000000000000000000000000"}
    assert (await api.get(path, account.token, params=unknown)).status == 404
    key = await add_key(pool, account.id, scopes=["broadcasts:read"])
    answer = await api.get(path, key, params={"contact": contact})
    assert (answer.status, answer.error["scope"]) == (403, "contacts:read")
    assert (await api.get(path, key)).status == 200


async def test_the_checks_of_a_broadcast_are_those_of_its_messages(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    news = await listed(pool, account)
    made = await draft(api, pool, account, list=news, subject="{{plan}}", text="Hello")
    found = (await api.get(f"/v1/broadcasts/{made['id']}/checks", account.token)).json
    by_name = {one["name"]: one["detail"] for one in found["requirements"]}

    assert by_name["dkim"] == f"Emails are signed with the key of {account.domain}."
    assert "one-click" in by_name["one_click_unsubscribe"]
    assert found["spam"]["score"] < found["spam"]["threshold"]
    assert (await api.get("/v1/broadcasts/brd_00000000000000000000000000/checks", account.token)).status == 404


async def test_a_large_first_broadcast_waits_for_the_operator(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    large = await listed(pool, account, 1_001)
    kept, dropped = [await draft(api, pool, account, list=large) for _ in range(2)]
    for made in (kept, dropped):
        assert (await act(api, account, made, "send")).json["status"] == "in_review"
    note = "Where do these addresses come from?"
    await service.reject(pool, ids.parse_id(ids.Kind.BROADCAST, dropped["id"]), note)
    found = await read(api, account, dropped)
    assert (found["status"], found["reviewNote"]) == ("canceled", note)
    await service.approve(pool, ids.parse_id(ids.Kind.BROADCAST, kept["id"]), clock.now())
    assert (await read(api, account, kept))["status"] == "sending"
    later = await draft(api, pool, account, list=large)
    assert (await act(api, account, later, "send")).json["status"] == "sending"


async def test_a_key_limited_to_domains_sees_only_their_broadcasts(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    made = await draft(api, pool, account)
    await add_domain(pool, account.id, f"other.{account.domain}")
    owner = await make_person(pool, account.id)
    wanted = {
        "name": "Limited",
        "scopes": ["broadcasts:read", "broadcasts:write"],
        "domains": [f"other.{account.domain}"],
    }
    token = (await api.post("/v1/api-keys", None, wanted, person=owner)).json["token"]
    assert (await api.get("/v1/broadcasts", token)).json["data"] == []
    assert (await api.get(f"/v1/broadcasts/{made['id']}", token)).status == 404
    assert (await api.post(f"/v1/broadcasts/{made['id']}/cancel", token, body=b"")).status == 404


async def test_a_key_limited_to_streams_sees_only_their_broadcasts(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    made = await draft(api, pool, account)
    mine, other = [await add_key(pool, account.id, streams=[name]) for name in (made["stream"], "transactional")]

    assert [one["id"] for one in (await api.get("/v1/broadcasts", mine)).json["data"]] == [made["id"]]
    assert (await api.get("/v1/broadcasts", other)).json["data"] == []
    assert (await api.get(f"/v1/broadcasts/{made['id']}", other)).status == 404
    assert (await api.delete(f"/v1/broadcasts/{made['id']}", other)).status == 404
    assert (await api.delete(f"/v1/broadcasts/{made['id']}", mine)).status == 204


async def test_events_name_the_broadcast_and_who_acted(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    made = await draft(api, pool, account)
    rows = await pool.fetch(
        "SELECT payload FROM events WHERE account_id = $1 AND type = 'broadcast.created'", account.id
    )
    detail = orjson.loads(rows[0]["payload"])["detail"]
    assert (detail["id"], detail["name"], detail["actor"][:4]) == (made["id"], "News", "key_")


async def test_a_limited_key_creates_no_default_stream(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    key = await add_key(pool, account.id, domains=[account.domain])
    body = {"name": "News", "list": await listed(pool, account), "from": account.sender}

    answer = await api.post("/v1/broadcasts", key, body)

    assert refused(answer, 400, "invalid_request", "stream"), answer.body
    assert await stream_names(api, account) == {"transactional"}
