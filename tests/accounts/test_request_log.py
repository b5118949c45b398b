"""`GET /v1/requests`: the requests of an account, recorded off their way."""

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from engine.accounts.request_log import recorder, rules
from engine.accounts.request_log.recorder import RequestRecorder
from engine.base import clock, ids
from engine.store import partitions
from engine.store.postgres import open_pool
from tests.conftest import NewDatabase
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Answer, Api, Params
from tests.harness.patience import PATIENCE_S
from tests.harness.people import make_person


async def logged(api: Api, account: TestAccount, request: str, params: Params | None = None) -> list[dict[str, Any]]:
    """Return the log once the request with this `X-Request-Id` is in it, without the requests that read it."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            rows: list[dict[str, Any]] = (await api.get("/v1/requests?limit=100", account.token)).json["data"]
            if any(row["requestId"] == request for row in rows):
                break
            await asyncio.sleep(0.1)
    if params is not None:
        rows = (await api.get("/v1/requests", account.token, params=params)).json["data"]
    return [row for row in rows if row["path"] != "/v1/requests"]


def id_of(answer: Answer) -> str:
    return answer.headers["x-request-id"]


async def fill(pool: asyncpg.Pool, account: TestAccount, *requests: tuple[str, str, int, str | None]) -> None:
    log = RequestRecorder(pool)
    for method, path, status, error in requests:
        log.record(account.id, None, None, method, path, status, 0.001, "r", error)
        await asyncio.sleep(0.002)  # ids of one millisecond have no order
    await log.flush()


async def paths(api: Api, account: TestAccount, **params: str) -> list[str]:
    answer = await api.get("/v1/requests", account.token, params={"until": "2099-01-01T00:00:00Z"} | params)
    assert answer.status == 200, answer
    return [row["path"] for row in answer.json["data"] if row["requestId"] == "r"]


async def test_a_request_is_recorded_with_its_outcome_and_without_its_query_and_body(
    api: Api, account: TestAccount
) -> None:
    listed = await api.get("/v1/messages?search=secret", account.token)
    refused = await api.post("/v1/emails", account.token, {"secret": 1})
    new, old = await logged(api, account, id_of(refused))

    assert "secret" not in str([new, old])
    assert (old["method"], old["path"], old["status"], old["errorType"]) == ("GET", "/v1/messages", 200, None)
    assert (new["method"], new["path"], new["status"], new["errorType"]) == (
        "POST", "/v1/emails", 400, "invalid_request",
    )  # fmt: skip
    assert (old["requestId"], new["requestId"]) == (id_of(listed), id_of(refused))
    assert old["keyId"].startswith("key_")
    assert old["userId"] is None
    assert 0 < old["ms"] < PATIENCE_S * 1000
    assert old["id"] < new["id"]


async def test_a_persons_requests_name_the_person_and_refusals_of_authorisation_are_recorded(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    person = await make_person(pool, account.id, "member")
    answer = await api.post("/v1/api-keys", person=person, json={"name": "x", "scopes": ["account:read"]})
    (row,) = await logged(api, account, id_of(answer))

    assert (row["userId"], row["keyId"]) == (person.public_id, None)
    assert (row["status"], row["errorType"]) == (403, "forbidden")
    assert await logged(api, account, id_of(answer), {"by": "person"}) == [row]
    assert await logged(api, account, id_of(answer), {"by": "key"}) == []


async def test_addresses_in_paths_are_not_recorded(api: Api, account: TestAccount) -> None:
    answer = await api.delete("/v1/suppressions/ann@x.test", account.token)
    (row,) = await logged(api, account, id_of(answer))

    assert row["path"] == "/v1/suppressions/{address}"


async def test_what_cannot_be_stored_keeps_nothing_else_out_of_the_log(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    log = RequestRecorder(pool)
    for path, seconds in (("/a\x00b", 0.1), ("/\ud800", 0.1), ("/long", 1e6), ("/good", 0.1)):
        log.record(account.id, None, None, "GET", path, 200, seconds, "r", None)
    await log.flush()
    log.record(account.id, None, None, "GET", "/bad", 200, 0.1, "\x00", None)
    await log.flush()
    log.record(account.id, None, None, "GET", "/last", 200, 0.1, "r", None)
    await log.flush()

    assert set(await paths(api, account)) == {"/a\ufffdb", "/?", "/long", "/good", "/last"}


async def test_filters_hold_together_and_pages_follow_their_cursor(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    await fill(
        pool, account, ("POST", "/v1/emails", 202, None), ("POST", "/v1/emails/batch", 429, "rate_limited"),
        ("GET", "/v1/domains", 404, "not_found"), ("GET", "/v1/emails/%", 500, None),
    )  # fmt: skip

    everything = ["/v1/emails/%", "/v1/domains", "/v1/emails/batch", "/v1/emails"]
    assert await paths(api, account) == everything
    assert await paths(api, account, status="4xx") == ["/v1/domains", "/v1/emails/batch"]
    assert await paths(api, account, status="202") == ["/v1/emails"]
    assert await paths(api, account, path="/v1/emails/") == ["/v1/emails/%", "/v1/emails/batch"]
    assert await paths(api, account, path="/v1/%") == []
    assert await paths(api, account, errorType="rate_limited", method="POST") == ["/v1/emails/batch"]
    assert await paths(api, account, key=ids.format_id(ids.Kind.API_KEY, ids.uuid7())) == []
    first = (await api.get("/v1/requests?status=4xx&limit=1", account.token)).json
    assert first["data"][0]["path"] == "/v1/domains"
    assert await paths(api, account, status="4xx", before=first["nextCursor"]) == ["/v1/emails/batch"]


@pytest.mark.parametrize(("name", "value"), [("status", "6xx"), ("key", "msg_x"), ("errorType", "x"), ("from", "now")])
async def test_a_filter_with_an_invalid_value_is_refused(api: Api, account: TestAccount, name: str, value: str) -> None:
    answer = await api.get("/v1/requests", account.token, params={name: value})
    assert (answer.status, answer.error["field"]) == (400, name)


async def test_the_log_is_the_accounts_own_and_ends_after_seven_days(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    stranger = await make_account(pool)
    await fill(pool, stranger, ("GET", "/v1/theirs", 200, None))
    assert await paths(api, account) == []

    at = clock.now()
    wanted = rules.filters(at=at, before=None, status=None, key=None, method=None, path=None, error_type=None, by=None,
                           since="2020-01-01T00:00:00Z", until=None)  # fmt: skip
    assert wanted.low == ids.floor_of(clock.milliseconds(at - timedelta(days=7)))


async def test_a_full_buffer_drops_requests_and_no_account_fills_it_alone(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MAX_BUFFERED", 5)
    monkeypatch.setattr(recorder, "MAX_OF_ACCOUNT", 3)
    log, one, other = RequestRecorder(pool), ids.uuid7(), ids.uuid7()
    for account in (one,) * 10 + (other,) * 10:
        log.record(account, None, None, "GET", "/" + "x" * 1000, 200, 0.0, "r", None)
    assert log.dropped == 15
    await log.flush()

    counts = await pool.fetch(
        "SELECT account_id, count(*) AS n, max(length(path)) AS longest FROM api_requests"
        " WHERE account_id = ANY($1) GROUP BY 1", [one, other],
    )  # fmt: skip
    assert {row["account_id"]: row["n"] for row in counts} == {one: 3, other: 2}
    assert {row["longest"] for row in counts} == {rules.MAX_PATH}


async def test_days_are_made_when_they_are_missing_and_dropped_when_they_are_over(new_database: NewDatabase) -> None:
    database = await open_pool(await new_database(), name="tests", largest=1)
    today = clock.now()
    try:
        async with database.acquire() as connection:
            dropped = await partitions.drop_before(connection, "api_requests", today + timedelta(days=5))
            assert partitions.partition_name("api_requests", today.date()) in dropped
        log = RequestRecorder(database)
        log.record(ids.uuid7(), None, None, "GET", "/", 200, 0.0, "r", None)
        await log.flush()
        assert await database.fetchval("SELECT count(*) FROM api_requests") == 1
    finally:
        await database.close()
