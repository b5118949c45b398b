"""Domains as receivers of mail: their records, the managed receiving domain, and removal."""

from collections.abc import AsyncIterator

import asyncpg
import orjson
import pytest

from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.receiving import inbound_domains
from engine.receiving.inbound_addresses import service, store
from engine.receiving.inbound_addresses.types import InboundAddressRow
from engine.receiving.recipients import RecipientLookup
from engine.receiving.remove_domain import remove_domain
from ops.local.dns import Responder
from tests.harness.accounts import TestAccount, add_domain, make_account
from tests.harness.api import Api
from tests.harness.domains import Place


async def claimed(pool: asyncpg.Pool, account: TestAccount, address: str) -> InboundAddressRow:
    return await service.claim(pool, account.id, address, label=None, mail_host="mail.waybill.test")


async def test_the_list_shows_every_domain_with_the_mx_record_to_publish(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    pending = f"pending-{account.domain}"
    await add_domain(pool, account.id, pending, verified=False)
    await claimed(pool, account, f"support@{account.domain}")

    first = (await api.get("/v1/inbound/domains?limit=1", account.token)).json
    second = (await api.get(f"/v1/inbound/domains?before={first['nextCursor']}", account.token)).json

    shown = first["data"] + second["data"]
    assert [(one["name"], one["status"], one["addresses"]) for one in shown] == [
        (pending, "pending", 0), (account.domain, "verified", 1),
    ]  # fmt: skip
    assert second["nextCursor"] is None
    assert shown[1] == {
        "id": shown[1]["id"], "name": account.domain, "status": "verified", "receiving": False, "addresses": 1,
        "mx": {
            "type": "MX", "host": account.domain, "value": "mail.waybill.test", "priority": 10, "status": "missing",
            "found": [],
        },
        "checkedAt": shown[1]["checkedAt"],
    }  # fmt: skip
    assert shown[1]["id"].startswith("dom_")
    single = (await api.get(f"/v1/inbound/domains/{shown[1]['id']}", account.token)).json
    dkim = single.pop("dkim")
    assert single == shown[1]
    assert {one["host"] for one in dkim} == {f"{key}._domainkey.{account.domain}" for key in ("wb1", "wb1e")}
    assert [one["required"] for one in dkim] == [True, False]
    assert set(dkim[0]) == {"type", "host", "value", "required", "status", "found"}


# -- checking ---------------------------------------------------------------------------------------


@pytest.fixture
async def place(pool: asyncpg.Pool, settings: Settings) -> AsyncIterator[Place]:
    async with Responder() as zone:
        yield Place(pool, settings, zone)


async def test_a_check_reports_mx_and_applies_dkim(place: Place, account: TestAccount) -> None:
    name = f"new-{account.domain}"
    domain = await place.add(account, name)
    keys = [record for record in await place.wanted(domain) if record.purpose == "dkim"]

    before = await inbound_domains.check_domain(place.pool, place.settings, account.id, domain.id)
    await place.publish(domain, *(record.selector for record in keys if record.selector))
    without_mx = await inbound_domains.check_domain(place.pool, place.settings, account.id, domain.id)
    await claimed(place.pool, account, f"support@{name}")
    place.zone.set(name, "MX", ["5 other.test.", "10 mail.waybill.test."])
    after = await inbound_domains.check_domain(place.pool, place.settings, account.id, domain.id)

    states = (before, without_mx, after)
    assert [(one.domain.status, one.mx.finding.status, one.receiving) for one in states] == [
        ("pending", "missing", False), ("verified", "missing", False), ("verified", "ok", True),
    ]  # fmt: skip
    assert [one.finding.status for one in after.dkim if one.wanted.required] == ["ok"]
    assert sorted(after.mx.finding.found) == ["10 mail.waybill.test", "5 other.test"]


async def test_an_unknown_domain_is_404(api: Api, account: TestAccount) -> None:
    for name in ("x", "iad_00000000000000000000000000", "dom_00000000000000000000000000"):
        for answer in (
            await api.get(f"/v1/inbound/domains/{name}", account.token),
            await api.post(f"/v1/inbound/domains/{name}/verify", account.token),
        ):
            assert (answer.status, answer.error["type"]) == (404, "not_found")


async def test_receiving_needs_an_enabled_address_and_the_name(place: Place, account: TestAccount) -> None:
    name = f"new-{account.domain}"
    domain = await place.verified(account, name)

    async def receiving() -> bool:
        return (await inbound_domains.read_domain(place.pool, place.settings, account.id, domain.id)).receiving

    assert not await receiving()
    row = await claimed(place.pool, account, f"support@{name}")
    assert await receiving()
    await service.change(place.pool, account.id, row.id, enabled=False)
    assert not await receiving()
    await service.change(place.pool, account.id, row.id, enabled=True)
    await place.pool.execute("UPDATE domains SET receives_since = NULL WHERE id = $1", domain.id)
    assert not await receiving()


# -- the managed receiving domain -------------------------------------------------------------------


async def test_the_managed_domain_is_shown_where_the_plan_includes_inbound(api: Api, pool: asyncpg.Pool) -> None:
    account, other, free = await make_account(pool), await make_account(pool), await make_account(pool, plan="free")

    shown = [(await api.get("/v1/inbound/domains", one.token)).json["managed"] for one in (account, other, free)]

    assert shown[2] is None
    names = {one["name"] for one in shown[:2]}
    assert len(names) == 2
    for one in shown[:2]:
        label, _, zone = one["name"].partition(".")
        assert zone == "in.mail.waybill.test"
        assert len(label) >= 12
        assert (one["addresses"], one["receiving"]) == (0, True)


async def test_the_managed_domain_counts_as_one_address_once_mail_came(
    api: Api, pool: asyncpg.Pool, settings: Settings
) -> None:
    account = await make_account(pool, plan="starter")
    name = (await api.get("/v1/inbound/domains", account.token)).json["managed"]["name"]

    await RecipientLookup(pool, settings).find(f"anything@{name}")
    await RecipientLookup(pool, settings).find(f"else@{name}")

    [row] = (await api.get("/v1/inbound/addresses", account.token)).json["data"]
    assert row["address"] == f"*@{name}"
    shown = (await api.get("/v1/inbound/domains", account.token)).json["managed"]
    assert shown == {"name": name, "addresses": 1, "receiving": True}
    await api.delete(f"/v1/inbound/addresses/{row['id']}", account.token)
    shown = (await api.get("/v1/inbound/domains", account.token)).json["managed"]
    assert shown == {"name": name, "addresses": 0, "receiving": False}


# -- removal ----------------------------------------------------------------------------------------


async def test_removing_a_domain_takes_its_addresses_routes_and_policy_along_and_no_others(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    other = f"other-{account.domain}"
    await add_domain(pool, account.id, other)
    domains = {one["name"]: one["id"] for one in (await api.get("/v1/domains", account.token)).json["data"]}
    for name in (account.domain, other):
        await claimed(pool, account, f"support@{name}")
        policy = await api.put(f"/v1/inbound/mta-sts/{name}", account.token, {"mode": "testing"})
        assert policy.status == 200
        for target in ({"address": f"support@{name}"}, {"domain": name}):
            made = await api.post("/v1/inbound/routes", account.token, target | {"action": "both"})
            assert made.status == 201

    assert (await api.delete(f"/v1/domains/{domains[account.domain]}", account.token)).status == 204

    addresses = (await api.get("/v1/inbound/addresses", account.token)).json["data"]
    routes = (await api.get("/v1/inbound/routes", account.token)).json["data"]
    assert [one["address"] for one in addresses] == [f"support@{other}"]
    assert {one["address"] or one["domain"] for one in routes} == {f"support@{other}", other}
    payload = await pool.fetchval(
        "SELECT payload FROM events WHERE account_id = $1 AND type = 'domain.removed'", account.id
    )
    detail = orjson.loads(payload)["detail"]
    counts = {name: detail[name] for name in ("inbound_addresses", "inbound_routes", "mta_sts_policies")}
    assert (detail["name"], counts) == (
        account.domain, {"inbound_addresses": 1, "inbound_routes": 2, "mta_sts_policies": 1},
    )  # fmt: skip
    policies = (await api.get("/v1/inbound/mta-sts", account.token)).json["data"]
    assert [one["domain"] for one in policies] == [other]


async def test_another_accounts_domain_is_not_removed(account: TestAccount, pool: asyncpg.Pool) -> None:
    stranger = await make_account(pool)
    row = await claimed(pool, account, f"support@{account.domain}")
    domain = await pool.fetchval("SELECT domain_id FROM inbound_addresses WHERE id = $1", row.id)

    with pytest.raises(Refusal):
        await remove_domain(pool, stranger.id, domain)

    assert await pool.fetchval("SELECT count(*) FROM inbound_addresses WHERE id = $1", row.id) == 1


async def test_a_removed_domain_that_is_added_again_begins_without_addresses(
    account: TestAccount, pool: asyncpg.Pool
) -> None:
    before = await claimed(pool, account, f"support@{account.domain}")
    domain = await pool.fetchval("SELECT domain_id FROM inbound_addresses WHERE id = $1", before.id)
    await remove_domain(pool, account.id, domain)
    await add_domain(pool, account.id, account.domain)

    assert await store.LIST.fetch(pool, account.id, None, None, 10) == []
    await claimed(pool, account, f"support@{account.domain}")
