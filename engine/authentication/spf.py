"""Evaluate SPF: may this client send mail for this domain? (RFC 7208)

Bounded to 10 terms that query DNS, 2 of them without an answer, 10 names per `mx` and `ptr`, and MAX_SECONDS. Every
failure of DNS is a result, never an exception.
"""

from ipaddress import IPv4Address, IPv6Address
from typing import Final, Literal, TypeVar

from msgspec import Struct, structs

from engine.authentication import spf_macros, spf_record
from engine.authentication.dns import AuthenticationDns, is_domain, is_queryable, printable
from engine.authentication.spf_macros import MacroValues, SpfSyntaxError
from engine.authentication.spf_record import SpfMechanism, SpfRecord, SpfWord
from engine.store.deadlines import within
from engine.store.resolver import Answered, NoData, NxDomain, Records, TemporaryFailure, ascii_domain

IpAddress = IPv4Address | IPv6Address
T = TypeVar("T")

MAX_LOOKUPS: Final = 10  # RFC 7208 4.6.4, also the two below
MAX_VOID_LOOKUPS: Final = 2
MAX_HOSTS: Final = 10
MAX_ADDRESSES: Final = 100  # of one name; the others are ignored, so that a zone of thousands costs nothing
MAX_SECONDS: Final = 20.0
MAX_LOCAL: Final = 128  # characters of a local part that macros use; RFC 5321 4.5.3.1.1 allows 64 octets


class SpfClient(Struct, frozen=True):
    """The SMTP client and its envelope. `mail_from` is "" for the null sender; `receiver` is our host name."""

    ip: IpAddress
    mail_from: str
    helo: str
    receiver: str = "unknown"


class SpfResult(Struct, frozen=True):
    """The result for `domain`; `detail` is one line for people, `explanation` the domain's own text after a fail."""

    result: SpfWord
    domain: str
    detail: str
    explanation: str = ""


class _SpfPermError(Exception):
    """Evaluation ends with permerror; the message says why."""


class _SpfTempError(Exception):
    """Evaluation ends with temperror; the message says why."""


class _Match(Struct, frozen=True):
    """The end of an evaluation: `term` is the mechanism that matched, `explanation` the record's `exp`."""

    result: SpfWord
    domain: str
    term: str = ""
    explanation: str | None = None


async def check_host(
    dns: AuthenticationDns, client: SpfClient, *, at: int, explain: bool = False, max_seconds: float = MAX_SECONDS
) -> SpfResult:
    """Evaluate SPF for MAIL FROM, or for the HELO name if the sender is null (RFC 7208 2.4).

    `at`: Unix time in seconds. `explain`: look up the explanation of a fail.
    """
    local, _, domain = client.mail_from.rpartition("@")
    if not domain:
        local, domain = "", client.helo
    name = _checked_domain(domain)
    if name is None:
        return SpfResult("none", printable(domain), f"{printable(domain) or 'the HELO name'} is not a domain name")
    evaluation = _Evaluation(dns, client, local[:MAX_LOCAL] or "postmaster", name, at)
    try:
        with within(max_seconds):
            return await evaluation.run(explain=explain)
    except TimeoutError:
        return SpfResult("temperror", name, f"no result within {max_seconds:g} s")


def _checked_domain(domain: str) -> str | None:
    """Return the domain in A-labels; None if SPF has no meaning for it (RFC 7208 4.3)."""
    name = ascii_domain(domain) if domain and not domain.startswith("[") else None
    return name if name is not None and "." in name and is_domain(name) else None


