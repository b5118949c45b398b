"""Blocklist rules: the names to query, the meaning of answers, and whether a list can be trusted (RFC 5782)."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base.settings import BadSetting, BlocklistZone, load, to_environ
from engine.sending.blocklists.rules import family_of, judge_zone, query_name, read_answer
from engine.sending.blocklists.types import ListAnswer, ListFamily

LIST = "list.test"
LISTED, NOT_LISTED, UNKNOWN = ListAnswer.LISTED, ListAnswer.NOT_LISTED, ListAnswer.UNKNOWN


@pytest.mark.parametrize(
    ("target", "family", "name"),
    [
        ("192.0.2.99", ListFamily.IPV4, "99.2.0.192.list.test"),  # RFC 5782 2.1
        (
            "2001:db8:1:2:3:4:567:89ab",  # RFC 5782 2.4
            ListFamily.IPV6,
            "b.a.9.8.7.6.5.0.4.0.0.0.3.0.0.0.2.0.0.0.1.0.0.0.8.b.d.0.1.0.0.2.list.test",
        ),
        ("::ffff:7f00:2", ListFamily.IPV6, "2.0.0.0.0.0.f.7.f.f.f.f." + "0." * 20 + LIST),
        ("Shop.Example", ListFamily.DOMAIN, "shop.example.list.test"),
    ],
)
def test_targets_become_names_below_the_zone(target: str, family: ListFamily, name: str) -> None:
    assert query_name(target, family, LIST) == name


def test_addresses_have_the_family_of_their_version() -> None:
    assert family_of("192.0.2.1") is ListFamily.IPV4
    assert family_of("2001:db8::1") is ListFamily.IPV6


@pytest.mark.parametrize(
    ("addresses", "meaning"),
    [
        ([], NOT_LISTED),
        (["127.0.0.2"], LISTED),
        (["127.0.0.4", "127.0.0.10"], LISTED),
        (["127.0.1.2"], LISTED),
        (["127.255.254.255"], LISTED),
        (["127.0.0.1"], UNKNOWN),
        (["127.255.255.254"], UNKNOWN),
        (["127.255.255.0"], UNKNOWN),
        (["127.0.0.2", "127.255.255.255"], UNKNOWN),
        (["198.51.100.7"], UNKNOWN),  # a resolver that rewrites NXDOMAIN
        (["128.0.0.2"], UNKNOWN),
    ],
)
def test_only_codes_of_listings_mean_listed(addresses: Sequence[str], meaning: ListAnswer) -> None:
    assert read_answer(addresses) is meaning


@given(st.ip_addresses(v=4).map(str).filter(lambda address: not address.startswith("127.")))
def test_no_address_outside_127_means_listed(address: str) -> None:
    assert read_answer([address]) is UNKNOWN


@pytest.mark.parametrize(
    ("listed", "unlisted", "trusted", "detail"),
    [
        (["127.0.0.2"], [], True, "its test points are right"),
        ([], [], False, "its test point 127.0.0.2 is not listed"),
        (["127.255.255.254"], [], False, "its test point 127.0.0.2 answers 127.255.255.254"),
        (["127.0.0.2"], ["127.0.0.2"], False, "127.0.0.1, which no list contains, answers 127.0.0.2"),
        (["127.0.0.2"], ["198.51.100.7"], False, "127.0.0.1, which no list contains, answers 198.51.100.7"),
        (None, [], False, "no answer from DNS"),
        (["127.0.0.2"], None, False, "no answer from DNS"),
    ],
)
def test_a_list_is_trusted_if_both_test_points_are_right(
    listed: Sequence[str] | None, unlisted: Sequence[str] | None, trusted: bool, detail: str
) -> None:
    found = judge_zone(ListFamily.IPV4, listed, unlisted)

    assert (found.trusted, found.detail) == (trusted, detail)


def test_lists_are_settings_with_an_optional_name() -> None:
    settings = load({"WAYBILL_BLOCKLIST_IP_ZONES": "zen.Spamhaus.org., paid=k3y.zen.list.test"}).settings

    assert settings.blocklist_ip_zones == (
        BlocklistZone("zen.spamhaus.org", "zen.spamhaus.org"),
        BlocklistZone("k3y.zen.list.test", "paid"),
    )
    assert load(to_environ(settings)).settings.blocklist_ip_zones == settings.blocklist_ip_zones


@pytest.mark.parametrize("text", ["list", "-a.test", "a..test", "x=", "=", "one=a.test,one=b.test", f"{'a.' * 95}test"])
def test_a_wrong_list_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadSetting, match=r"WAYBILL_BLOCKLIST_DOMAIN_ZONES is .* zen\.spamhaus\.org"):
        load({"WAYBILL_BLOCKLIST_DOMAIN_ZONES": text})
