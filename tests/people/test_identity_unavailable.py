"""Sign-in without a provider, with an unavailable or another provider, and the logs of it."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import aiohttp
import asyncpg
import pytest
from msgspec import structs

from engine.base import ids
from engine.base.settings import BadSetting, Settings, load, shown, to_environ
from loadtests.ports import reserve_port
from ops.host import launch
from tests.harness.api import Api, serving
from tests.harness.patience import until
from tests.harness.provider import (
    APP,
    CHALLENGE,
    CLIENT_SECRET,
    VERIFIER,
    Browser,
    Person,
    TestProvider,
    app_code,
    one_tap,
    person_of,
    told,
)

_ALL = {"IDP_ISSUER": "https://id.test", "IDP_CLIENT_ID": "x", "IDP_CLIENT_SECRET": "hidden from view"}


# -- without a provider, or with one that is away -----------------------------------------------------


async def test_without_settings_there_is_nothing_at_these_paths(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    answers = [
        await api.get("/v1/auth/idp/start"),
        await api.get("/v1/auth/idp/start", params={"returnTo": "//evil"}),
        await api.get("/v1/auth/idp/callback", params={"state": "x", "code": "y"}),
        await api.get("/v1/auth/idp/nonce"),
        await api.post("/v1/auth/idp/one-tap", json={"credential": "x"}),
        await api.post("/v1/auth/idp/totp", json={"ticket": "x", "code": "123456"}),
        await api.post("/v1/auth/idp/mobile/exchange", json={"code": "x", "verifier": "y"}),
        await api.get("/v1/auth/idp/identities", person=ann),
        await api.delete("/v1/auth/idp/identities/idn_x", person=ann),
    ]

    assert {(answer.status, answer.error["type"]) for answer in answers} == {(404, "not_found")}
    assert not any(answer.set_cookies for answer in answers)


async def test_a_provider_that_is_away_is_a_503_and_others_are_found(
    provider_settings: Settings, http: aiohttp.ClientSession, pool: asyncpg.Pool, provider: TestProvider, api_log: Path
) -> None:
    away = structs.replace(
        provider_settings, idp_issuer=f"http://127.0.0.1:{reserve_port()}", signup="closed", idp_name=None
    )
    with serving(away, api_log) as url:
        browser = Browser(Api(url, http))

        started = await browser.get("/v1/auth/idp/start")
        tapped = await one_tap(browser, provider, Person.new())

        assert {(answer.status, answer.error["type"]) for answer in (started, tapped)} == {(503, "unavailable")}
        assert started.headers["retry-after"]
    assert CLIENT_SECRET not in api_log.read_text("utf-8")


async def test_what_one_process_hands_out_another_takes_and_closed_sign_up_is_closed(
    provider_settings: Settings,
    browser: Browser,
    http: aiohttp.ClientSession,
    pool: asyncpg.Pool,
    provider: TestProvider,
    api_log: Path,
) -> None:
    ann = await person_of(pool)
    code = await app_code(browser, provider, Person.new(ann.email))
    with serving(structs.replace(provider_settings, signup="closed"), api_log) as url:
        other = Api(url, http)

        answer = await other.post("/v1/auth/idp/mobile/exchange", json={"code": code, "verifier": VERIFIER})
        stranger = await one_tap(Browser(other), provider, Person.new())

        assert answer.status == 200, answer.body
        assert (stranger.status, stranger.error["type"]) == (403, "forbidden")


# -- a provider of others -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mock_provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """oidc-provider-mock, in a process of its own."""
    port = reserve_port()
    words = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port), "--require-nonce", "true"]
    log = tmp_path_factory.mktemp("mock") / "mock.log"
    with log.open("wb") as output:
        process = subprocess.Popen(launch.command(words), stdout=output, stderr=output)
    issuer = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                with urllib.request.urlopen(f"{issuer}/.well-known/openid-configuration", timeout=2):
                    break
            except urllib.error.URLError:
                time.sleep(0.1)
        else:
            raise RuntimeError(log.read_text("utf-8"))
        yield issuer
    finally:
        process.terminate()
        process.wait(10)


async def test_all_three_ways_lead_in_with_a_provider_of_others(
    mock_provider: str, settings: Settings, http: aiohttp.ClientSession, pool: asyncpg.Pool, api_log: Path
) -> None:
    own = structs.replace(
        settings, idp_issuer=mock_provider, idp_client_id="a", idp_client_secret="b", idp_app_redirects=(APP,)
    )
    made = ids.encode(ids.uuid7())
    claims = {"email": f"{made}@people.test", "email_verified": True, "name": "Ann"}
    async with http.put(f"{mock_provider}/users/{made}", json=claims) as answer:
        assert answer.status == 204

    async def authorize(location: str) -> str:
        async with http.post(location, data={"sub": made}, allow_redirects=False) as response:
            assert response.status == 302, await response.text()
            return response.headers["Location"]

    with serving(own, api_log) as url:
        browser = Browser(Api(url, http))
        landed = await browser.land(await authorize(await browser.start()))
        assert landed.headers["location"] == f"{url}/console/"
        assert (await browser.me())["user"]["email"] == claims["email"]

        back = await browser.land(await authorize(await browser.start(appRedirect=APP, verifierChallenge=CHALLENGE)))
        code = parse_qs(urlsplit(back.headers["location"]).query)["code"][0]
        exchanged = await browser.post("/v1/auth/idp/mobile/exchange", {"code": code, "verifier": VERIFIER})
        assert exchanged.status == 200, exchanged.body

        nonce = (await browser.get("/v1/auth/idp/nonce")).json["nonce"]
        tapped = await browser.post(
            "/v1/auth/idp/one-tap", {"credential": await _token_of_mock(http, mock_provider, authorize, nonce, url)}
        )
        assert tapped.status == 200, tapped.body

        denied = urlsplit(await browser.start())
        async with http.post(denied.geturl(), data={"action": "deny"}, allow_redirects=False) as response:
            refusal = response.headers["Location"]
        state = parse_qs(denied.query)["state"][0]
        refusal += "" if "state=" in refusal else f"&state={state}"
        assert told(await browser.land(refusal)) == {"error": "access_denied"}


async def _token_of_mock(http: aiohttp.ClientSession, issuer: str, authorize: Any, nonce: str, url: str) -> str:
    """An id token as the provider's button would give it to our page: for our client, with our nonce."""
    redirect = f"{url}/page"
    asked = {
        "response_type": "code",
        "client_id": "a",
        "redirect_uri": redirect,
        "scope": "openid email",
        "nonce": nonce,
    }
    code = parse_qs(urlsplit(await authorize(f"{issuer}/oauth2/authorize?{urlencode(asked)}")).query)["code"][0]
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect}
    async with http.post(
        f"{issuer}/oauth2/token", data=form, headers={"Authorization": aiohttp.encode_basic_auth("a", "b")}
    ) as response:
        token: str = (await response.json())["id_token"]
        return token


