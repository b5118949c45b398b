"""The retry function of the guide does the same in every language; its table decides as the registry does."""

import json
from pathlib import Path

import pytest

from engine.base.errors import REGISTRY, ErrorType
from tests.harness import printed_programs
from tests.harness.accounts import TestAccount
from tests.harness.api import Api
from tests.harness.guides import guides, names_in
from tests.harness.receiver import Got, Hostile, Receiver, request_of, saying

LANGUAGES = ("python", "js", "php", "ruby")
EVERY_LANGUAGE = pytest.mark.parametrize("language", LANGUAGES)
ACCEPTED = b'{"id": "msg_1", "status": "queued"}'


def program(language: str) -> str:
    [found] = [one.text for one in guides()["error-handling"].samples if one.language == language]
    return found


async def run(language: str, folder: Path, url: str, key: str = "svc_live_x") -> printed_programs.Printed:
    environ = {"WAYBILL_URL": url.removesuffix("/hook"), "WAYBILL_API_KEY": key}
    return await printed_programs.run(language, program(language), folder, environ)


@EVERY_LANGUAGE
async def test_a_retry_has_the_same_body_and_waits_as_long_as_the_response_asks(language: str, tmp_path: Path) -> None:
    statuses = [429, 503, 502, 202]

    def answer(_got: Got) -> int:
        status = statuses[len(receiver.got) - 1]
        receiver.body = ACCEPTED if status == 202 else b"<h1>proxy</h1>"
        return status

    async with Receiver() as receiver:
        receiver.headers = {"Retry-After": "0"}
        receiver.answer = answer
        ended = await run(language, tmp_path, receiver.url)

    assert (ended.status, ended.out.strip()) == (0, "msg_1"), ended.out
    assert len({got.body for got in receiver.got}) == 1
    assert receiver.got[0].json["idempotencyKey"] == "receipt-4711"


@EVERY_LANGUAGE
async def test_a_broken_connection_is_tried_again(language: str, tmp_path: Path) -> None:
    good = saying(
        b"HTTP/1.1 202 Accepted\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(ACCEPTED) + ACCEPTED
    )

    async def first_breaks(reader, writer) -> None:  # type: ignore[no-untyped-def]
        if server.connections == 1:
            await request_of(reader)
            return
        await good(reader, writer)

    async with Hostile(first_breaks) as server:
        ended = await run(language, tmp_path, server.url)

    assert (ended.status, ended.out.strip(), server.connections) == (0, "msg_1", 2), ended.out


@EVERY_LANGUAGE
async def test_a_response_that_breaks_off_is_tried_again(language: str, tmp_path: Path) -> None:
    good = saying(
        b"HTTP/1.1 202 Accepted\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(ACCEPTED) + ACCEPTED
    )
    half = saying(b"HTTP/1.1 202 Accepted\r\nContent-Length: %d\r\n\r\n" % len(ACCEPTED) + ACCEPTED[:9])

    async def first_breaks_off(reader, writer) -> None:  # type: ignore[no-untyped-def]
        await (half if server.connections == 1 else good)(reader, writer)

    async with Hostile(first_breaks_off) as server:
        ended = await run(language, tmp_path, server.url)

    assert (ended.status, ended.out.strip(), server.connections) == (0, "msg_1", 2), ended.out


@EVERY_LANGUAGE
@pytest.mark.parametrize(("status", "after"), [(422, None), (429, "3600"), (503, "0")])
async def test_an_error_that_no_retry_mends_is_raised_with_what_to_log(
    language: str, status: int, after: str | None, tmp_path: Path
) -> None:
    async with Receiver() as receiver:
        receiver.headers = {"X-Request-Id": "req_9"} | ({"Retry-After": after} if after else {})
        receiver.status = status
        receiver.body = json.dumps({"error": {"type": "suppressed", "message": "It bounced."}}).encode()
        ended = await run(language, tmp_path, receiver.url)

    assert ended.status != 0
    assert f"{status} suppressed: It bounced. (request req_9)" in ended.out
    assert len(receiver.got) == (5 if status == 503 else 1)


@EVERY_LANGUAGE
async def test_the_program_sends_once_however_often_it_runs(
    language: str, api: Api, api_url: str, account: TestAccount, tmp_path: Path
) -> None:
    text = program(language).replace("hello@hello.test", account.sender)
    environ = {"WAYBILL_URL": api_url, "WAYBILL_API_KEY": account.token}
    ended = [await printed_programs.run(language, text, tmp_path, environ) for _ in range(2)]

    [message] = (await api.get("/v1/messages", account.token)).json["data"]
    assert [one.out.strip() for one in ended] == [message["id"]] * 2


def test_the_table_has_every_type_and_retries_what_has_a_status_to_retry() -> None:
    rows = {name: row[1] for row in guides()["error-handling"].rows("type") for name in names_in(row[0])}

    assert sorted(rows) == sorted(kind.value for kind in ErrorType)
    retried = {kind.value for kind, entry in REGISTRY.items() if entry.status in {429, 503}}
    assert {name for name, action in rows.items() if action.startswith("retry ")} == retried
