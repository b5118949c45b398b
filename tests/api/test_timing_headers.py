"""`RateLimit`, `RateLimit-Policy` and `Server-Timing` of answers."""

import re

import asyncpg
import pytest

from api.http import rate_limit_headers
from engine.base.plans import CAPS, Plan
from engine.store.rate_limits import RateStatus
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api
from tests.harness.people import make_person


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    return await make_account(pool, plan="free")


async def test_answers_tell_the_keys_limit_and_their_time_refusals_too(api: Api, account: TestAccount) -> None:
    burst = 2 * CAPS[Plan("free")].requests_per_second
    for path, status in (("/v1/messages", 200), ("/v1/messages/x", 404), ("/v1/messages?limit=0", 400)):
        answer = await api.get(path, account.token)

        assert answer.status == status
        assert answer.headers["ratelimit-policy"] == f'"key";q={burst};w=2'
        found = re.fullmatch(r'"key";r=(\d+);t=(\d+)', answer.headers["ratelimit"])
        assert found is not None
        assert found[1] == answer.headers["ratelimit-remaining"]
        assert found[2] == answer.headers["ratelimit-reset"]
        assert re.fullmatch(r"total;dur=\d+\.\d", answer.headers["server-timing"])


async def test_a_person_has_a_limit_of_their_own(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    answer = await api.get("/v1/me", person=await make_person(pool, account.id, "member"))

    assert answer.headers["ratelimit-policy"] == '"user";q=100;w=2'
    assert "server-timing" in answer.headers


async def test_a_stranger_is_told_no_exact_time(api: Api, account: TestAccount) -> None:
    wrong = account.token[:-1] + ("x" if account.token[-1] != "x" else "y")
    for token in (wrong, "svc_live_" + "0" * 44):
        answer = await api.get("/v1/messages", token)
        assert (answer.status, "server-timing" in answer.headers) == (401, False)
        assert answer.headers["ratelimit-policy"].startswith('"address";q=')


def test_an_empty_bucket_has_nothing_left_until_its_next_request() -> None:
    fields = dict(rate_limit_headers.fields("key:x", RateStatus(False, 10, 0, 0.1)))
    assert fields["RateLimit"] == '"key";r=0;t=1'
    assert fields["RateLimit-Policy"] == '"key";q=20;w=2'
