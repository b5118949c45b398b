"""Cross-origin requests: preflights, and which answers a page of another origin may read."""

import pytest

from api.routes import all_operations
from engine.base.errors import Refusal
from engine.people.api_keys.rules import checked_origins
from tests.harness.accounts import TestAccount
from tests.harness.api import Answer, Api
from tests.harness.people import TestPerson
from tests.harness.sse import following

PAGE = "https://app.example.com"
OTHER = "https://evil.example.com"


async def made(api: Api, admin: TestPerson, **fields: object) -> Answer:
    body = {"name": "Page", "scopes": ["messages:read"], "allowedOrigins": [PAGE]} | fields
    return await api.post("/v1/api-keys", person=admin, json=body)


async def token(api: Api, admin: TestPerson, **fields: object) -> str:
    answer = await made(api, admin, **fields)
    assert answer.status == 201, answer
    found: str = answer.json["token"]
    return found


def preflight(origin: str, method: str = "GET") -> dict[str, str]:
    asked = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": "authorization"}
    return {"Origin": origin, **asked}


def cors(answer: Answer) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


async def test_a_page_of_an_allowed_origin_may_read(api: Api, admin: TestPerson) -> None:
    key = await token(api, admin)
    answer = await api.get("/v1/messages", key, headers={"Origin": PAGE})

    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "access-control-allow-credentials" not in answer.headers
    assert answer.headers["vary"] == "Origin"
    exposed = {one.strip() for one in answer.headers["access-control-expose-headers"].split(",")}
    assert exposed >= {"RateLimit", "RateLimit-Policy", "Retry-After", "X-Request-Id", "Server-Timing"}


async def test_a_page_of_another_origin_may_not_read(api: Api, account: TestAccount, admin: TestPerson) -> None:
    key = await token(api, admin)
    for origin in (OTHER, PAGE + ":8443", "http://app.example.com", "null", PAGE.upper()):
        answer = await api.get("/v1/messages", key, headers={"Origin": origin})
        assert (cors(answer), answer.headers["vary"]) == ({}, "Origin"), origin
    for answer in (
        await api.get("/v1/messages", key),
        await api.get("/v1/messages", account.token, headers={"Origin": PAGE}),  # a key without origins
        await api.get("/v1/messages", person=admin, headers={"Origin": PAGE}),
        await api.get("/v1/messages", headers={"Origin": PAGE}),
        await api.get("/v1/openapi.json", headers={"Origin": PAGE}),
    ):
        assert cors(answer) == {}


async def test_refusals_may_be_read_too(api: Api, admin: TestPerson) -> None:
    key = await token(api, admin)
    for path, status in (("/v1/contacts", 403), ("/v1/messages?limit=x", 400), ("/v1/messages/msg_x", 404)):
        answer = await api.get(path, key, headers={"Origin": PAGE})
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (status, PAGE)


async def test_every_path_answers_a_preflight_of_a_read(api: Api) -> None:
    for path in sorted({one.path for one in all_operations()}):
        answer = await api.request("OPTIONS", path.replace("{", "x").replace("}", ""), headers=preflight(OTHER))

        assert (answer.status, answer.body) == (204, b""), path
        assert cors(answer) == {
            "access-control-allow-origin": OTHER,
            "access-control-allow-methods": "GET, HEAD",
            "access-control-allow-headers": "Authorization, Last-Event-ID",
            "access-control-max-age": "7200",
        }
        assert answer.headers["vary"].startswith("Origin, ")


async def test_a_preflight_of_a_change_is_not_allowed(api: Api) -> None:
    for headers in (preflight(PAGE, "POST"), preflight(PAGE, "DELETE"), preflight("x" * 301), {"Origin": PAGE}, {}):
        answer = await api.request("OPTIONS", "/v1/messages", headers=headers)
        assert (answer.status, cors(answer)) == (204, {})
        assert answer.headers["allow"] == "GET, HEAD, OPTIONS"
    unknown = await api.request("OPTIONS", "/v1/nothing", headers=preflight(PAGE))
    assert (unknown.status, cors(unknown)) == (404, {})


async def test_the_tail_may_be_read(api: Api, admin: TestPerson) -> None:
    key = await token(api, admin)
    async with following(api, key, headers={"Origin": PAGE}) as tail:
        assert tail.headers["access-control-allow-origin"] == PAGE


async def test_a_key_shows_its_origins_and_hands_them_on(api: Api, account: TestAccount, admin: TestPerson) -> None:
    answer = await made(api, admin, allowedOrigins=["http://localhost:3000", PAGE, PAGE])
    rotated = await api.post(f"/v1/api-keys/{answer.json['id']}/rotate", person=admin, json={})
    listed = (await api.get("/v1/api-keys", person=admin)).json["data"]
    events = (await api.get("/v1/events?after=0", account.token)).json["data"]

    assert answer.json["allowedOrigins"] == ["http://localhost:3000", PAGE]
    assert [one["allowedOrigins"] for one in listed] == [["http://localhost:3000", PAGE]] * 2 + [None]
    created = [one["detail"] for one in events if one["type"] == "api_key.created"]
    assert [one["allowed_origins"] for one in created] == [["http://localhost:3000", PAGE]] * 2
    page = await api.get("/v1/messages", rotated.json["token"], headers={"Origin": PAGE})
    assert page.headers["access-control-allow-origin"] == PAGE


@pytest.mark.parametrize(
    "fields",
    [
        {"scopes": ["messages:read", "emails:send"]},
        {"scopes": ["templates:write"]},
        {"allowedOrigins": []},
        {"allowedOrigins": [f"https://a{n}.test" for n in range(11)]},
        {"allowedOrigins": [PAGE + "/"]},
    ],
)
async def test_origins_are_for_keys_that_only_read(fields: dict[str, object], api: Api, admin: TestPerson) -> None:
    answer = await made(api, admin, **fields)

    assert (answer.status, answer.error["field"]) == (400, "allowedOrigins")


@pytest.mark.parametrize(
    "origin",
    [
        "*", "null", "app.example.com", "http://app.example.com", "https://App.example.com", "https://a.test/",
        "https://a.test:443", "http://localhost:80", "https://a.test:0", "https://a.test:123456", "https://*.a.test",
        "https://a..test", "https://me@a.test", "http://localhost.a.test", "https://a.test\n", "https://ä.test",
    ],
)  # fmt: skip
def test_what_no_browser_sends_is_no_origin(origin: str) -> None:
    with pytest.raises(Refusal, match="is not an origin"):
        checked_origins([origin], ["messages:read"])


@pytest.mark.parametrize(
    "origin", ["https://a.test", "https://a.test:8443", "https://xn--4ca.test", "http://localhost", "https://10.0.0.1"]
)
def test_origins_as_browsers_send_them(origin: str) -> None:
    assert checked_origins([origin, origin], ["messages:read"]) == [origin]
