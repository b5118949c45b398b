"""Hosted MTA-STS policies over the API: set, served by host, checked against a real DNS server and a TLS server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import orjson
import pytest

from engine.base import ids
from engine.base.settings import HostPort, Settings
from engine.receiving.mta_sts import policies
from engine.receiving.mta_sts.service import EACH
from engine.sending.domains.service import add_domain
from loadtests.ports import reserve_port
from ops.local.dns import Responder
from tests.conftest import ServeApi
from tests.harness.accounts import TestAccount, add_key
from tests.harness.api import Answer, Api
from tests.harness.patience import PATIENCE_S
from tests.harness.tcp import listening
from tests.harness.transport import authority, self_signed

JSON = {"Content-Type": "application/json"}
ROOT = authority()
MAIL_HOST = "mail.waybill.test"


@pytest.fixture(scope="module")
async def zone() -> AsyncIterator[Responder]:
    async with Responder() as running:
        yield running


@pytest.fixture(scope="module")
def own_settings(settings: Settings, zone: Responder, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    trusted = ROOT.pem(tmp_path_factory.mktemp("authorities"))
    return msgspec.structs.replace(
        settings, dns_servers=(HostPort(*zone.address),), mail_host=MAIL_HOST, policy_port=reserve_port(),
        tls_authorities=trusted, allow_private_mx=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def own(own_settings: Settings, serve: ServeApi) -> Api:
    return serve(own_settings)


@pytest.fixture
async def domain(pool: asyncpg.Pool, own_settings: Settings, account: TestAccount) -> str:
    """A verified domain of the account."""
    name = f"{ids.encode(ids.uuid7())}.test"
    await add_domain(pool, own_settings, account.id, name, vouched=True)
    return name


async def put(own: Api, account: TestAccount, domain: str, body: dict[str, object]) -> Answer:
    return await own.request(
        "PUT", f"/v1/inbound/mta-sts/{domain}", token=account.token, body=orjson.dumps(body), headers=JSON
    )


async def verify(own: Api, account: TestAccount, domain: str) -> dict[str, Any]:
    answer = await own.post(f"/v1/inbound/mta-sts/{domain}/verify", account.token, body=b"")
    assert answer.status == 200, answer.body
    return dict(answer.json)


def publish(zone: Responder, domain: str, policy_id: str) -> None:
    zone.set(f"mta-sts.{domain}", "CNAME", [f"mta-sts.{MAIL_HOST}."])
    zone.set(f"mta-sts.{MAIL_HOST}", "A", ["127.0.0.1"])
    zone.set(f"_mta-sts.{domain}", "TXT", [f"v=STSv1; id={policy_id}"])
    zone.set(domain, "MX", [f"10 {MAIL_HOST}."])


async def test_a_policy_is_set_kept_and_changed_with_a_larger_id(own: Api, account: TestAccount, domain: str) -> None:
    first = await put(own, account, domain, {"mode": "testing"})
    again = await put(own, account, domain.upper(), {"mode": "testing", "maxAge": 604_800})
    changed = await put(own, account, domain, {"mode": "enforce"})

    assert (first.status, again.status, changed.status) == (200, 200, 200)
    assert (first.json["mode"], first.json["maxAge"], first.json["live"]) == ("testing", 604_800, False)
    assert first.json["url"] == f"https://mta-sts.{domain}/.well-known/mta-sts.txt"
    assert first.json["mx"] == [MAIL_HOST]
    assert first.json["tlsReports"] == {"sessions": 0, "failures": 0, "lastReportAt": None}
    assert again.json["policyId"] == first.json["policyId"] < changed.json["policyId"]
    listed = (await own.get("/v1/inbound/mta-sts", account.token)).json
    assert [one["domain"] for one in listed["data"]] == [domain]
    assert listed["nextCursor"] is None


async def test_the_setup_of_the_domain_shows_the_id_of_the_policy(own: Api, account: TestAccount, domain: str) -> None:
    policy = (await put(own, account, domain, {"mode": "testing"})).json
    rows = (await own.get("/v1/domains", account.token)).json["data"]
    row = next(one for one in rows if one["name"] == domain)
    (txt,) = [one for one in row["records"] if one["purpose"] == "mta_sts" and one["type"] == "TXT"]
    assert txt["value"] == f"v=STSv1; id={policy['policyId']}"


async def test_the_policy_is_served_by_host_alone(own: Api, account: TestAccount, domain: str) -> None:
    await put(own, account, domain, {"mode": "enforce", "maxAge": 86_400})
    path = "/.well-known/mta-sts.txt"
    served = await own.get(path, headers={"Host": f"mta-sts.{domain}"})
    others = [await own.get(path, headers={"Host": host}) for host in (domain, "mta-sts.other.test", "x")]

    assert served.status == 200
    assert served.body == f"version: STSv1\r\nmode: enforce\r\nmx: {MAIL_HOST}\r\nmax_age: 86400\r\n".encode()
    assert served.headers["content-type"].startswith("text/plain")
    assert [one.status for one in others] == [404, 404, 404]


async def test_a_policy_is_live_when_alias_record_and_certificate_are_right(
    own: Api, own_settings: Settings, account: TestAccount, domain: str, zone: Responder, tmp_path: Path
) -> None:
    policy = (await put(own, account, domain, {"mode": "enforce"})).json
    before = await verify(own, account, domain)
    publish(zone, domain, policy["policyId"])
    async with listening(_quiet, port=own_settings.policy_port, tls=ROOT.leaf(f"mta-sts.{domain}").server(tmp_path)):
        live = await verify(own, account, domain)
        changed = (await put(own, account, domain, {"mode": "testing"})).json
        stale = await verify(own, account, domain)

    assert (before["cname"], before["txt"], before["certificate"]) == ("missing", "missing", "unreachable")
    assert (live["cname"], live["txt"], live["certificate"], live["live"]) == ("ok", "ok", "ok", True)
    assert live["warnings"] == []
    assert live["checkedAt"] is not None
    assert (stale["txt"], stale["live"]) == ("stale", False)
    assert changed["policyId"] in stale["warnings"][0]


@pytest.mark.parametrize("fault", ["mismatch", "untrusted", "unreachable"])
async def test_each_fault_of_the_certificate_has_its_name(
    own: Api, own_settings: Settings, account: TestAccount, domain: str, zone: Responder, tmp_path: Path, fault: str
) -> None:
    policy = (await put(own, account, domain, {"mode": "testing"})).json
    publish(zone, domain, policy["policyId"])
    certificates = {"mismatch": ROOT.leaf("other.test"), "untrusted": self_signed(f"mta-sts.{domain}")}
    if fault == "unreachable":
        found = await verify(own, account, domain)
    else:
        tls = certificates[fault].server(tmp_path)
        async with listening(_quiet, port=own_settings.policy_port, tls=tls):
            found = await verify(own, account, domain)

    assert (found["certificate"], found["live"]) == (fault, False)


async def test_enforce_with_a_foreign_mail_server_is_taken_with_a_warning(
    own: Api, account: TestAccount, domain: str, zone: Responder
) -> None:
    zone.set(domain, "MX", ["10 mx.elsewhere.test."])
    answer = await put(own, account, domain, {"mode": "enforce"})
    checked = await verify(own, account, domain)
    assert answer.status == 200
    assert "mx.elsewhere.test" in checked["warnings"][0]


async def test_a_flood_of_policy_requests_occupies_two_database_sessions_of_a_network(
    api: Api, pool: asyncpg.Pool
) -> None:
    async def fetch(number: int) -> int:
        headers = {"Host": f"mta-sts.flood{number}.test"}
        return (await api.get("/.well-known/mta-sts.txt", headers=headers)).status

    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("LOCK TABLE hosted_sts_policies IN ACCESS EXCLUSIVE MODE")
        asked = [asyncio.ensure_future(fetch(number)) for number in range(30)]
        done, waiting = await asyncio.wait(asked, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        while len(waiting) > EACH:
            more, waiting = await asyncio.wait(waiting, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        held = await pool.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND query LIKE '%hosted_sts_policies%' AND datname = current_database()"
        )
        await transaction.rollback()
    await asyncio.gather(*waiting)

    assert {one.result() for one in done} == {503}
    assert held == EACH
    assert await fetch(0) == 404


async def test_a_proxy_may_get_certificates_for_policy_hosts_that_lead_here(
    own: Api, account: TestAccount, domain: str, zone: Responder
) -> None:
    policy = (await put(own, account, domain, {"mode": "testing"})).json

    async def allowed(host: str) -> int:
        return (await own.get("/.well-known/waybill/tls-allowed", params={"domain": host})).status

    early = await allowed(f"mta-sts.{domain}")
    publish(zone, domain, policy["policyId"])
    await verify(own, account, domain)
    assert (early, await allowed(f"MTA-STS.{domain}"), await allowed(MAIL_HOST)) == (404, 200, 200)
    assert (await allowed(domain), await allowed("mta-sts.other.test"), await allowed("")) == (404, 404, 404)


async def test_domains_without_a_policy_or_verification_are_refused(
    own: Api, own_settings: Settings, account: TestAccount, pool: asyncpg.Pool, domain: str
) -> None:
    pending = f"{ids.encode(ids.uuid7())}.test"
    await add_domain(pool, own_settings, account.id, pending)
    refused = await put(own, account, pending, {"mode": "testing"})
    unknown = await put(own, account, "unknown.test", {"mode": "testing"})
    without = await own.post(f"/v1/inbound/mta-sts/{domain}/verify", account.token, body=b"")
    short = await put(own, account, domain, {"mode": "testing", "maxAge": 86_399})

    assert (refused.status, refused.json["error"]["type"]) == (403, "domain_not_verified")
    assert (unknown.status, without.status) == (404, 404)
    assert (short.status, short.json["error"]["field"]) == (400, "maxAge")


async def test_a_key_limited_to_other_domains_does_not_see_the_policy(
    own: Api, account: TestAccount, pool: asyncpg.Pool, domain: str
) -> None:
    await put(own, account, domain, {"mode": "testing"})
    limited = await add_key(pool, account.id)
    await pool.execute("UPDATE api_keys SET domains = $2 WHERE key_id = $1", limited[9:21], ["other.test"])
    assert (await own.get("/v1/inbound/mta-sts", limited)).json["data"] == []
    answer = await own.request(
        "PUT", f"/v1/inbound/mta-sts/{domain}", token=limited, body=b'{"mode":"none"}', headers=JSON
    )
    assert answer.status == 404


async def test_due_policies_are_checked_by_the_worker(
    own: Api, own_settings: Settings, account: TestAccount, pool: asyncpg.Pool, domain: str
) -> None:
    await put(own, account, domain, {"mode": "testing"})
    assert await policies.check_due(pool, own_settings) >= 1
    (row,) = (await own.get("/v1/inbound/mta-sts", account.token)).json["data"]
    assert row["checkedAt"] is not None


async def _quiet(reader: Any, _: Any) -> None:
    await reader.read(1)
