"""The resolver against a real DNS server on loopback, with valid, invalid and missing answers."""

import asyncio
import select
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import dns.flags
import dns.message
import dns.name
import dns.rrset
import pytest
import uvloop

from engine.base.settings import HostPort, Settings
from engine.store.resolver import (
    MAX_TTL_S,
    MIN_TTL_S,
    NEGATIVE_TTL_S,
    Mx,
    NoData,
    NxDomain,
    Records,
    Resolver,
    TemporaryFailure,
    ascii_domain,
)
from loadtests.ports import reserve_port
from ops.local.dns import DnsBehaviour, Responder
from tests.harness.patience import PATIENCE_S, until


class Clock:
    """Monotonic seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def asking(*servers: HostPort, **options: Any) -> AsyncIterator[Resolver]:
    resolver = Resolver(servers, **{"query_timeout_s": PATIENCE_S, "budget_s": PATIENCE_S} | options)
    try:
        yield resolver
    finally:
        await resolver.close()


def at(zone: Responder) -> HostPort:
    return HostPort(*zone.address)


def asked(zone: Responder, name: str) -> int:
    return sum(question.name == name for question in zone.questions)


async def test_mx_records_come_with_preference_and_plain_names(zone: Responder) -> None:
    zone.set("b.test", "MX", ["20 MX2.b.test.", "10 mx1.b.test."])
    async with asking(at(zone)) as resolver:
        found = await resolver.mx("B.test.")
    assert isinstance(found, Records)
    assert set(found.values) == {Mx(10, "mx1.b.test"), Mx(20, "mx2.b.test")}


async def test_null_mx_has_an_empty_host(zone: Responder) -> None:
    zone.null_mx("b.test")
    async with asking(at(zone)) as resolver:
        found = await resolver.mx("b.test")
    assert isinstance(found, Records)
    assert found.values == (Mx(0, ""),)


async def test_addresses_and_texts(zone: Responder) -> None:
    zone.set("b.test", "A", ["192.0.2.1", "192.0.2.2"])
    zone.set("b.test", "AAAA", ["2001:db8::1"])
    zone.set("b.test", "TXT", ['"v=spf1 " "-all"'])
    async with asking(at(zone)) as resolver:
        four = await resolver.addresses("b.test", "A")
        six = await resolver.addresses("b.test", "AAAA")
        text = await resolver.txt("b.test")
    assert isinstance(four, Records)
    assert isinstance(six, Records)
    assert isinstance(text, Records)
    assert (sorted(four.values), six.values, text.values) == (
        ["192.0.2.1", "192.0.2.2"],
        ("2001:db8::1",),
        (b"v=spf1 -all",),
    )


async def test_missing_name_and_missing_type_are_told_apart(zone: Responder) -> None:
    zone.set("b.test", "A", ["192.0.2.1"])
    async with asking(at(zone)) as resolver:
        assert isinstance(await resolver.mx("b.test"), NoData)
        assert isinstance(await resolver.mx("nowhere.example"), NxDomain)
        assert isinstance(await resolver.mx("a..b"), NxDomain)
        assert isinstance(await resolver.mx("x" * 64 + ".test"), NxDomain)


@pytest.mark.parametrize("rcode", ["SERVFAIL", "REFUSED", "NOTIMP"])
async def test_failing_server_is_a_temporary_failure(zone: Responder, rcode: str) -> None:
    zone.behave("b.test", DnsBehaviour(rcode=rcode))
    async with asking(at(zone)) as resolver:
        found = await resolver.mx("b.test")
    assert isinstance(found, TemporaryFailure)
    assert rcode in found.detail


async def test_silent_server_is_a_temporary_failure_within_the_budget(zone: Responder) -> None:
    zone.behave("b.test", DnsBehaviour(drop=True))
    async with asking(at(zone), query_timeout_s=600.0, budget_s=0.2) as resolver:
        began = time.monotonic()
        found = await resolver.mx("b.test")
        assert time.monotonic() - began < PATIENCE_S
    assert isinstance(found, TemporaryFailure)


async def test_lost_packet_is_asked_again(zone: Responder) -> None:
    zone.set("b.test", "MX", ["10 mx.b.test."])
    zone.behave("b.test", DnsBehaviour(drop=True))
    async with asking(at(zone)) as resolver:
        looking = asyncio.create_task(resolver.mx("b.test"))
        await until(lambda: asked(zone, "b.test") > 0)
        zone.behave("b.test", None)
        assert isinstance(await looking, Records)
    assert asked(zone, "b.test") >= 2


async def test_dead_server_is_passed_over_and_remembered(zone: Responder) -> None:
    zone.set("a.test", "A", ["192.0.2.1"])
    zone.set("b.test", "A", ["192.0.2.1"])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
        mute.bind(("127.0.0.1", 0))
        dead = HostPort("127.0.0.1", mute.getsockname()[1])
        async with asking(dead, at(zone), query_timeout_s=1.0) as resolver:
            assert isinstance(await resolver.addresses("a.test", "A"), Records)
            mute.setblocking(False)
            while select.select([mute], [], [], 0)[0]:
                mute.recv(512)
            assert isinstance(await resolver.addresses("b.test", "A"), Records)
            assert not select.select([mute], [], [], 0)[0], "a dead server was asked again"


async def test_closed_port_fails_at_once() -> None:
    async with asking(HostPort("127.0.0.1", reserve_port()), query_timeout_s=600.0, budget_s=600.0) as resolver:
        began = time.monotonic()
        assert isinstance(await resolver.mx("b.test"), TemporaryFailure)
        assert time.monotonic() - began < PATIENCE_S


async def test_a_question_that_gets_lost_is_sent_again(zone: Responder) -> None:
    zone.set("b.test", "MX", ["10 mx.b.test."])
    zone.behave("b.test", DnsBehaviour(drop=True))
    async with asking(at(zone), query_timeout_s=600.0, budget_s=600.0) as resolver:
        asked = asyncio.create_task(resolver.mx("b.test"))
        async with asyncio.timeout(PATIENCE_S):
            while not zone.questions:
                await asyncio.sleep(0.01)
            zone.behave("b.test", None)
            assert isinstance(await asked, Records)
    assert len(zone.questions) >= 2


async def test_truncated_answer_is_fetched_over_tcp(zone: Responder) -> None:
    zone.set("b.test", "MX", [f"10 mx{n}.b.test." for n in range(1_000)])
    async with asking(at(zone)) as resolver:
        found = await resolver.mx("b.test")
    assert isinstance(found, Records)
    assert len(found.values) == 1_000
    asked = [question.transport for question in zone.questions]
    assert [transport for transport, _ in groupby(asked)] == ["udp", "tcp"]  # over UDP again where the answer took long


async def test_an_answer_of_thousands_of_records_is_not_read(zone: Responder) -> None:
    zone.set("b.test", "TXT", [f"v{n}" for n in range(3_000)])
    async with asking(at(zone)) as resolver:
        found = await resolver.txt("b.test")
    assert isinstance(found, TemporaryFailure)
    assert "TooManyRecords" in found.detail


async def test_alias_is_followed_and_a_loop_of_aliases_is_not(zone: Responder) -> None:
    zone.set("www.b.test", "CNAME", ["b.test."])
    zone.set("b.test", "A", ["192.0.2.1"])
    zone.set("x.test", "CNAME", ["y.test."])
    zone.set("y.test", "CNAME", ["x.test."])
    async with asking(at(zone)) as resolver:
        followed = await resolver.addresses("www.b.test", "A")
        looped = await resolver.addresses("x.test", "A")
    assert isinstance(followed, Records)
    assert isinstance(looped, TemporaryFailure)


async def test_forgeries_and_noise_are_skipped_and_the_ad_bit_is_kept() -> None:
    loop = asyncio.get_running_loop()

    class Forger(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.out = cast("asyncio.DatagramTransport", transport)

        def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
            query = dns.message.from_wire(data)
            answer = dns.message.make_response(query)
            answer.answer.append(dns.rrset.from_text("b.test.", 60, "IN", "A", "203.0.113.66"))
            forged = answer.to_wire()
            self.out.sendto(b"\x00noise", addr)
            self.out.sendto(bytes([forged[0] ^ 1]) + forged[1:], addr)
            answer.answer[0] = dns.rrset.from_text("b.test.", 60, "IN", "A", "192.0.2.1")
            answer.flags |= dns.flags.AD
            self.out.sendto(answer.to_wire(), addr)

    transport, _ = await loop.create_datagram_endpoint(Forger, local_addr=("127.0.0.1", 0))
    port = transport.get_extra_info("sockname")[1]
    async with asking(HostPort("127.0.0.1", port)) as resolver:
        found = await resolver.addresses("b.test", "A")
    transport.close()
    assert isinstance(found, Records)
    assert found.values == ("192.0.2.1",)
    assert found.authentic


async def test_an_answer_in_another_case_is_asked_for_again_over_tcp() -> None:
    """A forger does not know the case of the letters; TCP tells the truth, also of servers that change it."""
    name = "abcdefghijklmnopqrstuvwxyz.b.test"
    loop = asyncio.get_running_loop()

    def answer(wire: bytes, address: str, *, lower: bool) -> bytes:
        response = dns.message.make_response(dns.message.from_wire(wire))
        if lower:
            response.question[0].name = dns.name.from_text(name)
        response.answer.append(dns.rrset.from_text(f"{name}.", 60, "IN", "A", address))
        return response.to_wire()

    class Forger(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.out = cast("asyncio.DatagramTransport", transport)

        def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
            self.out.sendto(answer(data, "203.0.113.66", lower=True), addr)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
        reply = answer(wire, "192.0.2.1", lower=False)
        writer.write(len(reply).to_bytes(2, "big") + reply)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport, _ = await loop.create_datagram_endpoint(Forger, local_addr=("127.0.0.1", port))
    async with asking(HostPort("127.0.0.1", port)) as resolver:
        found = await resolver.addresses(name, "A")
    transport.close()
    server.close()

    assert isinstance(found, Records)
    assert found.values == ("192.0.2.1",)


async def test_callers_at_the_same_time_share_one_question(zone: Responder) -> None:
    zone.set("b.test", "MX", ["10 mx.b.test."])
    zone.behave("b.test", DnsBehaviour(delay_s=0.05))
    async with asking(at(zone)) as resolver:
        found = await asyncio.gather(*(resolver.mx("b.test") for _ in range(100)))
    assert asked(zone, "b.test") == 1
    assert all(isinstance(answer, Records) for answer in found)


async def test_cancelled_caller_leaves_the_answer_to_the_others(zone: Responder) -> None:
    zone.set("b.test", "MX", ["10 mx.b.test."])
    zone.behave("b.test", DnsBehaviour(delay_s=0.05))
    async with asking(at(zone)) as resolver:
        first = asyncio.create_task(resolver.mx("b.test"))
        second = asyncio.create_task(resolver.mx("b.test"))
        await asyncio.sleep(0.01)
        first.cancel()
        assert isinstance(await second, Records)
    assert asked(zone, "b.test") == 1


@pytest.mark.parametrize(
    ("ttl", "kept_s"), [(0, MIN_TTL_S), (60, 60.0), (86_400, MAX_TTL_S)], ids=["zero", "minute", "day"]
)
async def test_answers_are_kept_for_their_ttl_within_bounds(zone: Responder, ttl: int, kept_s: float) -> None:
    zone.set("b.test", "A", ["192.0.2.1"], ttl=ttl)
    clock = Clock()
    async with asking(at(zone), clock=clock) as resolver:
        for moment, count in ((0.0, 1), (kept_s - 0.1, 1), (kept_s, 2)):
            clock.now = 1_000.0 + moment
            await resolver.addresses("b.test", "A")
            assert asked(zone, "b.test") == count


async def test_absence_is_kept_for_half_a_minute_and_the_cache_is_bounded(zone: Responder) -> None:
    clock = Clock()
    async with asking(at(zone), clock=clock, capacity=2) as resolver:
        await resolver.mx("gone.example")
        clock.now += 0.8 * NEGATIVE_TTL_S  # later it would be asked for anew beside the answer
        await resolver.mx("gone.example")
        assert asked(zone, "gone.example") == 1
        await resolver.mx("second.example")
        await resolver.mx("third.example")  # the first goes
        await resolver.mx("gone.example")
        assert asked(zone, "gone.example") == 2


async def test_lookup_by_name_server_name_is_refused() -> None:
    with pytest.raises(ValueError, match="does not appear to be"):
        Resolver([HostPort("dns.example", 53)])
    with pytest.raises(ValueError, match="at least one"):
        Resolver([])


async def test_settings_choose_the_servers() -> None:
    local = Resolver.from_settings(Settings(dns_port=4711))
    assert local._servers == (HostPort("127.0.0.1", 4711),)
    named = Resolver.from_settings(Settings(dns_servers=(HostPort("localhost", 5300),)))
    assert named._servers == (HostPort("127.0.0.1", 5300),)
    if Path("/etc/resolv.conf").exists():
        assert Resolver.from_settings(Settings(delivery="live"))._servers


def test_uvloop_serves_udp_and_tcp() -> None:
    async def main() -> tuple[object, object]:
        async with Responder() as zone:
            zone.set("b.test", "A", ["192.0.2.1"])
            zone.set("big.test", "TXT", ["x" * 200] * 20)
            async with asking(at(zone)) as resolver:
                return await resolver.addresses("b.test", "A"), await resolver.txt("big.test")

    small, big = uvloop.run(main())
    assert isinstance(small, Records)
    assert isinstance(big, Records)


def test_domain_names_take_their_ascii_form() -> None:
    assert ascii_domain("Bücher.example.") == "xn--bcher-kva.example"
    assert ascii_domain("B.test") == "b.test"
    assert [ascii_domain(text) for text in ("", ".", "a..b", ".a", "☃\u200b..x")] == [None] * 5
