"""Sign-in links from the operator: they work once, for one person, and never replace a second factor."""

import asyncio

import asyncpg
import orjson
import pyotp
import pytest
from msgspec import structs

from engine.base import clock, ids
from engine.base.plans import Plan
from engine.base.settings import Settings
from engine.people import sign_in_link
from engine.people.tokens.rules import digest_of
from ops import admin
from ops.commands import person as people
from ops.host import console_access
from tests.harness.accounts import make_account
from tests.harness.api import Answer, Api, refused
from tests.harness.canaries import note
from tests.harness.people import PASSWORD, TestPerson, make_person, signed_in


@pytest.fixture
async def ann(pool: asyncpg.Pool) -> TestPerson:
    return await make_person(pool, (await make_account(pool)).id)


async def token_for(pool: asyncpg.Pool, settings: Settings, person: TestPerson) -> str:
    """Return the token of a new link, as the page reads it from the fragment."""
    made = await people.make_link(pool, settings, email=person.email)
    page, _, token = made["link"].partition("#token=")
    assert page == f"{settings.public_url}/console/sign-in"
    return note(token)


async def follow(api: Api, token: str, code: str | None = None) -> Answer:
    return await api.post("/v1/auth/link", json={"token": token} | ({} if code is None else {"code": code}))


async def test_a_link_signs_in_as_a_password_does(
    api: Api, pool: asyncpg.Pool, settings: Settings, ann: TestPerson
) -> None:
    answer = await follow(api, await token_for(pool, settings, ann))
    login = await api.post("/v1/auth/login", json={"email": ann.email, "password": PASSWORD})

    assert answer.status == 200
    assert answer.json | {"csrfToken": login.json["csrfToken"]} == login.json
    now = structs.replace(ann, secret=answer.cookie("svc_session") or "", csrf=answer.json["csrfToken"])
    assert (await api.post("/v1/auth/sessions/revoke-others", person=now)).status == 204
    rows = await pool.fetch("SELECT type, payload FROM events WHERE account_id = $1 ORDER BY seq", ann.account_id)
    made, signed_in = (orjson.loads(row["payload"])["detail"] for row in rows[1:3])
    assert [row["type"] for row in rows[1:3]] == ["member.sign_in_link_made", "member.signed_in"]
    assert (made["actor"], signed_in["method"]) == ("operator", "link")


async def test_of_parallel_uses_of_a_link_one_signs_in(
    api: Api, pool: asyncpg.Pool, settings: Settings, ann: TestPerson
) -> None:
    token = await token_for(pool, settings, ann)

    answers = await asyncio.gather(*(follow(api, token) for _ in range(6)))

    assert sorted(answer.status for answer in answers) == [200] + [400] * 5
    assert await pool.fetchval("SELECT count(*) FROM sessions WHERE user_id = $1", ann.id) == 2


@pytest.mark.parametrize("token", ["x", "x" * 43, "x" * 200, "\u0000", "é" * 43])
async def test_an_unknown_token_is_refused_by_field(api: Api, token: str) -> None:
    answer = await follow(api, token)

    assert (*refused(answer), answer.error["field"]) == (400, "invalid_request", "token")


async def test_only_the_newest_link_works_until_it_expires(
    api: Api, pool: asyncpg.Pool, settings: Settings, ann: TestPerson
) -> None:
    old = await token_for(pool, settings, ann)
    new = await token_for(pool, settings, ann)
    assert refused(await follow(api, old)) == (400, "invalid_request")

    await pool.execute("UPDATE single_use_tokens SET expires_at = now() WHERE digest = $1", digest_of(new))
    assert refused(await follow(api, new)) == (400, "invalid_request")


@pytest.mark.parametrize(("delivery", "hours"), [("local", 24), ("live", 1)])
async def test_a_link_lives_a_day_in_local_mode_and_an_hour_in_live_mode(
    pool: asyncpg.Pool, settings: Settings, ann: TestPerson, delivery: str, hours: int
) -> None:
    made = await sign_in_link.make_link(pool, structs.replace(settings, delivery=delivery), ann.id)

    assert round((made.expires_at - clock.now()).total_seconds() / 3600) == hours


