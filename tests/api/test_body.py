"""Request bodies: slow, fragmented and oversized uploads do not affect other clients."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import asyncpg
import orjson
import pytest
from msgspec import structs

from api.http import stream
from api.http.body import FREE_PIECES
from api.http.decode import MAX_PARAMETERS
from engine.base import transfer_rate
from engine.base.settings import Settings
from tests.conftest import ServeApi
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api
from tests.harness.patience import PATIENCE_S
from tests.harness.wire import Wire, chunked, padded, wire

MEBIBYTE = 1024 * 1024
LOGIN = {"email": "nobody@people.test", "password": "not a password of anybody"}
JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"


@pytest.fixture(scope="module")
def tight(settings: Settings, serve: ServeApi) -> Api:
    """An API with little memory for bodies."""
    return serve(structs.replace(settings, max_inflight_bytes=16 * MEBIBYTE, max_request_bytes=4 * MEBIBYTE))


@pytest.fixture
async def open_wires() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def hold(api: Api, stack: AsyncExitStack, path: str, size: int, token: str | None, source: str) -> Wire:
    """A connection whose body lacks its last octets."""
    held = await stack.enter_async_context(wire(api, source))
    await held.head("POST", path, JSON, f"Content-Length: {size}", token=token)
    await held.write(b" " * (size - 100))
    return held


async def send_large(api: Api, account: TestAccount) -> int:
    return (await api.post("/v1/emails", account.token, account.email(text="word " * 400_000))).status


async def test_requests_without_credentials_that_hold_on_keep_nobody_from_sending(
    tight: Api, account: TestAccount, open_wires: AsyncExitStack
) -> None:
    for number in range(5):
        await hold(tight, open_wires, "/v1/auth/login", 4 * MEBIBYTE, None, f"127.0.0.{number + 1}")
    for number in range(200):
        await hold(tight, open_wires, "/v1/auth/signup", 50_000, None, f"127.0.1.{number + 1}")

    assert [await send_large(tight, account) for _ in range(4)] == [202] * 4
    assert await asyncio.gather(*[send_large(tight, account) for _ in range(3)]) == [202] * 3


async def test_accounts_that_hold_on_keep_no_other_from_sending(
    tight: Api, pool: asyncpg.Pool, account: TestAccount, open_wires: AsyncExitStack
) -> None:
    for number, holder in enumerate([await make_account(pool) for _ in range(4)]):
        for _ in range(5):
            await hold(tight, open_wires, "/v1/emails", 3 * MEBIBYTE, holder.token, f"127.0.0.{number + 1}")

    assert [await send_large(tight, account) for _ in range(4)] == [202] * 4


async def test_an_account_that_uses_its_share_up_is_told_so(
    tight: Api, account: TestAccount, open_wires: AsyncExitStack
) -> None:
    held = [await hold(tight, open_wires, "/v1/emails", 3 * MEBIBYTE, account.token, "127.0.0.1") for _ in range(5)]
    async with asyncio.timeout(PATIENCE_S):
        first, _ = await asyncio.wait(
            [asyncio.create_task(one.answer()) for one in held], return_when=asyncio.FIRST_COMPLETED
        )
    refused = next(task.result() for task in first)

    assert (refused.status, refused.error["type"]) == (429, "rate_limited")
    assert int(refused.headers["retry-after"]) >= 1


@pytest.mark.exhaustive
async def test_a_body_that_only_trickles_is_given_up_however_much_came_before(
    tight: Api, account: TestAccount, open_wires: AsyncExitStack
) -> None:
    held = await hold(tight, open_wires, "/v1/emails", 3 * MEBIBYTE, account.token, "127.0.0.1")
    waiting = asyncio.create_task(held.answer())
    while not waiting.done():
        await held.write(b" ")
        await asyncio.wait([waiting], timeout=0.5)
    answer = waiting.result()

    assert (answer.status, answer.error["field"]) == (400, "body")
    assert "too slowly" in answer.error["message"]


@pytest.mark.parametrize("path", ["/v1/auth/login", "/v1/emails"])
async def test_a_body_in_crumbs_is_cut_off(api: Api, account: TestAccount, path: str) -> None:
    async with wire(api) as connection:
        await connection.head("POST", path, JSON, CHUNKED, token=account.token)
        await connection.write(chunked([b" "] * 10_000))
        answer = await connection.answer()
        assert (answer.status, answer.error["field"]) == (400, "body")
        assert "pieces" in answer.error["message"]
        assert await connection.ended()


async def test_a_small_body_that_is_written_token_by_token_is_read(api: Api, account: TestAccount) -> None:
    tokens = orjson.dumps(account.email())
    pieces = [tokens[at : at + 2] for at in range(0, len(tokens), 2)]
    assert len(pieces) < FREE_PIECES
    async with wire(api) as connection:
        await connection.head("POST", "/v1/emails", JSON, CHUNKED, token=account.token)
        await connection.write(chunked(pieces))
        assert (await connection.answer()).status == 202


@pytest.mark.parametrize("framing", ["Content-Length: 5000", CHUNKED])
async def test_a_body_that_breaks_off_is_not_taken_for_a_whole_one(
    api: Api, account: TestAccount, pool: asyncpg.Pool, framing: str
) -> None:
    content = orjson.dumps(account.email())
    async with wire(api) as connection:
        await connection.head("POST", "/v1/emails", JSON, framing, token=account.token)
        await connection.write(chunked([content], end=False) if framing == CHUNKED else content)
        connection.finish()
        assert await connection.ended()

    assert await pool.fetchval("SELECT count(*) FROM messages WHERE account_id = $1", account.id) == 0


async def test_a_client_that_writes_on_hears_the_refusal(api: Api) -> None:
    answer = await api.post("/v1/emails", "nonsense", body=padded({}, 5 * MEBIBYTE))

    assert (answer.status, answer.error["type"]) == (401, "unauthorized")


async def test_a_connection_goes_on_behind_a_refusal_whose_body_was_small(api: Api, account: TestAccount) -> None:
    content = padded({}, 50_000)
    async with wire(api) as connection:
        await connection.head("POST", "/v1/emails", JSON, f"Content-Length: {len(content)}", token="nonsense")
        await connection.write(content)
        assert (await connection.answer()).status == 401
        await connection.head("GET", "/v1/me", CHUNKED, token=account.token)
        await connection.write(chunked([b"{}"]))
        assert (await connection.answer()).status == 200
        await connection.head("GET", "/v1/me", token=account.token)
        assert (await connection.answer()).status == 200


async def test_a_refused_upload_is_read_on_within_bounds_only(api: Api) -> None:
    async with wire(api) as connection:
        await connection.head("POST", "/v1/emails", JSON, CHUNKED, token="nonsense")
        await connection.write(chunked([b" "] * (20 * stream.FREE_DRAINED_PIECES)))
        assert (await connection.answer()).status == 401
        assert await connection.ended()


async def test_a_query_of_very_many_parameters_is_refused(api: Api, account: TestAccount) -> None:
    answer = await api.get("/v1/messages?" + "a&" * MAX_PARAMETERS, account.token)

    assert (answer.status, answer.error["field"]) == (400, "query")


# -- pace --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [500, 1_000, 20_000, 1_000_000])
def test_a_steady_client_that_ends_in_time_is_never_given_up(rate: int) -> None:
    progress = transfer_rate.TransferRate(0.0, deadline_s=60, min_bytes_per_s=500)
    for tenth in range(1, 600):
        assert progress.timeout_s(rate * tenth // 10, tenth / 10) > 0, tenth


@pytest.mark.parametrize("head", [0, 10_000, 51_000_000])
def test_octets_sent_at_once_buy_no_time_for_a_trickle(head: int) -> None:
    progress = transfer_rate.TransferRate(0.0, deadline_s=60, min_bytes_per_s=500)
    given_up = next(second for second in range(60) if not progress.timeout_s(head + second, second))

    assert given_up <= 2 * transfer_rate.WINDOW_S


def test_without_a_least_rate_the_deadline_alone_counts() -> None:
    progress = transfer_rate.TransferRate(0.0, deadline_s=60, min_bytes_per_s=0)

    assert [progress.timeout_s(1, at) for at in (0.0, 30.0, 60.0, 90.0)] == [60.0, 30.0, 0.0, 0.0]
