"""DNS for delivery: asynchronous lookups with cache, budgets and one query per name at a time.

Whatever the world's name servers do is a value (`Records`, `NoData`, `NxDomain`, `TemporaryFailure`);
nothing here raises for it. dnspython builds and reads the packets; the sockets are asyncio's own.
"""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import Generic, Literal, Protocol, TypeVar

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdatatype
import dns.resolver
import idna
from dns.rdtypes.ANY.MX import MX
from dns.rdtypes.ANY.TLSA import TLSA
from dns.rdtypes.ANY.TXT import TXT
from msgspec import Struct

from engine.base.settings import HostPort, Settings

Kind = Literal["MX", "A", "AAAA", "TXT", "TLSA", "PTR"]

MIN_TTL_S = 5.0  # TTL 0 is for rebinding and for load balancers; five seconds of reuse harm neither
MAX_TTL_S = 3600.0  # a wrong record that was mended must not live on for a day
NEGATIVE_TTL_S = 30.0
FAILURE_TTL_S = 5.0  # long enough that a queue full of one domain asks once, not once a message
EDNS_PAYLOAD = 1232  # DNS flag day 2020: avoids IP fragmentation
MAX_CNAME_HOPS = 8
MAX_QUERIES = 256  # open sockets; more wait their turn inside their own budget

T = TypeVar("T")
K = TypeVar("K")


class Mx(Struct, frozen=True):
    """One MX record; `host` is a lower-case A-label name without final dot, "" for the root (RFC 7505)."""

    preference: int
    host: str


class Tlsa(Struct, frozen=True):
    """One TLSA record (RFC 6698 2.1), as it was published; a malformed one has usage 255 and no data."""

    usage: int
    selector: int
    matching: int
    data: bytes


class Records(Struct, Generic[T], frozen=True):
    """At least one record. `until` is monotonic time; `authentic` is the resolver's AD bit, worth as much
    as the resolver and the way to it can be trusted. `canonical` is the name that holds the records, where the
    name asked for is an alias."""

    values: tuple[T, ...]
    until: float
    authentic: bool = False
    canonical: str | None = None


class NoData(Struct, frozen=True):
    """The name exists and has no record of this type."""

    until: float


class NxDomain(Struct, frozen=True):
    """The name does not exist."""

    until: float


class TemporaryFailure(Struct, frozen=True):
    """No usable answer: timeout, SERVFAIL, REFUSED, nonsense. `detail` is one printable sentence."""

    detail: str
    until: float


