"""Sign-in with an identity provider by one tap, with a second factor, and in an app."""

import base64
import hashlib
from urllib.parse import parse_qs, parse_qsl, urlsplit

import asyncpg
import pyotp
import pytest

from engine.people.identity import rules
from engine.people.identity.types import SignInStep
from tests.harness.accounts import PEPPER
from tests.harness.api import Api
from tests.harness.provider import (
    APP,
    CHALLENGE,
    CLIENT_ID,
    VERIFIER,
    Browser,
    Person,
    TestProvider,
    app_code,
    linked,
    one_tap,
    person_of,
    same_but_request,
    sessions_of,
    told,
    with_totp,
)

# -- one tap ------------------------------------------------------------------------------------------


async def test_one_tap_signs_in(browser: Browser, provider: TestProvider, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    asked = await browser.get("/v1/auth/idp/nonce")
    nonce = asked.json["nonce"]
    assert asked.json == {
        "nonce": nonce, "clientId": CLIENT_ID, "issuer": provider.issuer, "name": "Example ID", "expiresIn": 600,
    }  # fmt: skip

    answer = await browser.post("/v1/auth/idp/one-tap", {"credential": provider.id_token(Person.new(ann.email), nonce)})

    assert answer.status == 200, answer.body
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json["user"]["id"] == ann.public_id
    assert answer.json["csrfToken"] == (await browser.me())["csrfToken"]


async def test_a_nonce_is_good_once_in_its_own_browser_for_ten_minutes(
    browser: Browser, idp: Api, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    ann = Person.new()
    nonce = (await browser.get("/v1/auth/idp/nonce")).json["nonce"]
    credential = {"credential": provider.id_token(ann, nonce)}
    other = Browser(idp)
    await other.get("/v1/auth/idp/nonce")

    stolen = [await one.post("/v1/auth/idp/one-tap", credential) for one in (other, Browser(idp))]
    used = await browser.post("/v1/auth/idp/one-tap", credential)
    again = await browser.post("/v1/auth/idp/one-tap", credential)
    old = (await browser.get("/v1/auth/idp/nonce")).json["nonce"]
    await pool.execute(
        "UPDATE identity_steps SET expires_at = expires_at - interval '10 minutes' WHERE id = $1",
        rules.step_of(PEPPER, SignInStep.NONCE, old),
    )
    late = await browser.post("/v1/auth/idp/one-tap", {"credential": provider.id_token(ann, old)})
    expired = await one_tap(browser, provider, ann, exp=1)
    provider.claims = {"nonce": "made up"}
    foreign = await one_tap(browser, provider, ann)

    assert used.status == 200
    refused = [*stolen, again, late, foreign, expired]
    assert {same_but_request(answer) for answer in refused} == {same_but_request(again)}  # no oracle: the same bytes
    assert (again.status, again.error["type"]) == (401, "invalid_credentials")
    assert all(answer.cookie("svc_session") is None for answer in refused)


async def test_a_nonce_of_the_redirect_is_none_of_one_tap(browser: Browser, provider: TestProvider) -> None:
    given = dict(parse_qsl(urlsplit(await browser.start()).query))

    for nonce in (given["nonce"], given["state"]):
        answer = await browser.post("/v1/auth/idp/one-tap", {"credential": provider.id_token(Person.new(), nonce)})
        assert answer.status == 401


@pytest.mark.parametrize(
    "body", [{}, {"credential": ""}, {"credential": 7}, {"credential": "x" * 20_000}, {"x": 1}], ids=str
)
async def test_what_is_no_credential_is_a_clear_400(browser: Browser, provider: TestProvider, body: object) -> None:
    answer = await browser.post("/v1/auth/idp/one-tap", body)

    assert (answer.status, answer.error["type"]) == (400, "invalid_request")


@pytest.mark.parametrize("credential", ["x", "a.b.c", "\0", "é"], ids=ascii)
async def test_a_made_up_credential_is_refused(browser: Browser, provider: TestProvider, credential: str) -> None:
    answer = await browser.post("/v1/auth/idp/one-tap", {"credential": credential})

    assert (answer.status, answer.error["type"]) == (401, "invalid_credentials")


# -- the second factor --------------------------------------------------------------------------------


async def test_the_provider_alone_does_not_sign_in_a_person_with_a_second_factor(
    browser: Browser, idp: Api, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    ann, totp = await with_totp(idp, pool)
    identity = Person.new(ann.email)
    before = await sessions_of(pool, ann.id)

    landed = await browser.sign_in(provider, identity, returnTo="/domains")

    assert landed.cookie("svc_session") is None
    ticket = told(landed)["ticket"]
    assert told(landed) == {"ticket": ticket, "returnTo": "/domains"}
    assert await sessions_of(pool, ann.id) == before
    assert await linked(pool, identity) is None  # a link, too, takes the code
    answer = await browser.post("/v1/auth/idp/totp", {"ticket": ticket, "code": totp.now()})
    assert answer.status == 200, answer.body
    assert answer.json["user"]["id"] == ann.public_id
    assert await linked(pool, identity) == ann.id
    method = await pool.fetchval("SELECT method FROM sessions WHERE user_id = $1 ORDER BY created_at DESC", ann.id)
    assert method == "identity+totp"


async def test_one_tap_of_a_person_with_a_second_factor_answers_totp_required(
    browser: Browser, idp: Api, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    ann, totp = await with_totp(idp, pool)

    asked = await one_tap(browser, provider, Person.new(ann.email))

    assert (asked.status, asked.error["type"]) == (401, "totp_required")
    assert asked.cookie("svc_session") is None
    answer = await browser.post("/v1/auth/idp/totp", {"ticket": asked.error["ticket"], "code": totp.now()})
    assert answer.status == 200, answer.body


async def test_a_ticket_survives_wrong_codes_and_is_good_once(
    browser: Browser, idp: Api, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    ann, totp = await with_totp(idp, pool)
    ticket = (await one_tap(browser, provider, Person.new(ann.email))).error["ticket"]
    wrong = await browser.post("/v1/auth/idp/totp", {"ticket": ticket, "code": "000000"})
    assert (wrong.status, wrong.error["type"]) == (401, "invalid_credentials")

    good = await browser.post("/v1/auth/idp/totp", {"ticket": ticket, "code": totp.now()})
    await pool.execute("UPDATE users SET totp_last_step = totp_last_step - 10 WHERE id = $1", ann.id)
    again = await browser.post("/v1/auth/idp/totp", {"ticket": ticket, "code": totp.now()})

    assert good.status == 200, good.body
    assert (again.status, again.error["type"], again.error["field"]) == (400, "invalid_request", "ticket")
    assert again.cookie("svc_session") is None


async def test_a_ticket_bears_five_codes_only(
    browser: Browser, idp: Api, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    ann, totp = await with_totp(idp, pool)
    ticket = (await one_tap(browser, provider, Person.new(ann.email))).error["ticket"]
    step = rules.step_of(PEPPER, SignInStep.TICKET, ticket)
    await pool.execute("UPDATE identity_steps SET tries = 5 WHERE id = $1", step)

    answer = await browser.post("/v1/auth/idp/totp", {"ticket": ticket, "code": totp.now()})

    assert answer.status == 400


async def test_a_ticket_is_good_in_its_own_browser_for_five_minutes(
    browser: Browser, idp: Api, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    ann, totp = await with_totp(idp, pool)
    ticket = (await one_tap(browser, provider, Person.new(ann.email))).error["ticket"]
    shown = {"ticket": ticket, "code": totp.now()}
    other = Browser(idp)
    await other.start()

    stolen = [await one.post("/v1/auth/idp/totp", shown) for one in (other, Browser(idp))]
    step = rules.step_of(PEPPER, SignInStep.TICKET, ticket)
    await pool.execute("UPDATE identity_steps SET expires_at = expires_at - interval '5 minutes' WHERE id = $1", step)
    late = await browser.post("/v1/auth/idp/totp", shown)
    forged = await browser.post("/v1/auth/idp/totp", shown | {"ticket": "A" * 64})

    assert {same_but_request(answer) for answer in (*stolen, late, forged)} == {same_but_request(late)}
    assert late.status == 400


# -- apps ---------------------------------------------------------------------------------------------


async def test_an_app_redeems_its_code_with_its_verifier(
    browser: Browser, idp: Api, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    assert base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode() == CHALLENGE
    ann = await person_of(pool)
    code = await app_code(browser, provider, Person.new(ann.email))

    answer = await idp.post("/v1/auth/idp/mobile/exchange", json={"code": code, "verifier": VERIFIER})

    assert answer.status == 200, answer.body
    assert answer.json["user"]["id"] == ann.public_id
    me = await idp.get("/v1/auth/me", headers={"Cookie": f"svc_session={answer.cookie('svc_session')}"})
    assert me.json["csrfToken"] == answer.json["csrfToken"]


async def test_an_apps_code_is_good_once_for_two_minutes_and_for_its_verifier(
    browser: Browser, idp: Api, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    ann = Person.new()
    used, wrong, late = [await app_code(browser, provider, ann) for _ in range(3)]
    good = await idp.post("/v1/auth/idp/mobile/exchange", json={"code": used, "verifier": VERIFIER})
    assert good.status == 200
    step = rules.step_of(PEPPER, SignInStep.APP_CODE, late)
    await pool.execute("UPDATE identity_steps SET expires_at = expires_at - interval '2 minutes' WHERE id = $1", step)
    shown = [
        {"code": used, "verifier": VERIFIER},
        {"code": wrong, "verifier": VERIFIER[:-1] + "X"},
        {"code": wrong, "verifier": VERIFIER},  # the wrong one has used it up
        {"code": late, "verifier": VERIFIER},
        {"code": "A" * 64, "verifier": VERIFIER},
        {"code": "\0", "verifier": "é"},
    ]

    refused = [await idp.post("/v1/auth/idp/mobile/exchange", json=body) for body in shown]

    assert {same_but_request(answer) for answer in refused} == {same_but_request(refused[0])}
    assert (refused[0].status, refused[0].error["field"]) == (400, "code")


async def test_an_app_of_a_person_with_a_second_factor_shows_a_code(
    browser: Browser, idp: Api, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    ann, totp = await with_totp(idp, pool)
    identity = Person.new(ann.email)
    code = await app_code(browser, provider, identity)

    asked = await idp.post("/v1/auth/idp/mobile/exchange", json={"code": code, "verifier": VERIFIER})

    assert (asked.status, asked.error["type"]) == (401, "totp_required")
    assert await linked(pool, identity) is None
    shown = {"ticket": asked.error["ticket"], "code": totp.now()}
    answer = await idp.post("/v1/auth/idp/totp", json=shown)
    assert answer.status == 200, answer.body
    assert await linked(pool, identity) == ann.id


async def test_a_second_factor_set_up_on_the_way_is_asked_for(
    browser: Browser, idp: Api, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    ann = await person_of(pool)
    code = await app_code(browser, provider, Person.new(ann.email))
    setup = await idp.post("/v1/auth/2fa/setup", json={}, person=ann)
    enabled = await idp.post("/v1/auth/2fa/enable", json={"code": pyotp.TOTP(setup.json["secret"]).now()}, person=ann)

    asked = await idp.post("/v1/auth/idp/mobile/exchange", json={"code": code, "verifier": VERIFIER})
    shown = {"ticket": asked.error["ticket"], "code": enabled.json["recoveryCodes"][0]}
    answer = await idp.post("/v1/auth/idp/totp", json=shown)

    assert (asked.status, asked.error["type"]) == (401, "totp_required")
    assert answer.status == 200, answer.body
    method = await pool.fetchval("SELECT method FROM sessions WHERE user_id = $1 ORDER BY created_at DESC", ann.id)
    assert method == "identity+recovery"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"appRedirect": APP}, "verifierChallenge"),
        ({"verifierChallenge": CHALLENGE}, "appRedirect"),
        ({"appRedirect": "com.evil.app:/x", "verifierChallenge": CHALLENGE}, "appRedirect"),
        ({"appRedirect": APP + "/x", "verifierChallenge": CHALLENGE}, "appRedirect"),
        ({"appRedirect": APP, "verifierChallenge": VERIFIER + "x"}, "verifierChallenge"),
    ],
    ids=str,
)
async def test_only_the_operators_apps_are_led_back_to(
    browser: Browser, provider: TestProvider, params: dict[str, str], field: str
) -> None:
    answer = await browser.get("/v1/auth/idp/start", params)

    assert (answer.status, answer.error["field"]) == (400, field)


async def test_an_app_hears_of_errors_too(browser: Browser, provider: TestProvider) -> None:
    location = await browser.start(appRedirect="https://app.example/back?x=1", verifierChallenge=CHALLENGE)
    state = parse_qs(urlsplit(location).query)["state"][0]

    answer = await browser.get("/v1/auth/idp/callback", {"state": state, "error": "access_denied"})

    assert answer.headers["location"] == "https://app.example/back?x=1&error=access_denied"
