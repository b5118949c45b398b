"""Decides what TLS a connection to each host of a route must have: by DANE, MTA-STS and the message's own wish.

DANE goes before MTA-STS (RFC 8461 2), and a host without either gets opportunistic TLS. Where an answer is missing that
could hold a policy, the host is left alone and the mail waits: an attacker who can make look-ups fail must not gain
plaintext by it.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from hashlib import blake2b

from msgspec import Struct

from engine.base.clock import monotonic
from engine.delivery.routes import Route
from engine.store.resolver import (
    FAILURE_TTL_S,
    MAX_TTL_S,
    Answered,
    NoData,
    NxDomain,
    Records,
    Resolver,
    TemporaryFailure,
    Tlsa,
    ascii_domain,
)
from engine.store.single_flight import SingleFlightCache
from mta.outbound.tls.mta_sts import StsMode, StsPolicy
from mta.outbound.tls.mta_sts_cache import EffectivePolicy, StsPolicies
from mta.outbound.tls.report_counts import PolicyType
from mta.smtp.client.dane import TRUST_ANCHOR, DanePolicy, usable
from mta.smtp.client.tls import TlsMode
from mta.smtp.client.tls_failures import TlsFailure, TlsFailureType

ASKED = "minTls"
LOOK_UP_S = 4.0  # for the TLSA records of all hosts, and for the TXT record beside them
_CAPACITY = 20_000


class MinTls(StrEnum):
    """The least TLS that a message asks for; a domain's own policy may ask for more."""

    NONE = "none"  # the message matters more than its secrecy: policies are not enforced (as RFC 8689 5 has it)
    OPPORTUNISTIC = "opportunistic"
    VERIFIED = "verified"  # the server proves its name, or the message waits


class TlsDemand(Struct, frozen=True):
    """The transport security that connections to one host need, and who demands it.

    `refused`: the host is not to be tried, and why. `noted`: it is tried, and every session counts as this failure.
    `counted`: the policy under which sessions are reported. `tested`: a certificate that fails is counted, no more.
    """

    mode: TlsMode = TlsMode.OPPORTUNISTIC
    whose: str = ""
    counted: PolicyType | None = None
    dane: DanePolicy | None = None
    tested: bool = False
    refused: TlsFailure | None = None
    noted: TlsFailure | None = None


_OPPORTUNISTIC = TlsDemand()
_UNKNOWN = TlsDemand(
    TlsMode.VERIFIED,
    "",
    refused=TlsFailure(TlsFailureType.VALIDATION_FAILURE, "the TLS policy for this server is not known yet"),
)


class TlsPolicy(Struct, frozen=True):
    """The demands on the hosts of one route. Connections are shared among domains whose `key` is the same."""

    key: str
    until: float  # monotonic
    demands: dict[str, TlsDemand]

    def of(self, host: str) -> TlsDemand:
        """Return the demand on a host of the route; without any policy, opportunistic TLS."""
        if not self.demands:
            return _OPPORTUNISTIC
        return self.demands.get(host, _UNKNOWN)


WITHOUT = TlsPolicy("", math.inf, {})


class _MailServer(Struct, frozen=True, order=True):
    name: str
    authentic: bool
    canonical: str | None


class _PolicyQuestion(Struct, frozen=True):
    """The inputs that a policy depends on; its cache key."""

    domain: str
    min_tls: MinTls
    servers: tuple[_MailServer, ...]
    port: int
    authentic: bool


