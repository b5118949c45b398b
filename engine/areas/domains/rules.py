"""What follows for a domain: which names may be added, what a check decides, when the next one is. Pure."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from ipaddress import ip_address
from typing import Final, Literal

from msgspec import Struct

from engine.areas.domains.mailbox_providers import mailbox_provider
from engine.areas.domains.records import bounce_domain
from engine.areas.domains.suffixes import is_registry_name
from engine.areas.domains.types import DomainKeyRow, DomainStatus, RecordStatus
from engine.base.errors import Refusal, invalid
from engine.mail.address import BadAddress, domain_name

MAX_NAME: Final = 237  # octets: with `wb1e._domainkey.` before it, 253 (RFC 1035 2.3.4)
MISSES: Final = 2  # checks in a row: one may have met a zone in the middle of a change
RETIRE_AFTER: Final = timedelta(days=7)  # a deferred message is given up after 3 days; forwarders take their time
PENDING_FOR: Final = timedelta(days=7)  # then a new domain is checked only when its owner asks
SOON_S: Final = 600.0  # after a first miss, and while keys change
FAILED_S: Final = 3600.0  # mail stands still until it is back; or DNS told nothing
FIRST_S: Final = 60.0
_DOTS: Final = ".\u3002\uff0e\uff61"  # what IDNA takes for a full stop (UTS 46)

# Whether DNS still vouches for another account that holds the name as verified.
Rival = Literal["none", "gone", "published", "unsure"]


class DomainStanding(Struct, frozen=True):
    """What a domain is before a check."""

    status: DomainStatus
    misses: int
    vouched: bool


class DomainVerdict(Struct, frozen=True):
    """What a check decides: the standing after it, keys whose status moves, and the pairs of a finished rotation."""

    status: DomainStatus
    misses: int
    keys: dict[str, str]  # selector -> new status
    rotated: tuple[str, str] | None  # (from, to)
    required: RecordStatus | None  # of the record that decides; None: DNS told nothing
    contested: bool  # ours is published, and another account's too


def checked_name(text: str, mail_host: str) -> str:
    """A domain to add, in lower-case A-labels; raises the 400 that says what is wrong with it.

    One final dot is taken off, in whatever script.
    """
    bare = text[:-1] if text[-1:] in _DOTS else text
    try:
        ip_address(bare.strip("[]").removeprefix("IPv6:"))
    except ValueError:
        pass
    else:
        raise invalid("name", "Mail is sent from a domain, not from an IP address.")
    if "@" in bare:
        raise invalid("name", "Give the domain alone, without what stands before the @-sign.")
    if "/" in bare or ":" in bare:
        raise invalid("name", "Give the domain alone, without https:// or a path.")
    try:
        name = domain_name(bare)
    except BadAddress:
        raise _not_a_domain(text) from None
    if any(len(label) > 63 for label in name.split(".")):
        raise _not_a_domain(text)
    if len(name) > MAX_NAME:
        raise invalid("name", f"The name is longer than {MAX_NAME} characters: its DNS records would not fit.")
    if is_registry_name(name):
        raise invalid("name", f"{name} belongs to a registry. Add a domain below it, such as example.{name}.")
    provider = mailbox_provider(name)
    if provider is not None:
        raise invalid(
            "name",
            f"{provider} gives mailboxes to the public, and nobody else can publish the DNS records that sending needs."
            " Add a domain of your own.",
        )
    if name == mail_host.lower() or name.endswith(f".{mail_host.lower()}"):
        raise invalid("name", f"{name} belongs to this service itself ({bounce_domain(mail_host)} takes the bounces).")
    return name


def decide(
    standing: DomainStanding, keys: Sequence[DomainKeyRow], found: Mapping[str, RecordStatus | None], rival: Rival
) -> DomainVerdict:
    """What one check decides. `found` has each selector's record; None where DNS told nothing.

    What DNS did not tell changes nothing: neither the standing nor the key it concerns.
    """
    moves: dict[str, str] = {}
    rotated = _rotation(keys, found)
    pair = rotated[1] if rotated else signing_pair(keys)
    if rotated:
        moves |= {key.selector: "retiring" for key in keys if key.pair == rotated[0]}
    required: RecordStatus | None = None
    for key in keys:
        if key.pair != pair or key.status == "retired":
            continue
        if key.is_rsa:
            required = found.get(key.selector)
            moves[key.selector] = "active"
        elif found.get(key.selector) is not None:
            moves[key.selector] = "active" if found[key.selector] == "ok" else "pending"
        elif rotated:
            moves[key.selector] = "pending"
    was = {key.selector: key.status for key in keys}
    moves = {selector: status for selector, status in moves.items() if was[selector] != status}
    status, misses, contested = _standing_after(standing, required, rival)
    return DomainVerdict(status, misses, moves, rotated, required, contested)


def signing_pair(keys: Sequence[DomainKeyRow]) -> str | None:
    """`wb1` or `wb2`: the pair whose RSA key signs."""
    return next((key.pair for key in keys if key.is_rsa and key.status == "active"), None)


def next_pair(keys: Sequence[DomainKeyRow]) -> str | None:
    """The pair that signing moves to as soon as it is published; None when no rotation is under way."""
    return next((key.pair for key in keys if key.is_rsa and key.status == "pending"), None)


def other(pair: str) -> str:
    """The pair that takes turns with this one."""
    return "wb2" if pair == "wb1" else "wb1"


def next_check_s(
    verdict: DomainVerdict, *, rotating: bool, age: timedelta, every_s: float, jitter: float
) -> float | None:
    """Seconds until the domain is to be checked again, None for never; `jitter` from 0 to 1 spreads it by a tenth."""
    if verdict.status == "verified" and (verdict.misses or rotating):
        wait_s = min(every_s, SOON_S)
    elif verdict.status == "verified" and verdict.required is not None:
        wait_s = every_s
    elif verdict.status in {"verified", "failed"}:
        wait_s = min(every_s, FAILED_S)
    elif age > PENDING_FOR:
        return None
    else:
        wait_s = min(every_s, max(FIRST_S, age.total_seconds() / 4))
    return wait_s * (0.9 + 0.2 * jitter)


def _rotation(keys: Sequence[DomainKeyRow], found: Mapping[str, RecordStatus | None]) -> tuple[str, str] | None:
    """(from, to) when the waiting pair's RSA record is published."""
    now, then = signing_pair(keys), next_pair(keys)
    if now is None or then is None or found.get(then) != "ok":
        return None
    return now, then


def _standing_after(
    standing: DomainStanding, required: RecordStatus | None, rival: Rival
) -> tuple[DomainStatus, int, bool]:
    """(status, misses, contested)."""
    if required is None:
        return standing.status, standing.misses, False
    if required == "ok":
        if standing.status == "verified" or rival in {"none", "gone"}:
            return "verified", 0, False
        return standing.status, standing.misses, True
    if standing.status != "verified" or standing.vouched:
        return standing.status, 0, False
    misses = standing.misses + 1
    return ("failed" if misses >= MISSES else "verified"), misses, False


def _not_a_domain(text: str) -> Refusal:
    shown = text if text.isprintable() and len(text) <= 80 else "This"
    return invalid(
        "name",
        f"{shown} is not a domain to send from. Give one such as example.com, without invalid characters.",
    )