async def test_no_table_and_no_other_purpose_knows_the_token(
    api: Api, pool: asyncpg.Pool, settings: Settings, ann: TestPerson
) -> None:
    token = await token_for(pool, settings, ann)

    for table in ("single_use_tokens", "events"):
        rows = await pool.fetch(f"SELECT t::text AS row FROM {table} t")
        assert not [row for row in rows if token in row["row"]]
    reset = await api.post("/v1/auth/password/reset", json={"token": token, "password": "a rather long one of mine"})
    assert refused(reset) == (400, "invalid_request")
    assert (await follow(api, token)).status == 200


async def test_a_second_factor_is_still_required(
    api: Api, pool: asyncpg.Pool, settings: Settings, ann: TestPerson
) -> None:
    setup = await api.post("/v1/auth/2fa/setup", person=ann, json={"password": PASSWORD})
    app = pyotp.TOTP(setup.json["secret"])
    enabled = await api.post("/v1/auth/2fa/enable", person=ann, json={"code": app.at(clock.now())})
    token = await token_for(pool, settings, ann)

    assert refused(await follow(api, token)) == (401, "totp_required")
    assert refused(await follow(api, token, "abcdef")) == (401, "invalid_credentials")
    answer = await follow(api, token, enabled.json["recoveryCodes"][0])

    assert answer.status == 200
    assert answer.json["user"]["twoFactor"] is True


async def test_a_new_password_and_a_forced_sign_out_kill_the_link(
    api: Api, pool: asyncpg.Pool, settings: Settings, ann: TestPerson
) -> None:
    token = await token_for(pool, settings, ann)
    await people.sign_out(pool, email=ann.email)
    assert refused(await follow(api, token)) == (400, "invalid_request")

    token = await token_for(pool, settings, ann)
    person = await api.post("/v1/auth/login", json={"email": ann.email, "password": PASSWORD})
    now = structs.replace(ann, secret=person.cookie("svc_session") or "", csrf=person.json["csrfToken"])
    change = {"currentPassword": PASSWORD, "newPassword": "another long one of hers"}
    assert (await api.post("/v1/auth/password/change", person=now, json=change)).status in {200, 204}
    assert refused(await follow(api, token)) == (400, "invalid_request")


# what `ops up` prints ----------------------------------------------------------------------------


async def test_local_mode_shows_a_link_on_a_terminal_only(settings: Settings, ann: TestPerson) -> None:
    made = {"accountId": ids.format_id(ids.Kind.ACCOUNT, ann.account_id), "email": ann.email}
    shown = await console_access.console_lines(settings, made, terminal=True)
    logged = await console_access.console_lines(settings, made, terminal=False)

    assert shown[0] == logged[0] == f"Console: {settings.public_url}/console/"
    assert f"{ann.email} (works once, for 24 h): {settings.public_url}/console/sign-in#token=" in shown[1]
    assert "#token=" not in "".join(logged)
    assert f"ops person sign-in-link {ann.email}" in logged[1]
    assert shown[2] == logged[2] == f"The password of {ann.email} is in {settings.state / 'first-run.json'}"


async def test_live_mode_shows_a_link_until_the_first_owner_has_signed_in(
    settings: Settings, own_database: str
) -> None:
    live = structs.replace(settings, database_url=own_database, delivery="live")
    empty = await console_access.console_lines(live, {}, terminal=True)
    async with admin.opened(live) as pool:
        made = await admin.create_account(pool, name="A", email="olga@people.test", plan=Plan.FREE, daily_cap=None)
        fresh = await console_access.console_lines(live, {}, terminal=True)
        owner = await sign_in_link.first_owner(pool, None)
        assert owner is not None
        await signed_in(pool, owner.id, ids.parse_id(ids.Kind.ACCOUNT, made["accountId"]), owner.email)
    known = await console_access.console_lines(live, {}, terminal=True)

    assert "account create" in empty[1]
    assert "Sign in as olga@people.test (works once, for 1 h): " in fresh[1]
    assert known == [f"Console: {settings.public_url}/console/", f"Documentation: {settings.public_url}/docs"]
