"""The MCP server, as the SDK's own client meets it: at `/mcp` and over standard input and output."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.machinery import PathFinder
from typing import Any

import asyncpg
import httpx2
import pytest
from falcon.testing import create_asgi_req
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, Implementation

from api.docs.site import SiteBuilder
from api.http.operation import Call
from api.mcp import endpoint
from api.mcp.results import MAX_TEXT, UNTRUSTED
from api.mcp.tools import TOOLS
from api.routes import client_document
from engine.base.errors import Refusal
from engine.base.ids import uuid7
from engine.base.settings import Settings
from engine.people.api_keys.key_auth import Caller
from tests.conftest import ServeApi
from tests.harness.accounts import TestAccount, add_key, make_account
from tests.harness.api import ROOT, Api
from tests.harness.everything import Estate, furnish
from tests.harness.people import make_person

PROGRAM = Implementation(name="Test Agent", version="1.2")
MODES = ("legacy", "auto")  # the handshake of 2025, and the stateless form of 2026
READS = ("search_docs", "read_docs", "explain_error")


@asynccontextmanager
async def over_http(api: Api, token: str, mode: str = "auto") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}", "User-Agent": "agent-of-a-test/3"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(
            streamable_http_client(f"{api.base_url}/mcp", http_client=http), client_info=PROGRAM, mode=mode
        ) as client,
    ):
        yield client


@asynccontextmanager
async def over_stdio(api: Api, token: str, mode: str = "auto") -> AsyncIterator[Client]:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "ops", "mcp"],
        cwd=ROOT,
        env={"WAYBILL_API_KEY": token, "WAYBILL_URL": api.base_url},
    )
    async with Client(server, client_info=PROGRAM, mode=mode) as client:
        yield client


WAYS = {"http": over_http, "stdio": over_stdio}


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    return await make_account(pool)


def result(answer: CallToolResult) -> dict[str, Any]:
    """Return the result of a tool that succeeded; its text holds the same."""
    assert not answer.is_error, answer.content
    found = answer.structured_content
    assert isinstance(found, dict)
    assert json.loads(answer.content[0].text) == found  # type: ignore[union-attr]
    return found


def refusal(answer: CallToolResult) -> dict[str, Any]:
    assert answer.is_error
    found = json.loads(answer.content[0].text)  # type: ignore[union-attr]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", WAYS)
async def test_an_agent_lists_tools_reads_and_sends(api: Api, account: TestAccount, way: str, mode: str) -> None:
    mail = {"from": account.sender, "to": ["ann@example.com"], "subject": "Hello", "text": "A text."}
    async with WAYS[way](api, account.token, mode) as client:
        listed = await client.list_tools()
        shown = result(await client.call_tool("send_email", mail | {"dryRun": True}))
        sent = result(await client.call_tool("send_email", mail | {"token": shown["token"]}))
        again = result(await client.call_tool("send_email", mail | {"token": shown["token"]}))
        read = result(await client.call_tool("get_message", {"id": sent["messageId"]}))

    assert {one.name for one in listed.tools} == set(TOOLS)
    assert (shown["state"], shown["preview"]["message"]["subject"]) == ("preview", "Hello")
    assert (sent["state"], again["duplicate"], again["messageId"]) == ("sent", True, sent["messageId"])
    assert (read["notice"], read["untrusted"]["text"].strip()) == (UNTRUSTED, "A text.")
    assert len((await api.get("/v1/messages", account.token)).json["data"]) == 1


# which tools there are -------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
async def test_a_key_gets_the_tools_of_its_scopes(api: Api, account: TestAccount, pool: asyncpg.Pool, way: str) -> None:
    reading = await add_key(pool, account.id, scopes=["messages:read"])
    async with WAYS[way](api, reading) as client:
        listed = {one.name for one in (await client.list_tools()).tools}
        refused = refusal(await client.call_tool("list_domains", {}))

    assert listed == {*READS, "search_messages", "get_message", "search_received", "get_received", "get_statistics"}
    assert (refused["type"], refused["scope"]) == ("forbidden", "domains:read")


async def test_tools_say_what_they_change_and_how_the_key_sends(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    keys = [
        await add_key(pool, account.id, scopes=["emails:send"], recipients=recipients, approval=approval)
        for recipients, approval in ((["@example.com"], "none"), (None, "required"), (None, None))
    ]
    texts = []
    for key in keys:
        async with over_http(api, key) as client:
            tools = {one.name: one for one in (await client.list_tools()).tools}
        texts.append(tools["send_email"].description or "")

    assert "sent at once. This key sends only to: @example.com." in texts[0]
    assert "A person approves" in texts[1]
    assert "dryRun" in texts[2]
    for one in tools.values():
        assert one.annotations is not None
        assert one.annotations.read_only_hint is (one.name not in {"send_email", "cancel_message"})
        assert one.input_schema["type"] == "object"
        assert one.input_schema["additionalProperties"] is False


async def test_an_unknown_tool_and_wrong_arguments_are_told(api: Api, account: TestAccount) -> None:
    async with over_http(api, account.token) as client:
        with pytest.raises(MCPError, match="no tool named"):
            await client.call_tool("delete_everything", {})
        long = refusal(await client.call_tool("search_messages", {"limit": 1000}))
        strange = refusal(await client.call_tool("get_message", {"id": "../me"}))
        unknown = refusal(await client.call_tool("search_messages", {"colour": "red"}))

    assert "<= 50" in long["message"]
    assert "regex" in strange["message"]
    assert "colour" in unknown["message"]


# each tool -------------------------------------------------------------------------------------


async def test_each_tool_answers(api: Api, pool: asyncpg.Pool, settings: Settings) -> None:
    estate = await furnish(api, pool, await make_account(pool, plan="enterprise"), settings)
    calls = calls_of(estate)
    assert {*calls, "get_approval"} == set(TOOLS)
    found = {}
    async with over_http(api, estate.account.token) as client:
        for name, arguments in calls.items():
            found[name] = result(await client.call_tool(name, arguments))

    things = estate.things
    assert things["message"] in str(found["search_messages"])
    assert found["get_message"]["untrusted"]["waybill"][0]["type"] == "accepted"
    assert found["search_received"]["untrusted"]["nextCursor"] is None
    assert found["get_received"]["untrusted"]["id"] == things["received"]
    assert things["domain"] in str(found["list_domains"])
    assert (found["check_suppression"]["notice"], found["check_suppression"]["suppressed"]) == (UNTRUSTED, True)
    assert "untrusted" in found["get_domain_dns"]
    assert found["preview_template"]["subject"] == "Hello"
    assert things["webhook"] in str(found["list_webhooks"])
    assert found["get_account"]["id"] == estate.account.public_id
    assert "webhooks" in {one["page"] for one in found["search_docs"]["data"]}
    assert found["read_docs"]["markdown"].startswith("# ")
    assert "suppress" in found["explain_error"]["markdown"].lower()
    assert found["cancel_message"]["status"] == "canceled"


def calls_of(estate: Estate) -> dict[str, dict[str, Any]]:
    things = estate.things
    return {
        "search_messages": {"limit": 5},
        "get_message": {"id": things["message"]},
        "search_received": {},
        "get_received": {"id": things["received"]},
        "list_domains": {},
        "get_domain_dns": {"id": things["domain"]},
        "check_suppression": {"address": things["suppression"]},
        "get_statistics": {"days": 3, "bucket": "day"},
        "get_deliverability": {},
        "get_receivers": {},
        "list_templates": {"search": "receipt"},
        "get_template": {"id": things["template"]},
        "preview_template": {"id": things["template"], "variables": {}},
        "list_webhooks": {},
        "list_webhook_deliveries": {"id": things["webhook"]},
        "get_account": {},
        "search_docs": {"query": "verify the signature of a webhook"},
        "read_docs": {"page": "webhooks"},
        "explain_error": {"type": "suppressed"},
        "send_email": estate.account.email(to=["ann@example.com"]) | {"dryRun": True},
        "cancel_message": {"id": things["scheduled"]},
    }


async def test_an_address_without_a_suppression_and_an_unknown_error_are_told(api: Api, account: TestAccount) -> None:
    async with over_http(api, account.token) as client:
        free = result(await client.call_tool("check_suppression", {"address": "ann+1@example.com"}))
        unknown = refusal(await client.call_tool("explain_error", {"type": "no_such_error"}))
        missing = refusal(await client.call_tool("read_docs", {"page": "no-such-page"}))

    assert free == {"address": "ann+1@example.com", "suppressed": False}
    assert unknown["type"] == "not_found"
    assert "404" in missing["message"]


async def test_bodies_are_cut_and_html_is_given_only_if_asked(api: Api, account: TestAccount) -> None:
    words = "A line of text.\n" * 4_000
    mail = account.email(to=["ann@example.com"], text=words, html=f"<p>{words}</p>")
    sent = (await api.post("/v1/emails", account.token, mail)).json["id"]
    async with over_http(api, account.token) as client:
        plain = result(await client.call_tool("get_message", {"id": sent}))["untrusted"]
        whole = result(await client.call_tool("get_message", {"id": sent, "includeHtml": True}))["untrusted"]

    assert (len(plain["text"]), plain["textCutAt"], plain["hasHtml"]) == (MAX_TEXT, MAX_TEXT, True)
    assert "html" not in plain
    assert len(whole["html"]) == MAX_TEXT


# sending ---------------------------------------------------------------------------------------


async def test_wrong_tokens_send_nothing(api: Api, account: TestAccount) -> None:
    mail = {"from": account.sender, "to": ["ann@example.com"], "subject": "Hello", "text": "A text."}
    async with over_http(api, account.token) as client:
        token = result(await client.call_tool("send_email", mail | {"dryRun": True}))["token"]
        bare = refusal(await client.call_tool("send_email", mail))
        wrong = [
            refusal(await client.call_tool("send_email", mail | fields))
            for fields in ({"token": token[:-2]}, {"token": token, "to": ["bob@example.com"]}, {"token": "A" * 43})
        ]

    assert bare["type"] == "forbidden"
    assert {(one["type"], one["field"]) for one in wrong} == {("invalid_request", "token")}
    assert (await api.get("/v1/messages", account.token)).json["data"] == []


async def test_listed_recipients_get_mail_at_once_and_once(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    key = await add_key(pool, account.id, scopes=["emails:send"], recipients=["@example.com"], approval="none")
    text = "A text of many lines.\n" * 6_000
    mail = {"from": account.sender, "to": ["ann@example.com"], "subject": "Hello", "text": text}
    async with over_http(api, key) as client:
        sent, again = [result(await client.call_tool("send_email", mail)) for _ in range(2)]
        outside = refusal(await client.call_tool("send_email", mail | {"to": ["eve@elsewhere.test"]}))

    assert (again["messageId"], again["duplicate"], outside["type"]) == (sent["messageId"], True, "forbidden")


async def test_a_person_decides_on_what_an_agent_asks(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    person = await make_person(pool, account.id, "member")
    key = await add_key(pool, account.id, scopes=["emails:send"], approval="required")
    mail = {"from": account.sender, "to": ["ann@example.com"], "subject": "Hello", "text": "A text."}
    states = {}
    async with over_http(api, key) as client:
        for verb in ("approve", "decline"):
            asked = result(await client.call_tool("send_email", mail | {"subject": verb}))
            [waiting] = (await api.get("/v1/agent-sends?state=pending", person=person)).json["data"]
            await api.post(f"/v1/agent-sends/{asked['id']}/{verb}", person=person)
            states[verb] = result(await client.call_tool("get_approval", {"id": asked["id"]}))

    assert waiting["agent"] == "Test Agent 1.2"
    assert (states["approve"]["state"], states["decline"]["state"]) == ("sent", "declined")
    assert [one["id"] for one in (await api.get("/v1/messages", account.token)).json["data"]] == [
        states["approve"]["messageId"]
    ]


# the door --------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
async def test_calls_are_in_the_request_log_with_their_agent(api: Api, account: TestAccount, way: str) -> None:
    async with WAYS[way](api, account.token) as client:
        await client.call_tool("list_domains", {})

    async def logged() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await api.get("/v1/requests?by=agent", account.token)).json["data"]
        return found

    async with asyncio.timeout(30):
        while not any(one["path"] == "/v1/domains" for one in await logged()):
            await asyncio.sleep(0.2)
    found = await logged()
    assert {one["agent"] for one in found} == {"Test Agent 1.2"}
    assert {"POST"} == {one["method"] for one in found if one["path"] == "/mcp"} or way == "stdio"


async def test_tools_of_one_account_do_not_reach_another(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    other = await make_account(pool)
    sent = (await api.post("/v1/emails", other.token, other.email(to=["ann@example.com"]))).json["id"]
    async with over_http(api, account.token) as client:
        assert refusal(await client.call_tool("get_message", {"id": sent}))["type"] == "not_found"
        assert result(await client.call_tool("search_messages", {}))["untrusted"]["data"] == []


async def test_two_processes_serve_one_agent(
    api: Api, account: TestAccount, settings: Settings, serve: ServeApi
) -> None:
    second = serve(settings)
    mail = {"from": account.sender, "to": ["ann@example.com"], "subject": "Hello", "text": "A text."}
    async with over_http(api, account.token, "legacy") as here, over_http(second, account.token, "legacy") as there:
        token = result(await here.call_tool("send_email", mail | {"dryRun": True}))["token"]
        answers = await asyncio.gather(*[one.call_tool("send_email", mail | {"token": token}) for one in (here, there)])

    assert len({result(one)["messageId"] for one in answers}) == 1


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


async def test_the_endpoint_refuses_as_the_api_does(api: Api, account: TestAccount) -> None:
    answered = await api.post("/mcp", account.token, PING, headers=ACCEPT)
    nobody = await api.post("/mcp", None, PING, headers=ACCEPT)
    page = await api.post("/mcp", account.token, PING, headers=ACCEPT | {"Origin": "https://evil.example"})
    stream = await api.get("/mcp", account.token)
    large = await api.post("/mcp", account.token, body=b" " * 3_000_000, headers=ACCEPT)
    plain = await api.post("/mcp", account.token, PING, headers=ACCEPT | {"Content-Type": "text/plain"})

    assert (answered.status, answered.json["result"]) == (200, {})
    assert (nobody.status, nobody.headers["www-authenticate"]) == (401, "Bearer")
    assert (page.status, page.error["type"]) == (403, "forbidden")
    assert (stream.status, stream.headers["allow"]) == (405, "OPTIONS, POST")
    assert (large.status, plain.status) == (413, 415)


async def test_the_own_origin_may_call(api: Api, account: TestAccount) -> None:
    answer = await api.post("/mcp", account.token, PING, headers=ACCEPT | {"Origin": api.base_url})

    assert answer.status == 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"jsonrpc": "2.0"}', b'{"params": {"_meta": 1}}', b"[" * 9_999]
)
async def test_what_is_no_message_is_refused(api: Api, account: TestAccount, body: bytes) -> None:
    answer = await api.post("/mcp", account.token, body=body, headers=ACCEPT)

    assert answer.status == 400


async def test_llms_txt_names_the_server(api: Api) -> None:
    listed = await api.get("/llms.txt", headers={"Accept-Encoding": "identity"})

    assert f"{api.base_url}/mcp" in listed.body.decode()


async def test_a_person_without_a_key_is_refused(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    person = await make_person(pool, account.id, "owner")

    assert (await api.post("/mcp", json=PING, headers=ACCEPT, person=person)).status == 401


# without the extra -----------------------------------------------------------------------------

WITHOUT = """
import sys
from importlib.machinery import PathFinder
found = PathFinder.find_spec
PathFinder.find_spec = lambda name, path=None, target=None: None if name == "mcp" else found(name, path, target)
"""


async def test_the_command_says_what_to_install(api: Api, account: TestAccount) -> None:
    program = WITHOUT + "from ops.cli import main\nsys.exit(main())"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, "mcp", cwd=ROOT, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        _, said = await process.communicate()

    assert process.returncode == 1
    assert b"pip install 'waybill[mcp]'" in said


@pytest.fixture
def without_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    find = PathFinder.find_spec
    monkeypatch.setattr(PathFinder, "find_spec", lambda name, *more: None if name == "mcp" else find(name, *more))
    monkeypatch.delitem(sys.modules, "mcp")


@pytest.mark.usefixtures("without_extra")
def test_the_documentation_names_no_server_that_does_not_answer() -> None:
    settings = Settings()
    site = SiteBuilder(client_document(settings), settings).build()

    assert "/mcp" not in site.files["/llms.txt"].plain.decode()
    assert "This installation does not answer there" in site.files["/docs/agents.md"].plain.decode()


@pytest.mark.usefixtures("without_extra")
async def test_the_endpoint_says_what_to_install() -> None:
    caller = Caller(uuid7(), "k" * 12, frozenset(), 1, uuid7())
    call = Call(create_asgi_req(), None, Settings(), {}, caller=caller)  # type: ignore[arg-type]  # no service is used

    with pytest.raises(Refusal, match=r"Install `waybill\[mcp\]`") as refused:
        await endpoint.operation(None).handler(call, body=b"{}")
    assert refused.value.status == 404
