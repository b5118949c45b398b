"""The JavaScript client in Node, against the running API and a scripted server. tests/browser runs it in Chromium."""

from pathlib import Path

import asyncpg

from tests.harness import logbook
from tests.harness.accounts import make_account
from tests.sdk.node import run
from tests.sdk.test_requests import ACCEPTED, CLOSE, answer, refusal, scripted
from tests.sdk.test_tail import cutting

AGAINST_THE_API = """
const reply = await client.emails.send({ from: sender, to: ["ann@people.test"], subject: "Hello", text: "It works." });
const message = await client.messages.get(reply.id);
const error = await client.messages.get("msg_x").catch((caught) => caught);
const ids = [];
for await (const one of client.messages.iterate({ limit: 1 })) ids.push(one.id);
const exported = [];
for await (const one of client.messages.export()) exported.push(one.id);
const raw = await (await client.messages.raw(reply.id)).text();
out = {
  subject: message.subject, type: error.type, status: error.status, isApiError: error instanceof ApiError,
  found: ids.includes(reply.id) && exported.includes(reply.id), raw: raw.includes("It works."),
};
"""
TAIL = """
out = [];
for await (const event of client.events.tail({ replay: 60 })) {
  out.push(event.seq);
  if (out.length === 60) break;
}
"""
CATCH_UP = """
const seen = [];
const handle = (event) => seen.push([event.seq, Object.keys(event), Object.keys(event.data)]);
const position = await client.events.catchUp(7, handle);
out = { position, count: seen.length, first: seen[0] };
"""
SEND = 'out = await client.emails.send({ from: "a@b.test", to: "c@d.test", text: "x" });'


async def test_the_quickstart_works_in_node(node: str, modules: Path, api_url: str, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    found = await run(node, modules, AGAINST_THE_API, key=account.token, url=api_url, sender=account.sender)
    assert found == {
        "subject": "Hello", "type": "not_found", "status": 404, "isApiError": True, "found": True, "raw": True,
    }  # fmt: skip


async def test_a_cut_tail_shows_every_event_once_in_node(
    node: str, modules: Path, api_url: str, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 60)
    async with cutting(api_url, 1_000, 3_001) as (url, heads):
        assert await run(node, modules, TAIL, key=account.token, url=url) == list(range(1, 61))
    assert len(heads) == 3


async def test_catching_up_hands_over_events_as_webhooks_bring_them_in_node(
    node: str, modules: Path, api_url: str, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 1_200)
    found = await run(node, modules, CATCH_UP, key=account.token, url=api_url)
    keys = [["id", "seq", "type", "createdAt", "data"], ["messageId", "detail"]]
    assert found == {"position": 1_200, "count": 1_193, "first": [8, *keys]}


async def test_a_send_is_repeated_with_one_key_in_node(node: str, modules: Path) -> None:
    async with scripted(refusal(503, "unavailable", "Retry-After: 0"), CLOSE, answer(202, ACCEPTED)) as server:
        assert await run(node, modules, SEND, key="svc_live_x", url=server.base_url) == ACCEPTED
        assert len({server.body(number)["idempotencyKey"] for number in range(3)}) == 1