class Resolver:
    """Lookups through fixed servers, asked in turn; the last one that answered is asked first.

    `query_timeout_s` bounds one question to one server, `budget_s` a whole lookup with all its retries,
    TCP fall-backs and CNAME hops. Use within one event loop and `close` it there. Raises ValueError for a
    server that is not given by address.
    """

    def __init__(
        self,
        servers: Sequence[HostPort],
        *,
        query_timeout_s: float = 3.0,
        budget_s: float = 12.0,  # with 4 s for MX addresses and 4 s for TLS policies: 20 s of DNS a message at most
        capacity: int = 100_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not servers:
            raise ValueError("a resolver needs at least one server")
        self._servers = tuple(_numeric(server) for server in servers)
        self._preferred = 0
        self._query_timeout_s = query_timeout_s
        self._budget_s = budget_s
        self._clock = clock
        self._slots = asyncio.Semaphore(MAX_QUERIES)
        self._mx: Shared[str, Answered[Mx]] = Shared(self._look_up_mx, capacity, clock)
        self._text: Shared[tuple[str, Kind], Answered[str]] = Shared(self._look_up_text, capacity, clock)
        self._txt: Shared[str, Answered[bytes]] = Shared(self._look_up_txt, capacity, clock)
        self._tlsa: Shared[str, Answered[Tlsa]] = Shared(self._look_up_tlsa, capacity, clock)

    @classmethod
    def from_settings(cls, settings: Settings) -> "Resolver":
        """The configured servers; else our own responder (local mode) or those of /etc/resolv.conf."""
        if settings.dns_servers:
            return cls(settings.dns_servers)
        if settings.delivery == "local":
            return cls((HostPort("127.0.0.1", settings.dns_port),))
        return cls(system_servers())

    async def mx(self, name: str) -> "Answered[Mx]":
        """The MX records of `name`, in the order of the answer."""
        return await self._mx.get(_normal(name))

    async def addresses(self, name: str, kind: Literal["A", "AAAA"]) -> "Answered[str]":
        """The IPv4 or IPv6 addresses of `name` as text."""
        return await self._text.get((_normal(name), kind))

    async def names(self, ip: str) -> "Answered[str]":
        """The reverse names of an address (PTR, RFC 1035 3.5), with their final dots."""
        return await self._text.get((ip_address(ip).reverse_pointer, "PTR"))

    async def txt(self, name: str) -> "Answered[bytes]":
        """The TXT records of `name`, the strings of each joined (RFC 7208 3.3)."""
        return await self._txt.get(_normal(name))

    async def tlsa(self, name: str) -> "Answered[Tlsa]":
        """The TLSA records of `name`, which is such as `_25._tcp.mx.example.com` (RFC 6698 3)."""
        return await self._tlsa.get(_normal(name))

    async def close(self) -> None:
        """Cancel the lookups under way; cached answers go with the object."""
        for cache in (self._mx, self._text, self._txt, self._tlsa):
            await cache.close()

    async def _look_up_mx(self, name: str) -> "Answered[Mx]":
        def read(rdata: object) -> Mx:
            assert isinstance(rdata, MX)
            host = rdata.exchange.to_text(omit_final_dot=True).lower()
            return Mx(rdata.preference, "" if host == "." else host)

        return await self._look_up(name, "MX", read)

    async def _look_up_text(self, key: tuple[str, Kind]) -> "Answered[str]":
        return await self._look_up(key[0], key[1], str)

    async def _look_up_txt(self, name: str) -> "Answered[bytes]":
        def read(rdata: object) -> bytes:
            assert isinstance(rdata, TXT)
            return b"".join(rdata.strings)

        return await self._look_up(name, "TXT", read)

    async def _look_up_tlsa(self, name: str) -> "Answered[Tlsa]":
        def read(rdata: object) -> Tlsa:
            assert isinstance(rdata, TLSA)
            return Tlsa(rdata.usage, rdata.selector, rdata.mtype, rdata.cert)

        return await self._look_up(name, "TLSA", read, malformed=_MALFORMED)

    async def _look_up(
        self, name: str, kind: Kind, read: Callable[[object], T], malformed: T | None = None
    ) -> "Answered[T]":
        """Ask, follow what the server did not follow, and read the records; total time is the budget.

        With `malformed`, that value stands for records which can't be read; without it such an answer is no answer.
        """
        try:
            target = first = dns.name.from_text(name)
        except dns.exception.DNSException:
            return NxDomain(self._clock() + NEGATIVE_TTL_S)  # what can't be a name can't exist
        ttl_s = MAX_TTL_S
        authentic = True
        try:
            async with asyncio.timeout(self._budget_s):
                for _ in range(MAX_CNAME_HOPS):
                    response = await self._ask(target, kind, lenient=malformed is not None)
                    if isinstance(response, str):
                        return self._failed(f"{kind} of {name}: {response}")
                    if response.rcode() == dns.rcode.NXDOMAIN:
                        return NxDomain(self._clock() + NEGATIVE_TTL_S)
                    assert isinstance(response, dns.message.QueryMessage)
                    authentic = authentic and bool(response.flags & dns.flags.AD)
                    chain = response.resolve_chaining()
                    ttl_s = min(ttl_s, chain.minimum_ttl)
                    values = tuple(read(rdata) for rdata in chain.answer or ())
                    if malformed is not None and response.errors:
                        values, ttl_s = (*values, malformed), min(ttl_s, NEGATIVE_TTL_S)
                    if values:
                        alias = None if chain.canonical_name == first else _text(chain.canonical_name)
                        return Records(values, self._clock() + max(MIN_TTL_S, ttl_s), authentic, alias)
                    if not chain.cnames:
                        return NoData(self._clock() + NEGATIVE_TTL_S)
                    target = chain.canonical_name
        except TimeoutError:
            return self._failed(f"{kind} of {name}: no answer within {self._budget_s:g} s")
        except dns.exception.DNSException as error:
            return self._failed(f"{kind} of {name}: unusable answer ({type(error).__name__})")
        return self._failed(f"{kind} of {name}: more than {MAX_CNAME_HOPS} aliases")

    def _failed(self, detail: str) -> TemporaryFailure:
        return TemporaryFailure(detail, self._clock() + FAILURE_TTL_S)

    async def _ask(self, target: dns.name.Name, kind: Kind, *, lenient: bool = False) -> dns.message.Message | str:
        """A NOERROR or NXDOMAIN answer, or why there was none; two rounds over the servers."""
        query = dns.message.make_query(target, kind, use_edns=0, payload=EDNS_PAYLOAD)
        query.flags |= dns.flags.AD  # RFC 6840 5.7: tell us whether the data is authentic
        problem = ""
        for attempt in range(2 * len(self._servers)):
            index = (self._preferred + attempt) % len(self._servers)
            server = self._servers[index]
            async with self._slots:
                response = await self._exchange(server, query, lenient=lenient)
            if isinstance(response, str):
                problem = f"{server} {response}"
                continue
            if response.rcode() in {dns.rcode.NOERROR, dns.rcode.NXDOMAIN}:
                self._preferred = index
                return response
            problem = f"{server} answered {dns.rcode.to_text(response.rcode())}"
            if attempt >= len(self._servers) - 1:
                break  # every server has been asked, and this one is alive: it won't know better now
        return problem

    async def _exchange(
        self, server: HostPort, query: dns.message.Message, *, lenient: bool
    ) -> dns.message.Message | str:
        try:
            async with asyncio.timeout(self._query_timeout_s):
                response = await _over_udp(server, query, lenient=lenient)
            if response.flags & dns.flags.TC:
                async with asyncio.timeout(self._query_timeout_s):
                    response = await _over_tcp(server, query, lenient=lenient)
        except TimeoutError:
            return f"did not answer within {self._query_timeout_s:g} s"
        except (OSError, EOFError) as error:
            return f"is not reachable ({type(error).__name__})"
        except dns.exception.DNSException as error:
            return f"answered nonsense ({type(error).__name__})"
        return response


_MALFORMED = Tlsa(255, 255, 255, b"")
Answered = Records[T] | NoData | NxDomain | TemporaryFailure


def system_servers() -> tuple[HostPort, ...]:
    """The name servers of /etc/resolv.conf; 127.0.0.1 when it names none, as resolv.conf(5) says."""
    try:
        found = dns.resolver.Resolver(filename="/etc/resolv.conf")
    except (dns.exception.DNSException, OSError):
        return (HostPort("127.0.0.1", 53),)
    servers = [text for text in found.nameservers if isinstance(text, str)]
    return tuple(HostPort(text, found.port) for text in servers) or (HostPort("127.0.0.1", 53),)


def ascii_domain(domain: str) -> str | None:
    """The A-label form (RFC 5891, with UTS 46 mapping), lower case, no final dot; None if there is none."""
    name = domain.removesuffix(".").lower()
    if name.isascii():
        return name if 0 < len(name) <= 253 and ".." not in name and name[0] != "." else None
    try:
        return idna.encode(name, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        return None


def _numeric(server: HostPort) -> HostPort:
    """A name server is given by address: looking up its name would need a name server."""
    if server.host == "localhost":
        return HostPort("127.0.0.1", server.port)
    ip_address(server.host)
    return server


def _normal(name: str) -> str:
    return name.removesuffix(".").lower()


def _text(name: dns.name.Name) -> str:
    return name.to_text(omit_final_dot=True).lower()


class Dated(Protocol):
    """Something that is good until a moment of the cache's clock."""

    @property
    def until(self) -> float:
        """Monotonic seconds."""


V = TypeVar("V", bound=Dated)


class Shared(Generic[K, V]):
    """A bounded cache in which every caller of a key waits for one and the same computation.

    A caller that is cancelled leaves the computation running for the others; `make` bounds its own time.
    """

    def __init__(self, make: Callable[[K], Awaitable[V]], capacity: int, clock: Callable[[], float]) -> None:
        self._make = make
        self._capacity = capacity
        self._clock = clock
        self._known: dict[K, V] = {}
        self._under_way: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K) -> V:
        """The cached value, or the one just made."""
        value = self._known.get(key)
        if value is not None and self._clock() < value.until:
            return value
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._fill(key))
            self._under_way[key] = task
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel what is under way and wait until it is gone."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _fill(self, key: K) -> V:
        try:
            value = await self._make(key)
        finally:
            self._under_way.pop(key, None)
        self._known.pop(key, None)
        if len(self._known) >= self._capacity:
            del self._known[next(iter(self._known))]  # the oldest entry: first in, first out
        self._known[key] = value
        return value


