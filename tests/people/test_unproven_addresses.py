"""A stranger signs up with somebody's address, and its owner opens the link in the mail: what the stranger keeps."""

from uuid import UUID

import asyncpg
import orjson
import pytest
from msgspec import Struct, structs

from engine.base import clock, ids
from engine.events.webhooks import service as webhooks
from engine.people.tokens.rules import Purpose, token_of
from engine.retention.erase import erase_due
from tests.harness.accounts import PEPPER, add_key, make_account
from tests.harness.api import Answer, Api
from tests.harness.canaries import note_phrase
from tests.harness.people import PASSWORD, TestPerson, make_person, signed_in
from tests.harness.provider import Browser, Person, TestProvider, one_tap, person_of
from tests.people.test_email_verification import events, factors, link, lives, may_sign_in, refused, with_factors

VERIFY = "/v1/auth/verify-email"
CHOSEN = note_phrase("uncommon words that the stranger chose")
NEW = note_phrase("uncommon words of the owner")
ALL_ENDED = "4 API keys, 2 webhook endpoints, 2 invitations, 2 other members"


@pytest.fixture
async def eve(pool: asyncpg.Pool) -> TestPerson:
    """A stranger with the address of somebody else, which is not confirmed yet."""
    return await make_person(pool, (await make_account(pool)).id, verified=False)


async def by_link(pool: asyncpg.Pool, person: TestPerson) -> bool:
    return bool(await pool.fetchval("SELECT verified_by_link FROM users WHERE id = $1", person.id))


async def confirm(api: Api, token: str, password: str | None = None, person: TestPerson | None = None) -> Answer:
    body = {"token": token} if password is None else {"token": token, "password": password}
    return await api.post(VERIFY, json=body, person=person)


# -- what proves that the sign-up is the owner's ----------------------------------------------------------


async def test_a_link_alone_confirms_and_is_remembered_as_such(api: Api, pool: asyncpg.Pool, eve: TestPerson) -> None:
    other = await make_person(pool, (await make_account(pool)).id)  # somebody else's session proves nothing
    assert (await confirm(api, await link(pool, eve, Purpose.VERIFY_EMAIL), person=other)).status == 204

    assert await by_link(pool, eve)


@pytest.mark.parametrize("proof", ["password", "session"])
async def test_with_the_password_or_the_session_the_address_is_proven(
    api: Api, pool: asyncpg.Pool, eve: TestPerson, proof: str
) -> None:
    token = await link(pool, eve, Purpose.VERIFY_EMAIL)
    given = {"password": PASSWORD} if proof == "password" else {"person": eve}
    assert (await confirm(api, token, **given)).status == 204

    assert not await by_link(pool, eve)
    await with_factors(pool, eve)
    reset = await link(pool, eve, Purpose.RESET_PASSWORD)
    assert (await api.post("/v1/auth/password/reset", json={"token": reset, "password": NEW})).status == 204
    assert await factors(pool, eve) == (1, 1, 1)


async def test_a_wrong_password_confirms_nothing_and_leaves_the_link_good(
    api: Api, pool: asyncpg.Pool, eve: TestPerson
) -> None:
    token = await link(pool, eve, Purpose.VERIFY_EMAIL)
    refused(await confirm(api, token, "not the password"), 401, "invalid_credentials")
    assert await pool.fetchval("SELECT email_verified_at FROM users WHERE id = $1", eve.id) is None
    assert (await confirm(api, token, PASSWORD)).status == 204


async def test_a_change_to_a_strangers_address_is_confirmed_by_the_link_alone_too(api: Api, pool: asyncpg.Pool) -> None:
    eve = await make_person(pool, (await make_account(pool)).id)
    victim = f"victim-{eve.email}"
    token = await link(pool, eve, Purpose.CHANGE_EMAIL, detail=victim)
    assert (await api.post("/v1/auth/email/change/confirm", json={"token": token})).status == 204
    assert await by_link(pool, eve)

    await with_factors(pool, eve)
    reset = await link(pool, structs.replace(eve, email=victim), Purpose.RESET_PASSWORD)
    assert (await api.post("/v1/auth/password/reset", json={"token": reset, "password": NEW})).status == 204
    assert await factors(pool, eve) == (0, 0, 0)


