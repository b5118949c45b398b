"""The DNS look-ups that authentication needs; `engine.store.resolver.Resolver` makes and caches them."""

import asyncio
import re
from typing import Final, Literal, Protocol

from engine.store.resolver import Answered, Mx

MAX_NAME: Final = 253  # characters of a name in text form (RFC 1035 2.3.4)
MAX_LABEL: Final = 63

_domain = re.compile(r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*").fullmatch


class AuthenticationDns(Protocol):
    """Look up records; every failure is a value. Concurrent look-ups of one name share one query."""

    async def txt(self, name: str) -> Answered[bytes]:
        """Return the TXT records of `name`, the strings of each joined."""

    def begin_txt(self, name: str) -> "Answered[bytes] | asyncio.Task[Answered[bytes]]":
        """Return cached TXT records at once, else the running look-up, which callers share and must not cancel."""

    async def addresses(self, name: str, kind: Literal["A", "AAAA"]) -> Answered[str]:
        """Return the IPv4 or IPv6 addresses of `name` as text."""

    async def mx(self, name: str) -> Answered[Mx]:
        """Return the MX records of `name`."""

    async def names(self, ip: str) -> Answered[str]:
        """Return the reverse names of an address, with their final dots."""


def is_queryable(name: str) -> bool:
    """Return True if a name without final dot is ASCII and has valid lengths (RFC 1035 2.3.4)."""
    if not name or len(name) > MAX_NAME or not name.isascii():
        return False
    return all(0 < len(label) <= MAX_LABEL for label in name.split("."))


def is_domain(name: str) -> bool:
    """Return True for a domain in A-labels of letters, digits, hyphens and underscores.

    Domains that messages claim must be plain: in a log or in Authentication-Results, `bank.test(.evil.test` reads as
    `bank.test` with a comment.
    """
    return len(name) <= MAX_NAME and _domain(name) is not None


def printable(text: str, max_characters: int = 200) -> str:
    """Return text from outside as one short line of printable ASCII, for details that people read."""
    short = text[:max_characters]
    return "".join([letter if " " <= letter <= "~" else "?" for letter in short])
