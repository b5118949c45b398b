"""The local DNS responder, asked by dnspython's own resolver over real sockets."""

import asyncio
import contextlib
import gc
import os
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import AsyncIterator
from typing import Any

import dns.asyncresolver
import dns.exception
import dns.flags
import dns.message
import dns.query
import dns.rdatatype
import dns.resolver
import pytest

from ops.local import dns_plain
from ops.local.dns import DnsBehaviour, LoggedQuestion, Responder, local_world
from ops.local.published_records import Published


@pytest.fixture
async def responder() -> AsyncIterator[Responder]:
    async with Responder() as running:
        yield running


def resolver(address: tuple[str, int], lifetime_s: float = 10.0) -> dns.asyncresolver.Resolver:
    made = dns.asyncresolver.Resolver(configure=False)
    made.nameservers = [address[0]]
    made.port = address[1]
    made.timeout = 2.0
    made.lifetime = lifetime_s
    return made


async def ask(responder: Responder, name: str, rdtype: str) -> list[str]:
    answer = await resolver(responder.address).resolve(name, rdtype, raise_on_no_answer=False)
    return sorted(record.to_text() for record in answer)


# -- a zone of one's own -------------------------------------------------------------------------------


async def test_records_are_answered_whatever_the_case_of_the_name(responder: Responder) -> None:
    responder.set("Peer.test", "MX", ["20 b.peer.test.", "10 a.peer.test."])
    responder.set("a.peer.test", "A", ["192.0.2.1", "192.0.2.2"])
    responder.set("a.peer.test", "AAAA", ["2001:db8::1"])
    found = await ask(responder, "pEEr.test", "MX")
    assert [text.lower() for text in found] == ["10 a.peer.test.", "20 b.peer.test."]
    assert await ask(responder, "a.peer.test.", "A") == ["192.0.2.1", "192.0.2.2"]
    assert await ask(responder, "a.peer.test", "AAAA") == ["2001:db8::1"]
    assert responder.questions[0] == LoggedQuestion("peer.test", "MX", "udp")


async def test_no_such_type_is_not_no_such_name(responder: Responder) -> None:
    responder.set("a.peer.test", "A", ["192.0.2.1"])
    assert await ask(responder, "a.peer.test", "MX") == []
    assert await ask(responder, "peer.test", "MX") == []  # nothing there, but something below
    with pytest.raises(dns.resolver.NXDOMAIN):
        await ask(responder, "b.peer.test", "A")


async def test_a_null_mx_is_a_single_dot(responder: Responder) -> None:
    responder.null_mx("peer.test")
    assert await ask(responder, "peer.test", "MX") == ["0 ."]


async def test_aliases_are_followed_and_loops_end(responder: Responder) -> None:
    responder.set("www.peer.test", "CNAME", ["host.peer.test."])
    responder.set("host.peer.test", "A", ["192.0.2.1"])
    assert await ask(responder, "www.peer.test", "A") == ["192.0.2.1"]
    assert await ask(responder, "www.peer.test", "CNAME") == ["host.peer.test."]
    responder.set("x.peer.test", "CNAME", ["y.peer.test."])
    responder.set("y.peer.test", "CNAME", ["x.peer.test."])
    with pytest.raises(dns.exception.DNSException):
        await ask(responder, "x.peer.test", "A")


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (DnsBehaviour(rcode="SERVFAIL"), dns.resolver.NoNameservers),
        (DnsBehaviour(rcode="NXDOMAIN"), dns.resolver.NXDOMAIN),
        (DnsBehaviour(rcode="REFUSED"), dns.resolver.NoNameservers),
        (DnsBehaviour(drop=True), dns.resolver.LifetimeTimeout),
    ],
)
async def test_it_misbehaves_when_told_to_and_only_then(
    responder: Responder, behaviour: DnsBehaviour, error: type[Exception]
) -> None:
    responder.set("peer.test", "A", ["192.0.2.1"])
    responder.set("peer.test", "MX", ["10 peer.test."])
    responder.behave("peer.test", behaviour, "MX")
    with pytest.raises(error):
        await resolver(responder.address, 1.0 if behaviour.drop else 10.0).resolve("peer.test", "MX")
    assert await ask(responder, "peer.test", "A") == ["192.0.2.1"]
    responder.behave("peer.test", None, "MX")
    assert await ask(responder, "peer.test", "MX") == ["10 peer.test."]