async def test_a_change_confirmed_with_the_password_is_proven(api: Api, pool: asyncpg.Pool) -> None:
    ann = await make_person(pool, (await make_account(pool)).id)
    token = await link(pool, ann, Purpose.CHANGE_EMAIL, detail=f"new-{ann.email}")
    body = {"token": token, "password": PASSWORD}
    refused(
        await api.post("/v1/auth/email/change/confirm", json=body | {"password": "wrong"}), 401, "invalid_credentials"
    )
    assert (await api.post("/v1/auth/email/change/confirm", json=body)).status == 204

    assert not await by_link(pool, ann)


# -- the owner arrives --------------------------------------------------------------------------------------


async def test_a_reset_after_the_link_alone_leaves_the_stranger_no_way_in(
    api: Api, pool: asyncpg.Pool, eve: TestPerson
) -> None:
    await with_factors(pool, eve)
    await confirm(api, await link(pool, eve, Purpose.VERIFY_EMAIL))
    reset = await link(pool, eve, Purpose.RESET_PASSWORD)
    assert (await api.post("/v1/auth/password/reset", json={"token": reset, "password": NEW})).status == 204

    assert await factors(pool, eve) == (0, 0, 0)
    assert not await lives(api, eve)
    assert not await may_sign_in(api, eve.email, PASSWORD)
    assert await may_sign_in(api, eve.email, NEW)
    assert not await by_link(pool, eve)


