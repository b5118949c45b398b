"""Transfers of an account: both roles change at once, and everybody concerned learns of it."""

import asyncio
from datetime import timedelta

import asyncpg
import orjson
import pytest
from msgspec import structs

from engine.base import ids
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Answer, Api
from tests.harness.people import PASSWORD, TestPerson, make_person


@pytest.fixture
async def ann(pool: asyncpg.Pool, account: TestAccount) -> TestPerson:
    return await make_person(pool, account.id, "member")


async def transfer(api: Api, person: TestPerson, to: str, password: str | None = None) -> Answer:
    body = {"memberId": to} | ({} if password is None else {"password": password})
    return await api.post("/v1/team/transfer", person=person, json=body)


async def roles(pool: asyncpg.Pool, account: TestAccount) -> dict[str, str]:
    rows = await pool.fetch("SELECT user_id, role FROM members WHERE account_id = $1", account.id)
    return {ids.format_id(ids.Kind.USER, row["user_id"]): row["role"] for row in rows}


async def test_the_owner_and_the_member_change_places(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson, ann: TestPerson
) -> None:
    answer = await transfer(api, owner, ann.public_id)

    assert answer.status == 200
    assert {name: (one["id"], one["role"]) for name, one in answer.json.items()} == {
        "owner": (ann.public_id, "owner"), "former": (owner.public_id, "admin"),
    }  # fmt: skip
    assert await roles(pool, account) == {ann.public_id: "owner", owner.public_id: "admin"}
    mails = await pool.fetch("SELECT address, detail FROM system_mail WHERE kind = 'ownership_transferred'")
    told = {row["address"]: orjson.loads(row["detail"]) for row in mails if row["address"] in {owner.email, ann.email}}
    assert set(told) == {owner.email, ann.email}
    assert told[ann.email] == {
        "account_name": f"Account {account.domain}", "former": owner.email, "owner": ann.email
    }  # fmt: skip
    row = await pool.fetchrow(
        "SELECT payload FROM events WHERE account_id = $1 AND type = 'account.ownership_transferred'", account.id
    )
    assert row is not None
    assert orjson.loads(row["payload"])["detail"] == {
        "from": owner.public_id, "to": ann.public_id, "role_before": "member", "actor": owner.public_id
    }  # fmt: skip


async def test_the_former_owner_goes_on_with_a_renewed_session(api: Api, owner: TestPerson, ann: TestPerson) -> None:
    answer = await transfer(api, owner, ann.public_id)
    now = structs.replace(owner, secret=answer.cookie("svc_session") or "", csrf=answer.headers["x-csrf-token"])

    assert (await api.get("/v1/team", person=owner)).status == 401
    assert (await api.get("/v1/auth/me", person=now)).json["account"]["role"] == "admin"
    assert (await transfer(api, now, ann.public_id)).status == 403
    assert (await transfer(api, ann, owner.public_id)).status == 200  # and back


async def test_an_old_sign_in_needs_the_password(
    api: Api, pool: asyncpg.Pool, owner: TestPerson, ann: TestPerson
) -> None:
    await pool.execute(
        "UPDATE sessions SET created_at = created_at - $2::interval WHERE id = $1",
        owner.session_id, timedelta(minutes=11),
    )  # fmt: skip
    missing, wrong = await transfer(api, owner, ann.public_id), await transfer(api, owner, ann.public_id, "wrong one")

    assert (missing.status, missing.error["field"]) == (400, "password")
    assert (wrong.status, wrong.error["type"]) == (401, "invalid_credentials")
    assert (await transfer(api, owner, ann.public_id, PASSWORD)).status == 200


async def test_only_a_member_who_is_no_owner_can_take_the_account(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson, ann: TestPerson
) -> None:
    other = await make_person(pool, (await make_account(pool)).id)
    second = await make_person(pool, account.id, "owner")
    before = await roles(pool, account)

    answers = [
        await transfer(api, owner, to) for to in (owner.public_id, second.public_id, other.public_id, "usr_x", "acc_1")
    ]
    by_admin = await transfer(api, await make_person(pool, account.id, "admin"), ann.public_id)

    assert [answer.status for answer in answers] == [409, 409, 404, 400, 400]
    assert by_admin.status == 403
    assert before.items() <= (await roles(pool, account)).items()


async def test_of_two_transfers_at_once_one_happens(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    for _ in range(4):
        one, two = await make_person(pool, account.id, "member"), await make_person(pool, account.id, "admin")
        answers = await asyncio.gather(transfer(api, owner, one.public_id), transfer(api, owner, two.public_id))

        first, second = sorted(answer.status for answer in answers)
        assert first == 200
        assert second in {401, 403}
        assert list((await roles(pool, account)).values()).count("owner") == 1
        owner = one if answers[0].status == 200 else two
