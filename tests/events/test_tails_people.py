"""The live tail of a signed-in person lasts as long as the session."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from engine.people import open_session
from tests.harness import logbook
from tests.harness.accounts import PEPPER, TestAccount, make_account, set_status
from tests.harness.api import Api
from tests.harness.people import TestPerson, make_person, signed_in
from tests.harness.sse import Reader, following


@asynccontextmanager
async def watching(api: Api, person: TestPerson, query: str = "") -> AsyncIterator[Reader]:
    async with following(api, None, query, headers={"Cookie": f"svc_session={person.secret}"}) as tail:
        assert tail.status == 200
        await tail.until("ready")
        yield tail


@pytest.mark.parametrize("role", ["member", "admin", "owner"])
async def test_a_signed_in_person_follows_the_log(
    api: Api, pool: asyncpg.Pool, account: TestAccount, role: str
) -> None:
    person = await make_person(pool, account.id, role)
    async with watching(api, person, "?replay=0") as tail:
        await logbook.many(pool, account.id, 2)

        assert len(await tail.messages(2)) == 2


@pytest.mark.parametrize("way", ["removed", "signed out", "revoked", "moved", "expired"])
async def test_a_tail_ends_with_its_session_and_no_other_does(
    api: Api, pool: asyncpg.Pool, account: TestAccount, way: str
) -> None:
    ann, bob = await make_person(pool, account.id, "member"), await make_person(pool, account.id, "owner")
    other = await make_account(pool)
    await pool.execute("INSERT INTO members (account_id, user_id, role) VALUES ($1, $2, 'member')", other.id, ann.id)
    phone = await signed_in(pool, ann.id, account.id, ann.email)
    async with watching(api, ann) as doomed, watching(api, bob) as living:
        match way:
            case "removed":
                assert (await api.delete(f"/v1/team/members/{ann.public_id}", person=bob)).status == 204
            case "signed out":
                assert (await api.post("/v1/auth/logout", person=ann)).status == 204
            case "revoked":
                assert (await api.post("/v1/auth/sessions/revoke-others", person=phone)).status == 204
            case "moved":
                await open_session.switch_account(pool, PEPPER, ann.session_id, ann.id, other.id)
            case "expired":
                await pool.execute("UPDATE sessions SET expires_at = now() WHERE id = $1", ann.session_id)
        bye = await doomed.until("bye")

        assert bye.data["reason"] == "unauthorized"
        await logbook.many(pool, account.id, 1)
        assert len(await living.messages(1)) == 1


async def test_a_renewed_secret_is_the_same_session(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    person = await make_person(pool, account.id)
    async with watching(api, person) as tail:
        async with pool.acquire() as connection, connection.transaction():
            await open_session.renew_session(connection, PEPPER, person.session_id, account.id)
        await asyncio.sleep(1.3)
        await logbook.many(pool, account.id, 1)

        assert len(await tail.messages(1)) == 1


async def test_the_people_of_a_suspended_account_go_on_looking(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    person = await make_person(pool, account.id)
    async with watching(api, person) as tail, following(api, account.token) as keys:
        await keys.until("ready")
        await set_status(pool, account.id, "suspended")
        assert (await keys.until("bye")).data["reason"] == "unauthorized"
        await logbook.many(pool, account.id, 1)

        assert len(await tail.messages(1)) == 1


async def test_people_and_keys_share_the_places_of_an_account(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    person = await make_person(pool, account.id)
    async with (
        watching(api, person), watching(api, person), watching(api, person), following(api, account.token) as four,
        following(api, account.token) as five,
    ):  # fmt: skip
        await asyncio.gather(four.until("ready"), five.until("ready"))
        async with following(api, None, headers={"Cookie": f"svc_session={person.secret}"}) as sixth:
            assert sixth.status == 429
