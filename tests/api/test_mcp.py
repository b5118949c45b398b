"""The MCP server, as the SDK's own client meets it: at `/mcp` and over standard input and output."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, Implementation

from api.mcp.results import MAX_TEXT, UNTRUSTED
from api.mcp.tools import TOOLS
from tests.harness.accounts import TestAccount, add_key, make_account
from tests.harness.api import ROOT, Api
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
