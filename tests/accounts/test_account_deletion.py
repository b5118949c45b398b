"""The deletion of an account over the API: asked for, seen, taken back."""

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from msgspec import structs

from engine.base import clock
from engine.base.settings import Settings
from tests.harness.account_log import kinds_mailed, logged
from tests.harness.accounts import TestAccount, set_status
from tests.harness.api import Answer, Api, serving
from tests.harness.people import PASSWORD, TestPerson, make_person


async def ask(api: Api, person: TestPerson, **fields: object) -> Answer:
    return await api.post("/v1/account/deletion", None, fields, person=person)


async def status(api: Api, person: TestPerson) -> dict[str, Any]:
    answer = await api.get("/v1/account/deletion", person=person)
    assert answer.status == 200
    found: dict[str, Any] = answer.json
    return found


async def cancel(api: Api, person: TestPerson) -> Answer:
    return await api.delete("/v1/account/deletion", person=person)


async def signed_in_ago(pool: asyncpg.Pool, person: TestPerson, ago: timedelta) -> None:
    await pool.execute("UPDATE sessions SET created_at = now() - $2::interval WHERE id = $1", person.session_id, ago)


async def test_an_owner_asks_and_everything_works_as_before(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    second = await make_person(pool, account.id, "owner")
    admin = await make_person(pool, account.id, "admin")
    assert await status(api, owner) == {"status": "none", "requestedAt": None, "scheduledFor": None}

    answer = await ask(api, owner)
    asked = answer.json
    left = clock.parse_iso(asked["scheduledFor"]) - clock.parse_iso(asked["requestedAt"])
    assert (answer.status, asked["status"], left) == (202, "scheduled", timedelta(days=14))
    assert await status(api, admin) == asked
    assert (await api.post("/v1/emails", account.token, account.email())).status == 202
    assert (await api.get("/v1/streams", person=admin)).status == 200
    detail = {"scheduled_for": asked["scheduledFor"], "actor": owner.public_id}
    assert await logged(pool, account.id, "account.") == [("account.deletion_scheduled", detail)]
    assert [await kinds_mailed(pool, one.email) for one in (owner, second, admin)] == [
        ["deletion_scheduled"],
        ["deletion_scheduled"],
        [],
    ]


async def test_asking_again_keeps_the_date_and_tells_nobody(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    first = (await ask(api, owner)).json
    answers = await asyncio.gather(*[ask(api, owner) for _ in range(5)])

    assert [(answer.status, answer.json) for answer in answers] == [(202, first)] * 5
    assert await kinds_mailed(pool, owner.email) == ["deletion_scheduled"]


async def test_thinking_better_of_it_keeps_the_account(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    await ask(api, owner)
    assert (await cancel(api, owner)).status == 204
    assert (await status(api, owner))["status"] == "none"
    again = await cancel(api, owner)
    assert (again.status, again.error["type"]) == (404, "not_found")
    kinds = [kind for kind, _ in await logged(pool, account.id, "account.")]
    assert kinds == ["account.deletion_scheduled", "account.deletion_canceled"]
    assert await kinds_mailed(pool, owner.email) == ["deletion_scheduled", "deletion_canceled"]


async def test_an_old_session_needs_the_password(api: Api, pool: asyncpg.Pool, owner: TestPerson) -> None:
    await signed_in_ago(pool, owner, timedelta(minutes=11))

    missing = await ask(api, owner)
    assert (missing.status, missing.error["type"], missing.error["field"]) == (400, "invalid_request", "password")
    wrong = await ask(api, owner, password="correct horse battery stable")
    assert (wrong.status, wrong.error["type"]) == (401, "invalid_credentials")
    assert (await status(api, owner))["status"] == "none"
    assert (await ask(api, owner, password=PASSWORD)).status == 202


async def test_a_wrong_password_is_refused_in_a_fresh_session_too(api: Api, owner: TestPerson) -> None:
    assert (await ask(api, owner, password="no")).status == 401


async def test_a_person_without_a_password_signs_in_again(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    owner = await make_person(pool, account.id, "owner", password=None)
    await signed_in_ago(pool, owner, timedelta(minutes=11))

    assert (await ask(api, owner)).status == 400
    assert (await ask(api, owner, password="anything at all")).status == 401
    await signed_in_ago(pool, owner, timedelta(minutes=1))
    assert (await ask(api, owner)).status == 202


@pytest.mark.parametrize(
    "body", [{"password": ""}, {"password": "a" * 257}, {"password": 7}, {"sure": True}, [], "yes", None]
)
async def test_a_body_of_another_shape_is_refused(api: Api, owner: TestPerson, body: object) -> None:
    answer = await api.post("/v1/account/deletion", None, body, person=owner)

    assert (answer.status, answer.error["type"]) == (400, "invalid_request")


async def test_a_request_without_a_body_will_do(api: Api, owner: TestPerson) -> None:
    answer = await api.request("POST", "/v1/account/deletion", person=owner)

    assert answer.status == 202


async def test_guessing_is_slowed_down(
    settings: Settings, pool: asyncpg.Pool, owner: TestPerson, api: Api, api_log: Any
) -> None:
    with serving(structs.replace(settings, sign_in_rate=3), api_log) as url:
        slow = Api(url, api._session)
        answers = [await ask(slow, owner, password=f"wrong password {n}") for n in range(5)]

    assert [answer.status for answer in answers] == [401, 401, 401, 429, 429]


async def test_a_suspended_account_may_leave(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    await set_status(pool, account.id, "suspended")

    assert (await ask(api, owner)).status == 202
    assert (await cancel(api, owner)).status == 204


async def test_an_erasure_that_has_begun_is_not_stopped(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    await ask(api, owner)
    await pool.execute("UPDATE deletions SET began_at = now() WHERE account_id = $1", account.id)
    answer = await cancel(api, owner)
    try:
        assert (answer.status, answer.error["type"], answer.error["status"]) == (409, "invalid_state", "erasing")
        assert (await status(api, owner))["status"] == "erasing"
    finally:
        await pool.execute("DELETE FROM deletions WHERE account_id = $1", account.id)
