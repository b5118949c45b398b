"""`ops blocklists`, the doctor's check and the gauges show what the checks of blocklists found."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from engine.base.settings import Settings, SourceIp
from engine.sending.blocklists.rules import query_name
from engine.sending.blocklists.types import ListFamily
from engine.store.postgres import open_pool
from ops.commands import blocklists
from ops.doctor.blocklists import blocklists as examine
from ops.doctor.finding import DoctorFinding
from ops.processes import gauges
from tests.conftest import NewDatabase
from tests.harness.accounts import make_account
from tests.harness.blocklists import A_LIST, DOMAIN_LIST, IP, BlocklistWorld, blocklist_world


@pytest.fixture
async def world(settings: Settings, new_database: NewDatabase) -> AsyncIterator[BlocklistWorld]:
    pool = await open_pool(await new_database(), name="tests", largest=4)
    async with blocklist_world(pool, settings) as made:
        yield made
    await pool.close()


async def finding(world: BlocklistWorld) -> DoctorFinding:
    async with world.pool.acquire() as connection:
        return await examine(connection, world.settings)  # type: ignore[arg-type]


async def test_the_operator_sees_lists_addresses_and_listings(world: BlocklistWorld) -> None:
    account = await make_account(world.pool)
    assert (await finding(world)).found.startswith("not tested yet")
    world.publish(A_LIST, ListFamily.IPV4, IP, answer="127.0.0.4")
    assert await blocklists.check_now(world.pool, world.settings, None) == 2  # the address, and the new domain
    world.publish(DOMAIN_LIST, ListFamily.DOMAIN, account.domain)
    await blocklists.check_now(world.pool, world.settings, account.domain.upper())
    found = await blocklists.standing(world.pool, limit=10)

    assert {(one["list"], one["trusted"]) for one in found["lists"]} == {
        (A_LIST, True), ("other", True), ("domains", True)
    }  # fmt: skip
    assert [(one["ip"], one["state"], one["listedOn"]) for one in found["addresses"]] == [(IP, "listed", [A_LIST])]
    assert [(one["kind"], one["target"], one["answer"], one["account"]) for one in found["listings"]] == [
        ("ip", IP, "127.0.0.4", None), ("domain", account.domain, "127.0.0.2", account.public_id)
    ]  # fmt: skip
    said = await finding(world)
    assert (said.ok, said.found) == (False, f"{IP} is on {A_LIST}")
    await gauges.look(world.pool, world.settings)
    assert gauges.LISTED.labels("ip")._value.get() == 1
    assert gauges.UNTRUSTED.labels("ipv4")._value.get() == 0


async def test_the_doctor_names_a_list_that_answers_wrongly(world: BlocklistWorld) -> None:
    world.zone.set(query_name("127.0.0.2", ListFamily.IPV4, A_LIST), "A", ["127.255.255.254"])
    await blocklists.check_now(world.pool, world.settings, None)
    said = await finding(world)

    assert said.found == f"{A_LIST} can't be trusted: its test point 127.0.0.2 answers 127.255.255.254"
    assert "WAYBILL_DNS_SERVERS" in (said.mend or "")
    await gauges.look(world.pool, world.settings)
    assert gauges.UNTRUSTED.labels("ipv4")._value.get() == 1
    found = await blocklists.standing(world.pool, limit=10)
    assert found["addresses"][0]["state"] == "not listed"  # by the other list


async def test_a_list_without_ipv6_is_no_fault(world: BlocklistWorld) -> None:
    world.settings = msgspec.structs.replace(world.settings, source_ips=(SourceIp(IP), SourceIp("2a01:4f8::25")))
    await blocklists.check_now(world.pool, world.settings, None)
    said = await finding(world)

    assert (said.ok, said.found) == (True, "no source address of 2 is listed; 0 domains of customers are")
    states = {one["ip"]: one["state"] for one in (await blocklists.standing(world.pool, limit=10))["addresses"]}
    assert states == {IP: "not listed", "2a01:4f8::25": "unknown"}


async def test_a_check_without_lists_or_of_a_strange_domain_is_refused(world: BlocklistWorld) -> None:
    with pytest.raises(ValueError, match=r"'nobody\.example' is not a verified domain"):
        await blocklists.check_now(world.pool, world.settings, "nobody.example")
    without = msgspec.structs.replace(world.settings, blocklist_ip_zones=(), blocklist_domain_zones=())
    with pytest.raises(ValueError, match="Set WAYBILL_BLOCKLIST_IP_ZONES or WAYBILL_BLOCKLIST_DOMAIN_ZONES"):
        await blocklists.check_now(world.pool, without, None)
    world.settings = without
    assert (await finding(world)).found == "not asked: WAYBILL_BLOCKLIST_IP_ZONES names none"
