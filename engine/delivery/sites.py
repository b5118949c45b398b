"""How much a site is asked to take: rules by mail hosts' names, shipped and the operator's, merged field by field.

Pure. A rule says what it knows and leaves the rest to wider ones: the site itself, then the longest name that its
most preferred host ends in (the operator's before the shipped ones), then the operator's `*`, then the settings.
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
MAX_RECIPIENTS = 100  # RFC 5321 4.5.3.1.8: what every server takes in one transaction; a message has 50
_NAME = re.compile(r"\*|(?!\.)[a-z0-9_.-]{1,240}(?:#[0-9a-f]{8})?", re.ASCII)
_HERE = Path(__file__).parent

_Text = Annotated[str, Meta(min_length=3, max_length=200)]
_Seconds = Annotated[float, Meta(ge=1, le=7 * 86_400)]
_Rate = Annotated[float, Meta(gt=0, le=1_000_000)]


class Family(StrEnum):
    """Which addresses of a mail host are tried, and first."""

    IPV4 = "ipv4"  # IPv4 first
    IPV6 = "ipv6"  # IPv6 first
    IPV4_ONLY = "ipv4-only"
    IPV6_ONLY = "ipv6-only"


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one source says of a site; None: nothing."""

    connections: Annotated[int, Meta(ge=1, le=10_000)] | None = None  # at once, over all processes
    messages_per_connection: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    per_second: _Rate | None = None  # messages begun, over all processes
    per_minute: _Rate | None = None
    per_hour: _Rate | None = None
    recipients: Annotated[int, Meta(ge=1, le=1_000)] | None = None  # of one transaction
    family: Family | None = None
    ladder_s: Annotated[tuple[_Seconds, ...], Meta(min_length=1, max_length=40)] | None = None  # waits between tries
    back_off: Annotated[tuple[_Text, ...], Meta(max_length=50)] | None = None  # said in an answer: slow down
    together: bool | None = None  # all MX sets under the rule's name share one window


FIELDS = Rule.__struct_fields__


class NamedRule(Struct, frozen=True):
    """A rule, the names of mail hosts it is for, and on whose word."""

    names: tuple[str, ...]
    rule: Rule
    whose: str  # 'operator', or the provider's title
    why: str = ""
    sources: dict[str, str] = {}


class Limits(Struct, frozen=True, kw_only=True):
    """What holds for a site. `key` names its window; `origins` says for each field on whose word."""

    key: str
    connections: int
    messages_per_connection: int
    recipients: int
    family: Family
    ladder_s: tuple[float, ...]
    rates: tuple[tuple[float, float], ...]  # (messages, in so many seconds)
    back_off: tuple[str, ...]
    origins: dict[str, str]

    def asks_to_slow_down(self, said: str) -> bool:
        """True when an answer contains what the rules count as a wish for less mail."""
        return bool(self.back_off) and any(words in said.lower() for words in self.back_off)


class Provider(Struct, frozen=True, forbid_unknown_fields=True):
    """A record of the shipped file."""

    title: str
    names: tuple[str, ...]
    rule: Rule
    sources: dict[str, str]


class _Shipped(Struct, frozen=True, forbid_unknown_fields=True):
    provider: tuple[Provider, ...]


PROVIDERS = msgspec.convert(tomllib.loads((_HERE / "sites.toml").read_text("utf-8")), _Shipped).provider
SHIPPED = tuple(NamedRule(one.names, one.rule, one.title, "shipped", one.sources) for one in PROVIDERS)


class RuleBook:
    """All rules at one moment."""

    def __init__(self, operators: Iterable[NamedRule] = (), shipped: Sequence[NamedRule] = SHIPPED) -> None:
        self._by_name: dict[str, list[NamedRule]] = {}
        for rule in (*operators, *shipped):  # the operator's come first
            for name in rule.names:
                self._by_name.setdefault(name, []).append(rule)

    def of(self, site: str, hosts: Sequence[str]) -> list[tuple[str, NamedRule]]:
        """(Name, rule) that are about a site, the most telling first. `hosts`: the most preferred one first."""
        names = [site] if "#" in site else []
        if hosts:
            labels = hosts[0].lower().rstrip(".").split(".")
            names += [".".join(labels[start:]) for start in range(len(labels))]
        found = [(name, rule) for name in dict.fromkeys(names) for rule in self._by_name.get(name, ())]
        found.sort(key=lambda one: one[1].whose != "operator")  # stable: longer names stay before shorter ones
        found.sort(key=lambda one: one[0] != site)
        return found + [(EVERYWHERE, rule) for rule in self._by_name.get(EVERYWHERE, ())]

    def limits(self, site: str, hosts: Sequence[str], settings: Settings) -> Limits:
        """What holds for a site; the first rule that speaks of a field decides it, answers to heed add up."""
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        key, heeded = site, []
        for name, named in self.of(site, hosts):
            for field, value in _said(named.rule):
                if field == "back_off":
                    heeded += [words.lower() for words in value]
                elif field not in values and field == "together" and value:
                    key = _shared_key(named, name, site)
                values.setdefault(field, value)
                origins.setdefault(field, _origin(name, named, field))
        merged = Rule(**values)
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
    """The name of an operator's rule as it is stored; raises ValueError for what no site can have."""
    name = text.strip().lower().rstrip(".")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{text[:MAX_NAME]!r} is no name of a mail host or site: give one such as mx.example.com, or *"
        )
    return name


def rule_from_json(text: str | bytes) -> Rule:
    """A stored rule; raises msgspec.ValidationError for what is none."""
    return msgspec.json.decode(text, type=Rule, strict=False)


def _said(rule: Rule) -> list[tuple[str, Any]]:
    return [(field, value) for field in FIELDS if (value := getattr(rule, field)) is not None]


def _rates(rule: Rule) -> tuple[tuple[float, float], ...]:
    each = ((rule.per_second, 1.0), (rule.per_minute, 60.0), (rule.per_hour, 3600.0))
    return tuple((messages, seconds) for messages, seconds in each if messages is not None)


def _shared_key(named: NamedRule, name: str, site: str) -> str:
    """One window for all names of a provider; `*` can't mean that everybody shares one."""
    return site if name == EVERYWHERE else f"{named.names[0]}/*"


def _origin(name: str, named: NamedRule, field: str) -> str:
    source = named.sources.get(field) or named.why
    return f"{named.whose}: {name}" + (f" ({source})" if source else "")
