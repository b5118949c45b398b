"""The webhook endpoints of the API: made, listed, changed, removed, tried out, and what was posted to them."""

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import orjson
import pytest

from engine.base import clock, ids
from engine.ledger import log
from tests.harness.accounts import TestAccount, make_account, set_status
from tests.harness.actors import key_of
from tests.harness.api import Answer, Api
from tests.harness.patience import PATIENCE_S

URL = "https://hooks.example.com/in?key=1"


JSON = {"Content-Type": "application/json"}


async def patch(api: Api, token: str, webhook: str, body: bytes) -> Answer:
    return await api.request("PATCH", f"/v1/webhooks/{webhook}", token=token, body=body, headers=JSON)


async def made(api: Api, account: TestAccount, url: str = URL, **fields: object) -> dict[str, Any]:
    answer = await api.post("/v1/webhooks", account.token, {"url": url} | fields)
    assert answer.status == 201, answer.body
    return dict(answer.json)


# -- making ---------------------------------------------------------------------------------------


async def test_a_new_endpoint_shows_its_secret_once(api: Api, account: TestAccount) -> None:
    answer = await api.post("/v1/webhooks", account.token, {"url": URL, "eventTypes": ["bounced", "made.up"]})

    assert answer.status == 201
    new = answer.json
    shown = {
        "id", "url", "eventTypes", "domains", "streams", "headerNames", "includeMetadata", "signatures",
        "honorRetryAfter", "status", "description", "warnings",
    }  # fmt: skip
    assert set(new) == shown | {"signingSecret"}
    assert new["id"].startswith("whk_")
    assert (new["url"], new["eventTypes"], new["status"]) == (URL, ["bounced", "made.up"], "active")
    assert new["signingSecret"].startswith("whsec_")
    assert len(new["signingSecret"]) == 38
    listed = (await api.get("/v1/webhooks", account.token)).json
    assert set(listed["data"][0]) == shown | {"createdAt", "health"}
    assert listed["data"][0]["id"] == new["id"]
    read = (await api.get(f"/v1/webhooks/{new['id']}", account.token)).json
    assert read == listed["data"][0]


async def test_the_secret_is_stored_sealed(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    new = await made(api, account)
    row = await pool.fetchrow("SELECT * FROM webhooks WHERE id = $1", ids.parse_id(ids.Kind.WEBHOOK, new["id"]))
    events = await pool.fetch("SELECT payload FROM events WHERE account_id = $1", account.id)

    assert row is not None
    secret = new["signingSecret"].encode()
    assert secret not in row["sealed_secret"]
    assert secret[6:] not in row["sealed_secret"]
    assert not any(new["signingSecret"] in event["payload"] for event in events)


@pytest.mark.parametrize("types", [{}, {"eventTypes": []}, {"eventTypes": None}])
async def test_no_types_are_all_types(api: Api, account: TestAccount, types: dict[str, list[str] | None]) -> None:
    answer = await api.post("/v1/webhooks", account.token, {"url": URL} | types)

    assert answer.json["eventTypes"] == []


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com", "https://example.com:8443/a/b?c=d&e=%20", "HTTPS://EXAMPLE.COM/", "http://localhost:3000/x",
        "http://127.0.0.1:3000/x", "http://[::1]:3000/", "http://10.0.0.1/", "https://exämple.com/ü", "http://a_b.test/",
        "https://example.com./", "http://example.com:/", "https://xn--exmple-cua.com/", "http://receiver/",
        "http://example.com/a:b@c", "http://example.com/" + "x" * 1981,
    ],
)  # fmt: skip
async def test_urls_that_can_be_posted_to(api: Api, account: TestAccount, url: str) -> None:
    assert (await made(api, account, url))["url"] == url


