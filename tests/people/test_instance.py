"""`GET /v1/instance`: what a client learns before anybody signs in, and that it is nothing secret."""

from pathlib import Path

import aiohttp
from msgspec import structs

from engine.base.settings import Settings
from tests.harness.api import Api, serving
from tests.harness.provider import TestProvider

SECRETS = ("key_pepper", "database_url", "redis_url", "idp_client_secret")


async def test_anybody_reads_how_to_sign_in(api: Api, settings: Settings) -> None:
    answer = await api.get("/v1/instance")

    assert answer.status == 200
    assert answer.headers["cache-control"] == "public, max-age=60"
    found = answer.json
    assert found.pop("version").count(".") == 2
    assert found.pop("passkeys") is True
    assert found == {
        "name": "Waybill",
        "publicUrl": api.base_url,
        "mailHost": settings.mail_host,
        "local": True,
        "signUp": {"open": True, "challengeRequired": False},
        "identityProvider": None,
        "submission": {"host": "127.0.0.1", "starttlsPort": 2587, "tlsPort": 2465, "open": True},
        "incoming": {"host": "127.0.0.1", "port": 2525},
    }


async def test_the_sign_in_state_stays_apart(api: Api) -> None:
    answer = await api.get("/v1/auth/me")

    assert answer.headers["cache-control"] == "no-store"
    assert answer.json == {
        "signedIn": False,
        "csrfToken": None,
        "user": None,
        "account": None,
        "accounts": [],
        "operator": False,
    }


async def test_settings_show_and_secrets_never(
    http: aiohttp.ClientSession, provider_settings: Settings, provider: TestProvider, tmp_path: Path
) -> None:
    own = structs.replace(
        provider_settings, relay_workers=0, mx_workers=0, signup="closed",
        signup_challenge="required", idp_name="Example",
    )  # fmt: skip
    with serving(own, tmp_path / "api.log") as url:
        answer = await Api(url, http).get("/v1/instance")

    found = answer.json
    assert found["identityProvider"] == {"name": "Example", "issuer": provider.issuer, "clientId": own.idp_client_id}
    assert found["signUp"] == {"open": False, "challengeRequired": True}
    assert found["submission"] is found["incoming"] is None
    text = answer.body.decode()
    assert not [name for name in SECRETS if (secret := getattr(own, name)) is not None and secret in text]
