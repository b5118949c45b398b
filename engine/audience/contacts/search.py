"""Prepare contacts for searches of parts of their address or name. Pure.

A contact stores hashes of all three consecutive characters of its address and name; a search asks the index for the
contacts that have all hashes of the wanted text, and compares the texts of those. Each hash covers the account: the
index is shared, and a part that is frequent elsewhere must not slow the search of a small account. `pg_trgm` does not
do that, and the SQL floor (PostgreSQL without contrib) lacks it (ops/decisions/0052).
"""

import re
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from uuid import UUID
from zlib import crc32

import idna

from engine.base.errors import invalid
from engine.base.text import is_line

MAX_HASHES = 8  # of a search: more parts seldom exclude further contacts
_WILD = re.compile(r"[\\%_]")


def search_text(address: str, name: str | None) -> str:
    """Return the text that searches look into: the canonical address, also with its Unicode domain, and the name."""
    parts = [address]
    if "xn--" in address:
        local, _, domain = address.rpartition("@")
        with suppress(idna.IDNAError, UnicodeError):
            parts.append(f"{local}@{idna.decode(domain)}")
    if name:
        parts.append(folded(name))
    return "\n".join(parts)


def folded(text: str) -> str:
    """Return a text without differences of case and of composed characters."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())


def trigrams(account: UUID, text: str) -> list[int]:
    """Return the hashes of all three consecutive characters of a text, as signed 32-bit numbers."""
    seed = crc32(account.bytes)
    return [_hash(seed, part) for part in trigram_parts(text) if "\n" not in part]


def trigram_parts(text: str) -> list[str]:
    """Return the different three consecutive characters of a text, in order."""
    return list(dict.fromkeys([text[at : at + 3] for at in range(len(text) - 2)]))


def array_text(numbers: Iterable[int]) -> str:
    """Return numbers as the text of a PostgreSQL array, for statements that take many arrays at a time."""
    return "{" + ",".join(map(str, numbers)) + "}"


def wanted_trigrams(account: UUID, text: str) -> list[int]:
    """Return hashes that a contact has which contains the folded text; empty for less than three characters.

    Few suffice, and the index reads every entry of each. Those with digits come first, then those of the part before
    the @-sign: many contacts share a name, and most a domain.
    """
    parts = trigram_parts(text)
    local = set(trigram_parts(text.partition("@")[0]))
    parts.sort(key=lambda part: (-sum(map(str.isdigit, part)), part not in local))
    return [_hash(crc32(account.bytes), part) for part in parts[:MAX_HASHES]]


def checked_search(text: str) -> str:
    """Return the wanted text, folded; raise the 400 for one with control characters."""
    if not is_line(text):
        raise invalid("search", "`search` must be one line without control characters.")
    return folded(text)


def like_pattern(text: str) -> str:
    """Return the LIKE pattern that finds the text anywhere, `%` and `_` as they are."""
    return "%" + _WILD.sub(r"\\\g<0>", text) + "%"


def _hash(seed: int, part: str) -> int:
    return (crc32(part.encode(), seed) ^ 0x8000_0000) - 0x8000_0000
