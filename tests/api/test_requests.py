"""Checks before every operation: authentication, scopes, rates, the envelope, request ids."""

import asyncio
import base64
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from msgspec import structs

from engine.base.settings import Settings
from engine.people.api_keys.rules import PREFIX, new_key
from tests.harness.accounts import TestAccount, add_key, make_account, revoke_key, set_status
from tests.harness.api import Answer, Api, serving
from tests.harness.patience import PATIENCE_S
from tests.harness.payments import report

WITHIN_S = 1.0 + PATIENCE_S  # a second is promised; the machine may be busy


async def with_header(api: Api, value: str) -> Answer:
    return await api.get("/v1/me", headers={"Authorization": value})


async def test_every_cause_of_a_401_gets_the_very_same_answer(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    revoked, suspended = await make_account(pool), await make_account(pool)
    await revoke_key(pool, revoked.id, revoked.token)
    await set_status(pool, suspended.id, "suspended")
    expired = await add_key(pool, account.id, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    token = account.token
    last = "a" if token[-1] != "a" else "b"
    answers = {
        "missing": await api.get("/v1/me"),
        "empty": await with_header(api, ""),
        "scheme only": await with_header(api, "Bearer"),
        "malformed": await with_header(api, "Bearer nonsense"),
        "cut": await api.get("/v1/me", token[:-1]),
        "too long": await api.get("/v1/me", token + "a"),
        "other prefix": await api.get("/v1/me", token.replace(PREFIX, "svc_test_")),
        "unknown": await api.get("/v1/me", new_key().token),
        "wrong secret": await api.get("/v1/me", token[:-1] + last),
        "revoked": await api.get("/v1/me", revoked.token),
        "expired": await api.get("/v1/me", expired),
        "suspended": await api.get("/v1/me", suspended.token),
        "bare token": await with_header(api, token),
        "basic": await with_header(api, "Basic " + base64.b64encode(f"{token}:".encode()).decode()),
        "basic user": await with_header(api, "Basic " + base64.b64encode(f"api:{token}".encode()).decode()),
        "query": await api.get(f"/v1/me?api_key={token}"),
        "query token": await api.get(f"/v1/me?access_token={token}&token={token}"),
        "two tokens": await with_header(api, f"Bearer {token} {token}"),
        "other header": await api.get("/v1/me", headers={"X-Api-Key": token}),
        "cookie": await api.get("/v1/me", headers={"Cookie": f"token={token}"}),
    }

    assert {name: answer.status for name, answer in answers.items()} == dict.fromkeys(answers, 401)
    assert len({answer.body for answer in answers.values()}) == 1
    own = {"x-request-id", "date", "ratelimit-remaining", "ratelimit-reset"}
    assert len({
        tuple(sorted((name, value) for name, value in answer.headers.items() if name not in own))
        for answer in answers.values()
    }) == 1  # fmt: skip
    assert answers["missing"].error["type"] == "unauthorized"
    assert answers["missing"].headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("form", [
    "Bearer {}", "bearer {}", "BEARER {}", "bEaReR {}", "  Bearer {}", "Bearer   {}", "Bearer {}  ", "Bearer \t{}\t",
])  # fmt: skip
async def test_the_scheme_is_read_in_any_case_and_white_space_is_tolerated(
    api: Api, account: TestAccount, form: str
) -> None:
    assert (await with_header(api, form.format(account.token))).status == 200


async def test_a_401_says_nothing_of_the_body_or_the_path(api: Api) -> None:
    known = await api.get("/v1/me")

    assert (await api.post("/v1/emails", None, body=b"{")).body == known.body
    assert (await api.get("/v1/messages/msg_x")).body == known.body
    assert (await api.get("/v1/messages?limit=0")).body == known.body


async def test_a_key_without_the_scope_is_told_which_one_it_lacks(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, scopes=["messages:read"])
    answer = await api.post("/v1/emails", account.token, account.email())

    assert (answer.status, answer.error["type"], answer.error["scope"]) == (403, "forbidden", "emails:send")
    assert "emails:send" in answer.error["message"]
    assert (await api.get("/v1/messages", account.token)).status == 200


async def test_a_revoked_key_stops_within_a_second(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    assert (await api.get("/v1/me", account.token)).status == 200
    await revoke_key(pool, account.id, account.token)

    assert await seconds_until_refused(api, account.token) < WITHIN_S


async def test_a_suspended_accounts_keys_stop_within_a_second_and_come_back(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    assert (await api.get("/v1/me", account.token)).status == 200
    await set_status(pool, account.id, "suspended")
    assert await seconds_until_refused(api, account.token) < WITHIN_S

    await set_status(pool, account.id, "active")
    async with asyncio.timeout(PATIENCE_S):
        while (await api.get("/v1/me", account.token)).status != 200:
            await asyncio.sleep(0.02)


async def test_a_key_expires_while_it_is_in_use(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    token = await add_key(pool, account.id, expires_at=datetime.now(UTC) + timedelta(seconds=3))
    assert (await api.get("/v1/me", token)).status == 200
    await asyncio.sleep(3.1)

    assert (await api.get("/v1/me", token)).status == 401


async def seconds_until_refused(api: Api, token: str) -> float:
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE_S:
        if (await api.get("/v1/me", token)).status == 401:
            break
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def test_a_key_above_its_plans_rate_is_told_when_to_come_back(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="free", daily_cap=1000)
    bystander = await make_account(pool, plan="free")
    answers = await asyncio.gather(*(api.get("/v1/me", account.token) for _ in range(60)))
    counts = Counter(answer.status for answer in answers)

    assert set(counts) == {200, 429}
    assert 20 <= counts[200] <= 30  # a burst of two seconds' worth, and what came free meanwhile
    refusal = next(answer for answer in answers if answer.status == 429)
    assert refusal.error["type"] == "rate_limited"
    assert int(refusal.headers["retry-after"]) >= 1
    assert refusal.headers["ratelimit-limit"] == "20"  # the bucket: two seconds' worth
    assert refusal.headers["ratelimit-remaining"] == "0"
    assert (await api.get("/v1/me", bystander.token)).status == 200
    await asyncio.sleep(int(refusal.headers["retry-after"]))
    assert (await api.get("/v1/me", account.token)).status == 200


async def test_two_keys_of_an_account_are_counted_apart(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="free")
    other = await add_key(pool, account.id)
    await asyncio.gather(*(api.get("/v1/me", account.token) for _ in range(40)))

    assert (await api.get("/v1/me", other)).status == 200


async def test_a_rate_limited_send_is_not_counted_as_sent(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="free", daily_cap=1000)
    answers = await asyncio.gather(*(api.post("/v1/emails", account.token, account.email()) for _ in range(40)))
    accepted = sum(answer.status == 202 for answer in answers)
    assert 0 < accepted < 40
    await asyncio.sleep(1)

    assert (await api.get("/v1/me", account.token)).json["sending"]["sentToday"] == accepted


async def test_bad_keys_are_limited_by_address_and_good_ones_go_on(
    settings: Settings, account: TestAccount, http: aiohttp.ClientSession, api_log: Path
) -> None:
    with serving(structs.replace(settings, unauthenticated_rate=2), api_log) as url:
        strict = Api(url, http)
        answers = await asyncio.gather(*(strict.get("/v1/me", f"nonsense{number}") for number in range(20)))

        assert set(Counter(answer.status for answer in answers)) == {401, 429}
        refusal = next(answer for answer in answers if answer.status == 429)
        assert (refusal.error["type"], int(refusal.headers["retry-after"]) >= 1) == ("rate_limited", True)
        assert (await strict.get("/v1/me", account.token)).status == 200
        for path in ("/v1/openapi.json", "/u/forged"):  # a forged token counts like any credential that isn't genuine
            others = await asyncio.gather(*(strict.get(path) for _ in range(20)))
            assert 429 in {answer.status for answer in others}

        event = {"checkout": "chk_00000000000000000000000000", "amount": 1, "currency": "EUR"}
        for secret, expected in ((None, {200}), ("another secret", {401, 429})):  # signed events are not counted
            reports = [report(strict, settings, "checkout.succeeded", event, secret=secret) for _ in range(20)]
            assert {answer.status for answer in await asyncio.gather(*reports)} <= expected
        unsigned = await strict.request("POST", "/v1/webhooks/payprov/refund", body=b"{}", headers={})
        assert unsigned.status == 429


async def test_an_unknown_path_and_a_wrong_method_answer_in_the_envelope(api: Api, account: TestAccount) -> None:
    for path in ("/v1", "/v1/nothing", "/v1/emails/", "/v2/emails", "/v1/messages/a/b/c/d", "/%00"):
        answer = await api.get(path, account.token)
        assert (answer.status, answer.error["type"]) == (404, "not_found"), path

    answer = await api.get("/v1/emails", account.token)
    assert (answer.status, answer.error["type"]) == (405, "method_not_allowed")
    assert "POST" in answer.headers["allow"]
    deleted = await api.request("DELETE", "/v1/me", token=account.token)
    assert (deleted.status, deleted.error["type"]) == (405, "method_not_allowed")


async def test_head_answers_as_get_does_without_its_body(api: Api, account: TestAccount) -> None:
    for path in ("/v1/me", "/v1/messages", "/v1/messages/msg_x", "/v1/openapi.json", "/v1/me?x=1"):
        asked = await api.request("HEAD", path, token=account.token)
        answer = await api.get(path, account.token)
        assert (asked.status, asked.body) == (answer.status, b""), path
        assert asked.headers["content-length"] == answer.headers["content-length"], path
    assert (await api.request("HEAD", "/v1/me")).status == 401
    for path in ("/v1/messages/tail", "/v1/suppressions/export", "/v1/emails"):
        assert (await api.request("HEAD", path, token=account.token)).status == 405, path


async def test_every_answer_names_its_request(api: Api, account: TestAccount) -> None:
    answers = [
        await api.get("/v1/me", account.token),
        await api.get("/v1/me"),
        await api.get("/nothing"),
        await api.post("/v1/emails", account.token, body=b"{"),
    ]

    names = [answer.headers["x-request-id"] for answer in answers]
    assert all(names)
    assert len(set(names)) == len(names)


async def test_a_sane_request_id_of_the_caller_is_kept_and_any_other_replaced(api: Api, account: TestAccount) -> None:
    kept = await api.get("/v1/me", account.token, headers={"X-Request-Id": "trace-0123.abc"})
    assert kept.headers["x-request-id"] == "trace-0123.abc"

    for given in ("short", "x" * 65, "has space 123", 'quote"12345', "<script>1234"):
        answer = await api.get("/v1/me", account.token, headers={"X-Request-Id": given})
        assert answer.headers["x-request-id"] != given


@pytest.mark.parametrize("query", ["%ff=1", "a=%ff", "%00=1", "=1", "limit=%d0", "&&limit", "a[]=1"])
async def test_a_malformed_query_string_is_a_400(api: Api, account: TestAccount, query: str) -> None:
    answer = await api.get(f"/v1/messages?{query}", account.token)

    assert (answer.status, answer.error["type"]) == (400, "invalid_request")


async def test_a_misspelt_field_or_parameter_is_told_its_neighbour(api: Api, account: TestAccount) -> None:
    body = {"from": account.sender, "to": "ann@people.test", "text": "x"}
    snake = await api.post("/v1/emails", account.token, body | {"reply_to": "a@b.test"})
    far = await api.post("/v1/emails", account.token, body | {"colour": "red"})
    nested = await api.post("/v1/emails", account.token, body | {"attachments": [{"file_name": "a"}]})
    query = await api.get("/v1/messages?tags=x", account.token)

    assert snake.error["message"] == "Unknown field `reply_to`. Did you mean `replyTo`?"
    assert far.error["message"] == "Unknown field `colour`."
    assert (nested.error["field"], nested.error["message"]) == (
        "attachments[0].file_name", "Unknown field `attachments[0].file_name`. Did you mean `filename`?",
    )  # fmt: skip
    assert query.error["message"] == "Unknown query parameter `tags`. Did you mean `tag`?"


async def test_a_bare_list_as_a_batch_is_told_where_it_belongs(api: Api, account: TestAccount) -> None:
    answer = await api.post("/v1/emails/batch", account.token, [{"from": account.sender}])

    assert (answer.status, answer.error["field"]) == (400, "body")
    assert answer.error["message"] == "`body` must be an object that has the list in `messages`."


async def test_a_method_that_a_path_does_not_take_is_told_those_it_takes(api: Api, account: TestAccount) -> None:
    answer = await api.delete("/v1/emails", account.token)

    assert (answer.status, answer.error["type"]) == (405, "method_not_allowed")
    assert answer.error["message"].startswith("DELETE isn't supported here. Use ")
    assert "POST" in answer.error["message"]
    assert "POST" in answer.headers["allow"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"k" * 1_000_000: 1},
        {"metadata": {"k" * 1_000_000: 1}},
        {"headers": {"k " * 500_000: "x"}},
        {"from": "k" * 300, "to": "k" * 300 + "@x"},
        {"minTls": "k" * 1_000_000},
        {"stream": "k" * 1_000_000},
    ],
)
async def test_a_refusal_repeats_little_of_a_large_request(
    api: Api, account: TestAccount, wrong: dict[str, Any]
) -> None:
    body = {"from": account.sender, "to": "ann@people.test", "subject": "Hi", "text": "Hi"} | wrong
    answer = await api.post("/v1/emails", account.token, json=body)

    assert answer.status in {400, 422}
    assert len(answer.body) < 1_000, answer.body


async def test_a_refusal_repeats_little_of_a_long_query(api: Api, account: TestAccount) -> None:
    answer = await api.get(f"/v1/messages?{'k' * 30_000}=1", account.token)

    assert answer.status == 400
    assert answer.error["field"] == "k" * 99 + "…"
    assert len(answer.body) < 1_000


async def test_an_empty_body_is_called_empty(api: Api, account: TestAccount) -> None:
    answer = await api.post("/v1/emails", account.token, body=b"")

    assert (answer.status, answer.error["field"]) == (400, "body")
    assert answer.error["message"] == "The body is empty; send a JSON object."