# -- the settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"IDP_ISSUER": "https://id.test"}, "belong together"),
        ({"IDP_CLIENT_SECRET": "x"}, "belong together"),
        (_ALL | {"IDP_ISSUER": "ftp://id.test"}, "IDP_ISSUER"),
        (_ALL | {"IDP_ISSUER": "https://id.test/?x"}, "IDP_ISSUER"),
        (_ALL | {"IDP_ISSUER": "http://id.test", "DELIVERY": "live"}, "IDP_ISSUER"),
        (_ALL | {"IDP_SCOPES": "email"}, "openid"),
        (_ALL | {"IDP_APP_REDIRECTS": "javascript:alert(1)"}, "IDP_APP_REDIRECTS"),
        (_ALL | {"IDP_APP_REDIRECTS": "com.example.app:/ok,http://app.test"}, "IDP_APP_REDIRECTS"),
        (_ALL | {"IDP_APP_REDIRECTS": "com.example.app:/x#y"}, "IDP_APP_REDIRECTS"),
    ],
    ids=str,
)
def test_settings_that_can_not_be_used_are_named(given: dict[str, str], named: str) -> None:
    with pytest.raises(BadSetting, match=named):
        load({f"WAYBILL_{name}": value for name, value in given.items()})


def test_the_clients_secret_is_never_shown_and_children_get_the_settings() -> None:
    given = {f"WAYBILL_{name}": value for name, value in _ALL.items()} | {"WAYBILL_IDP_APP_REDIRECTS": "a.b:/c, d.e:/f"}

    loaded = load(given)

    assert loaded.settings.idp_app_redirects == ("a.b:/c", "d.e:/f")
    assert load(to_environ(loaded.settings)).settings == loaded.settings
    assert not [row for row in shown(loaded) if _ALL["IDP_CLIENT_SECRET"] in row[1]]


# -- nothing leaks ------------------------------------------------------------------------------------


async def test_no_secret_of_a_sign_in_stands_in_the_log(
    provider_settings: Settings, http: aiohttp.ClientSession, pool: asyncpg.Pool, provider: TestProvider, api_log: Path
) -> None:
    ann = Person.new()
    loud = structs.replace(provider_settings, log_level="debug")
    with serving(loud, api_log) as url:
        browser = Browser(Api(url, http))
        callback = provider.authorize(await browser.start(), ann)
        landed = await browser.land(callback)
        await browser.land(callback)
        provider.claims = {"nonce": "another"}
        await browser.sign_in(provider, ann)
        await until(lambda: "its nonce does not belong to this sign-in" in api_log.read_text("utf-8"))
    query = dict(parse_qsl(urlsplit(callback).query))
    text = api_log.read_text("utf-8")
    secrets = [query["state"], query["code"], landed.cookie("svc_session"), browser.cookies["svc_idp"], CLIENT_SECRET]

    assert not [secret for secret in secrets if secret is None or secret in text]
    assert (ann.email or "") not in text
