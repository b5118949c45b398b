"""`POST /v1/api-keys` and `DELETE /v1/api-keys/{id}`: people make and revoke keys, and the account's log tells who."""

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import orjson
import pytest

from engine.base import clock, ids
from engine.base.scopes import SCOPES
from engine.base.secrets import digest
from engine.people.api_keys import rules
from tests.harness.account_log import logged
from tests.harness.accounts import PEPPER, TestAccount, add_key, add_stream, make_account
from tests.harness.api import Answer, Api, refused
from tests.harness.patience import PATIENCE_S
from tests.harness.people import TestPerson, make_person


async def make(api: Api, person: TestPerson, **fields: object) -> Answer:
    body = {"name": "server", "scopes": ["account:read"]} | fields
    return await api.post("/v1/api-keys", person=person, json=body)


async def made(api: Api, person: TestPerson, **fields: object) -> dict[str, Any]:
    answer = await make(api, person, **fields)
    assert answer.status == 201, answer
    found: dict[str, Any] = answer.json
    return found


async def revoke(api: Api, person: TestPerson, key: str) -> Answer:
    return await api.delete(f"/v1/api-keys/{key}", person=person)


# making ------------------------------------------------------------------------------------------


async def test_a_key_works_at_once_and_its_token_is_shown_once(api: Api, admin: TestPerson) -> None:
    found = await made(api, admin, scopes=["messages:read", "account:read", "account:read"])
    token = found.pop("token")
    key = rules.parse(token)
    assert key is not None
    listed = await api.get("/v1/api-keys", token)

    assert listed.status == 200
    assert listed.json["data"][0]["id"] == found["id"]
    assert found.pop("createdAt") == listed.json["data"][0]["createdAt"]
    assert ids.parse_id(ids.Kind.API_KEY, found.pop("id")).version == 7
    assert found == {
        "name": "server",
        "scopes": ["account:read", "messages:read"],
        "hint": f"svc_live_{key.key_id[:4]}",
        "lastUsedAt": None,
        "revokedAt": None,
        "expiresAt": None,
        "domains": None,
        "streams": None,
        "networks": None,
        "allowedOrigins": None,
        "agent": None,
        "replacedBy": None,
    }
    assert key.secret.encode() not in listed.body
    assert "token" not in listed.json["data"][0]


async def test_the_secret_is_stored_as_a_digest_only(api: Api, pool: asyncpg.Pool, admin: TestPerson) -> None:
    key = rules.parse((await made(api, admin))["token"])
    assert key is not None
    row = await pool.fetchrow("SELECT t::text AS row, digest FROM api_keys t WHERE key_id = $1", key.key_id)

    assert row is not None
    assert key.secret not in row["row"]
    assert row["digest"] == digest(PEPPER, key.secret)


@pytest.mark.parametrize("scope", ["billing:read", "emails:*", "root", "EMAILS:SEND", "", "x" * 100, "a\0"])
async def test_a_scope_that_is_none_or_can_not_be_granted_is_named(api: Api, admin: TestPerson, scope: str) -> None:
    answer = await make(api, admin, scopes=["emails:send", scope])

    assert (*refused(answer), answer.error["field"]) == (400, "invalid_request", "scopes")
    assert scope.replace("\0", "\\x00") in answer.error["message"]


async def test_every_scope_can_be_granted_at_once(api: Api, admin: TestPerson) -> None:
    assert (await made(api, admin, scopes=sorted(SCOPES)))["scopes"] == sorted(SCOPES)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": ""}, "name"), ({"name": " \t"}, "name"), ({"name": "x" * 121}, "name"), ({"name": "a\0b"}, "name"),
        ({"name": "a\nb"}, "name"), ({"name": None}, "name"), ({"scopes": []}, "scopes"), ({"scopes": None}, "scopes"),
        ({"scopes": "emails:send"}, "scopes"), ({"scopes": ["x" * 101]}, "scopes[0]"),
        ({"expiresAt": "tomorrow"}, "expiresAt"), ({"expiresAt": "2020-01-01T00:00:00Z"}, "expiresAt"),
        ({"expiresAt": "2999-02-30T00:00:00Z"}, "expiresAt"), ({"expiresAt": "2999-01-01"}, "expiresAt"),
        ({"expiresAt": 4_000_000_000}, "expiresAt"), ({"networks": ["10.0.0.0/33"]}, "networks"),
        ({"networks": ["10.0.0.5/8"]}, "networks"), ({"networks": ["office"]}, "networks"),
        ({"networks": []}, "networks"),
        ({"networks": ["10.0.0.1"] * 51}, "networks"), ({"domains": []}, "domains"), ({"domains": ["a b"]}, "domains"),
        ({"domains": ["not-mine.test"]}, "domains"), ({"domains": ["x\0.test"]}, "domains"),
        ({"streams": ["nowhere"]}, "streams"), ({"streams": ["\0"]}, "streams"), ({"token": "svc_live_x"}, "token"),
    ],
)  # fmt: skip
async def test_a_bad_field_is_named(api: Api, admin: TestPerson, fields: dict[str, object], field: str) -> None:
    answer = await make(api, admin, **fields)

    assert (*refused(answer), answer.error["field"]) == (400, "invalid_request", field)


