"""Validation of ID tokens, keys and responses from a hostile provider on a real socket."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from msgspec import Struct, structs

from engine.base import clock
from engine.base.netaddr import is_public
from engine.base.settings import HostPort, Settings
from engine.people.identity import id_tokens
from engine.people.identity.id_tokens import BadToken
from engine.people.identity.provider import IdentityProvider, ProviderDeclined, ProviderUnavailable
from engine.people.identity.types import Config, Proven
from engine.store.http_client import any_address
from engine.store.resolver import Resolver
from tests.harness import rsa_keys
from tests.harness.provider import CLIENT_ID, CLIENT_SECRET, Claims, Person, TestProvider, providing

NONCE = "n-0S6_WzA2Mj"
Use = Callable[..., IdentityProvider]


class Clock:
    """A monotonic clock that tests move."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def provider() -> AsyncIterator[TestProvider]:
    async with providing() as running:
        yield running


@pytest.fixture
def time() -> Clock:
    return Clock()


@pytest.fixture
async def use(provider: TestProvider, time: Clock) -> AsyncIterator[Use]:
    """Makes clients of the provider as one process has them."""
    resolver = Resolver((HostPort("127.0.0.1", 9),), query_timeout_s=0.2, budget_s=0.5)

    def make(**changed: Any) -> IdentityProvider:
        config = Config(changed.pop("issuer", provider.issuer), CLIENT_ID, CLIENT_SECRET, "openid email")
        given: dict[str, Any] = {"may_dial": any_address, "clock": time, "timeout_s": 5.0}
        return IdentityProvider(config, resolver, **(given | changed))

    yield make
    await resolver.close()


async def proven(client: IdentityProvider, token: str, access_token: str | None = None) -> Proven:
    found, _ = await client.check(token, nonce=NONCE, at=clock.now(), access_token=access_token)
    return found


class From(Struct, frozen=True):
    """So many seconds from the moment a test runs, which may be minutes after its cases were made."""

    now_s: float

    def seconds(self) -> float:
        return int(clock.now().timestamp()) + self.now_s


def timed(claims: Claims) -> Claims:
    return {name: value.seconds() if isinstance(value, From) else value for name, value in claims.items()}


# -- what holds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        ("RS256", None),
        ("PS256", None),
        ("ES256", ECKey.generate_key("P-256")),
        ("EdDSA", OKPKey.generate_key("Ed25519")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_token_under_each_agreed_algorithm_holds(
    provider: TestProvider, use: Use, algorithm: str, key: Any
) -> None:
    provider.algorithm = algorithm
    if key is not None:
        provider.keys["k2"], provider.key = key, "k2"
    ann = Person.new(name="Ann")

    found = await proven(use(), provider.id_token(ann, NONCE))

    assert found == Proven(provider.issuer, ann.subject, ann.email, email_verified=True, name="Ann")


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": [CLIENT_ID]},
        {"aud": [CLIENT_ID, "other"], "azp": CLIENT_ID},
        {"exp": From(-50)},
        {"iat": From(50)},
        {"nbf": From(50)},
        {"email_verified": "true"},
        {"exp": From(300.5)},
    ],
    ids=",".join,
)
async def test_clocks_may_differ_by_a_minute_and_lists_of_audiences_hold(
    provider: TestProvider, use: Use, claims: Claims
) -> None:
    token = provider.id_token(Person.new(), NONCE, **timed(claims))

    assert (await proven(use(), token)).email_verified


@pytest.mark.parametrize("verified", [None, False, "false", "TRUE", 1, "yes", ["true"]], ids=str)
async def test_only_true_verifies_an_address(provider: TestProvider, use: Use, verified: object) -> None:
    token = provider.id_token(Person.new(email_verified=verified), NONCE)

    assert not (await proven(use(), token)).email_verified


async def test_the_hash_of_the_access_token_holds_where_it_is_given(provider: TestProvider, use: Use) -> None:
    # The example of OpenID Connect Core 1.0, appendix A.4.
    access, at_hash = "jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y", "77QmUPtjPfzWtF2AnpK9RQ"
    client = use()

    await proven(client, provider.id_token(Person.new(), NONCE, at_hash=at_hash), access)

    with pytest.raises(BadToken, match="access token"):
        await proven(client, provider.id_token(Person.new(), NONCE, at_hash=at_hash), access + "x")


