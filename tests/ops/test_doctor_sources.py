"""`ops doctor` reports source addresses without forward-confirmed reverse DNS, and the record to publish."""

from collections.abc import AsyncIterator

import pytest

from ops.doctor import sources as looked_at
from ops.local.dns import DnsBehaviour, Responder
from tests.ops.installation import examined

A, B = "127.0.0.2", "127.0.0.3"
World = tuple[dict[str, str], Responder]


@pytest.fixture
async def live(given: dict[str, str]) -> AsyncIterator[World]:
    """Live mode with two sources whose names are published as they should be."""
    async with Responder() as world:
        world.set("mx.host.test", "A", ["192.0.2.25"])
        world.set("25.2.0.192.in-addr.arpa", "PTR", ["mx.host.test."])
        for ip, name in ((A, "mta-a.host.test"), (B, "mta-b.host.test")):
            world.set(name, "A", [ip])
            world.set(pointer(ip), "PTR", [f"{name}."])
        host, port = world.address
        yield given | {
            "WAYBILL_DELIVERY": "live", "WAYBILL_MAIL_HOST": "mx.host.test", "WAYBILL_DNS_SERVERS": f"{host}:{port}",
            "WAYBILL_SOURCE_IPS": f"{A}=mta-a.host.test,{B}=mta-b.host.test",
        }, world  # fmt: skip


def pointer(ip: str) -> str:
    return ".".join(reversed(ip.split("."))) + ".in-addr.arpa"


async def test_sources_whose_names_confirm_each_other_are_well(live: World) -> None:
    found = await examined(live[0])

    assert found[f"source {A}"].ok
    assert found[f"source {B}"].found == f"EHLO name mta-b.host.test; A of mta-b.host.test ok; PTR of {B} ok"
    assert {question.rdtype for question in live[1].questions} >= {"A", "PTR"}


MISMATCH = f"PTR of {A} mismatch (pool-2.isp.test, which"
POINTER, GREETING, OTHER = pointer(A), "mta-a.host.test", "pool-2.isp.test"
ASK = f"Ask the provider of {A} to publish {pointer(A)} PTR mta-a.host.test."


@pytest.mark.parametrize(
    ("records", "found", "mend"),
    [
        ([(POINTER, "PTR", [])], f"PTR of {A} missing", ASK),
        ([(POINTER, "PTR", [f"{OTHER}."]), (OTHER, "A", [])], f"{MISMATCH} does not resolve back)", ""),
        ([(POINTER, "PTR", [f"{OTHER}."]), (OTHER, "A", ["192.0.2.9"])], f"{MISMATCH} does not resolve back)", ""),
        ([(POINTER, "PTR", [f"{OTHER}."]), (OTHER, "A", [A])], f"{MISMATCH} resolves back)", ""),
        ([(GREETING, "A", [])], f"A of {GREETING} missing", f"Publish {GREETING} A {A}."),
        ([(GREETING, "A", ["192.0.2.9"])], f"A of {GREETING} mismatch (192.0.2.9)", f"Publish {GREETING} A {A}."),
    ],
)
async def test_names_that_do_not_stand_for_the_address_are_found_with_what_to_publish(
    live: World, records: list[tuple[str, str, list[str]]], found: str, mend: str
) -> None:
    for record in records:
        live[1].set(*record)
    source = (await examined(live[0]))[f"source {A}"]

    assert not source.ok
    assert found in source.found
    assert (source.mend or "").startswith(mend)


async def test_a_source_without_a_name_is_judged_by_the_mail_host(live: World) -> None:
    found = (await examined(live[0] | {"WAYBILL_SOURCE_IPS": A}))[f"source {A}"]

    assert "EHLO name mx.host.test" in found.found
    assert "A of mx.host.test mismatch (192.0.2.25)" in found.found
    assert f"PTR of {A} mismatch (mta-a.host.test, which resolves back)" in found.found


async def test_dns_that_does_not_answer_is_no_missing_record(live: World) -> None:
    live[1].behave(pointer(A), DnsBehaviour(rcode="SERVFAIL"))
    found = (await examined(live[0]))[f"source {A}"]

    assert not found.ok
    assert f"PTR of {A} unknown" in found.found
    assert "missing" not in found.found


async def test_an_address_that_this_host_does_not_have_is_found(live: World) -> None:
    found = (await examined(live[0] | {"WAYBILL_SOURCE_IPS": "203.0.113.9=mta-a.host.test"}))["source 203.0.113.9"]

    assert not found.ok
    assert "WAYBILL_SOURCE_IPS" in (found.mend or "")


async def test_behind_translation_the_names_addresses_are_judged(live: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looked_at, "why_not_ours", lambda _ip: None)
    variables = live[0] | {"WAYBILL_SOURCE_IPS": "10.20.30.40=mx.host.test"}
    well = (await examined(variables))["source 10.20.30.40"]
    live[1].set("25.2.0.192.in-addr.arpa", "PTR", [])
    bad = (await examined(variables))["source 10.20.30.40"]

    assert well.ok
    assert "private address" in well.found
    assert (bad.mend or "").startswith("Ask the provider of 192.0.2.25 to publish 25.2.0.192.in-addr.arpa PTR")


async def test_without_sources_what_the_system_would_use_is_judged(live: World) -> None:
    variables = {name: value for name, value in live[0].items() if name != "WAYBILL_SOURCE_IPS"}
    found = [finding for check, finding in (await examined(variables)).items() if check.startswith("source")]

    assert found  # one for each family with a route, or the word that there is none
    assert all("mx.host.test" in one.found or "no route" in one.found for one in found)


async def test_in_local_mode_sources_are_skipped_with_a_word(live: World) -> None:
    found = (await examined(live[0] | {"WAYBILL_DELIVERY": "local"}))["sources"]

    assert found.ok
    assert "local mode" in found.found
