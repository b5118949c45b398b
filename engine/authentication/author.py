"""Find the one author of a message, and the author domain for DMARC (RFC 9989 4.1, 11.5). Pure.

Mail clients and servers read odd headers differently, and forgers use that (as the tool espoofer lists). So a header
with more than one reading has no author domain, and never passes DMARC.
"""

import re
from typing import Final

from msgspec import Struct

from engine.authentication.canonicalization import CanonicalHeader
from engine.mail import address_list
from engine.mail.address import BadAddress, Mailbox, impersonated
from engine.mail.address_list import MAX_ENTRY
from engine.mail.encoded_words import unfolded

MAX_FROM: Final = MAX_ENTRY  # octets of the value

_field_name = re.compile(rb"[!-9;-~]+[ \t]*").fullmatch  # RFC 5322 2.2; blanks before the colon: 4.5.8


class NoAuthorDomain(Struct, frozen=True):
    """The message has no single author domain; `detail` says why."""

    detail: str


def author_domain(header: CanonicalHeader) -> str | NoAuthorDomain:
    """Return the domain of the From address in lower-case A-labels."""
    found = author(header)
    return found if isinstance(found, NoAuthorDomain) else found.domain


def author(header: CanonicalHeader) -> Mailbox | NoAuthorDomain:
    """Return the address in From with its name."""
    if any(_field_name(raw.partition(b":")[0]) is None for raw in header.raw):
        return NoAuthorDomain("a line of the header is no field")
    places = header.places(b"from")
    if len(places) != 1:
        return NoAuthorDomain(f"the message has {len(places)} From fields")
    value = header.value(places[0])
    if len(value) > MAX_FROM:
        return NoAuthorDomain(f"the From field has more than {MAX_FROM} octets")
    try:
        value.decode()
    except UnicodeDecodeError:
        return NoAuthorDomain("the From field is not UTF-8")
    return _mailbox(unfolded(value))


def _mailbox(text: str) -> Mailbox | NoAuthorDomain:
    try:
        found = address_list.author(text)
    except BadAddress as error:
        return NoAuthorDomain(f"From: {error}")
    # `=?utf-8?b?...?= <x@evil.test>` may decode to an address in brackets, which some clients take for the author.
    if "<" in found.name and impersonated(found) is not None:
        return NoAuthorDomain("the display name contains a second address")
    return found
