"""Which source addresses mail may leave from, and how much of it while they are new. Pure.

A pool is a set of addresses; a stream's mail, everybody's or one account's, leaves from the pool it is assigned to,
everything else from any address. Within a pool the choice is rendezvous hashing, so that a provider sees an account's
mail from the same address day after day, and an address that comes or goes moves no other's mail.
"""

import math
import tomllib
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from hashlib import blake2b
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

ANY_STREAM = "*"
MAX_MEMBERS = 256
MAX_DAYS = 400
MAX_WEIGHT = 1_000
_HERE = Path(__file__).parent


class Member(Struct, frozen=True, forbid_unknown_fields=True):
    """An address of a pool; twice the weight takes twice the mail."""

    ip: str
    weight: Annotated[int, Meta(ge=1, le=MAX_WEIGHT)] = 1


class Pool(Struct, frozen=True):
    """Addresses that are used alike."""

    name: str
    members: tuple[Member, ...]


class Assignment(Struct, frozen=True):
    """Mail of a stream leaves from a pool. `stream`: a stream's id, a kind of mail (`broadcast`, `verification`), or
    `*`; without an account, everybody's."""

    stream: str
    account_id: UUID | None
    pool: str


class Warmup(Struct, frozen=True):
    """An address that is new: so many messages to each provider on its first day, its second, and so on."""

    ip: str
    started_on: date
    plan: tuple[int, ...]

    def day(self, today: date) -> int:
        """1 on the first day; 0 or less before it."""
        return (today - self.started_on).days + 1

    def allowance(self, today: date) -> int | None:
        """Messages to one provider on that UTC day; None once it is warm, 0 before it begins."""
        day = self.day(today)
        if day > len(self.plan):
            return None
        return self.plan[day - 1] if day > 0 else 0


class SourceBook(Struct, frozen=True):
    """All that the operator has said about sources, at one moment."""

    pools: dict[str, Pool] = {}
    assignments: dict[tuple[str, UUID | None], str] = {}
    warmups: dict[str, Warmup] = {}

    def pool_of(self, account: UUID, stream: str, kind: str) -> Pool | None:
        """The pool for an account's mail of a stream and kind: the account's own lines go before everybody's, and the
        stream's id before the kind before `*`. None: any address."""
        for whose in (account, None):
            for name in (stream, kind, ANY_STREAM):
                found = self.assignments.get((name, whose))
                if found is not None:
                    return self.pools.get(found)
        return None


class _Warmup(Struct, frozen=True, forbid_unknown_fields=True):
    plan: tuple[int, ...]
    source: str


class _Shipped(Struct, frozen=True, forbid_unknown_fields=True):
    warmup: _Warmup


SHIPPED = msgspec.convert(tomllib.loads((_HERE / "sources.toml").read_text("utf-8")), _Shipped).warmup


def book(pools: Iterable[Pool], assignments: Iterable[Assignment], warmups: Iterable[Warmup]) -> SourceBook:
    """What is stored, in the form in which it is asked."""
    return SourceBook(
        {pool.name: pool for pool in pools},
        {(one.stream, one.account_id): one.pool for one in assignments},
        {one.ip: one for one in warmups},
    )


def ordered(members: Iterable[Member], key: str) -> list[str]:
    """The members' addresses in the order in which `key` prefers them: always the same, and over many keys in
    proportion to the weights (weighted rendezvous hashing: Thaler and Ravishankar 1998; Schindelhauer and Schomaker
    2005)."""
    scores = [(_score(key, one), one.ip) for one in members]
    return [ip for _, ip in sorted(scores, reverse=True)]


def next_midnight(now: datetime) -> datetime:
    """When the next UTC day begins."""
    return datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), datetime.min.time(), UTC)


def source_key(site: str, ip: str) -> str:
    """What names the window of a site towards which one address is used."""
    return f"{site}@{ip}"


def checked_ip(text: str) -> str:
    """An address as it is stored; raises ValueError for what is none."""
    try:
        return str(ip_address(text.strip().strip("[]")))
    except ValueError:
        raise ValueError(f"{text[:60]!r} is no IP address") from None


def checked_members(text: str) -> tuple[Member, ...]:
    """`192.0.2.1,192.0.2.2*3` as members; raises ValueError in words for what is no such list."""
    found: dict[str, Member] = {}
    for item in text.split(","):
        literal, star, weight = item.strip().partition("*")
        if star and not (weight.isascii() and weight.isdigit() and 1 <= int(weight) <= MAX_WEIGHT):
            raise ValueError(f"{item.strip()!r}: a weight is a whole number from 1 to {MAX_WEIGHT}")
        ip = checked_ip(literal)
        if ip in found:
            raise ValueError(f"{ip} stands in the list twice")
        found[ip] = Member(ip, int(weight) if star else 1)
    if len(found) > MAX_MEMBERS:
        raise ValueError(f"a pool has at most {MAX_MEMBERS} addresses")
    return tuple(found.values())


def checked_plan(steps: Sequence[int]) -> tuple[int, ...]:
    """A ladder of messages a day; raises ValueError in words."""
    if not 1 <= len(steps) <= MAX_DAYS or any(not 1 <= step <= 10**12 for step in steps):
        raise ValueError(f"a plan is 1 to {MAX_DAYS} whole numbers above 0, one for each day, such as 50,100,500")
    return tuple(steps)


def _score(key: str, member: Member) -> float:
    digest = blake2b(f"{key}\n{member.ip}".encode(), digest_size=8).digest()
    share = (int.from_bytes(digest, "big") + 1) / (2**64 + 1)  # above 0 and below 1
    return -member.weight / math.log(share)