def named(value: Claims | str) -> str:
    """What pytest calls a case: no times in it, since every worker must find the same names."""
    return value if isinstance(value, str) else ",".join(value)


# -- what does not ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"nonce": "another"}, "nonce"),
        ({"nonce": None}, "missing"),
        ({"aud": "another"}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": [CLIENT_ID, "another"]}, "several audiences"),
        ({"azp": "another"}, "authorized party"),
        ({"iss": "https://another.test"}, "issuer"),
        ({"exp": From(-61)}, "expired"),
        ({"exp": None}, "missing"),
        ({"exp": "soon"}, "wrong type"),
        ({"exp": True}, "wrong type"),
        ({"iat": From(70)}, "not valid yet"),
        ({"iat": None}, "missing"),
        ({"nbf": From(70)}, "not valid yet"),
        ({"sub": None}, "missing"),
        ({"sub": ""}, "subject"),
        ({"sub": "x" * 256}, "subject"),
        ({"sub": "a\0b"}, "subject"),
        ({"sub": 7}, "wrong type"),
    ],
    ids=named,
)
async def test_a_claim_that_does_not_hold_refuses_the_token(
    provider: TestProvider, use: Use, claims: Claims, reason: str
) -> None:
    client = use()
    provider.claims = timed(claims)  # None leaves one out, even of those that a person has

    with pytest.raises(BadToken, match=reason):
        await proven(client, provider.id_token(Person.new(), NONCE))


@pytest.mark.parametrize("forgery", ["nobody signed it", "the public key as shared secret", "an algorithm not named"])
async def test_a_token_of_another_algorithm_is_refused(provider: TestProvider, use: Use, forgery: str) -> None:
    if forgery == "an algorithm not named":
        provider.metadata = {"id_token_signing_alg_values_supported": ["ES256"]}
    else:
        provider.sign = provider.unsigned if forgery == "nobody signed it" else provider.hmac_under_public_key

    with pytest.raises(BadToken, match="algorithm"):
        await proven(use(), provider.id_token(Person.new(), NONCE))


async def test_a_key_of_one_kind_serves_no_algorithm_of_another(provider: TestProvider, use: Use) -> None:
    provider.keys = {"k1": ECKey.generate_key("P-256")}
    client = use()
    await client.describe()
    provider.keys = {"k1": RSAKey.import_key(rsa_keys.next_pem())}  # known to us as the other

    with pytest.raises(BadToken, match="no key"):
        await proven(client, provider.id_token(Person.new(), NONCE))


@pytest.mark.parametrize("header", [{"typ": "at+jwt"}, {"typ": "logout+jwt"}, {"crit": ["exp"], "exp": 1}], ids=str)
async def test_a_token_of_another_type_is_refused(provider: TestProvider, use: Use, header: Claims) -> None:
    head = {"alg": "RS256", "kid": "k1", **header}
    first = ".".join(_text(orjson.dumps(part)) for part in (head, {"sub": "x"}))

    with pytest.raises(BadToken, match=r"type|extension"):
        await proven(use(), f"{first}.AAAA")


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b.c",
        "a.b",
        "a.b.c.d.e",
        "é.b.c",
        "eyJhbGciOiJSUzI1NiJ9..",
        "x" * 20_000,
        "\ud800.a.b",
        "a\0.b.c",
    ],
    ids=lambda token: ascii(token[:20]),
)
async def test_nonsense_is_no_token(use: Use, token: str) -> None:
    with pytest.raises(BadToken):
        await proven(use(), token)


async def test_a_changed_token_is_refused(provider: TestProvider, use: Use) -> None:
    client = use()
    head, _, signature = provider.id_token(Person.new(), NONCE).split(".")
    other = provider.id_token(Person.new(), NONCE).split(".")[1]

    with pytest.raises(BadToken, match="no key"):
        await proven(client, f"{head}.{other}.{signature}")
    with pytest.raises(BadToken, match="no key"):
        await proven(client, f"{head}.{other}.")


# -- keys ---------------------------------------------------------------------------------------------


