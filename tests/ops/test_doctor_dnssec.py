"""The doctor at name servers that are trusted to validate: one that copies the AD bit is found."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import dns.flags
import dns.message
import dns.rcode
import pytest

from engine.base.settings import HostPort, Settings
from ops.doctor.dnssec import dnssec
from ops.doctor.finding import DoctorFinding

Answer = Callable[[dns.message.Message, dns.message.Message], None]


class Server(asyncio.DatagramProtocol):
    """A name server whose answers one function completes."""

    def __init__(self, complete: Answer) -> None:
        self._complete = complete
        self._out: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: Any) -> None:
        self._out = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        query = dns.message.from_wire(data)
        answer = dns.message.make_response(query)
        self._complete(query, answer)
        assert self._out is not None
        self._out.sendto(answer.to_wire(), addr)


@asynccontextmanager
async def serving(complete: Answer) -> AsyncIterator[HostPort]:
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Server(complete), local_addr=("127.0.0.1", 0)
    )
    try:
        yield HostPort(*transport.get_extra_info("sockname"))
    finally:
        transport.close()


def validates(query: dns.message.Message, answer: dns.message.Message) -> None:
    if query.question[0].name.to_text() == ".":
        answer.flags |= dns.flags.AD
    else:
        answer.set_rcode(dns.rcode.NXDOMAIN)


def echoes(query: dns.message.Message, answer: dns.message.Message) -> None:
    answer.flags |= query.flags & dns.flags.AD


def ignores(query: dns.message.Message, answer: dns.message.Message) -> None:
    answer.flags &= ~dns.flags.AD


def refuses(query: dns.message.Message, answer: dns.message.Message) -> None:
    answer.set_rcode(dns.rcode.REFUSED)


async def found(*servers: HostPort) -> DoctorFinding:
    (one,) = await dnssec(Settings(delivery="live", dnssec_trusted=True, dns_servers=servers))
    assert one.check == "dnssec"
    return one


@pytest.mark.parametrize(
    ("complete", "well", "said"),
    [
        (validates, True, "the root zone is marked authentic, the unsigned home.arpa. is not"),
        (echoes, False, "marks the unsigned home.arpa. as authentic"),
        (ignores, False, "does not validate"),
        (refuses, False, "refuses to answer"),
    ],
)
async def test_a_server_is_judged_by_a_signed_and_an_unsigned_name(complete: Answer, well: bool, said: str) -> None:
    async with serving(complete) as server:
        one = await found(server)

    assert (one.ok, said in one.found) == (well, True), one.found


async def test_one_of_several_servers_that_echoes_is_named() -> None:
    async with serving(validates) as good, serving(echoes) as bad:
        one = await found(good, bad)

    assert not one.ok
    assert one.found.startswith(f"{bad} marks")


async def test_without_trust_nothing_is_asked_and_in_local_mode_it_is_said_why() -> None:
    assert await dnssec(Settings(delivery="live")) == []
    (local,) = await dnssec(Settings(dnssec_trusted=True))
    assert local.ok
    assert "not checked: local mode" in local.found
