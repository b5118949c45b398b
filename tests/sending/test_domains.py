"""`/v1/domains` over HTTP, in a process of its own that asks the test's DNS and a stand-in for Cloudflare."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import msgspec
import orjson
import pytest

from engine.base.settings import HostPort, Settings
from ops.local.dns import DnsBehaviour, Responder
from tests.conftest import ServeApi
from tests.harness.accounts import TestAccount, add_key, make_account
from tests.harness.api import Answer, Api
from tests.harness.cloudflare import TOKEN, CloudflareServer
from tests.harness.domains import new_name
from tests.harness.patience import PATIENCE_S

JSON = {"Content-Type": "application/json"}
FIELDS = {
    "id",
    "name",
    "status",
    "createdAt",
    "verifiedAt",
    "lastCheckedAt",
    "signing",
    "returnPath",
    "records",
    "operatorRecords",
}
RECORD_FIELDS = {"type", "host", "value", "required", "status", "found", "purpose", "note", "problem", "mistake"}

WITHIN_S = 1.0 + PATIENCE_S  # a second is promised; the machine may be busy


@pytest.fixture(scope="module")
async def zone() -> AsyncIterator[Responder]:
    async with Responder() as running:
        yield running


@pytest.fixture(scope="module")
async def cloudflare() -> AsyncIterator[CloudflareServer]:
    async with CloudflareServer() as running:
        yield running


@pytest.fixture(scope="module")
def own(settings: Settings, zone: Responder, cloudflare: CloudflareServer, serve: ServeApi) -> Api:
    servers = {"dns_servers": (HostPort(*zone.address),), "cloudflare_url": cloudflare.url}
    return serve(msgspec.structs.replace(settings, mail_host="mail.waybill.test", **servers))


async def added(own: Api, account: TestAccount, domain: str | None = None) -> dict[str, Any]:
    answer = await own.post("/v1/domains", account.token, {"name": domain or new_name()})
    assert answer.status == 201, answer.body
    return dict(answer.json)


def publish(zone: Responder, domain: dict[str, Any], *, required: bool = True) -> None:
    """Its records in DNS: the required ones, or all."""
    for one in domain["records"]:
        if one["required"] or not required:
            zone.set(one["host"], one["type"], [one["value"] if one["type"] == "TXT" else f"{one['value']}."])


def refused(answer: Answer) -> tuple[int, str, object]:
    return answer.status, answer.error["type"], answer.error.get("field")


# -- adding ------------------------------------------------------------------------------------------------------


async def test_an_added_domain_is_pending_and_shows_what_to_publish(own: Api, account: TestAccount) -> None:
    domain = await added(own, account, f"Shop.{new_name()}.")
    read = await own.get(f"/v1/domains/{domain['id']}", account.token)
    setup = await own.get(f"/v1/domains/{domain['id']}/setup", account.token)

    assert set(domain) == FIELDS
    assert domain["id"].startswith("dom_")
    assert domain["name"].startswith("shop.")
    assert not domain["name"].endswith(".")
    assert (domain["status"], domain["verifiedAt"], domain["lastCheckedAt"]) == ("pending", None, None)
    assert domain["signing"] == {"selector": "wb1", "next": None, "retiring": None, "retiresAt": None}
    assert all(set(record) == RECORD_FIELDS for record in domain["records"] + domain["operatorRecords"])
    assert {record["status"] for record in domain["records"]} == {"missing"}
    hosts = [record["host"] for record in domain["records"]]
    assert hosts[0] == f"wb1._domainkey.{domain['name']}"
    assert f"wb2._domainkey.{domain['name']}" in hosts
    assert {record["purpose"] for record in domain["records"]} == {
        "dkim", "dmarc", "inbound", "mta_sts", "return_path", "tls_rpt",
    }  # fmt: skip
    assert {record["purpose"] for record in domain["operatorRecords"]} == {"return_path"}
    assert all(record["host"].endswith(domain["name"]) for record in domain["records"])
    assert [record["host"] for record in domain["records"] if record["required"]] == hosts[:1]
    assert read.json == setup.json == domain | {"dnsHost": None}


@pytest.mark.parametrize("form", ["bücher{}", "BÜCHER{}.", "xn--bcher-kva{}", "bu\u0308cher{}", "BÜCHER{}\u3002"])
async def test_the_same_name_in_any_form_is_a_conflict_that_names_the_first(
    own: Api, account: TestAccount, form: str
) -> None:
    suffix = f".{new_name()}"
    first = await added(own, account, f"bücher{suffix}")
    second = await own.post("/v1/domains", account.token, {"name": form.format(suffix)})

    assert first["name"] == f"xn--bcher-kva{suffix}"
    assert refused(second)[:2] == (409, "conflict")
    assert second.error["id"] == first["id"]


@pytest.mark.parametrize(
    "text",
    [
        "", "com", "co.uk", "192.0.2.1", "[IPv6:::1]", "a@b.test", "https://b.test/", "*.b.test", "a..test", "a_b.test",
        "exa\0mple.test", "a\u2028b.test", "mail.waybill.test", "bounces.mail.waybill.test", "x" * 321,
        f"{'a.' * 130}test",
    ],
)  # fmt: skip
async def test_a_name_that_nobody_can_send_from_is_a_400_on_the_field(
    own: Api, account: TestAccount, text: str
) -> None:
    assert refused(await own.post("/v1/domains", account.token, {"name": text})) == (400, "invalid_request", "name")


@pytest.mark.parametrize("body", [{}, {"name": None}, {"name": 7}, {"name": ["a.test"]}, {"name": "a.test", "x": 1}])
async def test_a_body_of_another_shape_is_a_400(own: Api, account: TestAccount, body: dict[str, object]) -> None:
    assert refused(await own.post("/v1/domains", account.token, body))[:2] == (400, "invalid_request")


async def test_a_name_with_a_lone_surrogate_is_a_400(own: Api, account: TestAccount) -> None:
    answer = await own.post("/v1/domains", account.token, body=b'{"name": "a\\ud800.test"}')

    assert refused(answer)[:2] == (400, "invalid_request")


async def test_a_free_plan_holds_one_domain_and_a_removed_one_makes_room(own: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="free")
    full = await own.post("/v1/domains", account.token, {"name": new_name()})
    (first,) = (await own.get("/v1/domains", account.token)).json["data"]
    await own.request("DELETE", f"/v1/domains/{first['id']}", token=account.token)
    again = await own.post("/v1/domains", account.token, {"name": new_name()})

    assert refused(full)[:2] == (403, "plan_limit_reached")
    evidence = {field: full.error[field] for field in ("resource", "limit", "used")}
    assert evidence == {"resource": "domains", "limit": 1, "used": 1}
    assert again.status == 201


async def test_of_many_who_add_at_once_exactly_as_many_as_the_plan_holds_get_in(own: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="free")
    (first,) = (await own.get("/v1/domains", account.token)).json["data"]
    await own.request("DELETE", f"/v1/domains/{first['id']}", token=account.token)
    answers = await asyncio.gather(*[own.post("/v1/domains", account.token, {"name": new_name()}) for _ in range(8)])

    assert sorted(answer.status for answer in answers) == [201] + [403] * 7


async def test_of_many_who_add_one_name_at_once_one_gets_it(own: Api, account: TestAccount) -> None:
    domain = new_name()
    answers = await asyncio.gather(*[own.post("/v1/domains", account.token, {"name": domain}) for _ in range(8)])

    assert sorted(answer.status for answer in answers) == [201] + [409] * 7


async def test_parallel_additions_wait_for_one_another(own: Api, account: TestAccount) -> None:
    answers = await asyncio.gather(*[own.post("/v1/domains", account.token, {"name": new_name()}) for _ in range(40)])

    assert [answer.status for answer in answers] == [201] * 40


# -- reading -----------------------------------------------------------------------------------------------------


# -- verifying ---------------------------------------------------------------------------------------------------


async def test_a_published_domain_is_verified_and_may_send(own: Api, account: TestAccount, zone: Responder) -> None:
    domain = await added(own, account)
    message = account.email(**{"from": f"shop@{domain['name']}"})
    before = await own.post("/v1/emails", account.token, message)
    early = (await own.post(f"/v1/domains/{domain['id']}/verify", account.token, body=b"")).json
    publish(zone, domain)
    answer = await own.post(f"/v1/domains/{domain['id']}/verify", account.token, body=b"")
    after = await own.post("/v1/emails", account.token, message)

    assert refused(before)[:2] == (403, "domain_not_verified")
    assert (early["status"], early["notice"]) == ("pending", None)
    assert early["lastCheckedAt"] is not None
    assert answer.status == 200
    verified = answer.json
    assert set(verified) == FIELDS | {"notice"}
    assert (verified["status"], verified["notice"]) == ("verified", None)
    assert verified["verifiedAt"] is not None
    assert verified["records"][0]["status"] == "ok"
    assert verified["records"][0]["found"] == [domain["records"][0]["value"]]
    assert (await own.get(f"/v1/domains/{domain['id']}/setup", account.token)).json["records"] == verified["records"]
    assert after.status == 202


async def test_dns_that_is_away_decides_nothing_and_the_answer_says_so(
    own: Api, account: TestAccount, zone: Responder
) -> None:
    domain = await added(own, account)
    zone.behave_under(domain["name"], DnsBehaviour(rcode="SERVFAIL"))
    answer = await own.post(f"/v1/domains/{domain['id']}/verify", account.token, body=b"")

    assert answer.status == 200
    assert answer.json["status"] == "pending"
    assert "the status is unchanged" in answer.json["notice"]
    assert answer.json["records"][0]["problem"]


async def test_a_body_where_none_is_asked_for_changes_nothing(own: Api, account: TestAccount, zone: Responder) -> None:
    domain = await added(own, account)
    publish(zone, domain)

    assert (await own.post(f"/v1/domains/{domain['id']}/verify", account.token, {})).json["status"] == "verified"


async def test_keys_change_hands_over_the_api(own: Api, account: TestAccount, zone: Responder) -> None:
    domain = await added(own, account)
    early = await own.post(f"/v1/domains/{domain['id']}/rotate", account.token, body=b"")
    publish(zone, domain)
    await own.post(f"/v1/domains/{domain['id']}/verify", account.token, body=b"")
    asked = (await own.post(f"/v1/domains/{domain['id']}/rotate", account.token, body=b"")).json
    publish(zone, domain, required=False)
    moved = (await own.post(f"/v1/domains/{domain['id']}/verify", account.token, body=b"")).json
    again = await own.post(f"/v1/domains/{domain['id']}/rotate", account.token, body=b"")

    assert refused(early)[:2] == (409, "invalid_state")
    assert asked["signing"] == {"selector": "wb1", "next": "wb2", "retiring": None, "retiresAt": None}
    assert moved["status"] == "verified"
    assert (moved["signing"]["selector"], moved["signing"]["retiring"]) == ("wb2", "wb1")
    assert moved["signing"]["retiresAt"] is not None
    assert [one["host"] for one in moved["records"] if one["required"]] == [f"wb2._domainkey.{domain['name']}"]
    assert (again.status, again.error["status"]) == (409, "retiring")
    told = [one for one in (await own.get("/v1/events", account.token)).json["data"] if "key_" in one["type"]]
    assert [one["type"] for one in told] == ["domain.key_rotation_requested", "domain.key_rotated"]
    assert (told[0]["detail"]["to"], told[0]["detail"]["actor"][:4]) == ("wb2", "key_")


# -- removing ----------------------------------------------------------------------------------------------------


async def test_the_return_path_label_is_chosen_when_adding_and_changed_later(own: Api, account: TestAccount) -> None:
    answer = await own.post("/v1/domains", account.token, {"name": new_name(), "returnPathLabel": "Rp"})
    made = answer.json
    assert made["returnPath"] == {"label": "rp", "host": f"rp.{made['name']}", "status": "pending"}

    async def change(label: dict[str, str]) -> Answer:
        body = orjson.dumps(label)
        return await own.request("PATCH", f"/v1/domains/{made['id']}", token=account.token, body=body, headers=JSON)

    changed = await change({"returnPathLabel": "bounce"})
    assert changed.status == 200
    hosts = [one["host"] for one in changed.json["records"] if one["purpose"] == "return_path"]
    assert hosts == [f"bounce.{made['name']}"]
    refused = await change({"returnPathLabel": "a.b"})
    assert (refused.status, refused.json["error"]["field"]) == (400, "returnPathLabel")
    assert (await change({})).json["returnPath"]["label"] == "bounce"


async def test_a_removed_domain_is_gone_at_once_and_refuses_mail_within_a_second(
    own: Api, account: TestAccount, zone: Responder, api: Api
) -> None:
    domain = await added(own, account)
    publish(zone, domain)
    message = account.email(**{"from": f"shop@{domain['name']}"})
    early = [await one.post("/v1/emails", account.token, message) for one in (own, api)]
    await own.post(f"/v1/domains/{domain['id']}/verify", account.token, body=b"")
    sent = [await one.post("/v1/emails", account.token, message) for one in (own, api)]
    removed = await own.request("DELETE", f"/v1/domains/{domain['id']}", token=account.token)
    here = await own.post("/v1/emails", account.token, message)
    at = time.monotonic()
    statuses: list[int] = []
    while time.monotonic() < at + WITHIN_S:
        answers = [await one.post("/v1/emails", account.token, message) for one in (own, api)]
        statuses = [answer.status for answer in answers]
        if statuses == [403, 403]:
            break
        await asyncio.sleep(0.05)
    took = time.monotonic() - at

    assert [answer.status for answer in early] == [403, 403]
    assert [answer.status for answer in sent] == [202, 202], "what was just verified can be used in every process"
    assert (removed.status, removed.body) == (204, b"")
    assert here.status == 403
    assert statuses == [403, 403]
    assert took < WITHIN_S
    assert (await own.get(f"/v1/domains/{domain['id']}", account.token)).status == 404
    assert (await own.request("DELETE", f"/v1/domains/{domain['id']}", token=account.token)).status == 404
    assert domain["name"] not in {one["name"] for one in (await own.get("/v1/domains", account.token)).json["data"]}
    fresh = await added(own, account, domain["name"])
    assert fresh["id"] != domain["id"]
    assert fresh["status"] == "pending"


# -- Cloudflare --------------------------------------------------------------------------------------------------


async def test_the_token_of_a_limited_key_is_used_and_not_stored(
    own: Api, account: TestAccount, cloudflare: CloudflareServer, pool: asyncpg.Pool
) -> None:
    domain = await added(own, account)
    cloudflare.zone(domain["name"])
    path = f"/v1/domains/{domain['id']}/cloudflare"
    limited = await add_key(pool, account.id, domains=[domain["name"]])

    assert (await own.post(path, limited, {"token": TOKEN})).status == 200
    assert refused(await own.post(path, account.token, {})) == (400, "invalid_request", "token")


async def test_records_are_published_through_cloudflare_and_the_token_is_forgotten(
    own: Api, account: TestAccount, cloudflare: CloudflareServer
) -> None:
    domain = await added(own, account)
    cloudflare.zone(domain["name"])
    path = f"/v1/domains/{domain['id']}/cloudflare"
    none = await own.post(path, account.token, {})
    first = await own.post(f"/v1/domains/{domain['id']}/cloudflare", account.token, {"token": TOKEN})
    second = await own.post(path, account.token, body=b"")
    forgotten = [await own.request("DELETE", "/v1/account/cloudflare", token=account.token) for _ in range(2)]
    after = await own.post(path, account.token, {"token": None})

    assert refused(none) == (400, "invalid_request", "token")
    assert first.status == second.status == 200
    assert (first.json["provider"], first.json["zone"]) == ("cloudflare", domain["name"])
    assert {one["outcome"] for one in first.json["records"]} == {"created"}
    assert set(first.json["records"][0]) == {"type", "host", "value", "required", "outcome", "reason"}
    assert {one["outcome"] for one in second.json["records"]} == {"unchanged"}
    assert TOKEN.encode() not in first.body
    assert [(answer.status, answer.body) for answer in forgotten] == [(204, b"")] * 2
    assert refused(after) == (400, "invalid_request", "token")


@pytest.mark.parametrize("token", ["", "x" * 401, "a\nb", "a\0b", "tökén", "with blank", 7, ["x"]])
async def test_a_text_that_can_be_no_token_is_a_400_on_the_field(own: Api, account: TestAccount, token: object) -> None:
    domain = await added(own, account)
    answer = await own.post(f"/v1/domains/{domain['id']}/cloudflare", account.token, {"token": token})

    assert refused(answer) == (400, "invalid_request", "token")


async def test_a_wrong_token_is_refused_in_cloudflares_words(
    own: Api, account: TestAccount, cloudflare: CloudflareServer
) -> None:
    domain = await added(own, account)
    cloudflare.zone(domain["name"])
    answer = await own.post(f"/v1/domains/{domain['id']}/cloudflare", account.token, {"token": "x" * 40})

    assert refused(answer) == (400, "invalid_request", "token")
    assert "Invalid access token" in answer.error["message"]
    assert "x" * 40 not in answer.error["message"]
