"""Sub-accounts over the API: what the people of the account above may do with them."""

import asyncio
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from engine.accounts import suspend
from engine.accounts.suspend import Cause
from engine.base import clock, ids
from tests.harness.account_log import logged
from tests.harness.accounts import TestAccount, add_domain, add_key, make_account
from tests.harness.api import Answer, Api
from tests.harness.people import TestPerson, make_person


async def opened(api: Api, person: TestPerson, **fields: object) -> dict[str, Any]:
    answer = await api.post("/v1/sub-accounts", None, {"name": "Shop"} | fields, person=person)
    assert answer.status == 201, answer
    found: dict[str, Any] = answer.json
    return found


def uuid_of(row: dict[str, Any]) -> UUID:
    return ids.parse_id(ids.Kind.ACCOUNT, row["id"])


async def read(api: Api, person: TestPerson, child: str) -> Answer:
    return await api.get(f"/v1/sub-accounts/{child}", person=person)


async def change(api: Api, person: TestPerson, child: str, **fields: object) -> Answer:
    return await api.patch(f"/v1/sub-accounts/{child}", json=fields, person=person)


async def delete(api: Api, person: TestPerson, child: str) -> Answer:
    return await api.delete(f"/v1/sub-accounts/{child}", person=person)


async def until_refused(api: Api, token: str) -> Answer:
    """The first answer other than 200; the stamp may take half a second."""
    for _ in range(40):
        answer = await api.get("/v1/streams", token)
        if answer.status != 200:
            return answer
        await asyncio.sleep(0.05)
    return answer


async def test_a_sub_account_has_what_every_account_has(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    row = await opened(api, owner, name="  Shop of Ann ", monthlyLimit=500)
    child = uuid_of(row)
    token = await add_key(pool, child)

    assert row == {
        "id": row["id"], "name": "Shop of Ann", "status": "active", "suspendedBy": [], "monthlyLimit": 500,
        "sentThisMonth": 0, "dailyLimit": 50, "sentToday": 0, "createdAt": row["createdAt"],
        "deletionScheduledFor": None,
    }  # fmt: skip
    streams = (await api.get("/v1/streams", token)).json["data"]
    assert [one["id"] for one in streams] == ["transactional"]
    me = (await api.get("/v1/me", token)).json
    assert (me["parentId"], me["plan"], me["sending"]["monthlyLimit"]) == (account.public_id, "growth", 500)
    assert (await logged(pool, child))[0] == (
        "account.created",
        {
            "name": "Shop of Ann", "monthly_limit": 500, "plan": "growth", "parent": account.public_id,
            "actor": owner.public_id,
        },
    )  # fmt: skip
    assert (await logged(pool, account.id))[-1] == (
        "sub_account.created",
        {"id": row["id"], "name": "Shop of Ann", "monthly_limit": 500, "actor": owner.public_id},
    )


@pytest.mark.parametrize(("plan", "limit"), [("free", 0), ("starter", 0), ("growth", 5)])
async def test_the_plan_says_how_many(api: Api, pool: asyncpg.Pool, plan: str, limit: int) -> None:
    account = await make_account(pool, plan=plan)
    owner = await make_person(pool, account.id, "owner")
    answers = await asyncio.gather(
        *[api.post("/v1/sub-accounts", None, {"name": f"Shop {n}"}, person=owner) for n in range(limit + 2)]
    )
    refused = [answer for answer in answers if answer.status != 201]

    assert len(refused) == 2
    for answer in refused:
        assert (answer.status, answer.error["type"]) == (403, "plan_limit_reached")
        assert (answer.error["resource"], answer.error["limit"], answer.error["used"]) == ("sub_accounts", limit, limit)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "   "}, "name"),
        ({"name": "a" * 121}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "a\u0000b"}, "name"),
        ({"name": 7}, "name"),
        ({"name": "a", "monthlyLimit": -1}, "monthlyLimit"),
        ({"name": "a", "monthlyLimit": 2**31}, "monthlyLimit"),
        ({"name": "a", "monthlyLimit": 1.5}, "monthlyLimit"),
        ({"name": "a", "plan": "scale"}, "plan"),
    ],
)
async def test_what_cannot_be_is_refused_by_name(
    api: Api, owner: TestPerson, body: dict[str, object], field: str
) -> None:
    answer = await api.post("/v1/sub-accounts", None, body, person=owner)

    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", field)


async def test_a_change_leaves_alone_what_it_does_not_name(api: Api, pool: asyncpg.Pool, owner: TestPerson) -> None:
    row = await opened(api, owner, monthlyLimit=7)

    renamed = await change(api, owner, row["id"], name="Other")
    assert renamed.json == row | {"name": "Other"}
    assert (await change(api, owner, row["id"])).json == row | {"name": "Other"}
    free = await change(api, owner, row["id"], monthlyLimit=None)
    assert free.json == row | {"name": "Other", "monthlyLimit": None}
    told = [one for one in await logged(pool, uuid_of(row)) if one[0] == "account.updated"]
    assert told == [
        ("account.updated", {"name": "Other", "actor": owner.public_id}),
        ("account.updated", {"monthly_limit": None, "actor": owner.public_id}),
    ]