class _Evaluation:
    """An evaluation with its counters of look-ups."""

    def __init__(self, dns: AuthenticationDns, client: SpfClient, local: str, domain: str, at: int) -> None:
        mapped = client.ip.ipv4_mapped if isinstance(client.ip, IPv6Address) else None
        self._ip: IpAddress = mapped or client.ip
        self._number = int(self._ip)
        self._dns = dns
        self._domain = domain
        self._kind: Literal["A", "AAAA"] = "A" if self._ip.version == 4 else "AAAA"
        self._names: list[str] | None = None  # of the client, after the first look-up
        self._lookups = 0
        self._voids = 0
        helo = ascii_domain(client.helo) or "unknown"
        self._values = MacroValues(self._ip, local, domain, domain, helo, "unknown", client.receiver, at)

    async def run(self, *, explain: bool) -> SpfResult:
        """Return the result for the domain of the envelope."""
        try:
            match = await self._evaluate(self._domain)
        except _SpfPermError as error:
            return SpfResult("permerror", self._domain, printable(str(error)))
        except _SpfTempError as error:
            return SpfResult("temperror", self._domain, printable(str(error)))
        explanation = await self._explanation(match) if explain and match.result == "fail" else ""
        return SpfResult(match.result, self._domain, self._detail(match), explanation)

    def _detail(self, match: _Match) -> str:
        if match.result == "none":
            return f"{self._domain} has no SPF record"
        where = "" if match.domain == self._domain else f" of {match.domain}"
        term = f"matched {match.term}{where}" if match.term else f"no mechanism{where} matched"
        return printable(f"client {self._ip}: {term}")

    async def _evaluate(self, domain: str) -> _Match:
        record = await self._record(domain)
        if record is None:
            return _Match("none", domain)
        for mechanism in record.mechanisms:
            if await self._matches(mechanism, domain):
                return _Match(mechanism.result, domain, mechanism.text, record.explanation)
        if record.redirect is None:
            return _Match("neutral", domain)
        self._count_lookup()
        target = await self._target(record.redirect, domain)
        if target is None:
            raise _SpfPermError(f"redirect of {domain} leads to an invalid name")
        match = await self._evaluate(target)
        if match.result == "none":
            raise _SpfPermError(f"{domain} redirects to {target}, which has no SPF record")
        return match

    async def _record(self, domain: str) -> SpfRecord | None:
        answer = await self._dns.txt(domain)
        if isinstance(answer, TemporaryFailure):
            raise _SpfTempError(answer.detail)
        found = spf_record.select(answer.values) if isinstance(answer, Records) else []
        if not found:
            return None
        if len(found) > 1:
            raise _SpfPermError(f"{domain} has {len(found)} SPF records")
        try:
            return spf_record.parse(found[0])
        except SpfSyntaxError as error:
            raise _SpfPermError(f"SPF record of {domain}: {error}") from None

    async def _matches(self, mechanism: SpfMechanism, domain: str) -> bool:
        match mechanism.name:
            case "all":
                return True
            case "ip4":
                return self._ip.version == 4 and self._within(mechanism.network, mechanism)
            case "ip6":
                return self._ip.version == 6 and self._within(mechanism.network, mechanism)
        self._count_lookup()
        target = await self._target(mechanism.domain, domain) if mechanism.domain else domain
        if target is None:
            return False
        match mechanism.name:
            case "include":
                return await self._include(target, domain)
            case "a":
                return self._any_within(await self._answered(target, self._kind), mechanism)
            case "mx":
                return await self._mx(target, mechanism)
            case "exists":
                return bool(await self._answered(target, "A"))
        return await self._ptr(target)

    async def _target(self, text: str, domain: str) -> str | None:
        """Expand a domain-spec; None if the result can't be queried, so that the mechanism doesn't match."""
        values = structs.replace(self._values, domain=domain)
        if spf_macros.uses_validated_name(text):
            values = structs.replace(values, validated=await self._validated_name(domain))
        # RFC 8616 4: a macro with a non-ASCII local part matches nothing.
        name = spf_macros.expanded_domain(text, values).lower()
        return name.replace("\\", "\\\\") if is_queryable(name) else None

    async def _include(self, target: str, domain: str) -> bool:
        match = await self._evaluate(target)
        if match.result == "none":
            raise _SpfPermError(f"{domain} includes {target}, which has no SPF record")
        return match.result == "pass"

    async def _mx(self, target: str, mechanism: SpfMechanism) -> bool:
        hosts = self._used(await self._dns.mx(target))
        if len(hosts) > MAX_HOSTS:
            raise _SpfPermError(f"{target} has {len(hosts)} MX records, more than {MAX_HOSTS}")
        for mx in hosts:
            if mx.host:
                answer = await self._dns.addresses(mx.host, self._kind)
                if isinstance(answer, TemporaryFailure):
                    raise _SpfTempError(answer.detail)
                if isinstance(answer, Records) and self._any_within(answer.values, mechanism):
                    return True
        return False

    async def _ptr(self, target: str) -> bool:
        return any(_is_or_below(name, target) for name in await self._client_names())

    async def _client_names(self) -> list[str]:
        """Return the validated names of the client (RFC 7208 5.5); failures of DNS mean that there are none."""
        if self._names is not None:
            return self._names
        self._names = []
        answer = await self._dns.names(str(self._ip))
        published = answer.values[:MAX_HOSTS] if isinstance(answer, Records) else ()
        for name in [text.removesuffix(".").lower() for text in published]:
            found = await self._dns.addresses(name, self._kind)
            if isinstance(found, Records) and any(_is_address(text, self._ip) for text in found.values[:MAX_ADDRESSES]):
                self._names.append(name)
        return self._names

    async def _validated_name(self, domain: str) -> str:
        """Return the value of `%{p}`: the domain itself if validated, else a subdomain, else any name."""
        names = await self._client_names()
        below = [name for name in names if name.endswith(f".{domain}")]
        return domain if domain in names else (below or names or ["unknown"])[0]

    async def _answered(self, name: str, kind: Literal["A", "AAAA"]) -> tuple[str, ...]:
        answer = await self._dns.addresses(name, kind)
        # RFC 7208 4.6.4 limits void look-ups to stop abuse. A host that exists and has no AAAA is ordinary: counting it
        # would fail IPv6 clients of records that list IPv4 hosts before the `ip6:` term. MAX_LOOKUPS bounds these.
        if kind == "AAAA" and isinstance(answer, NoData):
            return ()
        return self._used(answer)

    def _used(self, answer: Answered[T]) -> tuple[T, ...]:
        """Return the records of a term's own look-up, and count it if it is void."""
        if isinstance(answer, TemporaryFailure):
            raise _SpfTempError(answer.detail)
        if isinstance(answer, NoData | NxDomain):
            self._voids += 1
            if self._voids > MAX_VOID_LOOKUPS:
                raise _SpfPermError(f"more than {MAX_VOID_LOOKUPS} look-ups found no records")
            return ()
        return answer.values

    def _count_lookup(self) -> None:
        self._lookups += 1
        if self._lookups > MAX_LOOKUPS:
            raise _SpfPermError(f"the record needs more than {MAX_LOOKUPS} look-ups")

    def _any_within(self, addresses: tuple[str, ...], mechanism: SpfMechanism) -> bool:
        parse = IPv4Address if self._ip.version == 4 else IPv6Address
        return any(self._within(int(parse(text)), mechanism) for text in addresses[:MAX_ADDRESSES])

    def _within(self, network: int, mechanism: SpfMechanism) -> bool:
        host_bits = 32 - mechanism.prefix4 if self._ip.version == 4 else 128 - mechanism.prefix6
        return self._number >> host_bits == network >> host_bits

    async def _explanation(self, match: _Match) -> str:
        """Return the domain's explanation of a fail (RFC 7208 6.2); "" if there is none or it is invalid."""
        if match.explanation is None:
            return ""
        target = await self._target(match.explanation, match.domain)
        answer = None if target is None else await self._dns.txt(target)
        if not isinstance(answer, Records) or len(answer.values) != 1 or not answer.values[0].isascii():
            return ""
        values = structs.replace(self._values, domain=match.domain)
        text = answer.values[0].decode("ascii")
        if spf_macros.uses_validated_name(text):
            values = structs.replace(values, validated=await self._validated_name(match.domain))
        try:
            return spf_macros.expanded_explanation(answer.values[0], values)
        except SpfSyntaxError:
            return ""


def _is_or_below(name: str, domain: str) -> bool:
    return name == domain or name.endswith(f".{domain}")


def _is_address(text: str, ip: IpAddress) -> bool:
    return (IPv4Address(text) if ip.version == 4 else IPv6Address(text)) == ip
