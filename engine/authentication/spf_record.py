"""Parse SPF records (RFC 7208 4.6.1, 5, 6 and 12). Pure; `spf` evaluates them."""

import re
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Final, Literal

from msgspec import Struct

from engine.authentication import spf_macros
from engine.authentication.spf_macros import SpfSyntaxError

MAX_RECORD: Final = 8_192  # octets; RFC 7208 3.4 advises 450, flattened records of large senders have 4,000
_MAX_SHORT: Final = 512  # octets of a record that is likely to be in use by many

_version = re.compile(rb"v=spf1(?: |\Z)", re.IGNORECASE).match
_modifier = re.compile(r"([A-Za-z][A-Za-z0-9._-]*)=(.*)", re.DOTALL).fullmatch
_mechanism = re.compile(r"([+?~-]?)(all|include|ip4|ip6|a|mx|ptr|exists)((?:[:/].*)?)", re.DOTALL | re.IGNORECASE)
_with_lengths = re.compile(r"(:.*?)?(?:/(0|[1-9][0-9]?))?(?://(0|[1-9][0-9]{0,2}))?", re.DOTALL).fullmatch
_network = re.compile(r":([0-9A-Fa-f.:]+)(?:/(0|[1-9][0-9]{0,2}))?").fullmatch

SpfWord = Literal["none", "neutral", "pass", "fail", "softfail", "temperror", "permerror"]  # RFC 8601 2.7.2
RESULTS: Final[dict[str, SpfWord]] = {"": "pass", "+": "pass", "-": "fail", "~": "softfail", "?": "neutral"}


class SpfMechanism(Struct, frozen=True):
    """A mechanism with its qualifier's result; the prefix lengths apply to `a`, `mx`, `ip4` and `ip6`."""

    result: SpfWord
    name: str  # in lower case
    text: str  # as it was published
    domain: str = ""  # the domain-spec, macros included; "" if there is none
    network: int = 0  # of `ip4` and `ip6`
    prefix4: int = 32
    prefix6: int = 128


class SpfRecord(Struct, frozen=True):
    """The terms of one record, in order."""

    mechanisms: tuple[SpfMechanism, ...]
    redirect: str | None = None
    explanation: str | None = None


def select(texts: Sequence[bytes]) -> list[bytes]:
    """Return the TXT records that are SPF records (RFC 7208 4.5)."""
    return [text for text in texts if _version(text) is not None]


def parse(raw: bytes) -> SpfRecord:
    """Parse one record that `select` returned. Raises SpfSyntaxError for a syntax error anywhere in it."""
    return _parsed_short(raw) if len(raw) <= _MAX_SHORT else _parsed_long(raw)


def _parsed(raw: bytes) -> SpfRecord:
    if len(raw) > MAX_RECORD:
        raise SpfSyntaxError(f"the record has {len(raw)} octets, more than {MAX_RECORD}")
    if not raw.isascii():
        raise SpfSyntaxError("the record contains non-ASCII characters")
    mechanisms: list[SpfMechanism] = []
    targets: dict[str, str] = {}
    for term in raw[len(b"v=spf1") :].decode("ascii").split(" "):
        if not term:
            continue
        found = _modifier(term)
        if found is None:
            mechanisms.append(_parsed_mechanism(term))
            continue
        name, value = found[1].lower(), found[2]
        if name not in {"redirect", "exp"}:
            spf_macros.check_string(value)
            continue
        if name in targets:
            raise SpfSyntaxError(f"the modifier {name} occurs twice")
        spf_macros.check_domain(value)
        targets[name] = value
    return SpfRecord(tuple(mechanisms), targets.get("redirect"), targets.get("exp"))


# A parsed record takes up to 30 times its octets: 15 MB for either cache.
_parsed_short = lru_cache(maxsize=1024)(_parsed)
_parsed_long = lru_cache(maxsize=64)(_parsed)


def _parsed_mechanism(term: str) -> SpfMechanism:
    found = _mechanism.fullmatch(term)
    if found is None:
        raise SpfSyntaxError(f"unknown term {term[:40]!r}")
    result, name, rest = RESULTS[found[1]], found[2].lower(), found[3]
    if name == "all":
        if rest:
            raise SpfSyntaxError(f"the mechanism all takes no argument, as in {term[:40]!r}")
        return SpfMechanism(result, name, term)
    if name in {"ip4", "ip6"}:
        return _parsed_network(result, name, term, rest)
    return _parsed_domain(result, name, term, rest)


def _parsed_network(result: SpfWord, name: str, term: str, rest: str) -> SpfMechanism:
    found = _network(rest)
    if found is None:
        raise SpfSyntaxError(f"invalid network in {term[:60]!r}")
    try:
        address = IPv4Address(found[1]) if name == "ip4" else IPv6Address(found[1])
    except ValueError:
        raise SpfSyntaxError(f"invalid network in {term[:60]!r}") from None
    prefix = address.max_prefixlen if found[2] is None else int(found[2])
    if prefix > address.max_prefixlen:
        raise SpfSyntaxError(f"invalid prefix length in {term[:60]!r}")
    if name == "ip4":
        return SpfMechanism(result, name, term, network=int(address), prefix4=prefix)
    return SpfMechanism(result, name, term, network=int(address), prefix6=prefix)


def _parsed_domain(result: SpfWord, name: str, term: str, rest: str) -> SpfMechanism:
    prefix4, prefix6 = 32, 128
    if name in {"a", "mx"}:
        found = _with_lengths(rest)
        if found is None:
            raise SpfSyntaxError(f"invalid argument in {term[:60]!r}")
        prefix4, prefix6 = int(found[2] or "32"), int(found[3] or "128")
        if prefix4 > 32 or prefix6 > 128:
            raise SpfSyntaxError(f"invalid prefix length in {term[:60]!r}")
        rest = found[1] or ""
    if rest or name in {"include", "exists"}:
        if not rest.startswith(":"):
            raise SpfSyntaxError(f"the mechanism needs a domain: {term[:60]!r}")
        spf_macros.check_domain(rest[1:])
    return SpfMechanism(result, name, term, domain=rest[1:], prefix4=prefix4, prefix6=prefix6)
