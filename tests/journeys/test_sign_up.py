"""From signing up to the first delivered mail, with nothing but what anybody on the network can do and read."""

from typing import Any

import pytest
from msgspec import Struct

from loadtests.kit.accounts import ApiAccess
from loadtests.kit.service import Service
from ops import admin
from tests.harness.api import Api
from tests.harness.mailed_links import token_mailed
from tests.harness.service import (
    arrived,
    command,
    octets,
    parsed,
    running,
    send,
    steps,
    until,
    until_status,
    verifies,
)

pytestmark = pytest.mark.journey

PASSWORD = "several uncommon words in a row"
LATER = "other uncommon words, in another row"


class Browser(Struct):
    """What a browser keeps of a session."""

    secret: str
    csrf: str


async def signed_in(api: Api, address: str, password: str) -> Browser:
    answer = await api.post("/v1/auth/login", json={"email": address, "password": password})
    assert answer.status == 200, answer.body
    secret = answer.cookie("svc_session")
    assert secret is not None
    return Browser(secret, answer.json["csrfToken"])


async def subjects(service: Service, address: str) -> list[str]:
    return [str(parsed(octets(service, entry))["Subject"]) for entry in arrived(service, address)]


async def test_who_signs_up_has_a_first_message_delivered_by_public_endpoints_alone(
    service: Service, served: Api
) -> None:
    address = "founder@newcomers.test"
    wanted = {"email": address, "password": PASSWORD, "accountName": "Newcomers"}
    assert (await served.post("/v1/auth/signup", json=wanted)).status == 201
    early = await signed_in(served, address, PASSWORD)
    key: dict[str, Any] = {"name": "First", "scopes": ["domains:write", "domains:read", "emails:send", "messages:read"]}
    refused = await served.post("/v1/api-keys", json=key, person=early)
    assert (refused.status, refused.error["type"]) == (403, "email_unverified")

    token = await token_mailed(service, address, "verify-email")
    [mail] = arrived(service, address)
    assert verifies(octets(service, mail), service)
    assert parsed(octets(service, mail))["From"] == f"Waybill <no-reply@{service.settings.mail_host}>"
    assert (await served.post("/v1/auth/verify-email", json={"token": token})).status == 204

    founder = await signed_in(served, address, PASSWORD)
    made = await served.post("/v1/api-keys", json=key, person=founder)
    assert made.status == 201, made.body
    secret = made.json["token"]
    domain = await served.post("/v1/domains", secret, {"name": "newcomers.test"})
    assert domain.status == 201, domain.body
    checked = await served.post(f"/v1/domains/{domain.json['id']}/verify", secret, {})
    assert checked.json["status"] == "verified", checked.body
    access = ApiAccess(served.base_url, secret, "hello@newcomers.test")
    found = await until_status(served, access, await send(served, access, "first@people.test"), "delivered")

    assert steps(found) == ["accepted", "attempted", "delivered"]
    assert len(arrived(service, "first@people.test")) == 1


async def test_a_forgotten_password_is_set_anew_by_mail(service: Service, served: Api) -> None:
    address = "forgetful@newcomers.test"
    assert (await served.post("/v1/auth/signup", json={"email": address, "password": PASSWORD})).status == 201
    old = await signed_in(served, address, PASSWORD)
    for email in (address, "nobody@newcomers.test"):
        assert (await served.post("/v1/auth/password/forgot", json={"email": email})).status == 202
    token = await token_mailed(service, address, "reset-password")
    assert (await served.post("/v1/auth/password/reset", json={"token": token, "password": LATER})).status == 204

    assert (await served.get("/v1/auth/me", person=old)).json["signedIn"] is False
    now = await signed_in(served, address, LATER)
    assert (await served.get("/v1/auth/me", person=now)).json["user"]["emailVerified"] is True

    async def told() -> bool:
        return "Your password was changed" in await subjects(service, address)

    await until(told)
    assert arrived(service, "nobody@newcomers.test") == []


async def test_the_links_in_mails_lead_to_pages(service: Service, served: Api) -> None:
    for page in ("verify-email", "reset-password", "confirm-email", "accept-invite", "forgot-password"):
        answer = await served.get(f"/{page}")
        assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8"), page


async def test_the_operator_sees_and_names_whom_system_mail_comes_from(service: Service) -> None:
    shown = command(service, "platform", "show", "--json").json
    assert shown["from"] == f"Waybill <no-reply@{service.settings.mail_host}>"
    assert shown["domainStatus"] == "verified"
    first = service.first_run
    refused = command(service, "platform", "set", "--account", first["accountId"])
    assert refused.status == 1
    assert "is not a domain of this account" in refused.err


@pytest.mark.exhaustive
async def test_a_state_folder_from_before_gets_its_platform_account() -> None:
    with running() as service:
        async with admin.opened(service.settings) as pool:
            await pool.execute("DELETE FROM platform")
            await pool.execute(
                "UPDATE domains SET status = 'failed', deleted_at = now() WHERE name = $1", service.settings.mail_host
            )
        assert command(service, "platform", "show", "--json").json["accountId"] is None
        assert "ops platform set" in command(service, "doctor").out
        service.stop()
        service.start()
        assert command(service, "platform", "show", "--json").json["domainStatus"] == "verified"

        first = service.first_run
        sender = f"post@{first['domain']}"
        named = command(service, "platform", "set", "--account", first["accountId"], "--from", sender, "--json").json
        assert (named["from"], named["domainStatus"]) == (sender, "verified")
