"""Limits of sites, merged field by field from shipped rules and the operator's. Pure; used by the pacer and `ops
sites`.

A rule sets some fields. Each field comes from the first rule that sets it: a rule for the site itself, then for the
longest name that its most preferred host ends in (the operator's before the shipped ones), then the operator's `*`,
then the settings.
"""

import re
import tomllib
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from engine.base.settings import Settings

EVERYWHERE = "*"
MAX_NAME = 255
MAX_RECIPIENTS = 100  # RFC 5321 4.5.3.1.8: every server takes so many in a transaction; a message has at most 50
_NAME = re.compile(r"\*|(?!\.)[a-z0-9_.-]{1,240}(?:#[0-9a-f]{8})?", re.ASCII)
_HERE = Path(__file__).parent

_Text = Annotated[str, Meta(min_length=3, max_length=200)]
_Seconds = Annotated[float, Meta(ge=1, le=7 * 86_400)]
_Rate = Annotated[float, Meta(gt=0, le=1_000_000)]


class Family(StrEnum):
    """The address families of a mail host to try, and their order."""

    IPV4 = "ipv4"  # IPv4 first
    IPV6 = "ipv6"  # IPv6 first
    IPV4_ONLY = "ipv4-only"
    IPV6_ONLY = "ipv6-only"


class SiteRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A source's values for a site; None leaves a field to wider rules."""

    connections: Annotated[int, Meta(ge=1, le=10_000)] | None = None  # at the same time, over all processes
    messages_per_connection: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    per_second: _Rate | None = None  # transactions begun, over all processes
    per_minute: _Rate | None = None
    per_hour: _Rate | None = None
    recipients: Annotated[int, Meta(ge=1, le=1_000)] | None = None  # per transaction
    family: Family | None = None
    ladder_s: Annotated[tuple[_Seconds, ...], Meta(min_length=1, max_length=40)] | None = None  # retry schedule
    back_off: Annotated[tuple[_Text, ...], Meta(max_length=50)] | None = None  # words in a reply that ask for less mail
    together: bool | None = None  # all MX sets under the rule's name share one window


FIELDS = SiteRule.__struct_fields__


class NamedRule(Struct, frozen=True):
    """A rule with the names of mail hosts that it covers, and its author."""

    names: tuple[str, ...]
    rule: SiteRule
    whose: str  # `operator`, or the provider's title
    why: str = ""
    sources: dict[str, str] = {}


class Limits(Struct, frozen=True, kw_only=True):
    """The merged limits of a site. `key` names its window; `origins` names the rule behind each field."""

    key: str
    connections: int
    messages_per_connection: int
    recipients: int
    family: Family
    ladder_s: tuple[float, ...]
    rates: tuple[tuple[float, float], ...]  # (messages, per so many seconds)
    back_off: tuple[str, ...]
    origins: dict[str, str]

    def asks_to_slow_down(self, reply: str) -> bool:
        """Return True if a reply contains words that the rules list in `back_off`."""
        return bool(self.back_off) and any(words in reply.lower() for words in self.back_off)


class Provider(Struct, frozen=True, forbid_unknown_fields=True):
    """A record of `sites.toml`."""

    title: str
    names: tuple[str, ...]
    rule: SiteRule
    sources: dict[str, str]
    mailbox: str | None = None  # a MailboxProvider (engine.receiving.analytics.mailbox_providers)


class _ShippedSites(Struct, frozen=True, forbid_unknown_fields=True):
    provider: tuple[Provider, ...]


PROVIDERS = msgspec.convert(tomllib.loads((_HERE / "sites.toml").read_text("utf-8")), _ShippedSites).provider
SHIPPED = tuple(NamedRule(one.names, one.rule, one.title, "shipped", one.sources) for one in PROVIDERS)


class RuleBook:
    """An immutable set of rules: the operator's at one moment, and the shipped ones."""

    def __init__(self, operators: Iterable[NamedRule] = (), shipped: Sequence[NamedRule] = SHIPPED) -> None:
        self._by_name: dict[str, list[NamedRule]] = {}
        for rule in (*operators, *shipped):  # the operator's come before the shipped ones
            for name in rule.names:
                self._by_name.setdefault(name, []).append(rule)

    def of(self, site: str, hosts: Sequence[str]) -> list[tuple[str, NamedRule]]:
        """Return (name, rule) of the rules that cover a site, most specific first. `hosts` starts with the most
        preferred one.
        """
        names = [site] if "#" in site else []
        if hosts:
            labels = hosts[0].lower().rstrip(".").split(".")
            names += [".".join(labels[start:]) for start in range(len(labels))]
        found = [(name, rule) for name in dict.fromkeys(names) for rule in self._by_name.get(name, ())]
        found.sort(key=lambda one: one[1].whose != "operator")  # stable: longer names stay before shorter ones
        found.sort(key=lambda one: one[0] != site)
        return found + [(EVERYWHERE, rule) for rule in self._by_name.get(EVERYWHERE, ())]

    def limits(self, site: str, hosts: Sequence[str], settings: Settings) -> Limits:
        """Return the merged limits of a site: the first rule that sets a field decides it; `back_off` lists are
        joined.
        """
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        key, heeded = site, []
        for name, named in self.of(site, hosts):
            for field, value in _fields_set(named.rule):
                if field == "back_off":
                    heeded += [words.lower() for words in value]
                elif field not in values and field == "together" and value:
                    key = _shared_key(named, name, site)
                values.setdefault(field, value)
                origins.setdefault(field, _origin(name, named, field))
        merged = SiteRule(**values)
        return Limits(
            key=key,
            connections=merged.connections or settings.site_connections,
            messages_per_connection=merged.messages_per_connection or settings.messages_per_connection,
            recipients=merged.recipients or MAX_RECIPIENTS,
            family=merged.family or Family.IPV4,
            ladder_s=merged.ladder_s or settings.retry_ladder_s,
            rates=_rates(merged),
            back_off=tuple(dict.fromkeys(heeded)),
            origins=origins,
        )


def checked_name(text: str) -> str:
    """Return the name of an operator's rule as stored; raises ValueError for a name that no site or host can have."""
    name = text.strip().lower().rstrip(".")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{text[:MAX_NAME]!r} is not the name of a mail host or site. Use a name such as mx.example.com, or *."
        )
    return name


def rule_from_json(text: str | bytes) -> SiteRule:
    """Return a stored rule; raises msgspec.ValidationError for invalid JSON or fields."""
    return msgspec.json.decode(text, type=SiteRule, strict=False)


def _fields_set(rule: SiteRule) -> list[tuple[str, Any]]:
    return [(field, value) for field in FIELDS if (value := getattr(rule, field)) is not None]


def _rates(rule: SiteRule) -> tuple[tuple[float, float], ...]:
    each = ((rule.per_second, 1.0), (rule.per_minute, 60.0), (rule.per_hour, 3600.0))
    return tuple((messages, seconds) for messages, seconds in each if messages is not None)


def _shared_key(named: NamedRule, name: str, site: str) -> str:
    """Return the key of the window that all names of a provider share; a `*` rule shares no window."""
    return site if name == EVERYWHERE else f"{named.names[0]}/*"


def _origin(name: str, named: NamedRule, field: str) -> str:
    source = named.sources.get(field) or named.why
    return f"{named.whose}: {name}" + (f" ({source})" if source else "")