async def test_a_delay_holds_one_name_and_no_other(responder: Responder) -> None:
    responder.set("slow.test", "A", ["192.0.2.1"])
    responder.set("quick.test", "A", ["192.0.2.2"])
    responder.behave("slow.test", DnsBehaviour(delay_s=1.0))
    started = time.monotonic()
    slow = asyncio.create_task(ask(responder, "slow.test", "A"))
    await asyncio.sleep(0)
    await ask(responder, "quick.test", "A")
    assert not slow.done()
    assert await slow == ["192.0.2.1"]
    assert time.monotonic() - started >= 1.0


async def test_a_truncated_answer_is_whole_over_tcp(responder: Responder) -> None:
    responder.set("peer.test", "MX", ["10 mx.peer.test."])
    responder.behave("peer.test", DnsBehaviour(truncate=True))
    assert await ask(responder, "peer.test", "MX") == ["10 mx.peer.test."]
    assert [question.transport for question in responder.questions] == ["udp", "tcp"]


async def test_what_does_not_fit_into_udp_is_cut_and_marked(responder: Responder) -> None:
    responder.set("peer.test", "MX", [f"{number} mx{number}.peer.test." for number in range(1_000)])
    assert len(await ask(responder, "peer.test", "MX")) == 1_000
    assert [question.transport for question in responder.questions] == ["udp", "tcp"]


async def test_long_and_odd_texts_come_back_as_they_were_set(responder: Responder) -> None:
    texts = ["v=DKIM1; k=rsa; p=" + "A" * 400, 'with "quotes" and \\', ""]
    for text in texts:
        responder.set("peer.test", "TXT", [text])
        (answer,) = await resolver(responder.address).resolve("peer.test", "TXT")
        assert b"".join(answer.strings).decode() == text


async def test_garbage_is_not_answered_and_harms_nothing(responder: Responder) -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=responder.address)
    for size in (0, 1, 11, 12, 40):
        transport.sendto(os.urandom(size))
    transport.close()
    responder.set("peer.test", "A", ["192.0.2.1"])
    assert await ask(responder, "peer.test", "A") == ["192.0.2.1"]


async def test_a_port_that_is_taken_leaves_nothing_open() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        taken.bind(("127.0.0.1", 0))
        with contextlib.suppress(OSError):
            await Responder().start(port=taken.getsockname()[1])
            pytest.fail("it is taken")
        gc.collect()

    assert [str(one.message) for one in said] == []


# -- the local world -------------------------------------------------------------------------------------


async def nothing(_name: str, _rdtype: str) -> list[str]:
    return []


async def test_locally_every_name_is_served_by_the_sink() -> None:
    async with local_world(nothing) as world:
        for name in ("gmail.com", "a.b.c.example"):
            assert await ask(world, name, "MX") == [f"10 mx.{name}."]
            assert await ask(world, f"mx.{name}", "A") == ["127.0.0.1"]
            assert await ask(world, f"mx.{name}", "AAAA") == []
            assert await ask(world, name, "TXT") == []


async def test_locally_some_names_fail_so_that_one_can_see_it() -> None:
    async with local_world(nothing) as world:
        assert await ask(world, "any.nullmx.test", "MX") == ["0 ."]
        with pytest.raises(dns.resolver.NXDOMAIN):
            await ask(world, "any.nxdomain.test", "MX")
        with pytest.raises(dns.resolver.NoNameservers):
            await ask(world, "servfail.test", "MX")