@pytest.mark.parametrize(
    "url",
    [
        "", "x", "example.com", "//example.com/", "ftp://example.com/", "file:///etc/passwd", "javascript:alert(1)",
        "gopher://example.com/", "http:", "http:/example.com", "http://", "http:///path", "https://?x",
        "http://user@example.com/", "http://user:secret@example.com/", "http://@example.com/", "http://example.com/#part",
        "http://example.com:0/", "http://example.com:65536/", "http://example.com:abc/", "http://example.com:-1/",
        "http://exa mple.com/", " http://example.com/", "http://example.com/\n", "http://example.com/\u0000",
        "http://example.com\\@evil.test/", "http://exam\tple.com/", "http://[::1/", "http://[fe80::1%25eth0]/",
        "http://[1:2]/", "http://a[::1]/", "http://[::1]a/", "http://a,[::1]:80/",
        "http://127.1/", "http://0x7f.1/", "http://2130706433/", "http://0177.0.0.1/", "http://0/",
        "http://1.2.3.4.5/", "http://256.1.1.1/", "http://①②⑦.⓪.⓪.①/", "http://.example.com/", "http://a..b/",
        "http://-a.test/", "http://" + "a" * 64 + ".test/", "http://example.com/" + "x" * 1982, "http://exa%6dple.com/",
        "http://<script>/", "http://ex\u200bample.com/",
    ],
)  # fmt: skip
async def test_urls_that_can_never_be_posted_to_are_refused(api: Api, account: TestAccount, url: str) -> None:
    answer = await api.post("/v1/webhooks", account.token, {"url": url})

    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", "url")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "url"),
        ({"url": None}, "url"),
        ({"url": 5}, "url"),
        ({"url": ["http://example.com/"]}, "url"),
        ({"url": URL, "eventTypes": "bounced"}, "eventTypes"),
        ({"url": URL, "eventTypes": ["a"] * 21}, "eventTypes"),
        ({"url": URL, "eventTypes": [""]}, "eventTypes[0]"),
        ({"url": URL, "eventTypes": ["x" * 101]}, "eventTypes[0]"),
        ({"url": URL, "eventTypes": [7]}, "eventTypes[0]"),
        ({"url": URL, "eventTypes": ["a\0"]}, "eventTypes[0]"),
        ({"url": URL, "status": "active"}, "status"),
        ({"url": URL, "event_types": []}, "event_types"),
    ],
)
async def test_a_body_that_is_not_right_is_refused(
    api: Api, account: TestAccount, body: dict[str, object], field: str
) -> None:
    answer = await api.post("/v1/webhooks", account.token, body)

    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", field)


async def test_twenty_types_are_taken(api: Api, account: TestAccount) -> None:
    names = [f"type.{number}" for number in range(20)]

    assert (await made(api, account, eventTypes=names))["eventTypes"] == names


@pytest.mark.parametrize(("plan", "limit"), [("free", 1), ("starter", 3)])
async def test_the_plan_bounds_the_number_of_endpoints(api: Api, pool: asyncpg.Pool, plan: str, limit: int) -> None:
    account = await make_account(pool, plan=plan)
    new = [await made(api, account) for _ in range(limit)]
    answer = await api.post("/v1/webhooks", account.token, {"url": URL})

    assert (answer.status, answer.error["type"]) == (403, "plan_limit_reached")
    assert (answer.error["resource"], answer.error["limit"], answer.error["used"]) == ("webhooks", limit, limit)
    await api.request("DELETE", f"/v1/webhooks/{new[0]['id']}", token=account.token)
    await made(api, account)  # a deleted one does not count


async def test_parallel_creations_stop_exactly_at_the_cap(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="starter")
    answers = await asyncio.gather(*[api.post("/v1/webhooks", account.token, {"url": URL}) for _ in range(20)])

    assert sorted(answer.status for answer in answers) == [201] * 3 + [403] * 17


# -- listing --------------------------------------------------------------------------------------


# -- changing -------------------------------------------------------------------------------------