async def test_a_sign_in_with_the_provider_after_the_link_alone_leaves_the_stranger_no_way_in(
    idp: Api, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    eve = await person_of(pool, verified=False)
    await with_factors(pool, eve)  # a code is asked for: the owner could not give it
    await confirm(idp, await link(pool, eve, Purpose.VERIFY_EMAIL))
    browser, owner = Browser(idp), Person.new(eve.email)
    answer = await one_tap(browser, provider, owner)

    assert answer.status == 200, answer.body
    assert await factors(pool, eve) == (0, 0, 0)
    assert not await lives(idp, eve)
    assert not await may_sign_in(idp, eve.email, PASSWORD)
    assert (await browser.me())["user"]["email"] == eve.email
    detail = await pool.fetchval(
        "SELECT detail FROM system_mail WHERE kind = 'identity_linked' AND address = $1", eve.email
    )
    assert "passkeys" in orjson.loads(detail)["removed"]
    again = await one_tap(Browser(idp), provider, owner)
    assert again.status == 200
    assert not await by_link(pool, eve)


class StrangersAccess(Struct):
    """An unproven person's account and its sub-account, each with a key, an endpoint, an invitation and a member."""

    accounts: list[UUID]
    keys: list[str]
    members: list[TestPerson]


async def with_access(pool: asyncpg.Pool, eve: TestPerson) -> StrangersAccess:
    below = await make_account(pool)
    await pool.execute("UPDATE accounts SET parent_id = $2 WHERE id = $1", below.id, eve.account_id)
    made = StrangersAccess([eve.account_id, below.id], [], [])
    for account in made.accounts:
        made.keys.append(await add_key(pool, account))
        made.members.append(await make_person(pool, account, "admin"))
        await webhooks.create(pool, account, url="https://evil.test/", event_types=["*"], pepper=PEPPER)
        await pool.execute(
            "INSERT INTO invites (id, account_id, email, role, digest, invited_by, created_at, expires_at)"
            " VALUES ($1, $2, $3, 'admin', $4, $5, now(), now() + interval '1 day')",
            ids.uuid7(), account, "evil@peer.test", ids.uuid7().bytes, eve.id,
        )  # fmt: skip
    return made


async def assert_ended(api: Api, pool: asyncpg.Pool, made: StrangersAccess, owner: UUID) -> None:
    for key in made.keys:
        assert (await api.get("/v1/messages", key)).status == 401
    for one in made.members:
        assert not await lives(api, one)
    for account in made.accounts:
        assert (
            await pool.fetchval("SELECT count(*) FROM members WHERE account_id = $1 AND user_id <> $2", account, owner)
            == 0
        )
        assert await pool.fetchval("SELECT count(*) FROM invites WHERE account_id = $1", account) == 0
        assert (
            await pool.fetchval("SELECT count(*) FROM webhooks WHERE account_id = $1 AND status <> 'deleted'", account)
            == 0
        )
        ended = {"api_key.revoked", "webhook.deleted", "member.invite_revoked", "member.removed"}
        assert ended <= set(await events(pool, account))


@pytest.mark.parametrize("confirmed", [False, True])
async def test_a_reset_ends_all_access_that_a_stranger_gave_away(
    api: Api, pool: asyncpg.Pool, eve: TestPerson, *, confirmed: bool
) -> None:
    if confirmed:
        await confirm(api, await link(pool, eve, Purpose.VERIFY_EMAIL))
    made = await with_access(pool, eve)
    for key in made.keys:
        assert (await api.get("/v1/messages", key)).status == 200
    reset = await link(pool, eve, Purpose.RESET_PASSWORD)
    assert (await api.post("/v1/auth/password/reset", json={"token": reset, "password": NEW})).status == 204

    await assert_ended(api, pool, made, eve.id)
    assert await told_ended(pool, "password_changed", eve.email) == ALL_ENDED


async def test_a_sign_in_with_the_provider_ends_all_access_that_a_stranger_gave_away(
    idp: Api, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    eve = await person_of(pool, verified=False)
    await confirm(idp, await link(pool, eve, Purpose.VERIFY_EMAIL))
    made = await with_access(pool, eve)
    assert (await one_tap(Browser(idp), provider, Person.new(eve.email))).status == 200

    await assert_ended(idp, pool, made, eve.id)
    assert await told_ended(pool, "identity_linked", eve.email) == ALL_ENDED


async def test_a_reset_of_a_proven_person_ends_no_access(api: Api, pool: asyncpg.Pool, eve: TestPerson) -> None:
    await confirm(api, await link(pool, eve, Purpose.VERIFY_EMAIL), PASSWORD)
    made = await with_access(pool, eve)
    reset = await link(pool, eve, Purpose.RESET_PASSWORD)
    assert (await api.post("/v1/auth/password/reset", json={"token": reset, "password": NEW})).status == 204

    for key in made.keys:
        assert (await api.get("/v1/messages", key)).status == 200
    for one in made.members:
        assert await lives(api, one)
    assert await told_ended(pool, "password_changed", eve.email) is None


async def test_a_reset_ends_nothing_in_accounts_that_the_person_does_not_own(
    api: Api, pool: asyncpg.Pool, eve: TestPerson
) -> None:
    other = await make_account(pool)
    owner = await make_person(pool, other.id)
    await pool.execute("INSERT INTO members (account_id, user_id, role) VALUES ($1, $2, 'admin')", other.id, eve.id)
    reset = await link(pool, eve, Purpose.RESET_PASSWORD)
    assert (await api.post("/v1/auth/password/reset", json={"token": reset, "password": NEW})).status == 204

    assert (await api.get("/v1/messages", other.token)).status == 200
    assert await lives(api, owner)


async def told_ended(pool: asyncpg.Pool, kind: str, address: str) -> str | None:
    """Return the words of the mail about ended access."""
    detail = await pool.fetchval("SELECT detail FROM system_mail WHERE kind = $1 AND address = $2", kind, address)
    ended: str | None = orjson.loads(detail)["ended"]
    return ended


# -- what a new password does not close ---------------------------------------------------------------------


@pytest.mark.parametrize("removes", [False, True])
async def test_a_reset_shows_passkeys_and_identities_and_removes_them_if_asked(
    idp: Api, provider: TestProvider, pool: asyncpg.Pool, *, removes: bool
) -> None:
    ann = await person_of(pool)
    await with_factors(pool, ann)
    await pool.execute("UPDATE users SET totp_sealed = NULL, totp_enabled_at = NULL WHERE id = $1", ann.id)
    identity = Person.new(ann.email)
    assert (await one_tap(Browser(idp), provider, identity)).status == 200
    reset = await link(pool, ann, Purpose.RESET_PASSWORD)

    shown = await idp.post("/v1/auth/password/reset/others", json={"token": reset})
    assert shown.status == 200, shown.body
    assert [one["name"] for one in shown.json["passkeys"]] == ["Key"]
    assert len(shown.json["identities"]) == 1
    refused(await idp.post("/v1/auth/password/reset/others", json={"token": "x" * 43}), 400, "invalid_request")
    body = {"token": reset, "password": NEW, "removeOthers": removes}
    assert (await idp.post("/v1/auth/password/reset", json=body)).status == 204

    left = 0 if removes else 1
    assert await pool.fetchval("SELECT count(*) FROM passkeys WHERE user_id = $1", ann.id) == left
    assert await pool.fetchval("SELECT count(*) FROM identities WHERE user_id = $1", ann.id) == left


# -- "this wasn't me" ---------------------------------------------------------------------------------------


async def signed_up(api: Api, pool: asyncpg.Pool, address: str) -> tuple[str, str]:
    """Sign up; return the tokens of the mail: to confirm, and to end the sign-up."""
    wanted = {"email": address, "password": CHOSEN, "accountName": "Eve's bank"}
    assert (await api.post("/v1/auth/signup", json=wanted)).status == 201
    row = await pool.fetchrow("SELECT id, detail FROM system_mail WHERE address = $1", address)
    assert row is not None
    detail = orjson.loads(row["detail"])
    assert (detail["account_name"], detail["network"]) == ("Eve's bank", "127.0.0.1")
    assert abs((clock.now() - clock.parse_iso(detail["signed_up_at"])).total_seconds()) < 60
    return token_of(PEPPER, row["id"]), token_of(PEPPER, row["id"], Purpose.END_SIGN_UP)


@pytest.mark.parametrize("confirmed_first", [False, True])
async def test_the_owner_ends_the_sign_up_of_a_stranger(api: Api, pool: asyncpg.Pool, *, confirmed_first: bool) -> None:
    address = f"{ids.encode(ids.uuid7())}@people.test"
    token, ending = await signed_up(api, pool, address)
    user, account = await owner_of(pool, address)
    eve = await signed_in(pool, user, account, address)
    if confirmed_first:
        assert (await confirm(api, token)).status == 204
    assert (await api.post("/v1/auth/signup/end", json={"token": ending})).status == 204

    assert not await lives(api, eve)
    assert not await may_sign_in(api, address, CHOSEN)
    refused(await confirm(api, token), 400, "invalid_request")
    refused(await api.post("/v1/auth/signup/end", json={"token": ending}), 400, "invalid_request")
    assert account in await erase_due(pool, clock.now(), hold_known_s=0)
    assert await pool.fetchval("SELECT count(*) FROM users WHERE email = $1", address) == 0  # free again


async def test_a_sign_up_that_its_owner_proved_is_not_ended_by_an_old_link(api: Api, pool: asyncpg.Pool) -> None:
    address = f"{ids.encode(ids.uuid7())}@people.test"
    token, ending = await signed_up(api, pool, address)
    assert (await confirm(api, token, CHOSEN)).status == 204

    refused(await api.post("/v1/auth/signup/end", json={"token": ending}), 400, "invalid_request")
    assert await may_sign_in(api, address, CHOSEN)


async def test_the_two_links_of_a_mail_are_not_exchangeable(api: Api, pool: asyncpg.Pool) -> None:
    token, ending = await signed_up(api, pool, f"{ids.encode(ids.uuid7())}@people.test")

    refused(await confirm(api, ending), 400, "invalid_request")
    refused(await api.post("/v1/auth/signup/end", json={"token": token}), 400, "invalid_request")


async def test_an_account_with_another_owner_outlives_an_ended_sign_up(api: Api, pool: asyncpg.Pool) -> None:
    address = f"{ids.encode(ids.uuid7())}@people.test"
    _, ending = await signed_up(api, pool, address)
    _, account = await owner_of(pool, address)
    await make_person(pool, account)
    assert (await api.post("/v1/auth/signup/end", json={"token": ending})).status == 204

    assert await pool.fetchval("SELECT count(*) FROM users WHERE email = $1", address) == 0
    assert await pool.fetchval("SELECT count(*) FROM members WHERE account_id = $1", account) == 1
    assert await pool.fetchval("SELECT count(*) FROM deletions WHERE account_id = $1", account) == 0


async def owner_of(pool: asyncpg.Pool, address: str) -> tuple[UUID, UUID]:
    row = await pool.fetchrow(
        "SELECT u.id, m.account_id FROM users u JOIN members m ON m.user_id = u.id WHERE u.email = $1", address
    )
    assert row is not None
    return row["id"], row["account_id"]