@pytest.mark.parametrize("fields", [{"status": "closing"}, {"status": None}, {"name": None}, {"monthlyLimit": "7"}])
async def test_a_change_to_what_cannot_be_is_refused(api: Api, owner: TestPerson, fields: dict[str, object]) -> None:
    row = await opened(api, owner)
    answer = await change(api, owner, row["id"], **fields)

    assert (answer.status, answer.error["field"]) == (400, next(iter(fields)))


async def test_a_suspended_sub_accounts_keys_end_within_a_second_and_come_back(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    row = await opened(api, owner)
    token = await add_key(pool, uuid_of(row))
    assert (await api.get("/v1/streams", token)).status == 200

    stopped = await change(api, owner, row["id"], status="suspended")
    assert (stopped.json["status"], stopped.json["suspendedBy"]) == ("suspended", ["parent"])
    refused = await until_refused(api, token)
    unknown = await api.get("/v1/streams", "svc_live_nobody")
    assert (refused.status, refused.body) == (401, unknown.body)
    assert (await api.get("/v1/streams", account.token)).status == 200

    again = await change(api, owner, row["id"], status="active")
    assert (again.json["status"], again.json["suspendedBy"]) == ("active", [])
    assert (await api.get("/v1/streams", token)).status == 200
    kinds = [kind for kind, _ in await logged(pool, uuid_of(row))]
    assert kinds[-2:] == ["account.suspended", "account.resumed"]
    kinds = [kind for kind, _ in await logged(pool, account.id)]
    assert kinds[-2:] == ["sub_account.suspended", "sub_account.resumed"]


async def test_what_the_operator_holds_against_a_sub_account_is_not_its_parents_to_lift(
    api: Api, pool: asyncpg.Pool, owner: TestPerson
) -> None:
    row = await opened(api, owner)
    await suspend.suspend(pool, uuid_of(row), Cause.OPERATOR, "spam traps", actor="operator")

    refused = await change(api, owner, row["id"], status="active", name="Other")
    assert (refused.status, refused.error["type"], refused.error["status"]) == (409, "invalid_state", "suspended")
    assert (await read(api, owner, row["id"])).json["suspendedBy"] == ["operator"]
    assert (await read(api, owner, row["id"])).json["name"] == row["name"]


async def test_a_suspended_parent_takes_its_sub_accounts_with_it_and_back(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    running, stopped = await opened(api, owner), await opened(api, owner)
    await change(api, owner, stopped["id"], status="suspended")
    token = await add_key(pool, uuid_of(running))
    assert (await api.get("/v1/streams", token)).status == 200

    await suspend.suspend(pool, account.id, Cause.OPERATOR, "unpaid", actor="operator")
    assert (await until_refused(api, token)).status == 401
    assert (await read(api, owner, running["id"])).json["suspendedBy"] == ["inherited"]
    refused = await change(api, owner, running["id"], status="active")
    assert (refused.status, refused.error["type"]) == (403, "account_suspended")
    await suspend.resume(pool, account.id, [Cause.OPERATOR], actor="operator")
    assert (await read(api, owner, running["id"])).json["status"] == "active"
    assert (await read(api, owner, stopped["id"])).json["suspendedBy"] == ["parent"]


async def test_a_deleted_sub_account_stops_at_once_and_can_be_taken_back(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    row = await opened(api, owner)
    token = await add_key(pool, uuid_of(row))
    assert (await api.get("/v1/streams", token)).status == 200

    assert (await delete(api, owner, row["id"])).status == 204
    assert (await delete(api, owner, row["id"])).status == 204
    assert (await until_refused(api, token)).status == 401
    shown = (await read(api, owner, row["id"])).json
    left = clock.parse_iso(shown["deletionScheduledFor"]) - clock.now()
    assert shown["status"] == "suspended"
    assert 13.99 < left.total_seconds() / 86400 <= 14

    back = await change(api, owner, row["id"], status="active")
    assert (back.status, back.json) == (200, row)
    assert (await api.get("/v1/streams", token)).status == 200
    mails = await pool.fetch("SELECT kind FROM system_mail WHERE address = $1 ORDER BY created_at, id", owner.email)
    assert [mail["kind"] for mail in mails] == ["deletion_scheduled", "deletion_canceled"]
    kinds = [kind for kind, _ in await logged(pool, account.id)]
    assert kinds[-4:] == [
        "sub_account.deletion_scheduled", "sub_account.suspended", "sub_account.deletion_canceled",
        "sub_account.resumed",
    ]  # fmt: skip


async def test_one_about_to_be_deleted_leaves_its_place_and_needs_one_to_come_back(api: Api, owner: TestPerson) -> None:
    rows = [await opened(api, owner, name=f"Shop {n}") for n in range(5)]
    await delete(api, owner, rows[0]["id"])
    await opened(api, owner, name="Another")

    refused = await change(api, owner, rows[0]["id"], status="active")
    assert (refused.status, refused.error["type"]) == (403, "plan_limit_reached")
    await delete(api, owner, rows[1]["id"])
    assert (await change(api, owner, rows[0]["id"], status="active")).status == 200


async def test_nothing_but_ones_own_sub_accounts_is_found(api: Api, pool: asyncpg.Pool, owner: TestPerson) -> None:
    other = await make_account(pool)
    stranger = await make_person(pool, other.id, "owner")
    row = await opened(api, owner)

    for child in (row["id"], other.public_id, "x", "acc_" + "z" * 26, "key_01h0000000000000000000000"):
        assert (await read(api, stranger, child)).status == 404
        assert (await change(api, stranger, child, name="Mine")).status == 404
        assert (await delete(api, stranger, child)).status == 404
    assert (await api.get("/v1/sub-accounts", person=stranger)).json["data"] == []
    assert (await read(api, owner, row["id"])).json == row


async def test_a_sub_account_has_none_of_its_own(api: Api, pool: asyncpg.Pool, owner: TestPerson) -> None:
    """Nobody signs in to one; should somebody ever, the answer stands."""
    row = await opened(api, owner)
    inside = await make_person(pool, uuid_of(row), "owner")
    answer = await api.post("/v1/sub-accounts", None, {"name": "Deeper"}, person=inside)

    assert (answer.status, answer.error["type"]) == (403, "forbidden")


async def test_a_plan_change_reaches_the_sub_accounts(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    row = await opened(api, owner)
    await pool.execute("UPDATE accounts SET plan = 'scale' WHERE id = $1", account.id)

    assert await pool.fetchval("SELECT plan FROM accounts WHERE id = $1", uuid_of(row)) == "scale"


async def test_each_shows_what_it_has_sent_and_counts_for_its_parent(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    row = await opened(api, owner, monthlyLimit=3)
    child = TestAccount(uuid_of(row), await add_key(pool, uuid_of(row)), f"{row['id'][4:]}.test")
    await add_domain(pool, child.id, child.domain)
    batch = {"messages": [child.email() for _ in range(5)]}
    answer = await api.post("/v1/emails/batch", child.token, batch)

    errors = [one["error"] for one in answer.json["data"] if "error" in one]
    assert [(one["type"], one["limit"], one["sentThisMonth"], one["allowance"]) for one in errors] == [
        ("monthly_limit_reached", 3, 3, "own")
    ] * 2
    shown = (await read(api, owner, row["id"])).json
    assert (shown["sentThisMonth"], shown["sentToday"], shown["dailyLimit"]) == (3, 3, 50)
    above = (await api.get("/v1/me", account.token)).json["sending"]
    assert (above["sentThisMonth"], above["sentToday"]) == (3, 0)


# -- working in a sub-account ----------------------------------------------------------------------


async def join(api: Api, person: TestPerson, child: str) -> int:
    return (await api.post(f"/v1/sub-accounts/{child}/join", None, person=person)).status


async def accounts_of(api: Api, person: TestPerson) -> dict[str, str]:
    state = (await api.get("/v1/auth/me", person=person)).json
    return {one["id"]: one["role"] for one in state["accounts"]}


async def test_an_admin_joins_a_sub_account_and_switches_to_it(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    child = await opened(api, owner)

    assert await join(api, owner, child["id"]) == 204
    assert await join(api, owner, child["id"]) == 204  # repeated

    assert (await accounts_of(api, owner))[child["id"]] == "admin"
    switched = await api.post("/v1/auth/switch", None, {"accountId": child["id"]}, person=owner)
    assert switched.json["account"]["id"] == child["id"]
    assert [kind for kind, _ in await logged(pool, uuid_of(child))].count("member.joined") == 1
    last, detail = (await logged(pool, account.id))[-1]
    assert (last, detail["id"]) == ("sub_account.member_joined", child["id"])


async def test_only_admins_of_the_account_above_join_its_sub_accounts(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    child = await opened(api, owner)
    stranger = await make_person(pool, (await make_account(pool)).id, "owner")

    assert await join(api, await make_person(pool, account.id, "member"), child["id"]) == 403
    assert await join(api, stranger, child["id"]) == 404


@pytest.mark.parametrize("how", ["removed", "demoted", "left"])
async def test_who_is_no_admin_of_the_account_above_loses_its_sub_accounts(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson, how: str
) -> None:
    admin = await make_person(pool, account.id, "admin")
    child = await opened(api, owner)
    assert await join(api, admin, child["id"]) == 204
    one = f"/v1/team/members/{ids.format_id(ids.Kind.USER, admin.id)}"

    if how == "removed":
        assert (await api.delete(one, person=owner)).status == 204
    elif how == "demoted":
        assert (await api.patch(one, json={"role": "member"}, person=owner)).status == 200
    else:
        assert (await api.post("/v1/team/leave", None, person=admin)).status == 204

    assert not await pool.fetchval("SELECT count(*) FROM members WHERE account_id = $1", uuid_of(child))
    assert (await logged(pool, uuid_of(child)))[-1][0] == "member.removed"
