"""Restrictions of API keys to domains, streams and networks, for every way to authenticate."""

from collections.abc import AsyncIterator
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

import asyncpg
import pytest

from engine.base import clock
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.people.api_keys.rules import KeyRestrictions, checked_networks
from tests.harness.accounts import TestAccount, add_domain, add_stream, make_account
from tests.harness.api import Api, refused
from tests.harness.people import TestPerson
from tests.harness.submission import TestRelay, message, relaying


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    made = await make_account(pool)
    await add_stream(pool, made.id, "news")
    await add_domain(pool, made.id, f"two.{made.domain}")
    return made


@pytest.fixture(scope="module")
async def relay(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TestRelay]:
    async with relaying(settings, tmp_path_factory.mktemp("relay")) as running:
        yield running


async def key(api: Api, person: TestPerson, **limits: object) -> str:
    body = {"name": "limited", "scopes": ["emails:send", "account:read", "templates:write"], **limits}
    answer = await api.post("/v1/api-keys", person=person, json=body)
    assert answer.status == 201, answer
    token: str = answer.json["token"]
    return token


# domains and streams -----------------------------------------------------------------------------


async def test_a_key_sends_from_its_domains_alone(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson
) -> None:
    token = await key(api, admin, domains=[account.domain.upper(), account.domain])
    other = account.email(**{"from": f"shop@two.{account.domain}"})
    answer = await api.post("/v1/emails", token, other)

    assert (await api.post("/v1/emails", token, account.email())).status == 202
    assert refused(answer) == (403, "forbidden")
    assert f"two.{account.domain}" in answer.error["message"]
    assert (await api.post("/v1/emails", account.token, other)).status == 202
    assert await pool.fetchval("SELECT count(*) FROM messages WHERE account_id = $1", account.id) == 2


async def test_a_key_sends_on_its_streams_alone(api: Api, account: TestAccount, admin: TestPerson) -> None:
    token = await key(api, admin, streams=["news"])

    assert (await api.post("/v1/emails", token, account.email(stream="news"))).status == 202
    for fields in ({}, {"stream": "transactional"}):  # none named is the transactional one
        answer = await api.post("/v1/emails", token, account.email(**fields))
        assert refused(answer) == (403, "forbidden")
        assert "transactional" in answer.error["message"]


async def test_each_message_of_a_batch_is_held_to_the_limits(api: Api, account: TestAccount, admin: TestPerson) -> None:
    token = await key(api, admin, domains=[account.domain], streams=["news"])
    items = [
        account.email(stream="news"), account.email(),
        account.email(stream="news", **{"from": f"a@two.{account.domain}"}),
    ]  # fmt: skip
    found = (await api.post("/v1/emails/batch", token, {"messages": items})).json["data"]

    assert [one["status"] for one in found] == ["queued", "refused", "refused"]
    assert {one["error"]["type"] for one in found[1:]} == {"forbidden"}


async def test_templates_and_scheduled_messages_are_held_to_the_limits(
    api: Api, account: TestAccount, admin: TestPerson
) -> None:
    token = await key(api, admin, streams=["news"])
    await api.post("/v1/templates", token, {"id": "hello", "subject": "Hi", "text": "Hi {{name}}"})
    later = clock.iso(clock.now() + timedelta(hours=2))
    shapes: list[dict[str, Any]] = [
        {"template": "hello", "variables": {"name": "Ann"}, "text": None, "subject": None}, {"scheduledAt": later}
    ]  # fmt: skip
    for fields in shapes:
        assert refused(await api.post("/v1/emails", token, account.email(**fields))) == (403, "forbidden")
        assert (await api.post("/v1/emails", token, account.email(stream="news", **fields))).status == 202


async def test_the_relay_holds_a_key_to_its_domains_and_streams(
    api: Api, account: TestAccount, admin: TestPerson, relay: TestRelay
) -> None:
    client = await relay.secured()
    assert (await client.log_in(await key(api, admin, domains=[account.domain], streams=["news"]))).startswith("235 ")
    other = message(account).replace(account.domain.encode(), f"two.{account.domain}".encode())
    replies = [
        await client.send(account, message(account, head="X-Waybill-Stream: news\r\n")),
        await client.send(account, message(account)), await client.send(account, other),
    ]  # fmt: skip

    assert replies[0].startswith("250 2.0.0 queued"), replies
    assert all(reply.startswith("550 5.7.1 [forbidden] This API key isn't allowed to send") for reply in replies[1:]), (
        replies
    )