async def test_what_is_given_is_changed_and_the_rest_stays(api: Api, account: TestAccount) -> None:
    new = await made(api, account, eventTypes=["bounced"])
    path = f"/v1/webhooks/{new['id']}"

    async def patched(**fields: object) -> dict[str, object]:
        answer = await patch(api, account.token, new["id"], orjson.dumps(fields))
        assert answer.status == 200, answer.body
        return {name: value for name, value in answer.json.items() if name != "health"}

    before = await patched()
    assert (before["url"], before["eventTypes"], before["status"]) == (URL, ["bounced"], "active")
    assert await patched(status="disabled") == before | {"status": "disabled"}
    assert await patched(eventTypes=[]) == before | {"status": "disabled", "eventTypes": []}
    other = "http://other.example/"
    assert await patched(url=other, status="active", eventTypes=["failed"]) == before | {
        "url": other, "eventTypes": ["failed"]
    }  # fmt: skip
    assert (await api.get(path, account.token)).json["url"] == other


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"status": "deleted"}', "status"),
        (b'{"status": null}', "status"),
        (b'{"url": "ftp://x/"}', "url"),
        (b'{"url": null}', "url"),
        (b'{"eventTypes": null}', "eventTypes"),
        (b'{"id": "whk_x"}', "id"),
        (b'{"signingSecret": "whsec_x"}', "signingSecret"),
    ],
)
async def test_a_change_that_is_not_right_is_refused(api: Api, account: TestAccount, body: bytes, field: str) -> None:
    new = await made(api, account)
    answer = await patch(api, account.token, new["id"], body)

    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", field)


async def test_a_deleted_endpoint_is_gone(api: Api, account: TestAccount) -> None:
    new = await made(api, account)
    path = f"/v1/webhooks/{new['id']}"
    answer = await api.request("DELETE", path, token=account.token)

    assert (answer.status, answer.body) == (204, b"")
    assert (await api.request("DELETE", path, token=account.token)).status == 404
    assert (await api.get(path, account.token)).status == 404
    assert (await api.get("/v1/webhooks", account.token)).json["data"] == []


async def test_rotation_gives_a_new_secret_once(api: Api, account: TestAccount) -> None:
    new = await made(api, account)
    answer = await api.post(f"/v1/webhooks/{new['id']}/rotate", account.token, {})

    assert answer.status == 200
    assert answer.json["id"] == new["id"]
    assert answer.json["signingSecret"].startswith("whsec_")
    assert answer.json["signingSecret"] != new["signingSecret"]
    until = clock.parse_iso(answer.json["previousUntil"])
    assert abs(until - clock.now() - timedelta(hours=24)) < timedelta(minutes=1)


async def test_every_change_stands_in_the_accounts_log(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    new = await made(api, account)
    path = f"/v1/webhooks/{new['id']}"
    await api.request("PATCH", path, token=account.token, body=b'{"status": "disabled"}', headers=JSON)
    await api.request("PATCH", path, token=account.token, body=b"{}")  # changes nothing
    await api.post(f"{path}/rotate", account.token, {})
    await api.post(f"{path}/test", account.token, {})
    await api.request("DELETE", path, token=account.token)
    rows = await pool.fetch(
        "SELECT seq, type, occurred_at, payload, hash FROM events WHERE account_id = $1 ORDER BY seq", account.id
    )

    assert [row["type"] for row in rows] == [
        "webhook.created", "webhook.updated", "webhook.rotated", "webhook.test", "webhook.deleted"
    ]  # fmt: skip
    assert {orjson.loads(row["payload"])["detail"]["actor"] for row in rows} == {await key_of(pool, account)}
    previous = bytes(32)
    for seq, row in enumerate(rows, 1):
        previous = log.chained(previous, seq, row["occurred_at"], row["payload"])
        assert (row["seq"], row["hash"]) == (seq, previous)


async def test_a_suspended_account_can_not_change_its_endpoints(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    await made(api, account)
    await set_status(pool, account.id, "suspended")
    async with asyncio.timeout(PATIENCE_S):  # it is known within a second
        while (await api.get("/v1/me", account.token)).status != 401:
            await asyncio.sleep(0.02)

    assert (await api.post("/v1/webhooks", account.token, {"url": URL})).status == 401


async def test_names_that_match_no_event_are_kept_and_warned_of(api: Api, account: TestAccount) -> None:
    wanted = {"url": URL, "eventTypes": ["delivered", "Bounce", "inbound.received", "odd"]}
    made = (await api.post("/v1/webhooks", account.token, wanted)).json
    read = (await api.get(f"/v1/webhooks/{made['id']}", account.token)).json

    assert made["eventTypes"] == wanted["eventTypes"]
    assert [one["field"] for one in made["warnings"]] == ["eventTypes[1]", "eventTypes[3]"]
    assert "Did you mean `bounced`?" in made["warnings"][0]["message"]
    assert read["warnings"] == made["warnings"]
