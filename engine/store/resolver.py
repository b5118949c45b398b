"""Look up DNS records for delivery: asynchronous, with a cache, time limits and one query per name at a time.

Everything that name servers do is a value (`Records`, `NoData`, `NxDomain`, `TemporaryFailure`), never an exception.
`dns_wire` parses plain responses, dnspython all others; sockets are asyncio's.
"""

import asyncio
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any, Generic, Literal, TypeVar

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
from dns.rdtypes.ANY.NS import NS
from dns.rdtypes.ANY.TLSA import TLSA
from dns.rdtypes.ANY.TXT import TXT
from msgspec import Struct

from engine.base.clock import monotonic
from engine.base.settings import HostPort, Settings
from engine.store import metrics
from engine.store.deadlines import within
from engine.store.dns_exchange import DnsQuestion, NoName, RecordType, over_tcp, over_udp
from engine.store.dns_wire import PlainAnswer
from engine.store.query_slots import QuerySlots
from engine.store.single_flight import SingleFlightCache

MIN_TTL_S = 5.0  # TTL 0 serves rebinding and load balancers; five seconds of reuse do no harm
MAX_TTL_S = 3600.0  # so that a corrected record takes effect within an hour
NEGATIVE_TTL_S = 30.0
FAILURE_TTL_S = 5.0  # so that a queue full of one domain causes one query, not one per message
MAX_CNAME_HOPS = 8
STRESSED_S = 1.0  # time limit of a query for a name that was never answered, while others wait

T = TypeVar("T")


class Mx(Struct, frozen=True):
    """An MX record; `host` is a lower-case A-label name without final dot, "" for the root (RFC 7505)."""

    preference: int
    host: str


class Tlsa(Struct, frozen=True):
    """A TLSA record (RFC 6698 2.1), as it was published; a malformed one has usage 255 and no data."""

    usage: int
    selector: int
    matching: int
    data: bytes


class Records(Struct, Generic[T], frozen=True):
    """At least one record.

    `until` is monotonic time. `authentic` is the AD bit of the resolver, as trustworthy as the resolver and the network
    path to it. `canonical` is the name that holds the records if the queried name is an alias.
    """

    values: tuple[T, ...]
    until: float
    authentic: bool = False
    canonical: str | None = None


class NoData(Struct, frozen=True):
    """The name exists, but has no record of this type."""

    until: float


class NxDomain(Struct, frozen=True):
    """The name does not exist."""

    until: float


class TemporaryFailure(Struct, frozen=True):
    """No usable response: timeout, SERVFAIL, REFUSED or garbage. `detail` is one printable sentence."""

    detail: str
    until: float


class AnswerContent(Struct, Generic[T], frozen=True):
    """The content of one response; without values, `canonical` is the alias to query next, or the queried name."""

    exists: bool
    authentic: bool
    ttl_s: int
    values: tuple[T, ...]
    canonical: str


class RecordReader(Generic[T]):
    """Functions that convert records to values: those of dnspython by `read`, those of `dns_wire` by `plain`.

    `malformed` is the value for records that can't be parsed; without it, a response with such records is unusable.
    """

    def __init__(
        self, read: Callable[[object], T], plain: Callable[[Any], T] | None = None, *, malformed: T | None = None
    ) -> None:
        self._read = read
        self._plain = plain
        self.malformed = malformed

    def of(self, answer: PlainAnswer | dns.message.Message, asked: str) -> AnswerContent[T]:
        """Return the content of a response for the queried name. Raises DNSException for an invalid response."""
        if isinstance(answer, PlainAnswer):
            assert self._plain is not None
            return AnswerContent(
                answer.exists, answer.authentic, answer.ttl_s, tuple(map(self._plain, answer.values)), asked
            )
        authentic = bool(answer.flags & dns.flags.AD)
        if answer.rcode() == dns.rcode.NXDOMAIN:
            return AnswerContent(exists=False, authentic=authentic, ttl_s=0, values=(), canonical=asked)
        assert isinstance(answer, dns.message.QueryMessage)
        chain = answer.resolve_chaining()
        ttl_s = chain.minimum_ttl
        values = tuple(self._read(rdata) for rdata in chain.answer or ())
        if self.malformed is not None and answer.errors:
            values, ttl_s = (*values, self.malformed), min(ttl_s, int(NEGATIVE_TTL_S))
        canonical = _text(chain.canonical_name) if chain.cnames else asked
        return AnswerContent(exists=True, authentic=authentic, ttl_s=ttl_s, values=values, canonical=canonical)