async def test_a_replayed_idempotency_key_is_answered_as_ever(
    api: Api, account: TestAccount, admin: TestPerson
) -> None:
    request = account.email(idempotencyKey="once")
    first = await api.post("/v1/emails", account.token, request)
    again = await api.post("/v1/emails", await key(api, admin, streams=["news"]), request)

    assert (again.status, again.json["status"], again.json["id"]) == (200, "duplicate", first.json["id"])


# networks ----------------------------------------------------------------------------------------


async def test_a_key_is_good_from_its_networks_alone_and_nothing_tells_why(
    api: Api, account: TestAccount, admin: TestPerson
) -> None:
    here = await key(api, admin, networks=["192.0.2.0/24", "127.0.0.0/8"])
    elsewhere = await key(api, admin, networks=["192.0.2.1", "2001:db8::/32"])
    strange = await api.get("/v1/me", elsewhere)
    unknown = await api.get("/v1/me", "svc_live_" + "x" * 44)

    assert (await api.get("/v1/me", here)).status == 200
    assert (strange.status, strange.body) == (unknown.status, unknown.body)
    assert strange.status == 401
    for name in ("www-authenticate", "content-type"):
        assert strange.headers[name] == unknown.headers[name]


async def test_the_relay_knows_a_key_from_its_networks_alone(
    api: Api, account: TestAccount, admin: TestPerson, relay: TestRelay
) -> None:
    token = await key(api, admin, networks=["127.0.0.1"])
    good, bad = await relay.client(tls=True, source="127.0.0.1"), await relay.client(tls=True, source="127.0.0.2")
    for client in (good, bad):
        await client.reply()
        await client.say("EHLO client.test")

    assert (await good.log_in(token)).startswith("235 ")
    assert (await good.send(account, message(account))).startswith("250 2.0.0 queued")
    refusal = await bad.log_in(token)
    assert refusal == await bad.log_in("svc_live_" + "x" * 44)
    assert refusal.startswith("535 5.7.8 ")


async def test_networks_are_shown_as_networks(api: Api, admin: TestPerson) -> None:
    await key(api, admin, networks=["2001:DB8:0::/32", "10.0.0.7", " 10.0.0.0/8", "10.0.0.7/32"])
    row = (await api.get("/v1/api-keys", person=admin)).json["data"][0]

    assert row["networks"] == ["10.0.0.0/8", "10.0.0.7/32", "2001:db8::/32"]


# rules -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("networks", "address", "admitted"),
    [
        (["10.0.0.0/8"], "10.255.0.1", True), (["10.0.0.0/8"], "11.0.0.1", False),
        (["10.0.0.0/8"], "::ffff:10.0.0.1", True), (["::/0"], "10.0.0.1", False),
        (["2001:db8::/32"], "2001:db8::1", True), (["::ffff:10.0.0.0/104"], "10.0.0.1", True),
        (["::ffff:10.0.0.0/104"], "11.0.0.1", False),
        (["2001:db8::/32"], "2001:db9::1", False), (["10.0.0.0/8"], "", False), (["0.0.0.0/0"], "unix", False),
    ],
)  # fmt: skip
def test_an_address_is_inside_a_network_or_not(networks: list[str], address: str, admitted: bool) -> None:
    reach = KeyRestrictions.of(None, None, checked_networks(networks))
    assert reach is not None

    assert reach.admits(address) is admitted
    assert not reach.admits(None)


def test_a_key_without_limits_has_none_to_look_at() -> None:
    assert KeyRestrictions.of(None, None, None) is None


def test_what_is_not_limited_is_free() -> None:
    reach = KeyRestrictions(domains=frozenset({"a.test"}))
    reach.check("a.test", "anything")

    assert reach.admits(str(ip_address(1)))
    with pytest.raises(Refusal):
        reach.check("b.test", "anything")
