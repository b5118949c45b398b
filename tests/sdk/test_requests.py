"""Requests of the Python client against the running API and against a server that follows a script."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.harness.accounts import make_account
from tests.harness.receiver import request_of
from tests.harness.tcp import listening

KEY = "svc_live_x"
CLOSE = b""
ACCEPTED = {"id": "msg_1", "status": "queued"}


class ScriptedServer:
    """A server that gives one scripted answer to each connection, and keeps the requests."""

    def __init__(self, answers: list[bytes]) -> None:
        self._answers = answers
        self.requests: list[bytes] = []
        self.base_url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request and send its answer; `CLOSE` hangs up."""
        self.requests.append(await request_of(reader))
        writer.write(self._answers[min(len(self.requests), len(self._answers)) - 1])
        await writer.drain()

    def body(self, number: int) -> Any:
        """Return the JSON of a request."""
        return json.loads(self.requests[number].partition(b"\r\n\r\n")[2])


@contextlib.asynccontextmanager
async def scripted(*answers: bytes) -> AsyncIterator[ScriptedServer]:
    """Run a server with these answers; the last one is repeated."""
    server = ScriptedServer(list(answers))
    async with listening(server.serve) as (host, port):
        server.base_url = f"http://{host}:{port}"
        yield server


def answer(status: int, body: object, *headers: str) -> bytes:
    """Return an HTTP answer that closes its connection."""
    content = json.dumps(body).encode()
    head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(head).encode() + content


def refusal(status: int, kind: str, *headers: str, **fields: object) -> bytes:
    """Return an error answer."""
    return answer(status, {"error": {"type": kind, "message": "No.", **fields}}, *headers)


async def test_the_quickstart_works_in_both_clients(waybill_client: Any, api_url: str, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)

    def synchronous() -> Any:
        with waybill_client.Waybill(account.token, base_url=api_url) as client:
            reply = client.emails.send(from_=account.sender, to=["ann@people.test"], subject="Hello", text="It works.")
            return client.messages.get(reply["id"])

    assert (await asyncio.to_thread(synchronous))["subject"] == "Hello"
    async with waybill_client.AsyncWaybill(account.token, base_url=api_url) as client:
        reply = await client.emails.send(
            from_=account.sender, to="ann@people.test", subject="Second", html="<p>Hi</p>",
            attachments=[waybill_client.attachment("a.txt", b"octets")], metadata={"order": "7"},
        )  # fmt: skip
        message = await client.messages.get(reply["id"])
        assert (message["subject"], message["metadata"]) == ("Second", {"order": "7"})
        assert message["attachments"][0]["content_type"] == "text/plain"
        file = client.messages.attachment(message["id"], message["attachments"][0]["id"])
        assert await file.read() == b"octets"


async def test_iterators_pass_through_all_pages_and_exports_stream(
    waybill_client: Any, api_url: str, pool: asyncpg.Pool, tmp_path: Path
) -> None:
    account = await make_account(pool)
    async with waybill_client.AsyncWaybill(account.token, base_url=api_url) as client:
        batch = [account.email(subject=f"No. {number}\u2028") for number in range(7)]
        sent = await client.emails.send_batch(messages=batch)
        assert sent["accepted"] == 7
        assert all("idempotencyKey" not in one for one in batch)  # the caller's objects stay as they are
        wanted = sorted(one["id"] for one in sent["data"])
        assert sorted([one["id"] async for one in client.messages.iterate(limit=2)]) == wanted
        assert sorted([one["id"] async for one in client.messages.export()]) == wanted
        assert len([one async for one in client.events.iterate(limit=3)]) == 7
        size = await client.messages.export_file().save(tmp_path / "messages.csv")
        assert size == (tmp_path / "messages.csv").stat().st_size > 0