async def test_a_key_ends_at_its_time(api: Api, pool: asyncpg.Pool, admin: TestPerson) -> None:
    ends = clock.now() + timedelta(days=30)
    found = await made(api, admin, expiresAt=clock.iso(ends))
    assert found["expiresAt"] == clock.iso(ends)
    assert (await api.get("/v1/me", found["token"])).status == 200

    key = ids.parse_id(ids.Kind.API_KEY, found["id"])
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("UPDATE api_keys SET expires_at = now() - interval '1 second' WHERE id = $1", key)
        await connection.execute("UPDATE stamps SET version = version + 1 WHERE kind = 'keys'")
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await api.get("/v1/me", found["token"])).status == 200:
            await asyncio.sleep(0.02)
    assert refused(answer) == (401, "unauthorized")
    assert answer.error == (await api.get("/v1/me")).error


async def test_a_key_takes_a_confirmed_address(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    owner = await make_person(pool, account.id, "owner", verified=False)
    assert refused(await make(api, owner)) == (403, "email_unverified")
    await pool.execute("UPDATE users SET email_verified_at = now() WHERE id = $1", owner.id)
    assert (await make(api, owner)).status == 201


@pytest.mark.parametrize(("plan", "limit"), [("free", 5), ("starter", 15)])
async def test_the_plans_number_of_keys_holds_under_parallel_requests(
    api: Api, pool: asyncpg.Pool, plan: str, limit: int
) -> None:
    account = await make_account(pool, plan=plan)
    admin = await make_person(pool, account.id, "admin")
    answers = await asyncio.gather(*(make(api, admin, name=f"k{number}") for number in range(limit + 3)))
    full = next(answer for answer in answers if answer.status == 403)

    assert sorted(answer.status for answer in answers) == [201] * (limit - 1) + [403] * 4
    assert {name: full.error[name] for name in ("type", "resource", "limit", "used")} == {
        "type": "plan_limit_reached", "resource": "api_keys", "limit": limit, "used": limit
    }  # fmt: skip
    first, second = [answer.json["id"] for answer in answers if answer.status == 201][:2]
    assert (await revoke(api, admin, first)).status == 204
    assert (await make(api, admin)).status == 201
    at = clock.now()
    await pool.execute("UPDATE api_keys SET expires_at = $2 WHERE id = $1", ids.parse_id(ids.Kind.API_KEY, second), at)
    assert (await api.get("/v1/me", person=admin)).json["limits"][0]["used"] == limit - 1
    assert [(await make(api, admin)).status for _ in range(2)] == [201, 403]


async def test_the_log_tells_who_made_what_and_no_secret(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson
) -> None:
    await add_stream(pool, account.id, "news")
    found = await made(api, admin, domains=[account.domain], streams=["news"], networks=["10.0.0.0/8"])
    key = rules.parse(found["token"])
    assert key is not None

    assert await logged(pool, account.id, "api_key.") == [
        ("api_key.created", {
            "id": found["id"], "name": "server", "scopes": ["account:read"], "domains": [account.domain],
            "streams": ["news"], "networks": ["10.0.0.0/8"], "actor": admin.public_id,
        })
    ]  # fmt: skip
    payload = await pool.fetchval("SELECT string_agg(payload, '') FROM events WHERE account_id = $1", account.id)
    assert key.key_id not in payload
    assert key.secret not in payload


async def test_the_owners_are_told_by_mail(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson
) -> None:
    owners = [await make_person(pool, account.id, "owner") for _ in range(2)]
    found = await made(api, admin, name="Rechnungen")
    for owner in owners:
        told = await pool.fetchval("SELECT detail FROM system_mail WHERE address = $1", owner.email)
        assert orjson.loads(told) == {
            "account_name": f"Account {account.domain}", "key_name": "Rechnungen", "hint": found["hint"]
        }  # fmt: skip
    assert await pool.fetchval("SELECT count(*) FROM system_mail WHERE address = $1", admin.email) == 0


# revoking ----------------------------------------------------------------------------------------


async def test_a_revoked_key_ends_with_the_answer_and_stays_on_the_list(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson
) -> None:
    found = await made(api, admin)
    assert (await api.get("/v1/me", found["token"])).status == 200
    answer = await revoke(api, admin, found["id"])

    assert (answer.status, answer.body) == (204, b"")
    assert refused(await api.get("/v1/me", found["token"])) == (401, "unauthorized")
    row = (await api.get("/v1/api-keys", person=admin)).json["data"][0]
    assert row["id"] == found["id"]
    assert clock.parse_iso(row["revokedAt"]) <= clock.now()


async def test_revoking_twice_changes_nothing(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson
) -> None:
    found = await made(api, admin)
    first = await revoke(api, admin, found["id"])
    at = (await api.get("/v1/api-keys", person=admin)).json["data"][0]["revokedAt"]
    second = await revoke(api, admin, found["id"])

    assert (first.status, second.status) == (204, 204)
    assert (await api.get("/v1/api-keys", person=admin)).json["data"][0]["revokedAt"] == at
    assert (await logged(pool, account.id, "api_key."))[1:] == [
        ("api_key.revoked", {"id": found["id"], "name": "server", "actor": admin.public_id})
    ]


# sub-accounts ------------------------------------------------------------------------------------


async def child_of(pool: asyncpg.Pool, parent: TestAccount) -> TestAccount:
    child = await make_account(pool)
    await pool.execute("UPDATE accounts SET parent_id = $2 WHERE id = $1", child.id, parent.id)
    return child


async def test_the_parents_admin_makes_sees_and_revokes_a_sub_accounts_keys(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson
) -> None:
    owner = await make_person(pool, account.id, "owner")
    child = await child_of(pool, account)
    found = await made(api, admin, subAccountId=child.public_id, domains=[child.domain])

    assert (await api.get("/v1/me", found["token"])).json["id"] == child.public_id
    listed = (await api.get(f"/v1/api-keys?subAccountId={child.public_id}", person=admin)).json["data"]
    assert listed[0]["id"] == found["id"]
    member = await make_person(pool, account.id, "member")
    assert refused(await api.get(f"/v1/api-keys?subAccountId={child.public_id}", person=member)) == (403, "forbidden")
    assert found["id"] not in {row["id"] for row in (await api.get("/v1/api-keys", person=admin)).json["data"]}
    assert (await revoke(api, admin, found["id"])).status == 204
    assert [detail["actor"] for _, detail in await logged(pool, child.id, "api_key.")] == [admin.public_id] * 2
    assert await logged(pool, account.id, "api_key.") == []
    assert await pool.fetchval("SELECT count(*) FROM system_mail WHERE address = $1", owner.email) == 1


async def test_an_account_that_is_no_sub_account_of_the_callers_is_not_found(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson
) -> None:
    sibling = await child_of(pool, await make_account(pool))
    for wrong in (sibling.public_id, account.public_id, "acc_01m7xmsqwgebmv6bc4n8ss49bj"):
        assert refused(await make(api, admin, subAccountId=wrong)) == (404, "not_found")
        listed = await api.get(f"/v1/api-keys?subAccountId={wrong}", person=admin)
        assert refused(listed) == (404, "not_found")
    assert refused(await make(api, admin, subAccountId="key_x")) == (400, "invalid_request")


async def test_a_sub_accounts_people_do_not_reach_the_parents_keys(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson
) -> None:
    child = await child_of(pool, account)
    below = await make_person(pool, child.id, "owner")
    found = await made(api, admin)

    assert refused(await revoke(api, below, found["id"])) == (404, "not_found")
    assert refused(await make(api, below, subAccountId=account.public_id)) == (404, "not_found")


async def test_a_key_sees_the_keys_of_its_own_account_alone(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    child = await child_of(pool, account)
    reader = await add_key(pool, account.id, scopes=["account:read"])

    assert refused(await api.get(f"/v1/api-keys?subAccountId={child.public_id}", reader)) == (403, "forbidden")
