"""The team of an account: members, roles, removal, and limits of every role."""

import asyncio
from typing import Any

import asyncpg
import orjson
import pytest

from engine.base import ids
from engine.base.plans import CAPS, Plan
from tests.harness.account_log import details_logged
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Answer, Api, refused
from tests.harness.canaries import note_phrase
from tests.harness.people import PASSWORD, TestPerson, make_person, signed_in


async def team_of(api: Api, person: TestPerson) -> dict[str, Any]:
    answer = await api.get("/v1/team", person=person)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


async def roles(api: Api, person: TestPerson) -> dict[str, str]:
    return {one["id"]: one["role"] for one in (await team_of(api, person))["members"]}


async def change(api: Api, person: TestPerson, other: TestPerson, role: str) -> Answer:
    return await api.patch(f"/v1/team/members/{other.public_id}", json={"role": role}, person=person)


async def remove(api: Api, person: TestPerson, other: TestPerson) -> Answer:
    return await api.delete(f"/v1/team/members/{other.public_id}", person=person)


async def mails(pool: asyncpg.Pool, kind: str, address: str) -> list[dict[str, Any]]:
    rows = await pool.fetch(
        "SELECT detail FROM system_mail WHERE kind = $1 AND address = $2 ORDER BY created_at, id", kind, address
    )
    return [orjson.loads(row["detail"]) for row in rows]


# who is on it ------------------------------------------------------------------------------------


