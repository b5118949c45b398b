"""The test suite of RFC 7208, as it is published with pyspf, over a real DNS server on loopback.

`tests/data/spf/` holds the suite, converted from YAML to JSON, with its licence.
"""

import asyncio
from collections.abc import AsyncIterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import dns.name
import msgspec
import pytest

from engine.authentication.spf import SpfClient, SpfResult, check_host
from engine.base.settings import HostPort
from engine.store.resolver import Resolver
from ops.local.dns import DnsBehaviour, Responder
from tests.harness.patience import PATIENCE_S

SUITE: Final[list[dict[str, Any]]] = msgspec.json.decode(
    (Path(__file__).parents[1] / "data" / "spf" / "rfc7208.json").read_bytes()
)
CASES: Final = [pytest.param(scenario, test, id=name) for scenario in SUITE for name, test in scenario["tests"].items()]
AT: Final = 1_795_000_000
TYPES: Final = ("A", "AAAA", "CNAME", "MX", "PTR", "TXT")


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[Responder]:
    async with Responder() as responder:
        yield responder


def test_the_suite_is_complete() -> None:
    assert len(CASES) == 203


@pytest.mark.parametrize(("scenario", "test"), CASES)
async def test_spf_gives_the_results_of_the_suite_of_rfc_7208(
    server: Responder, scenario: dict[str, Any], test: dict[str, Any]
) -> None:
    serve(server, scenario["zonedata"])

    found = await evaluated(server, test)

    assert found.result in test["result"], found
    if test.get("explanation", "DEFAULT") != "DEFAULT":
        assert found.explanation == test["explanation"]


async def evaluated(server: Responder, test: dict[str, Any]) -> SpfResult:
    resolver = Resolver((HostPort(*server.address),), query_timeout_s=1.5, budget_s=PATIENCE_S)
    try:
        client = SpfClient(ip_address(test["host"]), test["mailfrom"], test["helo"])
        return await asyncio.wait_for(check_host(resolver, client, at=AT, explain=True), PATIENCE_S)
    finally:
        await resolver.close()


def serve(server: Responder, zone: dict[str, list[Any]]) -> None:
    """Publish a zone of the suite. A name without TXT publishes its SPF entries as TXT, unless TXT says NONE."""
    server.clear()
    for text, entries in zone.items():
        name = dns.name.from_text(text).to_text()  # with escapes
        records: dict[str, list[str]] = {}
        for kind, value in [next(iter(entry.items())) for entry in entries if entry != "TIMEOUT"]:
            records.setdefault(kind, []).append(written(kind, value))
        published = records.pop("SPF", [])
        if records.get("TXT") == ['"NONE"']:
            del records["TXT"]
        elif published:
            records.setdefault("TXT", published)
        for kind in TYPES:
            if kind in records:
                server.set(name, kind, records[kind])
            elif "TIMEOUT" in entries:
                server.behave(name, DnsBehaviour(rcode="SERVFAIL"), kind)


def written(kind: str, value: Any) -> str:
    """Return a value of the suite in zone file form."""
    if kind in {"TXT", "SPF"}:
        strings = value if isinstance(value, list) else [value]
        return " ".join(f'"{quoted(text)}"' for text in strings)
    if kind == "MX":
        return f"{value[0]} {value[1] or '.'}".removesuffix(".") + "."
    return f"{value}." if kind in {"CNAME", "PTR"} else value


def quoted(text: str) -> str:
    return "".join(
        chr(octet) if 0x20 <= octet < 0x7F and octet not in b'"\\' else f"\\{octet:03d}"
        for octet in text.encode("utf-8")
    )
