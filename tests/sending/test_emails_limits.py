"""`POST /v1/emails`: what is counted, exactly, however many ask at once; idempotency; sizes."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime

import asyncpg
import orjson
import pytest
from msgspec import structs

from engine.base import clock
from engine.base.settings import Settings
from engine.sending.suppressions import store as suppressions
from engine.store.postgres import open_pool
from tests.conftest import NewDatabase, ServeApi
from tests.harness.accounts import TestAccount, add_key, make_account
from tests.harness.api import Answer, Api
from tests.harness.emails import send, sent_today
from tests.harness.patience import PATIENCE_S

SMALL_BYTES = 64 * 1024


async def at_once(api: Api, account: TestAccount, count: int, **fields: object) -> list[Answer]:
    return await asyncio.gather(*(send(api, account, **fields) for _ in range(count)))


async def test_at_one_below_the_daily_cap_200_parallel_sends_give_exactly_one_more(
    api: Api, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool, daily_cap=5)
    assert [(await send(api, account)).status for _ in range(4)] == [202] * 4
    answers = await at_once(api, account, 200)

    assert Counter(answer.status for answer in answers) == {202: 1, 429: 199}
    refusal = next(answer for answer in answers if answer.status == 429)
    assert refusal.error["type"] == "daily_limit_reached"
    assert (refusal.error["limit"], refusal.error["sentToday"]) == (5, 5)
    left = clock.seconds_until_next_day(datetime.now(UTC))
    assert left <= int(refusal.headers["retry-after"]) <= left + 60
    assert await sent_today(api, account) == 5
    assert await pool.fetchval("SELECT count(*) FROM messages WHERE account_id = $1", account.id) == 5
    assert await pool.fetchval("SELECT count(*) FROM events WHERE account_id = $1", account.id) == 5


async def test_a_used_month_refuses_with_its_numbers(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, monthly_cap=2)
    answers = await at_once(api, account, 20)

    assert Counter(answer.status for answer in answers) == {202: 2, 429: 18}
    refusal = next(answer for answer in answers if answer.status == 429)
    assert refusal.error["type"] == "monthly_limit_reached"
    assert (refusal.error["limit"], refusal.error["sentThisMonth"]) == (2, 2)
    left = clock.seconds_until_next_month(datetime.now(UTC))
    assert left <= int(refusal.headers["retry-after"]) <= left + 60


async def test_the_daily_limit_is_told_before_the_monthly_one(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=0, monthly_cap=0)

    assert (await send(api, account)).error["type"] == "daily_limit_reached"


async def test_a_new_account_starts_at_fifty_a_day(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=None)
    answers = await at_once(api, account, 60)

    assert Counter(answer.status for answer in answers) == {202: 50, 429: 10}


async def test_a_message_counts_once_however_many_recipients_it_has(api: Api, account: TestAccount) -> None:
    answer = await send(api, account, to=[f"a{number}@people.test" for number in range(50)])

    assert answer.status == 202
    assert await sent_today(api, account) == 1


async def test_parallel_accounts_each_get_their_own_cap(api: Api, pool: asyncpg.Pool) -> None:
    accounts = [await make_account(pool, daily_cap=cap) for cap in (1, 2, 3, 4, 5)]
    answers = await asyncio.gather(*(at_once(api, account, 10) for account in accounts))

    assert [sum(answer.status == 202 for answer in own) for own in answers] == [1, 2, 3, 4, 5]


@pytest.fixture(scope="module")
async def capped_database(lasting_database: NewDatabase) -> str:
    return await lasting_database()


@pytest.fixture(scope="module")
def capped(settings: Settings, capped_database: str, serve: ServeApi) -> Api:
    """A platform of its own that takes five messages a day and small requests only."""
    limits = {"max_request_bytes": 2 * SMALL_BYTES, "max_message_bytes": SMALL_BYTES, "body_deadline_s": 2}
    return serve(structs.replace(settings, database_url=capped_database, platform_daily_ceiling=5, **limits))


@pytest.fixture(scope="module")
async def capped_pool(capped_database: str) -> AsyncIterator[asyncpg.Pool]:
    opened = await open_pool(capped_database, name="tests", largest=4)
    yield opened
    await opened.close()


async def exchange(api: Api, account: TestAccount, *framing: str, body: bytes = b"") -> tuple[int, bytes]:
    """(status, body) of a request written octet by octet: a server may answer before it has read all of it."""
    host, _, port = api.base_url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = ["POST /v1/emails HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {account.token}", *framing, "", ""]
    try:
        writer.write("\r\n".join(head).encode() + body)
        with suppress(ConnectionError):
            await writer.drain()
        async with asyncio.timeout(PATIENCE_S):
            answer = await reader.readuntil(b"\r\n\r\n")
            size = int(re.findall(rb"(?i)content-length: (\d+)", answer)[0])
            return int(answer[9:12]), await reader.readexactly(size)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_request_above_the_bound_is_refused_while_it_streams(capped: Api, capped_pool: asyncpg.Pool) -> None:
    account = await make_account(capped_pool)
    request = orjson.dumps(account.email(text="x" * 3 * SMALL_BYTES))
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (request[:100_000], request[100_000:]))

    for framing, body in ((f"Content-Length: {len(request)}", request), ("Transfer-Encoding: chunked", chunks)):
        status, answer = await exchange(capped, account, framing, body=body)  # the last chunk is never announced
        error = orjson.loads(answer)["error"]
        assert (status, error["type"], error["limit"]) == (413, "payload_too_large", 2 * SMALL_BYTES), framing
    assert await sent_today(capped, account) == 0


@pytest.mark.parametrize("begun", [b"", b"{"], ids=["no octet", "one octet"])
async def test_a_body_that_does_not_come_is_given_up(capped: Api, capped_pool: asyncpg.Pool, begun: bytes) -> None:
    account = await make_account(capped_pool)
    status, answer = await exchange(capped, account, "Content-Length: 100", body=begun)

    assert (status, orjson.loads(answer)["error"]["type"]) == (400, "invalid_request")


async def test_a_message_above_its_bound_is_refused(capped: Api, capped_pool: asyncpg.Pool) -> None:
    account = await make_account(capped_pool)
    answer = await send(capped, account, text="word " * (SMALL_BYTES // 5))

    assert (answer.status, answer.error["type"], answer.error["limit"]) == (413, "payload_too_large", SMALL_BYTES)
    assert await sent_today(capped, account) == 0


async def test_the_platforms_ceiling_is_exact_and_names_no_account(capped: Api, capped_pool: asyncpg.Pool) -> None:
    accounts = [await make_account(capped_pool) for _ in range(3)]
    answers = [answer for own in accounts for answer in await at_once(capped, own, 4)]

    assert Counter(answer.status for answer in answers) == {202: 5, 429: 7}
    refusal = answers[-1]
    assert (refusal.error["type"], set(refusal.error)) == ("platform_paused", {"type", "message", "docs"})
    assert refusal.headers["retry-after"] == "300"
    assert sum([await sent_today(capped, own) for own in accounts]) == 5


async def test_a_replay_answers_200_with_the_first_id_and_is_not_counted(api: Api, account: TestAccount) -> None:
    first = await send(api, account, idempotencyKey="order-17")
    again = await send(api, account, idempotencyKey="order-17")

    assert (first.status, first.json["status"]) == (202, "queued")
    assert (again.status, again.json) == (200, {"id": first.json["id"], "status": "duplicate"})
    assert await sent_today(api, account) == 1


async def test_a_replay_with_another_request_says_so(api: Api, account: TestAccount) -> None:
    first = await send(api, account, idempotencyKey="k", subject="one")
    again = await send(api, account, idempotencyKey="k", subject="two")

    assert (again.status, again.json["id"], again.json["bodyDiffers"]) == (200, first.json["id"], True)


async def test_50_parallel_posts_of_one_key_are_one_message(api: Api, account: TestAccount) -> None:
    answers = await at_once(api, account, 50, idempotencyKey="same")

    assert Counter(answer.status for answer in answers) == {202: 1, 200: 49}
    assert len({answer.json["id"] for answer in answers}) == 1
    assert {answer.json["status"] for answer in answers if answer.status == 200} == {"duplicate"}
    assert len((await api.get("/v1/messages", account.token)).json["data"]) == 1
    assert await sent_today(api, account) == 1


async def test_a_key_belongs_to_its_account(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    stranger = await make_account(pool)

    assert (await send(api, account, idempotencyKey="k")).status == 202
    assert (await send(api, stranger, idempotencyKey="k")).status == 202
    other_key = structs.replace(account, token=await add_key(pool, account.id))
    assert (await send(api, other_key, idempotencyKey="k")).status == 200


async def test_a_refused_send_does_not_use_its_key_up(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    await suppressions.ADD.execute(pool, [account.id], ["bad@people.test"], ["manual"], [None], [None])

    assert (await send(api, account, idempotencyKey="k", to="bad@people.test")).status == 422
    assert (await send(api, account, idempotencyKey="k", to="nonsense")).status == 422
    assert (await send(api, account, idempotencyKey="k")).status == 202


async def test_a_replay_is_answered_even_where_the_request_would_be_refused_by_now(
    api: Api, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool, daily_cap=1)
    first = await send(api, account, idempotencyKey="k")
    await suppressions.ADD.execute(pool, [account.id], ["ann@people.test"], ["bounce"], [None], [None])

    again = await send(api, account, idempotencyKey="k")
    assert (again.status, again.json["id"]) == (200, first.json["id"])


async def test_the_idempotency_header_is_never_read(api: Api, account: TestAccount) -> None:
    headers = {"Idempotency-Key": "k"}
    answers = [await api.post("/v1/emails", account.token, account.email(), headers=headers) for _ in range(2)]

    assert [answer.status for answer in answers] == [202, 202]
    assert answers[0].json["id"] != answers[1].json["id"]
