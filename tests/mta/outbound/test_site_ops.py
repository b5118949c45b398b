"""`ops site`: what the operator sees and sets, by the names that he knows."""

import pytest

from engine.base.errors import Refusal
from ops.commands import site as sites
from tests.harness.outbound import World
from tests.harness.site_rules import set_rule


async def test_a_domain_leads_to_its_servers_and_their_rules(here: World) -> None:
    here.domain("shop.test", mx="in.hoster.test")
    await set_rule(here.pool, "hoster.test", {"connections": 7}, "they asked")
    shown = await sites.limits_of(here.pool, here.settings, "Shop.test")

    assert (shown["site"], shown["hosts"]) == ("in.hoster.test", ["in.hoster.test"])
    rules = {one["rule"]: (one["value"], one["because"]) for one in shown["rules"]}
    assert rules["connections"] == (7, "operator: hoster.test (they asked)")
    assert rules["messages_per_connection"] == (here.settings.messages_per_connection, "default")


async def test_what_the_processes_see_is_shown_with_the_rules(here: World) -> None:
    mta = await here.mta()
    message = await here.send("ann@peer.test")
    await here.until_step(message, "delivered")
    await mta.outbound.scheduler._show()
    [seen] = (await sites.limits_of(here.pool, here.settings, "peer.test"))["processes"]

    assert (seen["process"], seen["site"], seen["phase"]) == ("mta-1", "mx.peer.test", "open")
    assert seen["window"] > 1
    assert seen["movedBy"] is None


async def test_a_rule_set_for_a_domain_is_kept_for_its_servers(here: World) -> None:
    here.domain("shop.test", mx="in.hoster.test")
    made = await sites.change(here.pool, here.settings, "shop.test", {"connections": 3}, None)
    assert made["name"] == "in.hoster.test"
    assert (await sites.change(here.pool, here.settings, "peer.test", {"connections": 3}, None))["name"] == "peer.test"
    assert (await sites.reset(here.pool, here.settings, "shop.test"))["name"] == "in.hoster.test"
    with pytest.raises(Refusal, match="No operator's rule"):
        await sites.reset(here.pool, here.settings, "shop.test")


async def test_a_rule_out_of_bounds_is_refused_in_words(here: World) -> None:
    with pytest.raises(ValueError, match=r"connections"):
        await sites.change(here.pool, here.settings, "peer.test", {"connections": 0}, None)


async def test_a_name_without_an_answer_in_dns_is_taken_as_it_stands(here: World) -> None:
    here.dns.null_mx("nowhere.test")
    made = await sites.change(here.pool, here.settings, "nowhere.test", {"connections": 2}, None)
    assert made["name"] == "nowhere.test"


async def test_the_list_has_own_and_shipped_rules(here: World) -> None:
    await set_rule(here.pool, "*", {"connections": 9}, "small host")
    found = await sites.listing(here.pool)
    assert found["rules"][0] == {"names": "*", "whose": "operator", "rule": "connections=9", "why": "small host"}
    assert any("google.com" in one["names"] for one in found["rules"])
