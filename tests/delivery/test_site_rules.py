"""Rules for sites: precedence, validation, and distribution of changes."""

from typing import Any

import asyncpg
import msgspec
import pytest

from engine.base.settings import Settings
from engine.delivery import sites_store
from engine.delivery.sites import FIELDS, PROVIDERS, SHIPPED, NamedRule, RuleBook, SiteRule, checked_name
from engine.delivery.sites_store import SiteRules
from engine.store.caches import Stamps
from tests.harness.site_rules import remove_rule, set_rule

SETTINGS = Settings()


def book(**rules: dict[str, Any]) -> RuleBook:
    names = {name.replace("_", "."): SiteRule(**rule) for name, rule in rules.items()}
    return RuleBook([NamedRule((name,), rule, "operator", "because") for name, rule in names.items()])


def test_every_shipped_number_has_its_source() -> None:
    for provider in PROVIDERS:
        said = {field for field in FIELDS if getattr(provider.rule, field) is not None}
        assert said == set(provider.sources), provider.title
        assert all(len(source) > 10 for source in provider.sources.values())


def test_no_name_is_shipped_twice() -> None:
    names = [name for rule in SHIPPED for name in rule.names]
    assert len(names) == len(set(names))
    assert all(checked_name(name) == name for name in names)


def test_a_site_nobody_speaks_of_has_the_settings() -> None:
    limits = RuleBook().limits("mx.peer.test", ["mx.peer.test"], SETTINGS)
    assert limits.connections == SETTINGS.site_connections
    assert limits.ladder_s == SETTINGS.retry_ladder_s
    assert limits.key == "mx.peer.test"
    assert limits.origins == {}


def test_thousands_of_tenants_of_one_provider_share_one_window() -> None:
    rules = RuleBook()
    hosts = [f"t{number}-com.mail.protection.outlook.com" for number in range(50)]
    assert len({rules.limits(host, [host], SETTINGS).key for host in hosts}) == 1


def test_gmail_and_workspace_share_one_window() -> None:
    gmail = RuleBook().limits("l.google.com#12345678", ["gmail-smtp-in.l.google.com"], SETTINGS)
    workspace = RuleBook().limits("smtp.google.com", ["smtp.google.com"], SETTINGS)
    assert gmail.key == workspace.key
    assert gmail.messages_per_connection == 50
    assert "Google" in gmail.origins["messages_per_connection"]


def test_a_name_is_no_suffix_of_half_a_label() -> None:
    assert RuleBook().limits("notgoogle.com", ["notgoogle.com"], SETTINGS).key == "notgoogle.com"


def test_the_operators_word_goes_before_the_shipped_one_field_by_field() -> None:
    rules = book(google_com={"messages_per_connection": 5})
    limits = rules.limits("smtp.google.com", ["smtp.google.com"], SETTINGS)
    assert limits.messages_per_connection == 5
    assert limits.key == "google.com/*"
    assert limits.origins["messages_per_connection"] == "operator: google.com (because)"


def test_the_longer_name_goes_before_the_shorter_one() -> None:
    rules = book(peer_test={"connections": 9, "per_second": 4}, mx_peer_test={"connections": 3})
    limits = rules.limits("mx.peer.test", ["mx.peer.test"], SETTINGS)
    assert limits.connections == 3
    assert limits.rates == ((4.0, 1.0),)


def test_the_site_itself_goes_before_every_name() -> None:
    named = NamedRule(("peer.test#0a0b0c0d",), SiteRule(connections=2), "operator")
    rules = RuleBook([named, NamedRule(("mx1.peer.test",), SiteRule(connections=8), "operator")])
    assert rules.limits("peer.test#0a0b0c0d", ["mx1.peer.test"], SETTINGS).connections == 2


def test_a_rule_for_all_yields_to_every_other() -> None:
    rules = RuleBook([NamedRule(("*",), SiteRule(connections=4, together=True), "operator")])
    assert rules.limits("mx.peer.test", ["mx.peer.test"], SETTINGS).connections == 4
    assert rules.limits("mx.peer.test", ["mx.peer.test"], SETTINGS).key == "mx.peer.test"
    assert rules.limits("comcast.net", ["mx1.comcast.net"], SETTINGS).connections == 25


def test_answers_to_heed_add_up_and_case_does_not_matter() -> None:
    rules = book(google_com={"back_off": ("Please Wait",)})
    limits = rules.limits("smtp.google.com", ["smtp.google.com"], SETTINGS)
    assert limits.asks_to_slow_down("550 5.1.1 please WAIT a while")
    assert limits.asks_to_slow_down("421-4.7.28 has detected an Unusual rate of mail")
    assert not limits.asks_to_slow_down("550 5.1.1 no such user")


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "x" * 300, "mx.peer.test\x00", "päer.test", ".peer.test", "a/b", "*.peer"]
)
def test_what_no_host_is_called_is_no_name(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a mail host"):
        checked_name(name)


@pytest.mark.parametrize(
    "fields",
    [
        {"connections": 0}, {"connections": 2**70}, {"connections": -1}, {"per_second": 0.0}, {"per_hour": -5.0},
        {"recipients": 0}, {"ladder_s": []}, {"ladder_s": [0.0]}, {"family": "ipv5"}, {"back_off": ["x"]},
        {"messages_per_connection": "many"}, {"conections": 3}, {"per_minute": float("nan")},
    ],
)  # fmt: skip
async def test_a_rule_out_of_bounds_changes_nothing(pool: asyncpg.Pool, fields: dict[str, object]) -> None:
    await set_rule(pool, "bounds.test", {"connections": 5}, None)
    with pytest.raises(msgspec.ValidationError):
        await set_rule(pool, "bounds.test", fields, None)
    [row] = [row for row in await sites_store.rows(pool) if row.name == "bounds.test"]
    assert msgspec.json.decode(row.rule) == {"connections": 5}


async def test_fields_are_set_and_taken_back_one_by_one(pool: asyncpg.Pool) -> None:
    await set_rule(pool, "fields.test", {"connections": 5, "per_minute": 30.0}, "asked by them")
    rule = await set_rule(pool, "fields.test", {"connections": None, "recipients": 10}, None)
    assert rule == SiteRule(per_minute=30.0, recipients=10)
    [row] = [row for row in await sites_store.rows(pool) if row.name == "fields.test"]
    assert row.why == "asked by them"


async def test_a_change_is_known_to_every_process_with_the_next_look(pool: asyncpg.Pool) -> None:
    rules = SiteRules(pool)
    stamps = Stamps(pool, [rules.cache])
    await stamps.check()
    before = await rules.book()
    await set_rule(pool, "live.test", {"connections": 2}, None)
    await stamps.check()
    after = await rules.book()
    assert after is not before
    assert after.limits("mx.live.test", ["mx.live.test"], SETTINGS).connections == 2
    assert await remove_rule(pool, "live.test")
    assert not await remove_rule(pool, "live.test")
    await stamps.check()
    assert (await rules.book()).limits("x", ["mx.live.test"], SETTINGS).connections == SETTINGS.site_connections


async def test_a_rule_of_another_version_is_left_out_and_stops_nobody(pool: asyncpg.Pool) -> None:
    await pool.execute("INSERT INTO site_rules (name, rule) VALUES ('later.test', '{\"warp\": 9}')")
    try:
        assert "later.test" not in {rule.names[0] for rule in await sites_store.operators(pool)}
    finally:
        await pool.execute("DELETE FROM site_rules WHERE name = 'later.test'")
