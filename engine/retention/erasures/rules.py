"""Build the search terms for one address, and name log entries in ranges. Pure."""

import json
import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from engine.base.errors import ErrorType, Refusal
from engine.mail.address import BadAddress, canonical, parse_mailbox

MAX_OPEN: Final = 100  # erasures of one account that are not completed

_LIKE_WILD = re.compile(r"[\\%_]")
_REGEX_SPECIAL = re.compile(r"([^\w@])", re.ASCII)
# What may stand before an address in JSON text: its start, a character that no address has there, or an escape.
_BEFORE: Final = r"(^|[^[:alnum:]._%+-]|\\[nrtbf]|\\u[0-9a-f]{4})"
_AFTER: Final = r"($|[^[:alnum:].-]|\.($|[^[:alnum:]]))"  # a dot may end the sentence, or continue the domain


class AddressTerms(Struct, frozen=True):
    """The search terms for one address: exact forms, LIKE patterns that narrow, regular expressions that decide.

    All are in lower case and compared with text in lower case.
    """

    canonical: str
    forms: list[str]
    patterns: list[str]
    expressions: list[str]


def address_of(text: str) -> str:
    """Return the canonical form of the address to erase; raise the 422 `invalid_address`."""
    try:
        mailbox = parse_mailbox(text)
    except BadAddress as error:
        raise _bad_address(text, str(error)) from None
    if mailbox.name or "<" in text:
        raise _bad_address(text, "give the address without a name, such as ann@example.com")
    return canonical(mailbox.address)


def terms_of(address: str) -> AddressTerms:
    """Return the search terms for a canonical address: as it is, with a Unicode domain, in JSON, and in a URL."""
    forms = list(dict.fromkeys([address, _unicode_domain(address)]))
    written = dict.fromkeys(one for form in forms for one in (form, json.dumps(form, ensure_ascii=False)[1:-1]))
    found = dict.fromkeys(one for text in written for one in (text, text.replace("@", "%40")))
    return AddressTerms(
        address,
        forms,
        ["%" + _LIKE_WILD.sub(r"\\\g<0>", one) + "%" for one in found],
        [_BEFORE + _REGEX_SPECIAL.sub(r"\\\1", one) + _AFTER for one in found],
    )


def ranges(seqs: Sequence[int]) -> list[list[int]]:
    """Return ascending numbers as ranges of first and last."""
    found: list[list[int]] = []
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1][1] = seq
        else:
            found.append([seq, seq])
    return found


def _unicode_domain(address: str) -> str:
    local, _, domain = address.rpartition("@")
    try:
        return f"{local}@{domain.encode('ascii').decode('idna')}" if "xn--" in domain else address
    except UnicodeError:
        return address


def _bad_address(text: str, problem: str) -> Refusal:
    return Refusal(
        ErrorType.INVALID_ADDRESS, f"`address` is not an email address: {problem}", address=text, field="address"
    )
