"""Invitations: who may send them, what they hold, and how they are accepted."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import pytest
from msgspec import structs

from engine.base import clock
from engine.base.settings import Settings
from engine.people.tokens.rules import token_of
from tests.harness.accounts import PEPPER, TestAccount, make_account, set_status
from tests.harness.api import Answer, Api, refused, serving
from tests.harness.people import PASSWORD, TestPerson, make_person

NEW = "a rather long password of mine"


def address_of(account: TestAccount, name: str = "new") -> str:
    return f"{name}@{account.domain}"


async def invite(api: Api, person: TestPerson, email: str, role: str = "member") -> Answer:
    return await api.post("/v1/team/invites", person=person, json={"email": email, "role": role})


async def token_for(pool: asyncpg.Pool, email: str) -> str:
    """What the last invitation's mail carries: derived from the mail's id, as the sender of it does."""
    mail: UUID = await pool.fetchval(
        "SELECT id FROM system_mail WHERE kind = 'invite' AND address = $1 ORDER BY id DESC LIMIT 1", email
    )
    return token_of(PEPPER, mail)


async def accept(api: Api, token: str, password: str = NEW) -> Answer:
    return await api.post("/v1/team/invites/accept", json={"token": token, "password": password})


async def log_in(api: Api, email: str, password: str) -> Answer:
    return await api.post("/v1/auth/login", json={"email": email, "password": password})


async def team_of(api: Api, person: TestPerson) -> dict[str, Any]:
    found: dict[str, Any] = (await api.get("/v1/team", person=person)).json
    return found


async def events(pool: asyncpg.Pool, account: TestAccount) -> list[tuple[str, dict[str, Any]]]:
    rows = await pool.fetch(
        "SELECT type, payload FROM events WHERE account_id = $1 AND type LIKE 'member.%' "
        "AND type <> 'member.signed_in' ORDER BY seq",
        account.id,
    )
    return [(row["type"], orjson.loads(row["payload"])["detail"]) for row in rows]


# sending -----------------------------------------------------------------------------------------


async def test_an_invitation_goes_out_by_mail_and_takes_a_seat(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    await pool.execute("UPDATE users SET name = 'Olga' WHERE id = $1", owner.id)
    answer = await invite(api, owner, f"New@{account.domain.upper()}", "admin")
    found = answer.json
    team = await team_of(api, owner)
    mail = await pool.fetchrow("SELECT detail FROM system_mail WHERE address = $1", address_of(account))

    assert answer.status == 201
    assert mail is not None
    assert team["invites"] == [found]
    assert team["seats"]["used"] == 2
    expires, created = clock.parse_iso(found.pop("expiresAt")), clock.parse_iso(found.pop("createdAt"))
    assert expires - created == timedelta(days=7)
    assert found.pop("id").startswith("ivt_")
    assert found == {"email": address_of(account), "role": "admin", "invitedBy": owner.public_id}
    assert orjson.loads(mail["detail"]) == {
        "account_name": f"Account {account.domain}", "inviter": "Olga", "role": "admin",
        "requester": account.public_id,
    }  # fmt: skip


async def test_no_table_holds_the_token(api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson) -> None:
    await invite(api, owner, address_of(account))
    token = await token_for(pool, address_of(account))
    for table in ("invites", "system_mail", "events", "single_use_tokens"):
        rows = await pool.fetch(f"SELECT t::text AS row FROM {table} t")
        assert not [row for row in rows if token in row["row"]]


async def test_only_an_owner_invites_an_owner(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    admin, member = await make_person(pool, account.id, "admin"), await make_person(pool, account.id, "member")

    assert refused(await invite(api, admin, address_of(account), "owner")) == (403, "forbidden")
    assert refused(await invite(api, member, address_of(account))) == (403, "forbidden")
    assert (await invite(api, admin, address_of(account), "admin")).status == 201
    assert (await invite(api, owner, address_of(account), "owner")).status == 201


async def test_the_role_is_member_where_none_is_given(api: Api, account: TestAccount, owner: TestPerson) -> None:
    answer = await api.post("/v1/team/invites", person=owner, json={"email": address_of(account)})

    assert (answer.status, answer.json["role"]) == (201, "member")


async def test_a_second_invitation_replaces_the_first(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    first = await invite(api, owner, address_of(account))
    old = await token_for(pool, address_of(account))
    second = await invite(api, owner, address_of(account).upper(), "admin")
    new = await token_for(pool, address_of(account))

    assert [one["id"] for one in (await team_of(api, owner))["invites"]] == [second.json["id"]]
    assert (await team_of(api, owner))["seats"]["used"] == 2
    assert refused(await accept(api, old)) == (400, "invalid_request")
    assert (await accept(api, new)).status == 204
    assert (await events(pool, account))[1][1] == {
        "id": second.json["id"], "role": "admin", "replaces": first.json["id"], "actor": owner.public_id
    }  # fmt: skip


async def test_whoever_is_on_the_account_is_not_invited(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    ann = await make_person(pool, account.id, "member")
    answer = await invite(api, owner, ann.email.upper())

    assert (*refused(answer), answer.error["id"]) == (409, "conflict", ann.public_id)


@pytest.mark.parametrize(("plan", "seats"), [("free", 1), ("starter", 3)])
async def test_pending_invitations_count_as_seats(api: Api, pool: asyncpg.Pool, plan: str, seats: int) -> None:
    account = await make_account(pool, plan=plan)
    owner = await make_person(pool, account.id)
    for place in range(seats - 1):
        assert (await invite(api, owner, address_of(account, f"p{place}"))).status == 201
    answer = await invite(api, owner, address_of(account, "last"))

    assert refused(answer) == (403, "plan_limit_reached")
    assert {name: answer.error[name] for name in ("resource", "limit", "used")} == {
        "resource": "seats", "limit": seats, "used": seats
    }  # fmt: skip
    found = (await api.get("/v1/me", person=owner)).json["limits"]
    assert {"resource": "seats", "limit": seats, "used": seats} in found
    if seats > 1:  # one that is pending already takes no second seat
        assert (await invite(api, owner, address_of(account, "p0"))).status == 201


async def test_parallel_invitations_never_exceed_the_seats(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="starter")
    owner = await make_person(pool, account.id)
    answers = await asyncio.gather(*(invite(api, owner, address_of(account, f"p{place}")) for place in range(8)))

    assert sorted(answer.status for answer in answers) == [201] * 2 + [403] * 6


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"email": "nobody", "role": "member"}, 422), ({"email": "Ann <ann@people.test>", "role": "member"}, 422),
        ({"email": "a\0@people.test"}, 422), ({"email": "a" * 321}, 400), ({"email": ""}, 400), ({}, 400),
        ({"email": 1}, 400), ({"email": "ann@people.test", "role": "king"}, 400),
        ({"email": "ann@people.test", "account": "acc_x"}, 400), ({"email": "ann@people.test\r\nBcc: x@y.test"}, 422),
    ],
)  # fmt: skip
async def test_what_can_not_be_invited_is_refused(api: Api, owner: TestPerson, body: object, status: int) -> None:
    assert (await api.post("/v1/team/invites", person=owner, json=body)).status == status


async def test_one_mailbox_is_not_flooded(api: Api, account: TestAccount, owner: TestPerson) -> None:
    answers = [await invite(api, owner, address_of(account)) for _ in range(6)]

    assert [answer.status for answer in answers] == [201] * 5 + [429]
    assert int(answers[-1].headers["retry-after"]) > 60


# taking back -------------------------------------------------------------------------------------


async def test_a_revoked_invitation_is_dead_and_its_seat_free(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    made = (await invite(api, owner, address_of(account))).json
    token = await token_for(pool, address_of(account))
    answers = [await api.delete(f"/v1/team/invites/{made['id']}", person=owner) for _ in range(2)]

    assert [answer.status for answer in answers] == [204, 404]
    assert (await team_of(api, owner))["seats"]["used"] == 1
    assert refused(await accept(api, token)) == (400, "invalid_request")
    assert (await events(pool, account))[-1] == (
        "member.invite_revoked", {"id": made["id"], "actor": owner.public_id}
    )  # fmt: skip


@pytest.mark.parametrize("how", ["removed", "left", "demoted"])
async def test_invitations_end_with_their_inviter(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson, how: str
) -> None:
    admin = await make_person(pool, account.id, "admin")
    made = (await invite(api, admin, address_of(account))).json
    kept = (await invite(api, owner, address_of(account, "kept"))).json
    token = await token_for(pool, address_of(account))
    path = f"/v1/team/members/{admin.public_id}"
    if how == "removed":
        answer = await api.delete(path, person=owner)
    elif how == "left":
        answer = await api.post("/v1/team/leave", person=admin)
    else:
        answer = await api.patch(path, json={"role": "member"}, person=owner)
    assert answer.status in {200, 204}

    assert refused(await accept(api, token)) == (400, "invalid_request")
    assert [one["id"] for one in (await team_of(api, owner))["invites"]] == [kept["id"]]
    revoked = [detail["id"] for kind, detail in await events(pool, account) if kind == "member.invite_revoked"]
    assert revoked == [made["id"]]


async def test_an_owner_who_becomes_an_admin_keeps_only_the_invitations_of_an_admin(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    other = await make_person(pool, account.id, "owner")
    await invite(api, other, address_of(account, "king"), "owner")
    kept = (await invite(api, other, address_of(account), "admin")).json
    changed = await api.patch(f"/v1/team/members/{other.public_id}", json={"role": "admin"}, person=owner)

    assert changed.status == 200
    assert [one["id"] for one in (await team_of(api, owner))["invites"]] == [kept["id"]]


# accepting ---------------------------------------------------------------------------------------


async def test_a_new_address_becomes_a_person_who_can_sign_in(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    made = (await invite(api, owner, address_of(account), "admin")).json
    answer = await accept(api, await token_for(pool, address_of(account)))

    assert (answer.status, answer.body, answer.set_cookies) == (204, b"", ())
    session = (await log_in(api, address_of(account), NEW)).json
    assert session["user"]["emailVerified"] is True
    assert (session["account"]["id"], session["account"]["role"]) == (account.public_id, "admin")
    team = await team_of(api, owner)
    assert (team["invites"], team["seats"]["used"]) == ([], 2)
    joined = session["user"]["id"]
    assert (await events(pool, account))[-1] == (
        "member.joined", {"id": joined, "role": "admin", "invite": made["id"], "actor": joined}
    )  # fmt: skip


async def test_a_token_works_once(api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson) -> None:
    await invite(api, owner, address_of(account))
    token = await token_for(pool, address_of(account))
    answers = await asyncio.gather(*(accept(api, token) for _ in range(4)))

    assert {answer.status for answer in answers} <= {204, 400, 401}
    assert [answer.status for answer in answers].count(204) == 1
    assert refused(await accept(api, token)) == (400, "invalid_request")
    assert len((await team_of(api, owner))["members"]) == 2


async def test_an_address_that_has_a_person_joins_with_their_own_password_only(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    ann = await make_person(pool, (await make_account(pool)).id, "owner", verified=False)
    await invite(api, owner, ann.email)
    token = await token_for(pool, ann.email)

    assert refused(await accept(api, token, NEW)) == (401, "invalid_credentials")
    assert (await log_in(api, ann.email, NEW)).status == 401  # nothing was reset
    assert (await accept(api, token, PASSWORD)).status == 204
    assert (await api.get("/v1/auth/me", person=ann)).json["user"]["emailVerified"] is True
    accounts = (await api.get("/v1/auth/me", person=ann)).json["accounts"]
    assert {one["id"]: one["role"] for one in accounts}[account.public_id] == "member"


async def test_a_person_without_a_password_can_not_be_taken_over(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    ann = await make_person(pool, (await make_account(pool)).id, password=None)
    await invite(api, owner, ann.email)

    assert refused(await accept(api, await token_for(pool, ann.email))) == (401, "invalid_credentials")
    assert (await log_in(api, ann.email, NEW)).status == 401


async def test_a_person_without_a_password_joins_in_their_session(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    ann = await make_person(pool, (await make_account(pool)).id, password=None)
    await invite(api, owner, ann.email, "admin")
    answer = await api.post("/v1/team/invites/accept", json={"token": await token_for(pool, ann.email)}, person=ann)

    assert (answer.status, answer.set_cookies) == (204, ())
    accounts = (await api.get("/v1/auth/me", person=ann)).json["accounts"]
    assert {one["id"]: one["role"] for one in accounts}[account.public_id] == "admin"


async def test_a_session_accepts_no_invitation_of_another_address(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    eve = await make_person(pool, (await make_account(pool)).id)
    await invite(api, owner, address_of(account))
    body = {"token": await token_for(pool, address_of(account))}
    path = "/v1/team/invites/accept"

    assert refused(await api.post(path, json=body, person=eve)) == (403, "forbidden")
    assert refused(await api.post(path, json=body, person=structs.replace(eve, csrf="x" * 43))) == (403, "csrf_failed")
    nobody = await api.post(path, json=body)
    assert (*refused(nobody), nobody.error["field"]) == (400, "invalid_request", "password")
    assert len((await team_of(api, owner))["invites"]) == 1


@pytest.mark.parametrize("password", ["short", "password123", "aaaaaaaaaaaaaaaa", "with\0nul in the middle", "x" * 257])
async def test_a_password_that_can_not_be_one_leaves_the_token_good(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson, password: str
) -> None:
    await invite(api, owner, address_of(account))
    token = await token_for(pool, address_of(account))
    answer = await accept(api, token, password)

    assert (*refused(answer), answer.error["field"]) == (400, "invalid_request", "password")
    assert (await accept(api, token)).status == 204


@pytest.mark.parametrize("token", ["x", "x" * 43, "x" * 200, "ä" * 43, "a\0b", " " * 43])
async def test_a_token_that_is_none_is_refused(api: Api, token: str) -> None:
    answer = await accept(api, token)

    assert (*refused(answer), answer.error["field"]) == (400, "invalid_request", "token")


@pytest.mark.parametrize("body", [{}, {"token": "x" * 43}, {"token": "x" * 201, "password": NEW}, {"token": None}, []])
async def test_a_malformed_acceptance_is_refused(api: Api, body: object) -> None:
    assert (await api.post("/v1/team/invites/accept", json=body)).status == 400


async def test_an_invitation_ends_after_a_week(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    await invite(api, owner, address_of(account))
    token = await token_for(pool, address_of(account))
    await pool.execute("UPDATE invites SET expires_at = now() - interval '1 second' WHERE account_id = $1", account.id)
    team = await team_of(api, owner)

    assert (team["invites"], team["seats"]["used"]) == ([], 1)
    assert refused(await accept(api, token)) == (400, "invalid_request")
    assert (await invite(api, owner, address_of(account))).status == 201  # in place of the old one


async def test_the_seats_are_counted_again_when_the_plan_has_become_smaller(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    await invite(api, owner, address_of(account))
    token = await token_for(pool, address_of(account))
    await pool.execute("UPDATE accounts SET plan = 'free' WHERE id = $1", account.id)
    answer = await accept(api, token)

    assert (*refused(answer), answer.error["limit"]) == (403, "plan_limit_reached", 1)
    await pool.execute("UPDATE accounts SET plan = 'starter' WHERE id = $1", account.id)
    assert (await accept(api, token)).status == 204


async def test_whoever_has_joined_meanwhile_uses_the_invitation_up(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    ann = await make_person(pool, (await make_account(pool)).id)
    await invite(api, owner, ann.email)
    token = await token_for(pool, ann.email)
    await pool.execute("INSERT INTO members (account_id, user_id, role) VALUES ($1, $2, 'member')", account.id, ann.id)

    assert refused(await accept(api, token, PASSWORD)) == (409, "conflict")
    assert (await team_of(api, owner))["invites"] == []


@pytest.mark.parametrize(("status", "answer"), [("suspended", 403), ("closing", 400)])
async def test_nobody_joins_an_account_that_is_suspended_or_being_erased(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson, status: str, answer: int
) -> None:
    await invite(api, owner, address_of(account))
    token = await token_for(pool, address_of(account))
    await set_status(pool, account.id, status)

    assert (await accept(api, token)).status == answer


async def test_guessing_a_persons_password_with_an_invitation_is_slowed(
    settings: Settings, pool: asyncpg.Pool, http: Any, api_log: Any, account: TestAccount, owner: TestPerson
) -> None:
    ann = await make_person(pool, (await make_account(pool)).id)
    with serving(structs.replace(settings, sign_in_rate=3), api_log) as url:
        strict = Api(url, http)
        await invite(strict, owner, ann.email)
        token = await token_for(pool, ann.email)
        statuses = [(await accept(strict, token, "not the password")).status for _ in range(5)]

    assert statuses == [401, 401, 401, 429, 429]


# sending again -----------------------------------------------------------------------------------


async def test_an_invitation_sent_again_has_a_new_link_and_a_new_week(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    admin = await make_person(pool, account.id, "admin")
    first = (await invite(api, owner, address_of(account))).json
    old = await token_for(pool, address_of(account))
    await pool.execute(
        "UPDATE invites SET expires_at = expires_at - interval '6 days' WHERE account_id = $1", account.id
    )
    answer = await api.post(f"/v1/team/invites/{first['id']}/resend", person=admin)
    new = await token_for(pool, address_of(account))

    assert answer.status == 200
    again = answer.json
    assert clock.parse_iso(again.pop("expiresAt")) >= clock.parse_iso(first.pop("expiresAt"))
    assert again == first | {"invitedBy": admin.public_id}
    assert (await team_of(api, owner))["seats"]["used"] == 3
    assert refused(await accept(api, old)) == (400, "invalid_request")
    assert (await accept(api, new)).status == 204
    assert ("member.invite_resent", {"id": first["id"], "role": "member", "actor": admin.public_id}) in await events(
        pool, account
    )


async def test_only_a_pending_invitation_of_the_account_is_sent_again(
    api: Api, pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    admin, other = await make_person(pool, account.id, "admin"), await make_person(pool, (await make_account(pool)).id)
    of_owner = (await invite(api, owner, address_of(account), "owner")).json["id"]
    expired = (await invite(api, owner, address_of(account, "late"))).json["id"]
    await pool.execute("UPDATE invites SET expires_at = now() WHERE email = $1", address_of(account, "late"))

    async def again(person: TestPerson, name: str) -> int:
        return (await api.post(f"/v1/team/invites/{name}/resend", person=person)).status

    assert await again(admin, of_owner) == 403
    assert await again(owner, of_owner) == 200
    assert [await again(other, of_owner), await again(owner, expired), await again(owner, "ivt_x")] == [404] * 3


async def test_sending_again_counts_as_inviting(api: Api, account: TestAccount, owner: TestPerson) -> None:
    name = (await invite(api, owner, address_of(account))).json["id"]
    answers = [await api.post(f"/v1/team/invites/{name}/resend", person=owner) for _ in range(5)]

    assert [answer.status for answer in answers] == [200] * 4 + [429]
