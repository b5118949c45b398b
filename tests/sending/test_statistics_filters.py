"""`GET /v1/stats/messages` by stream and tag, counted ahead or not."""

from datetime import UTC, datetime, time, timedelta
from typing import Any

import asyncpg
import orjson

from engine.base import clock
from engine.sending.statistics import jobs
from tests.harness import history
from tests.harness.accounts import TestAccount, add_domain, make_account
from tests.harness.api import Api
from tests.harness.broadcasts import with_stream
from tests.harness.settling import settle


async def total(api: Api, account: TestAccount, **params: str) -> dict[str, int]:
    """The totals of a period that are not 0."""
    answer = await api.get("/v1/stats/messages", account.token, params={"days": "2"} | params)
    assert answer.status == 200, answer
    assert {name: answer.json[name] for name in params} == params
    return {name: value for name, value in answer.json["totals"].items() if isinstance(value, int) and value}


async def send(api: Api, account: TestAccount, **fields: Any) -> str:
    body = {"from": account.sender, "to": "ann@people.test", "subject": "Hi", "text": "Hi"} | fields
    answer = await api.post("/v1/emails", account.token, body)
    assert answer.status == 202, answer
    return str(answer.json["id"])


async def test_messages_are_counted_by_stream_tag_and_domain_together(api: Api, pool: asyncpg.Pool) -> None:
    account = await with_stream(pool, await make_account(pool))
    other = f"other.{account.domain}"
    await add_domain(pool, account.id, other)
    await send(api, account, tags=["invoice", "eu"])
    await send(api, account, tags=["invoice", "invoice"], stream="announcements")
    await send(api, account, tags=["eu"], **{"from": f"a@{other}"})
    await send(api, account)

    for _ in range(2):  # before the counts are kept, and after
        assert (await total(api, account))["queued"] == 4
        assert (await total(api, account, stream="transactional"))["queued"] == 3
        assert (await total(api, account, stream="announcements"))["queued"] == 1
        assert (await total(api, account, tag="invoice"))["queued"] == 2
        assert (await total(api, account, tag="eu", domain=other))["queued"] == 1
        assert (await total(api, account, tag="invoice", stream="announcements"))["total"] == 1
        assert await total(api, account, tag="none") == {}
        assert await total(api, account, stream="nowhere") == {}
        await jobs.count_ahead(pool, everything=True)


async def test_an_outcome_moves_the_counts_of_its_stream_and_tags(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    message = await send(api, account, tags=["a"])
    await jobs.count_ahead(pool, everything=True)
    await settle(pool, message, ("ann@people.test", 550, "5.1.1 nobody"))
    for _ in range(2):
        assert await total(api, account, tag="a") == {"total": 1, "accepted": 1, "bounced": 1, "settled": 1}
        assert (await total(api, account, stream="transactional"))["bounced"] == 1
        await jobs.count_ahead(pool, everything=True)


async def test_of_a_quarter_hour_the_first_thousand_tags_are_kept(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    noon = datetime.combine(clock.now().date() - timedelta(days=1), time(12), UTC)
    messages = await history.write(pool, account, *[noon + timedelta(seconds=n) for n in range(105)])
    for place, message in enumerate(messages):
        tags = [f"order-{number}" for number in range(10 * place, 10 * place + 10)]
        await pool.execute("UPDATE messages SET tags = $2::jsonb WHERE id = $1", message, orjson.dumps(tags).decode())
    await jobs.count_ahead(pool, everything=True)
    rows = await pool.fetch("SELECT tag FROM message_tag_quarters WHERE account_id = $1", account.id)
    assert {row["tag"] for row in rows} == {f"order-{number}" for number in range(1_000)}


async def test_counts_of_an_earlier_version_get_their_stream_when_they_are_counted_again(
    api: Api, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    message = await send(api, account)
    await jobs.count_ahead(pool, everything=True)
    await pool.execute("UPDATE message_quarters SET stream = '' WHERE account_id = $1", account.id)
    assert await total(api, account, stream="transactional") == {}
    await settle(pool, message)
    await jobs.count_ahead(pool, everything=True)
    assert (await total(api, account))["total"] == 1
    assert (await total(api, account, stream="transactional"))["delivered"] == 1