async def test_a_refusal_raises_the_class_of_its_type_with_all_fields(
    waybill_client: Any, api_url: str, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    async with waybill_client.AsyncWaybill(account.token, base_url=api_url) as client:
        await client.suppressions.create(address="odd+a/b@people.test")
        assert (await client.suppressions.get("odd+a/b@people.test"))["reason"] == "manual"
        with pytest.raises(waybill_client.SuppressedError) as caught:
            await client.emails.send(from_=account.sender, to="odd+a/b@people.test", subject="x", text="y")
        error = caught.value
        assert (error.status, error.type, error.address, error.reason) == (
            422,
            "suppressed",
            "odd+a/b@people.test",
            "manual",
        )
        assert error.request_id
        assert error.request_id in str(error)
        with pytest.raises(waybill_client.NotFoundError):
            await client.messages.get("msg_x")
        with pytest.raises(ValueError, match="not an id"):
            await client.domains.delete("..")


async def test_a_send_is_repeated_with_one_key_after_a_503_and_a_lost_connection(waybill_client: Any) -> None:
    answers = [refusal(503, "unavailable", "Retry-After: 0"), CLOSE, answer(202, ACCEPTED)]
    async with scripted(*answers) as server, waybill_client.AsyncWaybill(KEY, base_url=server.base_url) as client:
        reply = await client.emails.send(from_="a@b.test", to="c@d.test", subject="x", text="y")
        assert reply == ACCEPTED
        keys = {server.body(number)["idempotencyKey"] for number in range(3)}
        assert len(keys) == 1
        assert keys.pop().startswith("auto-")
        await client.emails.send(from_="a@b.test", to="c@d.test", text="y", idempotency_key="mine")
        assert server.body(3)["idempotencyKey"] == "mine"


async def test_a_change_without_a_key_is_repeated_only_after_a_rate_limit(waybill_client: Any) -> None:
    limited = refusal(429, "rate_limited", "Retry-After: 0")
    made = answer(201, {"id": "dom_1"})
    for first, tries, raised in (
        (limited, 2, None),
        (refusal(503, "unavailable", "Retry-After: 0"), 1, waybill_client.UnavailableError),
        (CLOSE, 1, waybill_client.ConnectionFailedError),
    ):
        async with (
            scripted(first, made) as server,
            waybill_client.AsyncWaybill(KEY, base_url=server.base_url) as client,
        ):
            context = contextlib.nullcontext() if raised is None else pytest.raises(raised)
            with context:
                await client.domains.create(name="a.test")
            assert len(server.requests) == tries


async def test_a_long_wait_or_a_used_up_allowance_is_raised_at_once(waybill_client: Any) -> None:
    for kind, wait in (("rate_limited", 31), ("daily_limit_reached", 0), ("monthly_limit_reached", 0)):
        async with scripted(refusal(429, kind, f"Retry-After: {wait}", limit=50, sentToday=50)) as server:
            client = waybill_client.AsyncWaybill(KEY, base_url=server.base_url)
            with pytest.raises(waybill_client.ApiError) as caught:
                await client.messages.list()
            await client.aclose()
            assert (caught.value.type, caught.value.retry_after, len(server.requests)) == (kind, wait, 1)


async def test_a_delete_whose_answer_was_lost_has_succeeded(waybill_client: Any) -> None:
    async with scripted(CLOSE, refusal(404, "not_found")) as server:
        client = waybill_client.AsyncWaybill(KEY, base_url=server.base_url)
        await client.domains.delete("dom_1")
        await client.aclose()
        assert len(server.requests) == 2


async def test_answers_that_are_no_answers_of_the_api_are_errors(waybill_client: Any) -> None:
    pages = (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>", answer(404, ["nothing"]))
    for page in pages:
        async with scripted(page) as server, waybill_client.AsyncWaybill(KEY, base_url=server.base_url) as client:
            with pytest.raises(waybill_client.ApiError):
                await client.account.get()


async def test_a_silent_server_is_a_time_out_and_the_key_is_not_shown(waybill_client: Any) -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        await asyncio.sleep(600)

    async with listening(silent) as (host, port):
        client = waybill_client.AsyncWaybill(KEY, base_url=f"http://{host}:{port}", timeout=0.2, max_retries=0)
        with pytest.raises(waybill_client.RequestTimeoutError) as caught:
            await client.messages.list()
        await client.aclose()
        assert KEY not in repr(client) + str(caught.value)
