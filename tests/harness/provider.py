"""An OpenID Connect provider for tests, real on its socket, that can be told to misbehave in every way, and the browser
that goes there and back.

It checks what a provider checks: the client's secret, the redirect, the PKCE verifier, and that a code is used once.
"""

import asyncio
import base64
import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

import asyncpg
import orjson
import pyotp
from aiohttp import web
from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey
from msgspec import Struct, structs

from engine.base import clock, ids
from engine.base.settings import Settings
from tests.harness import rsa_keys
from tests.harness.accounts import make_account
from tests.harness.api import Answer, Api
from tests.harness.people import TestPerson, make_person

CLIENT_ID, CLIENT_SECRET = "waybill tests", "s3cret/with:signs"
APP = "com.example.app:/signed-in"
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"  # of RFC 7636, appendix B
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
Claims = dict[str, Any]
Key = RSAKey | ECKey | OKPKey

_RSA = RSAKey.import_key(rsa_keys.next_pem())


class Person(Struct):
    """A person with an identity at the provider."""

    subject: str
    email: str | None
    email_verified: object = True
    name: str = ""

    @classmethod
    def new(cls, email: str | None = None, **fields: Any) -> "Person":
        """Make a person who has no account yet."""
        made = ids.encode(ids.uuid7())
        return cls(f"sub-{made}", email or f"{made}@people.test", **fields)

    def claims(self) -> Claims:
        """Return the claims of the person's ID tokens."""
        told: Claims = {"sub": self.subject, "email": self.email, "email_verified": self.email_verified}
        return {name: value for name, value in told.items() if value is not None} | (
            {"name": self.name} if self.name else {}
        )


class Asked(Struct):
    """An authorization request that the provider has answered with a code."""

    parameters: dict[str, str]
    person: Person