async def test_the_team_is_members_invitations_and_seats(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    member = await make_person(pool, account.id, "member", verified=False)
    await pool.execute("UPDATE users SET name = 'Bob' WHERE id = $1", member.id)
    found = await team_of(api, owner)
    second, first = found["members"]

    assert set(found) == {"members", "invites", "seats", "nextCursor"}
    assert found["nextCursor"] is None
    assert found["seats"] == {"limit": CAPS[Plan.GROWTH].seats, "used": 2}
    assert found["invites"] == []
    assert (first["id"], first["role"], first["emailVerified"]) == (owner.public_id, "owner", True)
    assert second.pop("joinedAt").endswith("Z")
    assert second == {
        "id": member.public_id,
        "email": member.email,
        "name": "Bob",
        "role": "member",
        "emailVerified": False,
        "twoFactor": False,
    }


async def test_members_have_pages_that_a_departure_does_not_break(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    people = [owner, *[await make_person(pool, account.id, "member") for _ in range(4)]]
    first = (await api.get("/v1/team?limit=2", person=owner)).json
    await api.delete(f"/v1/team/members/{people[3].public_id}", person=owner)
    second = (await api.get(f"/v1/team?limit=2&before={first['nextCursor']}", person=owner)).json
    third = (await api.get(f"/v1/team?limit=2&before={second['nextCursor']}", person=owner)).json

    pages = [[one["id"] for one in page["members"]] for page in (first, second, third)]
    newest = [one.public_id for one in reversed(people)]
    assert pages == [newest[:2], newest[2:4], newest[4:]]
    assert third["nextCursor"] is None
    for wrong in ("x", owner.public_id, f"{10**16}~{account.public_id}", f"{10**17 - 1}~{owner.public_id}x"):
        assert (await api.get("/v1/team", person=owner, params={"before": wrong})).error["field"] == "before"


# roles -------------------------------------------------------------------------------------------


async def test_an_owner_makes_owners_and_unmakes_them(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    ann = await make_person(pool, account.id, "member")
    for role in ("owner", "admin", "member"):
        answer = await change(api, owner, ann, role)
        assert (answer.status, answer.json["id"], answer.json["role"]) == (200, ann.public_id, role)

    assert await details_logged(pool, account.id, "member.role_changed") == [
        {"id": ann.public_id, "from": before, "to": after, "actor": owner.public_id}
        for before, after in (("member", "owner"), ("owner", "admin"), ("admin", "member"))
    ]


async def test_an_admin_can_not_touch_owners_nor_make_one(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    admin, member = await make_person(pool, account.id, "admin"), await make_person(pool, account.id, "member")
    answers = [
        await change(api, admin, owner, "member"), await change(api, admin, member, "owner"),
        await change(api, admin, admin, "owner"), await remove(api, admin, owner),
    ]  # fmt: skip

    assert {refused(answer) for answer in answers} == {(403, "forbidden")}
    assert (await change(api, admin, member, "admin")).status == 200
    assert await roles(api, owner) == {
        owner.public_id: "owner", admin.public_id: "admin", member.public_id: "admin"
    }  # fmt: skip


async def test_a_new_role_holds_at_the_next_request(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    ann = await make_person(pool, account.id, "member")
    assert (await api.patch("/v1/account", json={"name": "A"}, person=ann)).status == 403
    await change(api, owner, ann, "admin")
    assert (await api.patch("/v1/account", json={"name": "A"}, person=ann)).status == 200
    await change(api, owner, ann, "member")
    assert (await api.patch("/v1/account", json={"name": "B"}, person=ann)).status == 403


async def test_ones_own_new_role_comes_with_a_new_secret(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    admin = await make_person(pool, account.id, "admin")
    answer = await change(api, admin, admin, "member")
    renewed = answer.cookie("svc_session")

    assert (answer.status, answer.json["role"]) == (200, "member")
    assert renewed not in {None, admin.secret}
    assert (await api.get("/v1/team", person=admin)).status == 401
    fresh = await api.request("GET", "/v1/auth/me", headers={"Cookie": f"svc_session={renewed}"})
    assert (fresh.json["signedIn"], fresh.json["account"]["role"]) == (True, "member")
    assert answer.headers["x-csrf-token"] == fresh.json["csrfToken"]


async def test_the_same_role_again_writes_nothing(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    answer = await change(api, owner, owner, "owner")

    assert (answer.status, answer.cookie("svc_session")) == (200, None)
    assert await details_logged(pool, account.id, "member.role_changed") == []


@pytest.mark.parametrize("body", [{"role": "king"}, {"role": None}, {}, {"role": "admin", "x": 1}, [], "admin"])
async def test_a_role_that_is_none_is_refused(api: Api, owner: TestPerson, body: object) -> None:
    answer = await api.patch(f"/v1/team/members/{owner.public_id}", json=body, person=owner)

    assert refused(answer) == (400, "invalid_request")


# the last owner ----------------------------------------------------------------------------------


async def test_the_last_owner_can_not_be_demoted_removed_or_leave(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    await make_person(pool, account.id, "admin")
    answers = [
        await change(api, owner, owner, "admin"), await remove(api, owner, owner),
        await api.post("/v1/team/leave", person=owner),
    ]  # fmt: skip

    assert {refused(answer) for answer in answers} == {(409, "conflict")}
    assert (await roles(api, owner))[owner.public_id] == "owner"


@pytest.mark.parametrize("way", ["demote", "remove"])
async def test_of_two_owners_who_turn_on_each_other_at_once_exactly_one_stays(
    api: Api, pool: asyncpg.Pool, way: str
) -> None:
    for _ in range(8):
        account = await make_account(pool)
        ann, bob = await make_person(pool, account.id), await make_person(pool, account.id)
        if way == "demote":
            answers = await asyncio.gather(change(api, ann, bob, "member"), change(api, bob, ann, "member"))
        else:
            answers = await asyncio.gather(remove(api, ann, bob), remove(api, bob, ann))

        assert sorted(answer.status < 300 for answer in answers) == [False, True], answers
        assert {answer.status for answer in answers if answer.status >= 300} <= {401, 403, 404, 409}
        owners = await pool.fetchval(
            "SELECT count(*) FROM members WHERE account_id = $1 AND role = 'owner'", account.id
        )
        assert owners == 1


async def test_of_all_owners_who_leave_at_once_one_stays(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    people = [await make_person(pool, account.id) for _ in range(5)]
    answers = await asyncio.gather(*(api.post("/v1/team/leave", person=one) for one in people))

    assert sorted(answer.status for answer in answers) == [204] * 4 + [409]


# parting -----------------------------------------------------------------------------------------


async def test_a_removed_member_is_signed_out_at_once_and_told(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    ann = await make_person(pool, account.id, "admin")
    phone = await signed_in(pool, ann.id, account.id, ann.email)
    assert (await api.get("/v1/team", person=ann)).status == 200
    answer = await remove(api, owner, ann)

    assert (answer.status, answer.body) == (204, b"")
    assert [(await api.get("/v1/team", person=one)).status for one in (ann, phone)] == [401, 401]
    assert (await api.get("/v1/auth/me", person=ann)).json["signedIn"] is False
    assert await roles(api, owner) == {owner.public_id: "owner"}
    assert await details_logged(pool, account.id, "member.removed") == [
        {"id": ann.public_id, "role": "admin", "actor": owner.public_id}
    ]
    assert await mails(pool, "member_removed", ann.email) == [{"account_name": f"Account {account.domain}"}]


async def test_a_removed_member_keeps_their_sessions_at_other_accounts(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    ann = await make_person(pool, account.id, "member")
    elsewhere = await make_account(pool)
    await pool.execute("INSERT INTO members (account_id, user_id, role) VALUES ($1, $2, 'admin')", elsewhere.id, ann.id)
    there = await signed_in(pool, ann.id, elsewhere.id, ann.email)
    await remove(api, owner, ann)

    assert (await api.get("/v1/team", person=ann)).status == 401
    assert list(await roles(api, there)) == [ann.public_id]


async def test_whoever_is_removed_is_gone_the_second_time(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    ann = await make_person(pool, account.id, "member")

    assert [(await remove(api, owner, ann)).status for _ in range(2)] == [204, 404]


@pytest.mark.parametrize("role", ["member", "admin"])
async def test_anybody_but_the_last_owner_may_leave(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson, role: str
) -> None:
    ann = await make_person(pool, account.id, role)
    answer = await api.post("/v1/team/leave", person=ann)

    assert (answer.status, answer.cookie("svc_session")) == (204, "")
    assert (await api.get("/v1/team", person=ann)).status == 401
    assert (await details_logged(pool, account.id, "member.removed"))[0]["actor"] == ann.public_id
    assert await mails(pool, "member_removed", ann.email) == []


async def test_an_admin_who_removes_themself_takes_the_cookie_away(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    admin = await make_person(pool, account.id, "admin")
    answer = await remove(api, admin, admin)

    assert (answer.status, answer.cookie("svc_session")) == (204, "")


async def test_an_admin_demoted_while_asking_does_not_get_through(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    """The role is asked for again under the lock: whichever of the two comes first, the outcome is one of two."""
    for _ in range(5):
        admin, member = await make_person(pool, account.id, "admin"), await make_person(pool, account.id, "member")
        demoted, removed = await asyncio.gather(change(api, owner, admin, "member"), remove(api, admin, member))

        assert demoted.status == 200
        assert removed.status in {204, 403}
        assert (member.public_id in await roles(api, owner)) == (removed.status == 403)


@pytest.mark.parametrize("meanwhile", ["signs out", "signs in", "gets another role"])
async def test_a_removal_never_stands_in_the_way_of_what_the_member_does(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson, meanwhile: str
) -> None:
    """Locks are taken in one order: nobody waits for the other until one of them is refused."""
    for _ in range(12):
        ann = await make_person(pool, account.id, "member")
        if meanwhile == "signs out":
            other = api.post("/v1/auth/logout", person=ann)
        elif meanwhile == "signs in":
            other = api.post("/v1/auth/login", json={"email": ann.email, "password": PASSWORD})
        else:
            other = change(api, owner, ann, "admin")
        removed, done = await asyncio.gather(remove(api, owner, ann), other)

        assert removed.status == 204
        assert done.status in {200, 204, 401, 403, 404}  # 401: over before its own answer was written
        assert await pool.fetchval("SELECT count(*) FROM sessions WHERE user_id = $1", ann.id) == 0


async def test_all_that_touches_a_persons_sessions_at_once_gets_its_answer(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    """Person, membership, sessions, heads: in another order some would wait for each other and be sent away."""
    club = await make_account(pool)
    chair = await make_person(pool, club.id, "owner")
    for first in range(8):
        ann = await make_person(pool, account.id, "admin")
        await pool.execute("INSERT INTO members (account_id, user_id, role) VALUES ($1, $2, 'admin')", club.id, ann.id)
        ones = [await signed_in(pool, ann.id, (account, club)[n % 2].id, ann.email) for n in range(5)]
        other = {"currentPassword": PASSWORD, "newPassword": note_phrase("several uncommon words in a row")}
        calls = [
            api.post("/v1/auth/sessions/revoke-others", person=ann),
            api.post("/v1/auth/switch", json={"accountId": club.public_id}, person=ones[0]),
            change(api, owner, ann, "member"),
            api.post("/v1/auth/logout", person=ones[1]),
            api.post("/v1/auth/password/change", json=other, person=ann),
            api.post("/v1/auth/sessions/revoke-others", person=ones[2]),
            remove(api, chair, ann),
            api.post("/v1/auth/switch", json={"accountId": account.public_id}, person=ones[3]),
            api.post("/v1/auth/login", json={"email": ann.email, "password": PASSWORD}),
            api.post("/v1/auth/logout", person=ones[4]),
            *[api.post("/v1/team/invites", json={"email": f"{n}{first}@people.test"}, person=ann) for n in range(2)],
            *[api.patch("/v1/profile", json={"name": f"Ann {n}"}, person=ann) for n in range(2)],
        ]
        answers = await asyncio.gather(*calls[first:], *calls[:first])

        assert {answer.status for answer in answers} <= {200, 201, 204, 401, 403, 404}


async def test_no_event_of_a_team_holds_a_mail_address(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    ann = await make_person(pool, account.id, "member")
    await api.post("/v1/team/invites", person=owner, json={"email": "new@people.test", "role": "member"})
    await change(api, owner, ann, "admin")
    await remove(api, owner, ann)
    payloads = await pool.fetch("SELECT payload FROM events WHERE account_id = $1", account.id)

    assert len(payloads) >= 3
    assert not [row["payload"] for row in payloads if "@" in row["payload"]]


async def test_ids_of_members_are_those_of_their_kind(api: Api, owner: TestPerson) -> None:
    (one,) = (await team_of(api, owner))["members"]

    assert ids.parse_id(ids.Kind.USER, one["id"]) == owner.id
