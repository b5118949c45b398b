"""Source addresses: pools, assignments of streams to pools, and the warm-up of new addresses. Pure.

A pool is a set of addresses. A stream's mail, of all accounts or of one, leaves from the pool that it is assigned to;
other mail leaves from any address. Rendezvous hashing chooses within a pool, so that a provider sees an account's mail
from the same address day after day, and adding or removing an address moves only that address's mail.
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


class PoolMember(Struct, frozen=True, forbid_unknown_fields=True):
    """An address of a pool; its share of the mail is proportional to `weight`."""

    ip: str
    weight: Annotated[int, Meta(ge=1, le=MAX_WEIGHT)] = 1


class Pool(Struct, frozen=True):
    """A named set of source addresses."""

    name: str
    members: tuple[PoolMember, ...]


class Assignment(Struct, frozen=True):
    """The pool that a stream's mail leaves from.

    `stream` is a stream's id, a kind of mail (`broadcast`, `verification`), or `*`; without `account_id` the assignment
    is for all accounts.
    """

    stream: str
    account_id: UUID | None
    pool: str


class Warmup(Struct, frozen=True):
    """The warm-up of a new address: `plan[n]` messages to each provider on day n + 1."""

    ip: str
    started_on: date
    plan: tuple[int, ...]

    def day(self, today: date) -> int:
        """Return the number of the day in the plan: 1 on the first day, 0 or less before it."""
        return (today - self.started_on).days + 1

    def allowance(self, today: date) -> int | None:
        """Return the messages allowed to one provider on that UTC day: None after the warm-up, 0 before it."""
        day = self.day(today)
        if day > len(self.plan):
            return None
        return self.plan[day - 1] if day > 0 else 0


class SourceBook(Struct, frozen=True):
    """The operator's pools, assignments and warm-ups at one moment."""

    pools: dict[str, Pool] = {}
    assignments: dict[tuple[str, UUID | None], str] = {}
    warmups: dict[str, Warmup] = {}

    def pool_of(self, account: UUID, stream: str, kind: str) -> Pool | None:
        """Return the pool for an account's mail of a stream and kind, or None for any address.

        Assignments of the account come before those for all accounts; then the stream's id comes before the kind before
        `*`.
        """
        for whose in (account, None):
            for name in (stream, kind, ANY_STREAM):
                found = self.assignments.get((name, whose))
                if found is not None:
                    return self.pools.get(found)
        return None


class _Warmup(Struct, frozen=True, forbid_unknown_fields=True):
    plan: tuple[int, ...]
    source: str


class _ShippedWarmup(Struct, frozen=True, forbid_unknown_fields=True):
    warmup: _Warmup


SHIPPED = msgspec.convert(tomllib.loads((_HERE / "sources.toml").read_text("utf-8")), _ShippedWarmup).warmup


def book(pools: Iterable[Pool], assignments: Iterable[Assignment], warmups: Iterable[Warmup]) -> SourceBook:
    """Return a SourceBook of the stored records."""
    return SourceBook(
        {pool.name: pool for pool in pools},
        {(one.stream, one.account_id): one.pool for one in assignments},
        {one.ip: one for one in warmups},
    )


def ordered(members: Iterable[PoolMember], key: str) -> list[str]:
    """Return the members' addresses in the order of preference for `key`: stable, and proportional to the weights.

    Weighted rendezvous hashing: Thaler and Ravishankar 1998; Schindelhauer and Schomaker 2005.
    """
    scores = [(_score(key, one), one.ip) for one in members]
    return [ip for _, ip in sorted(scores, reverse=True)]


def next_midnight(now: datetime) -> datetime:
    """Return the start of the next UTC day."""
    return datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), datetime.min.time(), UTC)


def source_key(site: str, ip: str) -> str:
    """Return the key of the window of a site for one source address."""
    return f"{site}@{ip}"


def checked_ip(text: str) -> str:
    """Return an address as stored; raises ValueError if it is invalid."""
    try:
        return str(ip_address(text.strip().strip("[]")))
    except ValueError:
        raise ValueError(f"{text[:60]!r} is not an IP address") from None


def checked_members(text: str) -> tuple[PoolMember, ...]:
    """Return the members in a text such as `192.0.2.1,192.0.2.2*3`; raises ValueError with a message for the
    operator.
    """
    found: dict[str, PoolMember] = {}
    for item in text.split(","):
        literal, star, weight = item.strip().partition("*")
        if star and not (weight.isascii() and weight.isdigit() and 1 <= int(weight) <= MAX_WEIGHT):
            raise ValueError(f"{item.strip()!r} has an invalid weight: use a whole number from 1 to {MAX_WEIGHT}")
        ip = checked_ip(literal)
        if ip in found:
            raise ValueError(f"{ip} is in the list twice")
        found[ip] = PoolMember(ip, int(weight) if star else 1)
    if len(found) > MAX_MEMBERS:
        raise ValueError(f"the list has too many addresses; a pool has at most {MAX_MEMBERS}")
    return tuple(found.values())


def checked_plan(steps: Sequence[int]) -> tuple[int, ...]:
    """Return a warm-up plan in messages a day; raises ValueError with a message for the operator."""
    if not 1 <= len(steps) <= MAX_DAYS or any(not 1 <= step <= 10**12 for step in steps):
        raise ValueError(f"a plan has 1 to {MAX_DAYS} whole numbers above 0, one per day, such as 50,100,500")
    return tuple(steps)


def _score(key: str, member: PoolMember) -> float:
    digest = blake2b(f"{key}\n{member.ip}".encode(), digest_size=8).digest()
    share = (int.from_bytes(digest, "big") + 1) / (2**64 + 1)  # above 0 and below 1
    return -member.weight / math.log(share)