async def test_locally_the_records_of_a_setup_are_answered_as_soon_as_they_are_asked_for() -> None:
    records: dict[tuple[str, str], list[str]] = {}

    async def published(name: str, rdtype: str) -> list[str]:
        return records.get((name, rdtype), [])

    async with local_world(published) as world:
        assert await ask(world, "wb1._domainkey.acme.test", "TXT") == []
        records["wb1._domainkey.acme.test", "TXT"] = ["v=DKIM1; p=abc"]
        records["bounces.acme.test", "MX"] = ["10 mail.waybill.test."]
        assert await ask(world, "wb1._domainkey.acme.test", "TXT") == ['"v=DKIM1; p=abc"']
        assert await ask(world, "bounces.acme.test", "MX") == ["10 mail.waybill.test."]


async def test_answers_that_never_change_are_kept_under_their_own_id() -> None:
    async with local_world(nothing) as world:
        for _ in range(3):
            query = dns.message.make_query("mx.peer.test", "A")
            response = await asyncio.to_thread(
                dns.query.udp, query, world.address[0], port=world.address[1], timeout=10
            )
            assert response.id == query.id
            assert response.answer[0].to_text().endswith("IN A 127.0.0.1")
            assert response.flags & dns.flags.RA


@pytest.mark.parametrize("name", ["acme.test", "Acme.test", "any.nullmx.test", "a_b.test", "a\\.b.test", "*.acme.test"])
@pytest.mark.parametrize("rdtype", ["MX", "A", "AAAA", "TXT"])
@pytest.mark.parametrize("edns", [False, True])
async def test_a_plain_question_is_answered_over_udp_as_dnspython_answers_it_over_tcp(
    name: str, rdtype: str, *, edns: bool
) -> None:
    query = dns.message.make_query(name, rdtype, use_edns=0 if edns else False)
    async with local_world(nothing) as world:
        place: dict[str, Any] = {"where": world.address[0], "port": world.address[1], "timeout": 10}
        quick = await asyncio.to_thread(dns.query.udp, query, **place)
        slow = await asyncio.to_thread(dns.query.tcp, query, **place)
    assert (quick.id, quick.flags, quick.question, quick.answer) == (slow.id, slow.flags, slow.question, slow.answer)
    assert (quick.edns, [one.ttl for one in quick.answer]) == (slow.edns, [one.ttl for one in slow.answer])
    plainly = rdtype != "TXT" and name in {"acme.test", "Acme.test", "any.nullmx.test", "a_b.test"}
    assert (dns_plain.read(query.to_wire()) is not None) == plainly


async def test_without_a_database_texts_are_unknown_not_absent_and_mail_still_flows() -> None:
    published = Published("postgresql://nobody@127.0.0.1:1/none")
    async with local_world(published) as world:
        for _ in range(2):  # the second one while the database is left alone
            with pytest.raises(dns.resolver.NoNameservers):
                await ask(world, "wb1._domainkey.acme.test", "TXT")
        assert await ask(world, "acme.test", "MX") == ["10 mx.acme.test."]
    await published.close()


async def test_published_records_come_from_the_database(database_url: str) -> None:
    published = Published(database_url)
    assert await published("nothing._domainkey.acme.test", "TXT") == []
    assert published._connection is not None  # asked, not failed
    await published.close()


# -- process -----------------------------------------------------------------------------------------------


async def test_the_process_answers_and_stops_on_sigterm() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WAYBILL_")}
    command = [sys.executable, "-m", "ops.local.dns", "--port", "0", "--sink-port", "2600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stdout is not None
        try:
            ready = running.stdout.readline()
            assert ready.startswith("dns ready on 127.0.0.1:")
            port = int(ready.removeprefix("dns ready on 127.0.0.1:").partition(",")[0])
            answer = await resolver(("127.0.0.1", port)).resolve("acme.test", "MX")
            assert answer[0].to_text() == "10 mx.acme.test."
            running.terminate()
            assert await asyncio.to_thread(running.wait, 5) == 0
        finally:
            running.kill()
