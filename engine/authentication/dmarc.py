"""Evaluate DMARC by the DNS tree walk (RFC 9989).

`evaluate` needs the domains that SPF and DKIM authenticated. A walk makes at most MAX_QUERIES queries, and at most
MAX_WALKS walks are made for a message. The walk functions are pure except for their fetch.
"""

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from engine.authentication import dmarc_record
from engine.authentication.dmarc_record import DmarcRecord
from engine.authentication.dns import AuthenticationDns, is_queryable, printable
from engine.authentication.results import DmarcPolicy
from engine.store.resolver import NxDomain, Records, TemporaryFailure

DmarcWord = Literal["none", "pass", "fail", "temperror", "permerror"]

MAX_QUERIES: Final = 8  # RFC 9989 4.10
MAX_DETAIL: Final = 500  # characters
MAX_WALKS: Final = 7  # the author, SPF, and five signatures


class DmarcResult(Struct, frozen=True):
    """The result for the author domain; `policy` is the handling that it asks for after a failure."""

    result: DmarcWord
    domain: str
    detail: str
    policy: DmarcPolicy = ""


class AuthenticatedDomains(Struct, frozen=True):
    """The domains that passed, and in `failed` those whose check failed temporarily; "" for an unknown one."""

    spf: str | None
    dkim: tuple[str, ...]
    failed: tuple[str, ...] = ()


class DmarcStep(Struct, frozen=True):
    """A name of a tree walk with its valid record."""

    domain: str
    record: DmarcRecord


class _DnsFailedError(Exception):
    """A query that decides had no usable answer."""


async def evaluate(dns: AuthenticationDns, author: str, passed: AuthenticatedDomains) -> DmarcResult:
    """Return the DMARC result of a message with this author domain (lower-case A-labels)."""
    try:
        return await _evaluated(dns, author, passed)
    except _DnsFailedError as error:
        return DmarcResult("temperror", author, printable(str(error)))


def walk_names(domain: str) -> list[str]:
    """Return the names whose records a walk queries in turn, the domain first (RFC 9989 4.10)."""
    labels = domain.split(".")
    first = 1 if len(labels) < MAX_QUERIES else len(labels) - (MAX_QUERIES - 1)
    return [domain, *[".".join(labels[at:]) for at in range(first, len(labels))]]


def organizational_domain(domain: str, steps: Sequence[DmarcStep]) -> str:
    """Return the organizational domain from the records of a walk that started at `domain` (RFC 9989 4.10.2)."""
    for step in steps:
        if step.record.psd == "n":
            return step.domain
        if step.record.psd == "y" and step.domain != domain:
            return ".".join(domain.split(".")[-step.domain.count(".") - 2 :])
    return steps[-1].domain if steps else domain


async def _evaluated(dns: AuthenticationDns, author: str, passed: AuthenticatedDomains) -> DmarcResult:
    own = await _record(dns, author)
    if own is not None and own.applies and author in {passed.spf, *passed.dkim}:
        return DmarcResult("pass", author, f"aligned with {author}")  # aligned in any mode: no walk needed
    steps = await _walk(dns, author)
    organization = organizational_domain(author, steps)
    source = _policy_source(author, organization, steps)
    if source is None:
        return DmarcResult("none", author, f"{author} has no DMARC record")
    if not source.record.applies:
        return DmarcResult("none", author, f"the DMARC record of {source.domain} has no valid policy")
    aligned = await _aligned(dns, author, organization, source.record, passed)
    if aligned is not None:
        return DmarcResult("pass", author, f"aligned with {aligned}")
    # Only a domain that could align matters: a forger can make the checks of his own domain fail temporarily.
    if any(not domain or is_within(domain, organization) for domain in passed.failed):
        return DmarcResult("temperror", author, "SPF or DKIM failed temporarily")
    policy = await _requested(dns, author, source)
    reason = _not_aligned(author, organization, source.record, passed)
    return DmarcResult("fail", author, printable(f"{source.domain} asks for {policy}: {reason}", MAX_DETAIL), policy)


def _policy_source(author: str, organization: str, steps: Sequence[DmarcStep]) -> DmarcStep | None:
    """Return the record to apply: the author domain's, else the organization's, else the public suffix's."""
    by_domain = {step.domain: step for step in steps}
    suffix = next((step for step in steps if step.record.psd == "y"), None)
    return by_domain.get(author) or by_domain.get(organization) or suffix


async def _aligned(
    dns: AuthenticationDns, author: str, organization: str, record: DmarcRecord, passed: AuthenticatedDomains
) -> str | None:
    """Return the first authenticated domain that aligns with the author domain (RFC 9989 4.4)."""
    candidates = [(domain, record.strict_dkim) for domain in passed.dkim]
    if passed.spf is not None:
        candidates.append((passed.spf, record.strict_spf))
    candidates = list(dict.fromkeys(candidates))[: MAX_WALKS - 1]
    for domain, strict in candidates:
        if domain == author:
            return domain
        if strict or not is_within(domain, organization):
            continue
        if organizational_domain(domain, await _walk(dns, domain)) == organization:
            return domain
    return None


def is_within(domain: str, parent: str) -> bool:
    """Return True if a domain is `parent` or below it."""
    return domain == parent or domain.endswith(f".{parent}")


def _not_aligned(author: str, organization: str, record: DmarcRecord, passed: AuthenticatedDomains) -> str:
    """Return the reasons why no domain that passed counts for the author domain."""
    reasons: list[str] = []
    for domain in dict.fromkeys(passed.dkim):
        why = _difference(domain, author, organization, strict=record.strict_dkim, tag="adkim=s")
        reasons.append(f"the valid signature of {domain} is not aligned, {why}")
    if passed.spf is not None:
        why = _difference(passed.spf, author, organization, strict=record.strict_spf, tag="aspf=s")
        reasons.append(f"SPF passed for {passed.spf}, which is not aligned, {why}")
    return "; ".join(reasons) or "neither SPF nor DKIM passed"


def _difference(domain: str, author: str, organization: str, *, strict: bool, tag: str) -> str:
    if not is_within(domain, organization):
        return f"because it is not within {organization}"
    return f"because {tag} allows {author} alone" if strict else "because it belongs to another organization"


async def _requested(dns: AuthenticationDns, author: str, source: DmarcStep) -> DmarcPolicy:
    below = source.domain != author
    exists = True
    if below and source.record.missing is not None:
        answer = await dns.txt(author)
        if isinstance(answer, TemporaryFailure):
            raise _DnsFailedError(answer.detail)
        exists = not isinstance(answer, NxDomain)  # RFC 8020: NXDOMAIN for any type
    return dmarc_record.requested(source.record, below=below, exists=exists)


async def _walk(dns: AuthenticationDns, domain: str) -> list[DmarcStep]:
    """Return the valid records from `domain` upwards, up to one with psd=y or psd=n. Raises _DnsFailedError."""
    steps = []
    for name in walk_names(domain):
        record = await _record(dns, name)
        if record is not None:
            steps.append(DmarcStep(name, record))
            if record.psd != "u":
                break
    return steps


async def _record(dns: AuthenticationDns, domain: str) -> DmarcRecord | None:
    name = f"_dmarc.{domain}"
    if not is_queryable(name):
        return None
    answer = await dns.txt(name)
    if isinstance(answer, TemporaryFailure):
        raise _DnsFailedError(answer.detail)
    return dmarc_record.select(answer.values) if isinstance(answer, Records) else None
