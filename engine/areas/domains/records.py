"""The DNS records a domain's owner is asked to publish, and whether what was found answers them."""

import re
from collections.abc import Iterable

from msgspec import Struct

from engine.areas.domains import store
from engine.areas.domains.store import PublishedRow
from engine.store.queries import Conn

_SPACE = re.compile(r"\s+")


class Wanted(Struct, frozen=True):
    """One record to publish."""

    type: str
    host: str
    value: str
    required: bool


class Checked(Struct, frozen=True):
    """A record with what DNS answered: `ok`, `missing` or `mismatch`."""

    wanted: Wanted
    status: str
    found: tuple[str, ...]


def key_records(domain: str, keys: Iterable[PublishedRow]) -> list[Wanted]:
    """The DKIM records of a domain; only RSA is required, since every verifier knows it (RFC 8301)."""
    return [
        Wanted("TXT", f"{key.selector}._domainkey.{domain}", key.public_txt, key.algorithm == "rsa-sha256")
        for key in keys
    ]


def checked(wanted: Wanted, found: Iterable[str]) -> Checked:
    """Compare one record with what was found at its host; spacing between tags does not matter (RFC 6376 3.2)."""
    answers = tuple(found)
    if not answers:
        return Checked(wanted, "missing", answers)
    same = any(_SPACE.sub("", answer) == _SPACE.sub("", wanted.value) for answer in answers)
    return Checked(wanted, "ok" if same else "mismatch", answers)


async def published(connection: Conn, name: str, rdtype: str) -> list[str]:
    """What DNS would answer for `name` had every owner published what they were asked to: for local mode."""
    selector, mark, domain = name.rstrip(".").lower().partition("._domainkey.")
    if rdtype != "TXT" or not mark:
        return []
    return [row.public_txt for row in await store.PUBLISHED_AT.fetch(connection, selector, domain)]