# --- the wire ------------------------------------------------------------------------------------


def _read(wire: bytes, *, lenient: bool) -> dns.message.Message:
    """A packet as a message; lenient, records that can't be read are left out and counted in its `errors`."""
    return dns.message.from_wire(wire, ignore_trailing=True, continue_on_error=lenient)


async def _over_udp(server: HostPort, query: dns.message.Message, *, lenient: bool) -> dns.message.Message:
    """One question from a fresh socket, so from a fresh port (RFC 5452 9.2).

    Packets that don't answer it are skipped: a forgery must not end the wait for the true answer. A plain
    connected socket costs half of a datagram transport.
    """
    loop = asyncio.get_running_loop()
    with socket.socket(_family(server), socket.SOCK_DGRAM) as sock:
        sock.settimeout(0)
        sock.connect((server.host, server.port))
        sock.send(query.to_wire())
        while True:
            try:
                response = _read(await loop.sock_recv(sock, 65535), lenient=lenient)
            except dns.exception.DNSException:
                continue
            if query.is_response(response):
                return response


def _family(server: HostPort) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in server.host else socket.AF_INET


async def _over_tcp(server: HostPort, query: dns.message.Message, *, lenient: bool) -> dns.message.Message:
    """The same question over TCP (RFC 7766): two octets of length, then the packet, at most 64 KiB."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        wire = query.to_wire()
        writer.write(len(wire).to_bytes(2, "big") + wire)
        size = int.from_bytes(await reader.readexactly(2), "big")
        response = _read(await reader.readexactly(size), lenient=lenient)
    finally:
        writer.close()
    if not query.is_response(response):
        raise dns.query.BadResponse
    return response