async def test_new_keys_are_found_and_removed_ones_refused_without_a_restart(
    provider: TestProvider, use: Use, time: Clock
) -> None:
    client = use()
    before = provider.id_token(Person.new(), NONCE)
    await proven(client, before)
    provider.keys, provider.key = {"k2": RSAKey.import_key(rsa_keys.next_pem())}, "k2"
    time.now += 61

    await proven(client, provider.id_token(Person.new(), NONCE))

    with pytest.raises(BadToken, match="no key"):
        await proven(client, before)


async def test_an_unknown_key_is_looked_for_once_a_minute_at_the_most(
    provider: TestProvider, use: Use, time: Clock
) -> None:
    client = use()
    await client.describe()
    token = provider.signed({"sub": "x"}, kid="unknown")
    time.now += 61

    for _ in range(3):
        with pytest.raises(BadToken, match="no key"):
            await proven(client, token)

    assert provider.requests.count("/keys") == 2


async def test_a_removed_key_is_forgotten_within_the_hour(provider: TestProvider, use: Use, time: Clock) -> None:
    client = use()
    token = provider.id_token(Person.new(), NONCE)
    await proven(client, token)
    provider.keys = {"k2": ECKey.generate_key("P-256")}
    time.now += 3_601

    with pytest.raises(BadToken):
        await proven(client, token)


async def test_a_provider_without_key_names_may_change_its_only_key(
    provider: TestProvider, use: Use, time: Clock
) -> None:
    client = use()
    provider.key_set = orjson.dumps({"keys": [provider.keys["k1"].as_dict(private=False)]})
    nameless = {
        "iss": provider.issuer,
        "aud": CLIENT_ID,
        "iat": From(0).seconds(),
        "exp": From(60).seconds(),
        "nonce": NONCE,
    }
    await proven(client, provider.signed(nameless | {"sub": "a"}, kid=None))
    provider.keys["k1"] = RSAKey.import_key(rsa_keys.next_pem())
    provider.key_set = orjson.dumps({"keys": [provider.keys["k1"].as_dict(private=False)]})
    time.now += 61

    assert (await proven(client, provider.signed(nameless | {"sub": "b"}, kid=None))).subject == "b"


def test_keys_that_could_not_have_signed_are_passed_over() -> None:
    sound = ECKey.generate_key("P-256").as_dict(private=False)
    big = {"kty": "RSA", "n": _text(b"\xff" * 2_049), "e": "AQAB"}
    small = {"kty": "RSA", "n": _text(b"\xff" * 128), "e": "AQAB"}
    slow = {"kty": "RSA", "n": _text(b"\xff" * 256), "e": _text(b"\xff" * 250)}
    others: list[object] = [
        big, small, slow, OctKey.generate_key(256).as_dict(), {}, {"kty": 7}, {"kty": "RSA"},
        {"kty": "EC", "crv": "P-256"},
        sound | {"use": "enc"}, sound | {"alg": "RS256"}, sound | {"alg": 7}, sound | {"kid": 7}, sound | {"x": "AA"},
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"}, {"kty": "OKP", "crv": "X25519", "x": "AA"},
        {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA"},
    ]  # fmt: skip

    found = id_tokens.keys_in(orjson.dumps({"keys": [*others, sound]}))

    assert len(found) == 1
    assert found[0].algorithms == {"ES256"}


def test_a_published_private_key_is_used_as_a_public_one() -> None:
    published = RSAKey.import_key(rsa_keys.next_pem()).as_dict(private=True)

    (found,) = id_tokens.keys_in(orjson.dumps({"keys": [published]}))

    assert not found.key.is_private


# -- the provider's servers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "options", "reason"),
    [
        ({"key_set": b'{"keys": [' + b" " * 3_000_000 + b"]}"}, {}, "longer than"),
        ({"delay_s": 2.0}, {"timeout_s": 0.3}, r"within 0\.3 s"),
        ({}, {"issuer": "elsewhere"}, "404"),  # a redirect, which is not followed
        ({}, {"may_dial": is_public}, "reached"),
    ],
    ids=["giant", "slow", "redirect", "private"],
)
async def test_a_provider_without_a_usable_answer_is_unavailable(
    provider: TestProvider, use: Use, answer: dict[str, Any], options: dict[str, Any], reason: str
) -> None:
    for name, value in answer.items():
        setattr(provider, name, value)
    if "issuer" in options:
        options = {"issuer": f"{provider.issuer}/{options['issuer']}"}

    with pytest.raises(ProviderUnavailable, match=reason):
        await use(**options).describe()


