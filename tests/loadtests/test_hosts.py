"""`ops hosts` and its drill: hosts in network namespaces are cut off under load and reconnected.

Run with `pytest -m hosts`, as root on Linux; elsewhere they are skipped and say why.
"""

import random
from collections.abc import Iterator

import pytest

from loadtests.drill import hosts
from loadtests.drill.catalogue import DrillOrder
from loadtests.hosts import network, plan

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def _possible() -> Iterator[None]:
    why = hosts.NEED.missing()
    if why is not None:
        pytest.skip(why)
    yield
    assert network.existing_hosts() == []


def test_cutting_a_host_off_loses_no_message_and_it_regains_its_shards() -> None:
    report = hosts.run(DrillOrder(messages=100, rounds=1, rng=random.Random(7)))

    assert report.passed, report.checks
    assert report.sent > 100


def test_hosts_reach_each_other_unless_cut_off() -> None:
    places = [(one.name, one.number) for one in (plan.host("api1"), plan.host(plan.CLIENT))]
    try:
        network.make(places, plan.host(plan.WORLD).address)
        assert network.existing_hosts() == ["api1", plan.CLIENT]
        assert not network.is_cut("api1")
        network.cut("api1")
        assert network.is_cut("api1")
        network.heal("api1")
        assert not network.is_cut("api1")
    finally:
        network.remove_all()
