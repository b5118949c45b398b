"""Finds the hosts to try for a recipient's domain, in order (RFC 5321 section 5), and caches them by domain."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from hashlib import blake2b
from ipaddress import ip_address
from typing import TypeVar

from msgspec import Struct

from engine.base.clock import monotonic
from engine.base.netaddr import is_public
from engine.base.settings import Settings
from engine.delivery.routes import MailHost, Route, Unroutable
from engine.mail.replies import Answer, Break, BreakKind, Phase, Reply
from engine.mail.simulator import domain_of
from engine.store.deadlines import within
from engine.store.resolver import (
    FAILURE_TTL_S,
    MAX_TTL_S,
    NEGATIVE_TTL_S,
    Answered,
    Mx,
    NoData,
    NxDomain,
    Records,
    Resolver,
    TemporaryFailure,
    ascii_domain,
)
from engine.store.single_flight import SingleFlightCache

MAX_HOSTS = 10  # of a thousand MX records ten suffice; Postfix smtp_mx_address_limit is 5
MAX_ADDRESSES = 8  # per host and family
LOOPBACK = "127.0.0.1"  # where the simulator listens
# After the records expired: mail for a domain in use does not wait for its name servers (RFC 8767 allows days).
STALE_S = 30.0
HOSTS_WAIT_S = 4.0  # for the addresses of all MX hosts together; later ones are left out

T = TypeVar("T")
_Asked = Answered[str] | asyncio.Task[Answered[str]]
_NOTHING = NoData(0.0)


class Router:
    """Routes by domain, cached as long as the records behind them.

    `own_names` are host names of this service if it takes no mail: where one is listed as MX, it and everything not
    more preferred is left out (RFC 5321 5.1). `simulator` is where its own domain goes, before DNS is asked.
    `rng` orders equals: hosts of one preference, addresses of one host.
    """

    def __init__(
        self,
        resolver: Resolver,
        *,
        port: int,
        allow_private: bool = False,
        own_names: Iterable[str] = (),
        simulator: Route | None = None,
        rng: random.Random | None = None,
        capacity: int = 50_000,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._resolver = resolver
        self._port = port
        self._allow_private = allow_private
        self._own_names = frozenset(name.lower() for name in own_names)
        self._simulator = simulator
        self._rng = rng or random.Random()
        self._clock = clock
        self._plans: SingleFlightCache[str, _RoutePlan] = SingleFlightCache(
            self._plan, capacity, clock, _has_failed, STALE_S
        )

    @classmethod
    def from_settings(cls, settings: Settings, resolver: Resolver, *, simulator_port: int = 0) -> "Router":
        """Make the router of a process. Live: the remote port, public hosts only. Local: everything goes to the
        built-in sink's port. `simulator_port` is the process's own; pass none to look up routes only.

        Where the service takes mail itself, its host is a destination like any other: its MX stores mail and relays
        none, so that mail to it can't loop.
        """
        local = settings.delivery == "local"
        return cls(
            resolver,
            port=settings.sink_port if local else settings.smtp_port,
            allow_private=local or settings.allow_private_mx,
            own_names=() if local or settings.mx_workers else own_names(settings),
            simulator=_simulator(settings.mail_host, simulator_port),
        )

    async def route(self, domain: str) -> Route | Unroutable:
        """The hosts for `domain` (A- or U-label), in order of trial; equals are shuffled on every call."""
        if self._simulator is not None and domain.lower() == self._simulator.site:
            return self._simulator
        plan = await self._plans.get(domain)
        if plan.unroutable is not None:
            return plan.unroutable
        if plan.fixed is not None:
            return plan.fixed
        hosts = [
            MailHost(host.name, self._shuffled(host.ipv4) + self._shuffled(host.ipv6), host.authentic, host.canonical)
            for group in plan.groups
            for host in self._shuffled(group)
        ]
        return Route(plan.site, tuple(hosts), self._port, plan.authentic)

    async def close(self) -> None:
        """Cancel look-ups in progress. The caller closes the resolver."""
        await self._plans.close()

    def _shuffled(self, items: tuple[T, ...]) -> tuple[T, ...]:
        if len(items) < 2:
            return items
        return tuple(self._rng.sample(items, len(items)))

    async def _plan(self, domain: str) -> "_RoutePlan":
        name = ascii_domain(domain)
        if name is None or domain.startswith("["):
            return self._refuse("5.1.2", f"{domain[:255]!r} is not a domain name", MAX_TTL_S)
        found = await self._resolver.mx(name)
        match found:
            case TemporaryFailure():
                return self._defer(found.detail)
            case NxDomain():
                return self._refuse("5.1.2", f"The domain {name} does not exist", NEGATIVE_TTL_S)
            case NoData():
                return await self._implicit(name, found.until)
        exchangers = found.values
        if len(exchangers) == 1 and not exchangers[0].host:
            text = f"The domain {name} does not accept mail (null MX)"
            return self._refuse("5.1.10", text, NEGATIVE_TTL_S, code=556)
        chosen = _choose(exchangers, self._own_names)
        if not chosen:
            return self._loops_back(name)
        return await self._reach(name, chosen, found.until, authentic=found.authentic)

    async def _implicit(self, name: str, until: float) -> "_RoutePlan":
        """Use the domain itself as its mail host, with preference 0, because it has no MX (RFC 5321 5.1)."""
        return await self._reach(name, (Mx(0, name),), until, implicit=True)

    async def _reach(
        self, name: str, chosen: Sequence[Mx], until: float, *, implicit: bool = False, authentic: bool = False
    ) -> "_RoutePlan":
        """Look up the addresses of all chosen hosts at once and keep those that can be used."""
        looked_up = await self._addresses([mx.host for mx in chosen])
        hosts: dict[str, _ResolvedHost] = {}
        failure: str | None = None
        refused = False
        for mx in chosen:
            answer = looked_up[mx.host]
            failure = failure or answer.failure
            usable = self._usable(mx.host, answer)
            refused = refused or (usable is None and bool(answer.ipv4 or answer.ipv6))
            if usable is not None:
                hosts[mx.host] = usable
            until = min(until, answer.until)
        if hosts:
            groups = _groups(chosen, hosts)
            # The zone that signs a domain's address also signs that it has no MX.
            authentic = authentic or (implicit and hosts[name].authentic)
            site = _site([mx.host for mx in chosen])
            return _RoutePlan(until, site, groups, authentic=authentic).with_fixed(self._port)
        if failure is not None:
            return self._defer(failure)
        if refused:
            text = f"The mail hosts of {name} have no public address"
        elif implicit:
            return self._refuse("5.1.2", f"The domain {name} has no mail host", NEGATIVE_TTL_S)
        else:
            text = f"None of the mail hosts of {name} has an address"
        return self._refuse("5.4.4", text, NEGATIVE_TTL_S)

    async def _addresses(self, names: Sequence[str]) -> "dict[str, _Addresses]":
        """The addresses of all hosts, looked up at once: no task and no time-out of their own for what others may
        wait for too."""
        asked = {name: self._ask(name) for name in dict.fromkeys(names)}
        tasks = {one for pair in asked.values() for one in pair if isinstance(one, asyncio.Task)}
        if tasks:
            with contextlib.suppress(TimeoutError), within(HOSTS_WAIT_S):
                await asyncio.wait(tasks)
        return {name: self._found(name, *pair) for name, pair in asked.items()}

    def _ask(self, name: str) -> "tuple[_Asked, _Asked]":
        if _literal(name) is not None:
            return _NOTHING, _NOTHING
        return self._resolver.begin_addresses(name, "A"), self._resolver.begin_addresses(name, "AAAA")

    def _found(self, name: str, asked_four: "_Asked", asked_six: "_Asked") -> "_Addresses":
        literal = _literal(name)
        if literal is not None:
            return _Addresses((literal,), (), self._clock() + MAX_TTL_S, None)
        four, six = _answer(asked_four), _answer(asked_six)
        if four is None or six is None:
            text = "the addresses of a mail host are not found"
            return _Addresses((), (), self._clock() + FAILURE_TTL_S, text)
        failure = four.detail if isinstance(four, TemporaryFailure) else None
        if failure is None and isinstance(six, TemporaryFailure):
            failure = six.detail
        found = [answer for answer in (four, six) if isinstance(answer, Records)]
        authentic = bool(found) and all(answer.authentic for answer in found)
        canonical = found[0].canonical if authentic else None
        return _Addresses(_values(four), _values(six), min(four.until, six.until), failure, authentic, canonical)

    def _usable(self, name: str, found: "_Addresses") -> "_ResolvedHost | None":
        if self._allow_private:
            ipv4, ipv6 = found.ipv4, found.ipv6
        elif _literal(name) is not None:  # RFC 5321 5.1 requires a name
            return None
        else:
            ipv4 = tuple(filter(is_public, found.ipv4))
            ipv6 = tuple(filter(is_public, found.ipv6))
        if not ipv4 and not ipv6:
            return None
        return _ResolvedHost(name, ipv4[:MAX_ADDRESSES], ipv6[:MAX_ADDRESSES], found.authentic, found.canonical)

    def _loops_back(self, name: str) -> "_RoutePlan":
        return self._refuse("5.4.6", f"Mail for {name} loops back to this service", NEGATIVE_TTL_S)

    def _refuse(self, status: str, text: str, ttl_s: float, *, code: int = 550) -> "_RoutePlan":
        answer = Answer(Phase.ROUTE, Reply(code, f"{status} {text}", status))
        return _RoutePlan(self._clock() + ttl_s, unroutable=Unroutable(answer))

    def _defer(self, detail: str) -> "_RoutePlan":
        answer = Answer(Phase.ROUTE, Break(BreakKind.DNS, detail))
        return _RoutePlan(self._clock() + FAILURE_TTL_S, unroutable=Unroutable(answer))


def _simulator(mail_host: str, port: int) -> Route:
    """Return the route to the built-in simulator; its domain is a separate site with its own window."""
    name = domain_of(mail_host)
    return Route(name, (MailHost(name, (LOOPBACK,)),), port, built_in=True)


@contextlib.asynccontextmanager
async def opened_router(settings: Settings, resolver: Resolver | None = None) -> AsyncIterator[Router]:
    """Open a router to look up routes only, with `resolver` or with a resolver of its own, and close it."""
    asked = resolver or Resolver.from_settings(settings)
    router = Router.from_settings(settings, asked)
    try:
        yield router
    finally:
        await router.close()
        if resolver is None:
            await asked.close()


async def find_site(resolver: Resolver, domain: str, own_names: frozenset[str]) -> tuple[str, str] | None:
    """Return the most preferred mail host of a domain and the site of its hosts, as a route names it, without looking
    up addresses; None if no host is found."""
    name = None if domain.startswith("[") else ascii_domain(domain)
    found = NxDomain(0.0) if name is None else await resolver.mx(name)
    if name is not None and isinstance(found, NoData):
        return name, name  # RFC 5321 5.1: without an MX the domain itself is its mail host
    chosen = _choose(found.values, own_names) if isinstance(found, Records) else ()
    return (chosen[0].host, _site([mx.host for mx in chosen])) if chosen else None


def own_names(settings: Settings) -> frozenset[str]:
    """Return the names by which this service greets other mail servers."""
    return frozenset({settings.mail_host.lower(), *(one.name for one in settings.source_ips if one.name is not None)})


class _Addresses(Struct, frozen=True):
    ipv4: tuple[str, ...]
    ipv6: tuple[str, ...]
    until: float
    failure: str | None
    authentic: bool = False
    canonical: str | None = None


class _ResolvedHost(Struct, frozen=True):
    name: str
    ipv4: tuple[str, ...]
    ipv6: tuple[str, ...]
    authentic: bool = False
    canonical: str | None = None


class _RoutePlan(Struct, frozen=True):
    """The cached answer for a domain: hosts by preference, or a refusal. `fixed` is the route when nothing is left to
    shuffle, which is the common case."""

    until: float
    site: str = ""
    groups: tuple[tuple[_ResolvedHost, ...], ...] = ()
    unroutable: Unroutable | None = None
    fixed: Route | None = None
    authentic: bool = False

    def with_fixed(self, port: int) -> "_RoutePlan":
        """Return the plan with its route, if there is only one possible order."""
        single = all(len(group) == 1 and len(group[0].ipv4) < 2 and len(group[0].ipv6) < 2 for group in self.groups)
        if not single:
            return self
        hosts = tuple(
            MailHost(host.name, host.ipv4 + host.ipv6, host.authentic, host.canonical)
            for group in self.groups
            for host in group
        )
        return _RoutePlan(self.until, self.site, self.groups, fixed=Route(self.site, hosts, port, self.authentic))


def _has_failed(plan: _RoutePlan) -> bool:
    return plan.unroutable is not None and isinstance(plan.unroutable.answer.outcome, Break)


def _choose(exchangers: Sequence[Mx], own_names: frozenset[str]) -> tuple[Mx, ...]:
    """The hosts worth trying, most preferred first, each once; equals by name, so that the choice among a
    thousand is always the same."""
    listed = sorted((mx for mx in exchangers if mx.host), key=lambda mx: (mx.preference, mx.host))
    own = min((mx.preference for mx in listed if mx.host in own_names), default=None)
    chosen: dict[str, Mx] = {}
    for mx in listed:
        if own is not None and mx.preference >= own:
            break
        chosen.setdefault(mx.host, mx)
        if len(chosen) == MAX_HOSTS:
            break
    return tuple(chosen.values())


def _groups(chosen: Sequence[Mx], hosts: dict[str, _ResolvedHost]) -> tuple[tuple[_ResolvedHost, ...], ...]:
    groups: dict[int, list[_ResolvedHost]] = {}
    for mx in chosen:
        host = hosts.get(mx.host)
        if host is not None:
            groups.setdefault(mx.preference, []).append(host)
    return tuple(tuple(groups[preference]) for preference in sorted(groups))


def _site(names: Sequence[str]) -> str:
    """Return a readable key of a set of hosts: the one name, or their common ending and a digest of them all."""
    distinct = sorted(set(names))
    if len(distinct) == 1:
        return distinct[0]
    digest = blake2b(",".join(distinct).encode(), digest_size=4).hexdigest()
    reversed_labels = [name.split(".")[::-1] for name in distinct]
    common = []
    for labels in zip(*reversed_labels, strict=False):
        if len(set(labels)) > 1:
            break
        common.append(labels[0])
    shared = ".".join(reversed(common)) if len(common) > 1 else distinct[0]
    return f"{shared}#{digest}"


def _values(found: Answered[str]) -> tuple[str, ...]:
    return found.values if isinstance(found, Records) else ()


def _answer(asked: "_Asked") -> Answered[str] | None:
    """Return what a look-up has found, or None while it is under way or after it was cancelled."""
    if not isinstance(asked, asyncio.Task):
        return asked
    return asked.result() if asked.done() and not asked.cancelled() else None


def _literal(name: str) -> str | None:
    """The address that an MX record names where a host name belongs."""
    if ":" not in name and not name[-1:].isdigit() and not name.endswith("]"):
        return None  # nearly all names: avoids the cost of an exception
    try:
        return str(ip_address(name.strip("[]")))
    except ValueError:
        return None