async def test_whoever_comes_right_after_a_failure_hears_of_it_at_once(
    provider: TestProvider, use: Use, time: Clock
) -> None:
    provider.down = True
    client = use()

    answers = await asyncio.gather(*(client.describe() for _ in range(10)), return_exceptions=True)

    assert all(isinstance(answer, ProviderUnavailable) for answer in answers)
    assert len(provider.requests) == 1
    provider.down = False
    time.now += 6
    assert (await client.describe()).issuer == provider.issuer


async def test_the_description_is_fetched_once_an_hour(provider: TestProvider, use: Use, time: Clock) -> None:
    client = use()

    await asyncio.gather(*(client.describe() for _ in range(10)))
    time.now += 3_599
    await client.describe()
    assert len(provider.requests) == 2
    time.now += 1
    await client.describe()
    assert len(provider.requests) == 4


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://another.test"},
        {"issuer": None},
        {"jwks_uri": "file:///etc/passwd"},
        {"token_endpoint": "//token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": "http://x.test/\r\nLocation: y"},
        {"userinfo_endpoint": 7},
    ],
    ids=str,
)
async def test_a_description_of_another_issuer_or_of_strange_endpoints_is_refused(
    provider: TestProvider, use: Use, metadata: Claims
) -> None:
    provider.metadata = metadata

    with pytest.raises(ProviderUnavailable, match="metadata"):
        await use().describe()


def test_endpoints_without_tls_are_for_issuers_without_it() -> None:
    from engine.people.identity.provider import _usable

    assert _usable("http://127.0.0.1/keys", plain=True)
    assert not _usable("http://127.0.0.1/keys", plain=False)
    assert _usable("https://id.test/keys", plain=False)


@pytest.mark.parametrize(
    ("delivery", "allowed", "dials"),
    [("local", None, True), ("live", None, False), ("live", True, True), ("local", False, False)],
)
async def test_private_issuers_are_for_the_local_mode_or_the_setting(
    settings: Settings, delivery: Any, allowed: bool | None, dials: bool
) -> None:
    given = structs.replace(
        settings,
        delivery=delivery,
        allow_private_idp=allowed,
        idp_issuer="https://id.test",
        idp_client_id="a",
        idp_client_secret="b",
    )

    made = IdentityProvider.from_settings(given)

    assert made is not None
    assert made._may_dial("10.0.0.1") is dials
    await made.close()


def test_without_settings_there_is_no_provider(settings: Settings) -> None:
    assert IdentityProvider.from_settings(settings) is None


# -- codes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_a_provider_that_fails_at_a_code_is_away(provider: TestProvider, use: Use, status: int) -> None:
    provider.token_status = status

    with pytest.raises(ProviderUnavailable, match=str(status)):
        await use().redeem("x", "v" * 43, "http://here")


async def test_an_unknown_code_is_declined(use: Use) -> None:
    with pytest.raises(ProviderDeclined, match="invalid_grant"):
        await use().redeem("x\0é&code=y", "v" * 43, "http://here")


async def test_a_wrong_client_secret_is_our_own_fault(provider: TestProvider, use: Use) -> None:
    client = use()
    client.config = Config(provider.issuer, CLIENT_ID, "wrong", "openid")

    with pytest.raises(ProviderUnavailable, match="client id or secret"):
        await client.redeem("x", "v" * 43, "http://here")


async def test_userinfo_of_somebody_else_is_refused(provider: TestProvider, use: Use) -> None:
    ann = Proven(provider.issuer, "ann", None, email_verified=False, name="")
    client = use()
    provider.userinfo = {"sub": "ann", "email": "ann@people.test", "email_verified": True}
    assert (await client.ask_about(ann, "access")).email == "ann@people.test"
    provider.userinfo = {"sub": "eve", "email": "ann@people.test", "email_verified": True}

    with pytest.raises(BadToken, match="another subject"):
        await client.ask_about(ann, "access")


def _text(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()
