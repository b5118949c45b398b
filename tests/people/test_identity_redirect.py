"""Sign-in with an identity provider by redirect, and attacks on it."""

from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import asyncpg
import pytest

from engine.people.identity import rules
from engine.people.identity.types import SignInStep
from tests.harness.account_log import kinds_mailed
from tests.harness.accounts import PEPPER
from tests.harness.api import Api
from tests.harness.provider import (
    Browser,
    Person,
    TestProvider,
    events,
    person_of,
    told,
)

# -- the redirect -------------------------------------------------------------------------------------


async def test_somebody_new_gets_an_account_of_their_own(
    browser: Browser, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    ann = Person.new(name="Ann Example")

    answer = await browser.sign_in(provider, ann)

    assert answer.headers["location"] == f"{browser.api.base_url}/console/"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"
    state = await browser.me()
    assert state["user"]["email"] == ann.email
    assert state["user"]["emailVerified"] is True
    assert state["user"]["name"] == "Ann Example"
    assert state["account"]["role"] == "owner"
    row = await pool.fetchrow("SELECT id, password_hash FROM users WHERE email = $1", ann.email)
    assert row is not None
    assert row["password_hash"] is None
    assert [kind for kind, _ in await events(pool, row["id"])] == [
        "account.created",
        "member.identity_linked",
        "member.signed_in",
    ]
    assert (await kinds_mailed(pool, ann.email or "")) == []


async def test_the_second_sign_in_finds_the_same_person_whatever_the_address_says(
    browser: Browser, idp: Api, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    ann = Person.new()
    await browser.sign_in(provider, ann)
    first = await browser.me()
    changed = Person(ann.subject, "moved@people.test", email_verified=False)

    other = Browser(idp)
    await other.sign_in(provider, changed)

    assert (await other.me())["user"] == first["user"]


async def test_a_verified_address_links_to_its_verified_person(
    browser: Browser, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    ann = await person_of(pool)

    await browser.sign_in(provider, Person.new(ann.email.upper()))

    assert (await browser.me())["user"]["id"] == ann.public_id
    assert await kinds_mailed(pool, ann.email) == ["identity_linked"]
    kind, detail = (await events(pool, ann.id))[-2]
    assert kind == "member.identity_linked"
    assert detail["detail"]["id"] == detail["detail"]["actor"] == ann.public_id
    assert ann.email not in str(detail)
    method = await pool.fetchval(
        "SELECT method FROM sessions WHERE user_id = $1 ORDER BY created_at DESC LIMIT 1", ann.id
    )
    assert method == "identity"


async def test_the_browser_comes_back_to_where_it_was(browser: Browser, provider: TestProvider) -> None:
    answer = await browser.sign_in(provider, Person.new(), returnTo="/domains?tab=dns&next=%2F%2Fx")

    assert answer.headers["location"] == f"{browser.api.base_url}/domains?tab=dns&next=%2F%2Fx"


async def test_cookies_are_out_of_reach_of_scripts_and_other_sites(browser: Browser, provider: TestProvider) -> None:
    answer = await browser.sign_in(provider, Person.new())

    for cookie in answer.set_cookies:
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
    assert any(one.startswith("svc_idp=") and "Path=/v1/auth/idp;" in one for one in answer.set_cookies)
    assert any(one.startswith("svc_session=") and "Path=/;" in one for one in answer.set_cookies)


async def test_nothing_that_is_stored_can_be_shown(
    browser: Browser, provider: TestProvider, pool: asyncpg.Pool
) -> None:
    location = await browser.start()

    given = dict(parse_qsl(urlsplit(location).query))
    step = rules.step_of(PEPPER, SignInStep.STATE, given["state"])
    assert step is not None
    row = await pool.fetchrow("SELECT * FROM identity_steps WHERE id = $1", step)
    stored = str(dict(row or {}))
    assert step.hex in stored.replace("-", "")
    for secret in (given["state"], given["nonce"], browser.cookies["svc_idp"], rules.verifier_of(PEPPER, step)):
        assert secret not in stored


@pytest.mark.parametrize(
    "path",
    [
        "//evil.test", "//evil.test/x", "https://evil.test", "/\\evil.test", "\\\\evil.test", "/\t/evil.test",
        "/\n/evil.test", " //evil.test", "javascript:alert(1)", "/x//evil.test", "", "evil", "@evil.test", "/x#y",
        "/<script>", "/\0", "/é", "/ x", "/" + "x" * 2_000, "/x\r\nLocation: //evil.test",
    ],
    ids=ascii,
)  # fmt: skip
async def test_there_is_no_way_to_lead_elsewhere(browser: Browser, provider: TestProvider, path: str) -> None:
    answer = await browser.get("/v1/auth/idp/start", {"returnTo": path})

    assert answer.status == 400, answer.headers
    assert answer.error["field"] == "returnTo"


async def test_a_state_is_good_once(browser: Browser, provider: TestProvider) -> None:
    callback = provider.authorize(await browser.start(), Person.new())
    await browser.land(callback)
    browser.cookies.pop("svc_session")

    again = await browser.land(callback)

    assert told(again) == {"error": "expired"}
    assert again.cookie("svc_session") is None


async def test_a_state_is_good_in_its_own_browser_only(idp: Api, browser: Browser, provider: TestProvider) -> None:
    callback = provider.authorize(await browser.start(), Person.new())
    other, bare = Browser(idp), Browser(idp)
    await other.start()

    for thief in (other, bare):
        answer = await thief.land(callback)
        assert told(answer) == {"error": "expired"}
        assert answer.cookie("svc_session") is None
    assert (await browser.land(callback)).cookie("svc_session") is not None  # nobody else has used it up


async def test_a_state_ends_after_ten_minutes(browser: Browser, provider: TestProvider, pool: asyncpg.Pool) -> None:
    callback = provider.authorize(await browser.start(), Person.new())
    step = rules.step_of(PEPPER, SignInStep.STATE, parse_qs(urlsplit(callback).query)["state"][0])
    await pool.execute("UPDATE identity_steps SET expires_at = expires_at - interval '10 minutes' WHERE id = $1", step)

    assert told(await browser.land(callback)) == {"error": "expired"}

    await browser.start()  # what is over goes when something new is written
    assert await pool.fetchval("SELECT count(*) FROM identity_steps WHERE id = $1", step) == 0


async def test_two_windows_of_a_browser_may_sign_in_at_once(browser: Browser, provider: TestProvider) -> None:
    first, second = await browser.start(), await browser.start()
    ann = Person.new()

    assert (await browser.land(provider.authorize(first, ann))).cookie("svc_session") is not None
    assert (await browser.land(provider.authorize(second, ann))).cookie("svc_session") is not None


@pytest.mark.parametrize("state", ["", "x", "A" * 64, "x" * 2_000], ids=lambda state: ascii(state[:10]))
async def test_a_made_up_state_leads_to_the_sign_in_page(browser: Browser, provider: TestProvider, state: str) -> None:
    await browser.start()

    answer = await browser.get("/v1/auth/idp/callback", {"state": state, "code": "x"})

    assert told(answer) == {"error": "expired"}


async def test_a_code_is_redeemed_with_the_right_verifier_once(browser: Browser, provider: TestProvider) -> None:
    """The provider checks S256 and burns codes; a code of somebody else's sign-in does not fit our verifier."""
    victim = provider.authorize(await browser.start(), Person.new())
    own = provider.authorize(await browser.start(), Person.new())
    stolen = dict(parse_qsl(urlsplit(victim).query)) | {"state": parse_qs(urlsplit(own).query)["state"][0]}

    answer = await browser.land(f"{browser.api.base_url}/v1/auth/idp/callback?{urlencode(stolen)}")

    assert told(answer) == {"error": "refused"}
    assert answer.cookie("svc_session") is None


@pytest.mark.parametrize(
    ("claims", "word"),
    [
        ({"nonce": "another"}, "refused"),
        ({"aud": "another"}, "refused"),
        ({"azp": "another"}, "refused"),
        ({"iss": "https://another.test"}, "refused"),
        ({"exp": 1}, "refused"),
        ({"nbf": 99_999_999_999}, "refused"),
        ({"email_verified": False}, "email_unverified"),
        ({"email": "no address"}, "invalid_address"),
    ],
    ids=str,
)
async def test_a_token_that_does_not_hold_signs_nobody_in(
    browser: Browser, provider: TestProvider, pool: asyncpg.Pool, claims: dict[str, Any], word: str
) -> None:
    ann = Person.new()
    provider.claims = claims

    answer = await browser.sign_in(provider, ann, returnTo="/domains")

    assert told(answer) == {"error": word, "returnTo": "/domains"}
    assert answer.cookie("svc_session") is None
    assert await pool.fetchval("SELECT count(*) FROM users WHERE email = $1", ann.email) == 0


@pytest.mark.parametrize("forgery", ["unsigned", "hmac_under_public_key"])
async def test_a_token_under_no_private_key_signs_nobody_in(
    browser: Browser, provider: TestProvider, forgery: str
) -> None:
    provider.sign = getattr(provider, forgery)

    assert told(await browser.sign_in(provider, Person.new())) == {"error": "refused"}


@pytest.mark.parametrize(
    ("error", "word"),
    [
        ("access_denied", "access_denied"),
        ("login_required", "login_required"),
        ("server_error", "provider_error"),
        ("<script>alert(1)</script>", "provider_error"),
        ("x" * 1_000, "provider_error"),
    ],
    ids=lambda value: value[:12],
)
async def test_an_error_of_the_provider_becomes_one_of_a_few_words(
    browser: Browser, provider: TestProvider, error: str, word: str
) -> None:
    given = dict(parse_qsl(urlsplit(await browser.start()).query))
    query = {"state": given["state"], "error": error, "error_description": "<b>markup</b>"}

    answer = await browser.get("/v1/auth/idp/callback", query)

    assert told(answer) == {"error": word}
    assert b"markup" not in answer.body


async def test_an_answer_of_another_issuer_is_not_redeemed(browser: Browser, provider: TestProvider) -> None:
    callback = provider.authorize(await browser.start(), Person.new())
    mixed = callback.replace(f"iss={provider.issuer}", "iss=https://another.test")

    assert told(await browser.land(mixed)) == {"error": "refused"}
    assert "/token" not in provider.requests


async def test_an_answer_without_a_code_signs_nobody_in(browser: Browser, provider: TestProvider) -> None:
    given = dict(parse_qsl(urlsplit(await browser.start()).query))

    assert told(await browser.get("/v1/auth/idp/callback", {"state": given["state"]})) == {"error": "refused"}


async def test_a_provider_that_fails_at_the_code_is_told_as_such(browser: Browser, provider: TestProvider) -> None:
    provider.token_status = 503

    assert told(await browser.sign_in(provider, Person.new())) == {"error": "unavailable"}


async def test_an_address_may_come_by_userinfo(browser: Browser, provider: TestProvider) -> None:
    ann = Person.new()
    provider.userinfo = ann.claims()
    provider.claims = {"email": None, "email_verified": None}

    await browser.sign_in(provider, ann)

    assert (await browser.me())["user"]["email"] == ann.email


async def test_what_a_provider_adds_is_passed_over(browser: Browser, provider: TestProvider) -> None:
    callback = provider.authorize(await browser.start(), Person.new())
    added = "&session_state=a.b&new_in_2030=%C3%A9&new_in_2030=x&" + urlencode({"error_description": "é" * 3_000})

    assert (await browser.land(callback + added)).cookie("svc_session") is not None


async def test_what_is_no_query_is_refused(browser: Browser, provider: TestProvider) -> None:
    for query in ("?state=%ff", "?state=%00", "?state=%C3%A9", "?state=a&state=b", f"?code={'x' * 5_000}"):
        answer = await browser.get(f"/v1/auth/idp/callback{query}")
        assert answer.status == 400