class TlsPolicies:
    """Policies by domain and route, cached as long as the records behind them."""

    def __init__(
        self,
        resolver: Resolver,
        sts: StsPolicies | None,
        *,
        dnssec_trusted: bool,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Look at MTA-STS only with `sts`, and at DANE only where the resolver's AD bit can be trusted."""
        self._resolver = resolver
        self._sts = sts
        self._dnssec_trusted = dnssec_trusted
        self._clock = clock
        self._known: SingleFlightCache[_PolicyQuestion, TlsPolicy] = SingleFlightCache(
            self._find, _CAPACITY, clock, _is_unknown
        )

    async def of(self, domain: str, route: Route, min_tls: MinTls = MinTls.OPPORTUNISTIC) -> TlsPolicy:
        """Return the policy for mail to `domain` (A- or U-labels) over `route`. Raises DatabaseUnavailable."""
        name = ascii_domain(domain)
        if min_tls is MinTls.NONE or name is None:
            return WITHOUT
        servers = tuple(sorted(_MailServer(host.name, host.authentic, host.canonical) for host in route.hosts))
        return await self._known.get(_PolicyQuestion(name, min_tls, servers, route.port, route.authentic))

    async def close(self) -> None:
        """Cancel the look-ups under way."""
        await self._known.close()

    async def _find(self, question: _PolicyQuestion) -> TlsPolicy:
        held, signed = await asyncio.gather(self._held(question.domain), self._signed(question))
        until = held.until
        demands: dict[str, TlsDemand] = {}
        for server, (demand, good_until) in zip(question.servers, signed, strict=True):
            until = min(until, good_until)
            chosen = demand or by_sts(held.policy, server.name)
            demands[server.name] = at_least_verified(chosen) if question.min_tls is MinTls.VERIFIED else chosen
        if all(demand == _OPPORTUNISTIC for demand in demands.values()):
            return TlsPolicy("", until, {})
        return TlsPolicy(_key(demands, question.domain), until, demands)

    async def _held(self, domain: str) -> EffectivePolicy:
        return EffectivePolicy(None, self._clock() + MAX_TTL_S) if self._sts is None else await self._sts.of(domain)

    async def _signed(self, question: _PolicyQuestion) -> Sequence[tuple[TlsDemand | None, float]]:
        """Return for each host the demand of its TLSA records, None without any, and until when that is known."""
        if not (self._dnssec_trusted and question.authentic):
            # RFC 7672 2.2.1: unsigned MX records may be forged, so the TLSA records of their hosts prove nothing.
            return [(None, math.inf)] * len(question.servers)
        return await asyncio.gather(*(self._by_dane(question, server) for server in question.servers))

    async def _by_dane(self, question: _PolicyQuestion, server: "_MailServer") -> tuple[TlsDemand | None, float]:
        """Return the demand of a host's TLSA records: first of the name behind an alias, then of the name in the MX
        record (RFC 7672 2.2.2 and 2.2.3)."""
        if not server.authentic:
            # A server in an unsigned zone: some name servers answer no TLSA question there, so none is asked.
            return None, math.inf
        until = math.inf
        for base in dict.fromkeys(name for name in (server.canonical, server.name) if name):
            found = await self._tlsa(f"_{question.port}._tcp.{base}")
            until = min(until, found.until)
            match found:
                case TemporaryFailure():
                    fault = TlsFailure(TlsFailureType.DNSSEC_INVALID, found.detail)
                    return TlsDemand(TlsMode.DANE, "DANE", "tlsa", refused=fault), until
                case Records() if found.authentic:
                    return by_dane(found, base, question.domain), until
                case Records() | NoData() | NxDomain():
                    continue
        return None, until

    async def _tlsa(self, name: str) -> Answered[Tlsa]:
        try:
            async with asyncio.timeout(LOOK_UP_S):
                return await self._resolver.tlsa(name)
        except TimeoutError:  # the look-up goes on, and the next try finds its answer
            return TemporaryFailure(f"TLSA of {name}: no answer within {LOOK_UP_S:g} s", self._clock() + FAILURE_TTL_S)


def _is_unknown(policy: TlsPolicy) -> bool:
    """Return True for a policy that keeps mail from a host because a look-up failed."""
    return any(demand.refused is not None for demand in policy.demands.values())


def by_dane(found: Records[Tlsa], base: str, domain: str) -> TlsDemand:
    """Return the demand of authentic TLSA records of a host (RFC 7672 2.2 and 3)."""
    records = usable(found.values)
    if records:
        names = tuple(dict.fromkeys((base, domain)))
        return TlsDemand(TlsMode.DANE, "DANE", "tlsa", DanePolicy(base, names, records))
    fault = TlsFailure(TlsFailureType.TLSA_INVALID, "none of the TLSA records can be used")
    return TlsDemand(TlsMode.ENCRYPTED, "DANE", "tlsa", noted=fault)


def by_sts(policy: StsPolicy | None, host: str) -> TlsDemand:
    """Return the demand of a domain's MTA-STS policy on one of its hosts (RFC 8461 5)."""
    if policy is None or policy.mode is StsMode.NONE:
        return _OPPORTUNISTIC
    stranger = None
    if not policy.allows(host):
        stranger = TlsFailure(
            TlsFailureType.VALIDATION_FAILURE, "not among the mail servers that the MTA-STS policy names"
        )
    if policy.mode is StsMode.TESTING:
        return TlsDemand(TlsMode.OPPORTUNISTIC, "MTA-STS testing", "sts", tested=True, noted=stranger)
    return TlsDemand(TlsMode.VERIFIED, "MTA-STS", "sts", refused=stranger)


def at_least_verified(demand: TlsDemand) -> TlsDemand:
    """Return the demand raised to a server that proves its name."""
    if demand.refused is not None or demand.mode in (TlsMode.VERIFIED, TlsMode.DANE):
        return demand
    return TlsDemand(TlsMode.VERIFIED, ASKED, demand.counted, tested=demand.tested, noted=demand.noted)


def _key(demands: dict[str, TlsDemand], domain: str) -> str:
    """Return the same text for the same demands on the same hosts: `+verified`, or a digest where hosts differ.

    The records of DANE are left out: they belong to the hosts, so all domains on them have the same. But a certificate
    from a trust anchor may be for the recipient's domain, and then it is valid for that domain alone.
    """
    held = sorted((host, _label(demand, domain)) for host, demand in demands.items())
    labels = {label for _, label in held}
    if len(labels) == 1:
        return f"+{labels.pop()}"
    return "+" + blake2b(repr(held).encode(), digest_size=6).hexdigest()


def _label(demand: TlsDemand, domain: str) -> str:
    if demand.refused is not None:
        return f"{demand.mode.value}-refused"
    if demand.dane is not None and any(one.usage == TRUST_ANCHOR for one in demand.dane.records):
        return f"dane:{domain}"
    if demand.mode is TlsMode.OPPORTUNISTIC and demand.tested:
        return "testing"
    return "verified-asked" if demand.whose == ASKED else demand.mode.value