class TestProvider:
    """A running provider; a test may change any attribute between two requests."""

    __test__ = False  # pytest takes the name for a test class

    def __init__(self) -> None:
        self.issuer = ""
        self.keys: dict[str, Key] = {"k1": _RSA}
        self.key, self.algorithm = "k1", "RS256"
        self.claims: Claims = {}  # over those of the next tokens; None leaves a claim out
        self.sign: Callable[[Claims], str] = self.signed
        self.metadata: dict[str, Any] = {}
        self.key_set: bytes | None = None  # in place of the keys
        self.delay_s = 0.0
        self.down = False
        self.token_status = 200
        self.userinfo: Claims | None = None
        self.requests: list[str] = []  # paths
        self.codes: dict[str, Asked] = {}

    def reset(self) -> None:
        """Restore all defaults except the issuer."""
        issuer = self.issuer
        self.__init__()  # type: ignore[misc]
        self.issuer = issuer

    def signed(self, claims: Claims, **header: Any) -> str:
        """A token with these claims under today's key."""
        head = {"alg": self.algorithm, "kid": self.key, **header}
        head = {name: value for name, value in head.items() if value is not None}
        first = f"{_text(orjson.dumps(head))}.{_text(orjson.dumps(claims))}"
        signature = jws.JWSRegistry.algorithms[head["alg"]].sign(first.encode(), self.keys[self.key])
        return f"{first}.{_text(signature)}"

    def hmac_under_public_key(self, claims: Claims) -> str:
        """Signed with the public key's own text as if it were a shared secret."""
        head = {"alg": "HS256", "kid": self.key}
        first = f"{_text(orjson.dumps(head))}.{_text(orjson.dumps(claims))}"
        return f"{first}.{_text(hmac.digest(_RSA.as_pem(private=False), first.encode(), sha256))}"

    def unsigned(self, claims: Claims) -> str:
        """`alg` none, without a signature."""
        return f"{_text(orjson.dumps({'alg': 'none', 'kid': self.key}))}.{_text(orjson.dumps(claims))}."

    def id_token(self, person: Person, nonce: str | None, **changed: Any) -> str:
        """An id token for our client; `changed` claims over its own, None leaves one out."""
        now = int(clock.now().timestamp())
        claims: Claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300, "nonce": nonce}
        claims |= person.claims() | self.claims | changed
        return self.sign({name: value for name, value in claims.items() if value is not None})

    def authorize(self, location: str, person: Person) -> str:
        """Sign the person in at `location` as a browser does; return the callback URL with its code."""
        parts = urlsplit(location)
        assert f"{parts.scheme}://{parts.netloc}" == self.issuer
        given = dict(parse_qsl(parts.query, strict_parsing=True))
        assert given["client_id"] == CLIENT_ID
        assert given["response_type"] == "code"
        assert "openid" in given["scope"].split()
        assert given["code_challenge_method"] == "S256"
        code = ids.encode(ids.uuid7())
        self.codes[code] = Asked(given, person)
        return f"{given['redirect_uri']}?code={code}&state={given['state']}&session_state=x&iss={self.issuer}"

    def application(self) -> web.Application:
        """The provider's four endpoints."""
        app = web.Application(middlewares=[self._mood])
        app.router.add_get("/.well-known/openid-configuration", self._describe)
        app.router.add_get("/keys", self._keys)
        app.router.add_post("/token", self._token)
        app.router.add_get("/userinfo", self._userinfo)
        return app

    @web.middleware
    async def _mood(self, request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        self.requests.append(request.path)
        await asyncio.sleep(self.delay_s)
        if self.down:
            return web.Response(status=503)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _describe(self, request: web.Request) -> web.Response:
        told = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "id_token_signing_alg_values_supported": ["RS256", "PS256", "ES256", "EdDSA", "HS256", "none"],
        }
        return web.json_response(told | self.metadata)

    async def _keys(self, request: web.Request) -> web.Response:
        if self.key_set is not None:
            return web.Response(body=self.key_set, content_type="application/json")
        listed = [key.as_dict(private=False) | {"kid": kid, "use": "sig"} for kid, key in self.keys.items()]
        return web.json_response({"keys": listed})

    async def _token(self, request: web.Request) -> web.Response:
        form = {name: values[0] for name, values in parse_qs(await request.text(), strict_parsing=True).items()}
        if _client_of(request.headers.get("Authorization", "")) != (CLIENT_ID, CLIENT_SECRET):
            return web.json_response({"error": "invalid_client"}, status=401)
        if self.token_status != 200:
            return web.json_response({"error": "server_error"}, status=self.token_status)
        asked = self.codes.pop(form["code"], None)
        if asked is None or asked.parameters["redirect_uri"] != form["redirect_uri"]:
            return web.json_response({"error": "invalid_grant"}, status=400)
        if _text(sha256(form["code_verifier"].encode()).digest()) != asked.parameters["code_challenge"]:
            return web.json_response({"error": "invalid_grant"}, status=400)
        token = self.id_token(asked.person, asked.parameters["nonce"])
        return web.json_response({"access_token": "access", "token_type": "Bearer", "id_token": token})

    async def _userinfo(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer access" or self.userinfo is None:
            return web.Response(status=401)
        return web.json_response(self.userinfo)


@asynccontextmanager
async def providing() -> AsyncIterator[TestProvider]:
    """A provider on a free port of loopback."""
    provider = TestProvider()
    runner = web.AppRunner(provider.application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    provider.issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield provider
    finally:
        await runner.cleanup()


def with_provider(settings: Settings, issuer: str, **changed: Any) -> Settings:
    """Settings under which people may sign in with the provider."""
    return structs.replace(
        settings,
        **{
            "idp_issuer": issuer,
            "idp_client_id": CLIENT_ID,
            "idp_client_secret": CLIENT_SECRET,
            "idp_name": "Example ID",
            "idp_app_redirects": (APP, "https://app.example/back?x=1"),
        }
        | changed,
    )


class Browser:
    """A browser: keeps our cookies, and follows nothing by itself."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.cookies: dict[str, str] = {}

    async def get(self, path: str, params: dict[str, str] | None = None) -> Answer:
        return self._kept(await self.api.get(path, params=params, headers=self._headers()))

    async def post(self, path: str, json: object) -> Answer:
        return self._kept(await self.api.post(path, json=json, headers=self._headers()))

    async def start(self, **params: str) -> str:
        """The provider's URL that a sign-in begins with."""
        answer = await self.get("/v1/auth/idp/start", params)
        assert answer.status == 302, answer.body
        return answer.headers["location"]

    async def land(self, callback: str) -> Answer:
        """Load the callback as the provider gave it."""
        assert callback.startswith(f"{self.api.base_url}/v1/auth/idp/callback?")
        answer = await self.get(callback.removeprefix(self.api.base_url))
        assert answer.status == 302, answer.body
        return answer

    async def sign_in(self, provider: TestProvider, person: Person, **params: str) -> Answer:
        return await self.land(provider.authorize(await self.start(**params), person))

    async def me(self) -> Any:
        return (await self.get("/v1/auth/me")).json

    def _headers(self) -> dict[str, str]:
        return {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}

    def _kept(self, answer: Answer) -> Answer:
        for one in answer.set_cookies:
            name, _, value = one.partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer


async def one_tap(browser: Browser, provider: TestProvider, person: Person, **claims: Any) -> Answer:
    nonce = (await browser.get("/v1/auth/idp/nonce")).json["nonce"]
    return await browser.post("/v1/auth/idp/one-tap", {"credential": provider.id_token(person, nonce, **claims)})


async def person_of(pool: asyncpg.Pool, **given: Any) -> TestPerson:
    return await make_person(pool, (await make_account(pool)).id, **given)


async def with_totp(api: Api, pool: asyncpg.Pool) -> tuple[TestPerson, pyotp.TOTP]:
    """A person who is asked for a code, and who has one that is not used yet."""
    ann = await person_of(pool)
    secret = (await api.post("/v1/auth/2fa/setup", json={}, person=ann)).json["secret"]
    answer = await api.post("/v1/auth/2fa/enable", json={"code": pyotp.TOTP(secret).now()}, person=ann)
    assert answer.status == 200, answer.body
    await pool.execute("UPDATE users SET totp_last_step = totp_last_step - 10 WHERE id = $1", ann.id)
    return ann, pyotp.TOTP(secret)


async def events(pool: asyncpg.Pool, user: object) -> list[tuple[str, dict[str, Any]]]:
    rows = await pool.fetch(
        "SELECT e.type, e.payload FROM events e JOIN members m USING (account_id) WHERE m.user_id = $1 ORDER BY seq",
        user,
    )
    return [(row["type"], orjson.loads(row["payload"])) for row in rows]


async def sessions_of(pool: asyncpg.Pool, user: object) -> int:
    count: int = await pool.fetchval("SELECT count(*) FROM sessions WHERE user_id = $1", user)
    return count


async def linked(pool: asyncpg.Pool, person: Person) -> object:
    return await pool.fetchval("SELECT user_id FROM identities WHERE subject = $1", person.subject)


def told(answer: Answer) -> dict[str, str]:
    """Return the parameters that the sign-in page gets in the fragment."""
    location = urlsplit(answer.headers["location"])
    assert location.path == "/console/sign-in"
    assert not location.query
    return dict(parse_qsl(location.fragment, strict_parsing=True))


def same_but_request(answer: Answer) -> tuple[int, bytes]:
    return answer.status, answer.body


async def app_code(browser: Browser, provider: TestProvider, person: Person) -> str:
    answer = await browser.sign_in(provider, person, appRedirect=APP, verifierChallenge=CHALLENGE)
    assert answer.cookie("svc_session") is None  # the browser is not the app
    location = answer.headers["location"]
    assert location.startswith(f"{APP}?code=")
    return parse_qs(urlsplit(location).query)["code"][0]


def _client_of(header: str) -> tuple[str, str]:
    """RFC 6749 2.3.1."""
    client, _, secret = base64.b64decode(header.removeprefix("Basic ")).decode().partition(":")
    return unquote(client), unquote(secret)


def _text(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()
