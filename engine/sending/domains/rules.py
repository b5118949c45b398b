"""Check domain names, decide the result of a check, and compute the time of the next one. Pure."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from ipaddress import ip_address
from typing import Final, Literal

from msgspec import Struct

from engine.base.errors import Refusal, invalid
from engine.mail.address import BadAddress, domain_name
from engine.sending.domains.mailbox_providers import mailbox_provider
from engine.sending.domains.records import bounce_domain
from engine.sending.domains.suffixes import is_registry_name
from engine.sending.domains.types import DomainKeyRow, DomainStatus, RecordStatus, ReturnPathState

MAX_NAME: Final = 237  # bytes; with the prefix `wb1e._domainkey.` 253 (RFC 1035 2.3.4)
MISSES: Final = 2  # failed checks in a row; a single one may be due to a zone change in progress
RETIRE_AFTER: Final = timedelta(days=7)  # retries end after 3 days, and forwarders add delay
PENDING_FOR: Final = timedelta(days=7)  # afterwards, a new domain is only checked on request
SOON_S: Final = 600.0  # after a first failed check, and during key rotation
FAILED_S: Final = 3600.0  # for a failed domain, whose mail is blocked; or if DNS gave no answer
FIRST_S: Final = 60.0
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_TAKEN_LABELS: Final = frozenset({"mta-sts", "www"})
_DOTS: Final = ".\u3002\uff0e\uff61"  # full stops of IDNA (UTS 46)

# State in DNS of another account's key, if that account has the name verified.
Rival = Literal["none", "gone", "published", "unsure"]


class DomainState(Struct, frozen=True):
    """The state of a domain before a check."""

    status: DomainStatus
    misses: int
    vouched: bool


class DomainVerdict(Struct, frozen=True):
    """The result of a check: the new state, keys whose status changes, the pairs of a completed rotation."""

    status: DomainStatus
    misses: int
    keys: dict[str, str]  # selector -> new status
    rotated: tuple[str, str] | None  # (from, to)
    required: RecordStatus | None  # status of the required record; None: no answer
    contested: bool  # both this account's and another account's key are published


def checked_name(text: str, mail_host: str) -> str:
    """Return a new domain's name in lower-case A-labels; raise the 400 for an unsuitable name.

    Accepts and removes one final dot, in any script.
    """
    bare = text[:-1] if text[-1:] in _DOTS else text
    try:
        ip_address(bare.strip("[]").removeprefix("IPv6:"))
    except ValueError:
        pass
    else:
        raise invalid("name", "`name` is an IP address. Give a domain, such as example.com.")
    if "@" in bare:
        raise invalid("name", "`name` is an email address. Give the domain after the @-sign only.")
    if "/" in bare or ":" in bare:
        raise invalid("name", "`name` is a URL. Give the domain only, without https:// or a path.")
    try:
        name = domain_name(bare)
    except BadAddress:
        raise _not_a_domain(text) from None
    if any(len(label) > 63 for label in name.split(".")):
        raise _not_a_domain(text)
    if len(name) > MAX_NAME:
        raise invalid(
            "name",
            f"`name` is longer than {MAX_NAME} characters, so names of its DNS records would be too long.",
        )
    if is_registry_name(name):
        raise invalid("name", f"{name} belongs to a domain registry. Add a domain below it, such as example.{name}.")
    provider = mailbox_provider(name)
    if provider is not None:
        raise invalid(
            "name",
            f"{provider} is a public mailbox provider; only the provider can publish "
            "the DNS records for sending from it."
            " Add your own domain.",
        )
    if name == mail_host.lower() or name.endswith(f".{mail_host.lower()}"):
        raise invalid(
            "name",
            f"{name} belongs to this service ({bounce_domain(mail_host)} receives its bounces). Add your own domain.",
        )
    return name


def decide(
    state: DomainState, keys: Sequence[DomainKeyRow], found: Mapping[str, RecordStatus | None], rival: Rival
) -> DomainVerdict:
    """Return the result of one check. `found` has the status of each selector's record, None without an answer.

    Without an answer nothing changes, neither the domain's state nor the key.
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
    status, misses, contested = _state_after(state, required, rival)
    return DomainVerdict(status, misses, moves, rotated, required, contested)


def checked_label(text: str) -> str:
    """Return the label of a domain's return-path host in lower case; raise the 400 for an unsuitable one.

    It must be one label, so that the host stays in the domain and SPF aligns, and leave names free that other records
    of the set-up need.
    """
    label = text.lower()
    if not _LABEL.fullmatch(label) or label in _TAKEN_LABELS:
        raise invalid(
            "returnPathLabel",
            f"`returnPathLabel` is {text!r}; give one label of a host name, such as bounce or mail-bounces, other than "
            f"{', '.join(sorted(_TAKEN_LABELS))}.",
        )
    return label


def return_path_after(state: ReturnPathState, misses: int, found: RecordStatus | None) -> tuple[ReturnPathState, int]:
    """Return (state, misses) of a domain's return path after a check; `found` is None without an answer from DNS.

    One failed check changes nothing, as with the domain itself: a zone change may be in progress.
    """
    if found is None:
        return state, misses
    if found == "ok":
        return "verified", 0
    if state != "verified":
        return state, 0
    return ("failed" if misses + 1 >= MISSES else "verified"), misses + 1


def signing_pair(keys: Sequence[DomainKeyRow]) -> str | None:
    """Return the pair (`wb1` or `wb2`) whose RSA key signs, or None."""
    return next((key.pair for key in keys if key.is_rsa and key.status == "active"), None)


def next_pair(keys: Sequence[DomainKeyRow]) -> str | None:
    """Return the pair that signs as soon as it is published; None if no rotation is pending."""
    return next((key.pair for key in keys if key.is_rsa and key.status == "pending"), None)


def other(pair: str) -> str:
    """Return the other pair."""
    return "wb2" if pair == "wb1" else "wb1"


def next_check_s(verdict: DomainVerdict, *, soon: bool, age: timedelta, every_s: float, jitter: float) -> float | None:
    """Return the seconds until the next check, None for never; `jitter` from 0 to 1 varies them by a tenth.

    `soon`: a key rotation is in progress, or this check did not find the return path or a record that was correct.
    """
    if verdict.status == "verified" and (verdict.misses or soon):
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
    """Return (from, to) if the RSA record of the requested pair is published."""
    now, then = signing_pair(keys), next_pair(keys)
    if now is None or then is None or found.get(then) != "ok":
        return None
    return now, then


def _state_after(state: DomainState, required: RecordStatus | None, rival: Rival) -> tuple[DomainStatus, int, bool]:
    """Return (status, misses, contested) after a check."""
    if required is None:
        return state.status, state.misses, False
    if required == "ok":
        if state.status == "verified" or rival in {"none", "gone"}:
            return "verified", 0, False
        return state.status, state.misses, True
    if state.status != "verified" or state.vouched:
        return state.status, 0, False
    misses = state.misses + 1
    return ("failed" if misses >= MISSES else "verified"), misses, False


def _not_a_domain(text: str) -> Refusal:
    shown = text if text.isprintable() and len(text) <= 80 else "This"
    return invalid(
        "name",
        f"{shown} is not a domain name. Give a valid one, such as example.com.",
    )