class Resolver:
    """A caching resolver with fixed servers, tried in turn; the last one that responded is tried first.

    `query_timeout_s` limits one query to one server, `budget_s` a look-up with all its retries, TCP fall-backs and
    CNAME hops. Used within one event loop, which must `close` it. Raises ValueError for a server that is not given by
    address.
    """

    def __init__(
        self,
        servers: Sequence[HostPort],
        *,
        query_timeout_s: float = 3.0,
        budget_s: float = 12.0,  # with 4 s for MX addresses and 4 s for TLS policies: 20 s of DNS a message at most
        capacity: int = 100_000,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if not servers:
            raise ValueError("a resolver needs at least one server")
        self._servers = tuple(_numeric(server) for server in servers)
        self._preferred = 0
        self._query_timeout_s = query_timeout_s
        self._budget_s = budget_s
        self._clock = clock
        self._slots = QuerySlots()
        self._answered: dict[str, None] = {}  # recently answered names
        self._capacity = capacity
        self._mx: SingleFlightCache[str, Answered[Mx]] = SingleFlightCache(
            self._look_up_mx, capacity, clock, _has_failed
        )
        self._text: SingleFlightCache[tuple[str, RecordType], Answered[str]] = SingleFlightCache(
            self._look_up_text, capacity, clock, _has_failed
        )
        self._txt: SingleFlightCache[str, Answered[bytes]] = SingleFlightCache(
            self._look_up_txt, capacity, clock, _has_failed
        )
        self._ns: SingleFlightCache[str, Answered[str]] = SingleFlightCache(
            self._look_up_ns, capacity, clock, _has_failed
        )
        self._tlsa: SingleFlightCache[str, Answered[Tlsa]] = SingleFlightCache(
            self._look_up_tlsa, capacity, clock, _has_failed
        )

    @classmethod
    def from_settings(cls, settings: Settings) -> "Resolver":
        """Create a resolver with the configured servers; else with our own responder (local mode) or those of
        /etc/resolv.conf.
        """
        if settings.dns_servers:
            return cls(settings.dns_servers)
        if settings.delivery == "local":
            return cls((HostPort("127.0.0.1", settings.dns_port),))
        return cls(system_servers())

    async def mx(self, name: str) -> "Answered[Mx]":
        """Return the MX records of `name`, in the order of the response."""
        return await self._mx.get(_normal(name))

    async def addresses(self, name: str, kind: Literal["A", "AAAA"]) -> "Answered[str]":
        """Return the IPv4 or IPv6 addresses of `name` as text."""
        return await self._text.get((_normal(name), kind))

    def begin_addresses(self, name: str, kind: Literal["A", "AAAA"]) -> "Answered[str] | asyncio.Task[Answered[str]]":
        """Return cached addresses at once, else the running look-up, which callers share and must not cancel."""
        return self._text.begin((_normal(name), kind))

    async def names(self, ip: str) -> "Answered[str]":
        """Return the reverse names of an address (PTR, RFC 1035 3.5), with their final dots."""
        return await self._text.get((ip_address(ip).reverse_pointer, "PTR"))

    async def ns(self, name: str) -> "Answered[str]":
        """Return the name servers of `name` in lower case, without final dots."""
        return await self._ns.get(_normal(name))

    async def txt(self, name: str) -> "Answered[bytes]":
        """Return the TXT records of `name`, the strings of each joined (RFC 7208 3.3)."""
        return await self._txt.get(_normal(name))

    def begin_txt(self, name: str) -> "Answered[bytes] | asyncio.Task[Answered[bytes]]":
        """Return cached TXT records at once, else the running look-up, which callers share and must not cancel."""
        return self._txt.begin(_normal(name))

    async def tlsa(self, name: str) -> "Answered[Tlsa]":
        """Return the TLSA records of `name`, such as `_25._tcp.mx.example.com` (RFC 6698 3)."""
        return await self._tlsa.get(_normal(name))

    async def close(self) -> None:
        """Cancel the running look-ups."""
        for cache in (self._mx, self._text, self._ns, self._txt, self._tlsa):
            await cache.close()

    async def _look_up_mx(self, name: str) -> "Answered[Mx]":
        def read(rdata: object) -> Mx:
            assert isinstance(rdata, MX)
            host = rdata.exchange.to_text(omit_final_dot=True).lower()
            return Mx(rdata.preference, "" if host == "." else host)

        return await self._look_up(name, "MX", RecordReader(read, lambda plain: Mx(*plain)))

    async def _look_up_text(self, key: tuple[str, RecordType]) -> "Answered[str]":
        return await self._look_up(key[0], key[1], RecordReader(str, str))

    async def _look_up_ns(self, name: str) -> "Answered[str]":
        def read(rdata: object) -> str:
            assert isinstance(rdata, NS)
            return _text(rdata.target)

        return await self._look_up(name, "NS", RecordReader(read))

    async def _look_up_txt(self, name: str) -> "Answered[bytes]":
        def read(rdata: object) -> bytes:
            assert isinstance(rdata, TXT)
            return b"".join(rdata.strings)

        return await self._look_up(name, "TXT", RecordReader(read))

    async def _look_up_tlsa(self, name: str) -> "Answered[Tlsa]":
        def read(rdata: object) -> Tlsa:
            assert isinstance(rdata, TLSA)
            return Tlsa(rdata.usage, rdata.selector, rdata.mtype, rdata.cert)

        return await self._look_up(name, "TLSA", RecordReader(read, malformed=_MALFORMED))

    async def _look_up(self, name: str, kind: RecordType, reading: RecordReader[T]) -> "Answered[T]":
        """Query, follow aliases that the server did not follow, and read the records, all within the time limit."""
        target, ttl_s, authentic = name, int(MAX_TTL_S), True
        try:
            with within(self._budget_s):
                for _ in range(MAX_CNAME_HOPS):
                    answer = await self._ask(name, target, kind, lenient=reading.malformed is not None)
                    if isinstance(answer, str):
                        return self._failed(f"{kind} of {name}: {answer}")
                    found = reading.of(answer, target)
                    if not found.exists:
                        return NxDomain(self._clock() + NEGATIVE_TTL_S)
                    authentic = authentic and found.authentic
                    ttl_s = min(ttl_s, found.ttl_s)
                    if found.values:
                        alias = None if found.canonical == name else found.canonical
                        return Records(found.values, self._clock() + max(MIN_TTL_S, ttl_s), authentic, alias)
                    if found.canonical == target:
                        return NoData(self._clock() + NEGATIVE_TTL_S)
                    target = found.canonical
        except TimeoutError:
            return self._failed(f"{kind} of {name}: no answer within {self._budget_s:g} s")
        except NoName:
            return NxDomain(self._clock() + NEGATIVE_TTL_S)  # an invalid name can't exist
        except dns.exception.DNSException as error:
            return self._failed(f"{kind} of {name}: unusable answer ({type(error).__name__})")
        return self._failed(f"{kind} of {name}: more than {MAX_CNAME_HOPS} aliases")

    def _failed(self, detail: str) -> TemporaryFailure:
        return TemporaryFailure(detail, self._clock() + FAILURE_TTL_S)

    async def _ask(
        self, name: str, target: str, kind: RecordType, *, lenient: bool = False
    ) -> PlainAnswer | dns.message.Message | str:
        """Return a NOERROR or NXDOMAIN response for `target`, or the reason why there is none, after up to two rounds
        over the servers. `name` is the name of the look-up. Raises NoName.
        """
        question = DnsQuestion.of(target, kind)
        problem = ""
        for attempt in range(2 * len(self._servers)):
            index = (self._preferred + attempt) % len(self._servers)
            server = self._servers[index]
            known = name in self._answered
            await self._slots.acquire(known=known)
            try:
                timeout_s = self._query_timeout_s
                if not known and self._slots.is_crowded:
                    timeout_s = min(STRESSED_S, timeout_s)
                metrics.DNS_QUESTIONS.inc()
                response = await self._exchange(server, question, timeout_s, lenient=lenient)
            finally:
                self._slots.release()
            if isinstance(response, str):
                problem = f"{server} {response}"
                continue
            if isinstance(response, PlainAnswer) or response.rcode() in {dns.rcode.NOERROR, dns.rcode.NXDOMAIN}:
                self._preferred = index
                self._remember(name)
                return response
            problem = f"{server} answered {dns.rcode.to_text(response.rcode())}"
            if attempt >= len(self._servers) - 1:
                break  # every server was tried, and this one is alive: a retry would not help
        self._answered.pop(name, None)
        return problem

    def _remember(self, name: str) -> None:
        if name not in self._answered and len(self._answered) >= self._capacity:
            del self._answered[next(iter(self._answered))]
        self._answered[name] = None

    async def _exchange(
        self, server: HostPort, question: "DnsQuestion", timeout_s: float, *, lenient: bool
    ) -> PlainAnswer | dns.message.Message | str:
        try:
            with within(timeout_s):
                response = await over_udp(server, question, lenient=lenient)
            if isinstance(response, dns.message.Message) and response.flags & dns.flags.TC:
                with within(timeout_s):
                    return await over_tcp(server, question, lenient=lenient)
        except TimeoutError:
            return f"did not answer within {timeout_s:g} s"
        except (OSError, EOFError) as error:
            return f"is not reachable ({type(error).__name__})"
        except dns.exception.DNSException as error:
            return f"sent an unusable response ({type(error).__name__})"
        return response


_MALFORMED = Tlsa(255, 255, 255, b"")
Answered = Records[T] | NoData | NxDomain | TemporaryFailure


def _has_failed(answer: object) -> bool:
    return isinstance(answer, TemporaryFailure)


def system_servers() -> tuple[HostPort, ...]:
    """Return the name servers of /etc/resolv.conf; 127.0.0.1 if it names none (resolv.conf(5))."""
    try:
        found = dns.resolver.Resolver(filename="/etc/resolv.conf")
    except (dns.exception.DNSException, OSError):
        return (HostPort("127.0.0.1", 53),)
    servers = [text for text in found.nameservers if isinstance(text, str)]
    return tuple(HostPort(text, found.port) for text in servers) or (HostPort("127.0.0.1", 53),)


def ascii_domain(domain: str) -> str | None:
    """Return the A-label form (RFC 5891, with UTS 46 mapping) in lower case without final dot; None if invalid."""
    name = domain.removesuffix(".").lower()
    if name.isascii():
        return name if 0 < len(name) <= 253 and ".." not in name and name[0] != "." else None
    try:
        return idna.encode(name, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        return None


def _numeric(server: HostPort) -> HostPort:
    """Return a name server by address. Raises ValueError for a name, whose look-up would need a name server."""
    if server.host == "localhost":
        return HostPort("127.0.0.1", server.port)
    ip_address(server.host)
    return server


def _normal(name: str) -> str:
    return name.removesuffix(".").lower()


def _text(name: dns.name.Name) -> str:
    return name.to_text(omit_final_dot=True).lower()
