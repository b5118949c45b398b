"""Links between people and identities: creation, refusal, list and removal."""

import asyncio

import asyncpg
import pytest
from msgspec import structs

from engine.base import ids
from tests.harness.account_log import kinds_mailed
from tests.harness.api import Api
from tests.harness.provider import (
    VERIFIER,
    Browser,
    Person,
    TestProvider,
    app_code,
    events,
    linked,
    one_tap,
    person_of,
    sessions_of,
    told,
)

# -- whose an identity is -----------------------------------------------------------------------------


async def test_whoever_signed_up_first_with_a_strangers_address_gains_nothing(
    browser: Browser, idp: Api, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    """The squatter keeps what they had, which is no proof of the address; the owner is told how to take it back."""
    squatter = await person_of(pool, verified=False)
    owner = Person.new(squatter.email)

    answer = await browser.sign_in(provider, owner)
    tapped = await one_tap(browser, provider, owner)

    assert told(answer) == {"error": "address_unconfirmed"}
    assert (tapped.status, tapped.error["type"], tapped.error["status"]) == (
        409,
        "invalid_state",
        "address_unconfirmed",
    )
    assert await linked(pool, owner) is None
    assert "svc_session" not in browser.cookies
    verified_at = await pool.fetchval("SELECT email_verified_at FROM users WHERE id = $1", squatter.id)
    assert verified_at is None
    assert await sessions_of(pool, squatter.id) == 1
    assert await kinds_mailed(pool, squatter.email) == []


async def test_once_the_address_is_confirmed_the_identity_links(
    browser: Browser, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    ann = await person_of(pool, verified=False)
    identity = Person.new(ann.email)
    await browser.sign_in(provider, identity)
    await pool.execute("UPDATE users SET email_verified_at = now() WHERE id = $1", ann.id)

    await browser.sign_in(provider, identity)

    assert await linked(pool, identity) == ann.id


async def test_an_address_that_somebody_new_has_at_the_provider_opens_nothing(
    browser: Browser, idp: Api, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    before = Person.new()
    await browser.sign_in(provider, before)
    after = Person.new(before.email)
    other = Browser(idp)

    answer = await other.sign_in(provider, after)
    tapped = await one_tap(other, provider, after)

    assert told(answer) == {"error": "other_identity"}
    assert (tapped.status, tapped.error["type"]) == (409, "conflict")
    assert await linked(pool, after) is None


async def test_an_unverified_address_makes_no_account_and_links_to_none(
    browser: Browser, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    ann = await person_of(pool)

    for address in (ann.email, None):
        eve = Person.new(address, email_verified=False)
        answer = await one_tap(browser, provider, eve)
        assert (answer.status, answer.error["type"]) == (409, "invalid_state")
        assert answer.error["status"] == "email_unverified"
        assert await linked(pool, eve) is None


async def test_two_first_sign_ins_at_once_make_one_person(idp: Api, provider: TestProvider, pool: asyncpg.Pool) -> None:
    ann = Person.new()
    browsers = [Browser(idp) for _ in range(4)]

    answers = await asyncio.gather(*(one.sign_in(provider, ann) for one in browsers))

    assert all(answer.cookie("svc_session") for answer in answers)
    people = {(await one.me())["user"]["id"] for one in browsers}
    assert len(people) == 1
    assert await pool.fetchval("SELECT count(*) FROM accounts WHERE name = $1", (ann.email or "").split("@")[0]) == 1


async def test_whoever_belongs_to_no_account_any_more_is_told_so(
    browser: Browser, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    ann = await person_of(pool)
    await pool.execute("DELETE FROM members WHERE user_id = $1", ann.id)

    assert told(await browser.sign_in(provider, Person.new(ann.email))) == {"error": "no_account"}


# -- a person's identities ----------------------------------------------------------------------------


async def test_identities_are_listed_and_removed(
    browser: Browser, idp: Api, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    ann, bob = await person_of(pool), await person_of(pool)
    await browser.sign_in(provider, Person.new(ann.email))
    listed = (await idp.get("/v1/auth/idp/identities", person=ann)).json["data"]
    (one,) = listed
    assert set(one) == {"id", "issuer", "name", "current", "createdAt", "lastUsedAt"}
    assert (one["issuer"], one["name"], one["current"]) == (provider.issuer, "Example ID", True)

    strangers = await idp.delete(f"/v1/auth/idp/identities/{one['id']}", person=bob)
    answer = await idp.delete(f"/v1/auth/idp/identities/{one['id']}", person=ann)

    assert (strangers.status, strangers.error["type"]) == (404, "not_found")
    assert answer.status == 204
    assert (await kinds_mailed(pool, ann.email))[-1] == "identity_unlinked"
    assert (await events(pool, ann.id))[-1][0] == "member.identity_unlinked"
    fresh = structs.replace(ann, secret=answer.cookie("svc_session") or "", csrf=answer.headers["x-csrf-token"])
    assert (await idp.delete(f"/v1/auth/idp/identities/{one['id']}", person=fresh)).status == 404
    assert (await idp.get("/v1/auth/idp/identities", person=fresh)).json == {"data": [], "nextCursor": None}
    assert (await idp.get("/v1/auth/idp/identities", person=ann)).status == 401  # the old cookie is dead
    assert (await browser.me())["signedIn"] is False  # and so is the session that came by the identity


async def test_the_last_way_to_sign_in_stays(
    browser: Browser, idp: Api, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    await browser.sign_in(provider, Person.new())
    me = await browser.me()
    headers = {"Cookie": f"svc_session={browser.cookies['svc_session']}", "X-CSRF-Token": me["csrfToken"]}
    listed = await idp.get("/v1/auth/idp/identities", headers=headers)
    path = f"/v1/auth/idp/identities/{listed.json['data'][0]['id']}"

    answer = await idp.request("DELETE", path, headers=headers)

    assert (answer.status, answer.error["type"], answer.error["status"]) == (409, "invalid_state", "only_way_in")
    user = ids.parse_id(ids.Kind.USER, me["user"]["id"])
    await pool.execute("UPDATE users SET password_hash = 'x' WHERE id = $1", user)
    assert (await idp.request("DELETE", path, headers=headers)).status == 204


@pytest.mark.parametrize(
    "name", ["x", "idn_", "idn_x", "usr_01h00000000000000000000000", "idn_zzzzzzzzzzzzzzzzzzzzzzzzzz"]
)
async def test_an_unknown_identity_is_not_found(idp: Api, pool: asyncpg.Pool, name: str) -> None:
    ann = await person_of(pool)

    assert (await idp.delete(f"/v1/auth/idp/identities/{name}", person=ann)).status == 404


async def test_an_unlinked_identity_takes_what_is_under_way_with_it(
    browser: Browser, idp: Api, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    ann = await person_of(pool)
    identity = Person.new(ann.email)
    code = await app_code(browser, provider, identity)
    await browser.sign_in(provider, identity)
    (one,) = (await idp.get("/v1/auth/idp/identities", person=ann)).json["data"]
    await idp.delete(f"/v1/auth/idp/identities/{one['id']}", person=ann)

    answer = await idp.post("/v1/auth/idp/mobile/exchange", json={"code": code, "verifier": VERIFIER})

    assert answer.status == 400
    assert await linked(pool, identity) is None
