"""Check and expand SPF macros (RFC 7208 7). Pure."""

import re
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from engine.authentication.dns import MAX_NAME

MAX_DOMAIN_SPEC: Final = 256  # characters; the name that it expands to has at most 253
MAX_EXPANDED: Final = 4_096  # characters of an expanded explanation

_EXPAND: Final = r"%\{([A-Za-z])([0-9]*)([Rr]?)([.+,/_=-]*)\}|%([%_-])"
_token = re.compile(_EXPAND)
_string = re.compile(rf"(?:{_EXPAND}|[!-$&-~])*").fullmatch
_text_string = re.compile(rf"(?:{_EXPAND}|[ -$&-~])*").fullmatch  # an explanation may contain spaces
_top_label = re.compile(r"(?![0-9]+\Z)[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?").fullmatch
_LITERALS: Final = {"%": "%", "_": " ", "-": "%20"}
_LETTERS: Final = frozenset("slodiphv")
_EXPLANATION_LETTERS: Final = frozenset("crt")  # RFC 7208 7.2: in explanations only


class SpfSyntaxError(ValueError):
    """The record or the explanation has a syntax error; the message says where."""


class MacroValues(Struct, frozen=True):
    """The values that macros stand for during one evaluation."""

    ip: IPv4Address | IPv6Address
    local: str  # of the sender
    sender_domain: str
    domain: str  # whose record is evaluated
    helo: str
    validated: str  # name of the client for `%{p}`, "unknown" if there is none
    receiver: str
    at: int  # Unix time in seconds


def check_string(text: str) -> None:
    """Raise SpfSyntaxError if a macro-string is invalid."""
    if _string(text) is None:
        raise SpfSyntaxError(f"invalid macro in {text[:60]!r}")
    for found in _token.finditer(text):
        _check_macro(found, _LETTERS | _EXPLANATION_LETTERS)


def check_domain(text: str) -> None:
    """Raise SpfSyntaxError if a domain-spec is invalid: it must end with a macro or a top-level label."""
    if not text or len(text) > MAX_DOMAIN_SPEC or _string(text) is None:
        raise SpfSyntaxError(f"invalid domain {text[:60]!r}")
    end = 0
    for found in _token.finditer(text):
        _check_macro(found, _LETTERS)
        end = found.end()
    if end == len(text):
        return
    dot, label = text[end:].removesuffix(".").rpartition(".")[1:]
    if not dot or _top_label(label) is None:
        raise SpfSyntaxError(f"the domain {text[:60]!r} must end with a top-level label or a macro")


def uses_validated_name(text: str) -> bool:
    """Return True if expanding needs the validated name of the client (`%{p}`)."""
    return "%{p" in text or "%{P" in text


def expanded_domain(text: str, values: MacroValues) -> str:
    """Expand a domain-spec that `check_domain` accepts; drop labels on the left beyond 253 characters (RFC 7208 7.3).

    The result has no final dot, and may still be no valid name.
    """
    name = _expanded(text, values).removesuffix(".")
    return name if len(name) <= MAX_NAME else name[name.find(".", len(name) - MAX_NAME - 1) + 1 :]


def expanded_explanation(raw: bytes, values: MacroValues) -> str:
    """Expand the text of an explanation record. Raises SpfSyntaxError."""
    text = raw[:MAX_EXPANDED].decode("ascii", "replace")
    if _text_string(text) is None:
        raise SpfSyntaxError("invalid macro in the explanation")
    for found in _token.finditer(text):
        _check_macro(found, _LETTERS | _EXPLANATION_LETTERS)
    return _expanded(text, values)[:MAX_EXPANDED]


def _check_macro(found: "re.Match[str]", letters: frozenset[str]) -> None:
    if found[1] is None:
        return
    if found[1].lower() not in letters:
        raise SpfSyntaxError(f"unknown macro {found[0][:40]!r}")
    if found[2] and not found[2].strip("0"):
        raise SpfSyntaxError(f"a macro must keep at least one part: {found[0][:40]!r}")


def _expanded(text: str, values: MacroValues) -> str:
    """Replace all macros. The output is bounded by the caller's limit on the text and by MAX_NAME a value."""
    return _token.sub(lambda found: _value(found, values), text) if "%" in text else text


def _value(found: "re.Match[str]", values: MacroValues) -> str:
    if found[1] is None:
        return _LITERALS[found[5]]
    letter, is_reversed, delimiters = found[1], found[3], found[4]
    digits = found[2].lstrip("0")
    value = _letter_value(letter.lower(), values)
    if digits or is_reversed or delimiters:
        parts = _parts(delimiters, value)
        if is_reversed:
            parts.reverse()
        if digits and len(digits) < 4:  # a larger number exceeds the parts of any value
            parts = parts[-int(digits) :]
        value = ".".join(parts)
    return quote(value, safe="-._~") if letter.isupper() else value


def _parts(delimiters: str, value: str) -> list[str]:
    if not delimiters or delimiters == ".":
        return value.split(".")
    return re.split(f"[{re.escape(delimiters)}]", value)


def _letter_value(letter: str, values: MacroValues) -> str:
    return {
        "s": f"{values.local}@{values.sender_domain}",
        "l": values.local,
        "o": values.sender_domain,
        "d": values.domain,
        "i": _dotted(values.ip),
        "p": values.validated,
        "v": "in-addr" if values.ip.version == 4 else "ip6",
        "h": values.helo,
        "c": str(values.ip),
        "r": values.receiver,
        "t": str(values.at),
    }[letter]


def _dotted(ip: IPv4Address | IPv6Address) -> str:
    """Return the address in dotted form: hexadecimal digits for IPv6 (RFC 7208 7.3)."""
    return str(ip) if ip.version == 4 else ".".join(f"{int(ip):032X}")
