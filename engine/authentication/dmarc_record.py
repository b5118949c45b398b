"""Parse DMARC policy records (RFC 9989 4.7, 4.8). Pure."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal, cast

from msgspec import Struct

from engine.authentication.results import DmarcPolicy

MAX_RECORD: Final = 4_096  # octets
_POLICIES: Final = ("none", "quarantine", "reject")
_LOWER: Final[dict[str, DmarcPolicy]] = {"reject": "quarantine", "quarantine": "none", "none": "none"}

_is_dmarc = re.compile(rb"v[ \t]*=[ \t]*DMARC1[ \t]*(?:;|\Z)").match
_uri = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s,]+").match


class DmarcRecord(Struct, frozen=True):
    """The policy that a domain publishes; `subdomains` (sp=) and `missing` (np=) are None if the record has none."""

    policy: DmarcPolicy
    subdomains: DmarcPolicy | None = None
    missing: DmarcPolicy | None = None
    psd: Literal["y", "n", "u"] = "u"
    testing: bool = False
    strict_dkim: bool = False
    strict_spf: bool = False
    applies: bool = True  # False: no valid policy and no address for reports (RFC 9989 4.10.1)


def select(texts: Sequence[bytes]) -> DmarcRecord | None:
    """Return the DMARC record among the TXT records of a name; None without one or with several (RFC 9989 4.10)."""
    found = [text for text in texts if _is_dmarc(text) is not None]
    return parse(found[0][:MAX_RECORD]) if len(found) == 1 else None


@lru_cache(maxsize=2048)
def parse(raw: bytes) -> DmarcRecord:
    """Parse a record that begins with its version; unknown tags and parts that are no tags are ignored."""
    tags: dict[str, str] = {}
    for part in raw.decode("utf-8", "replace").split(";"):
        name, equals, value = part.partition("=")
        if equals:
            tags.setdefault(name.strip().lower(), value.strip())
    policy, subdomains, missing = _policy(tags, "p"), _policy(tags, "sp"), _policy(tags, "np")
    valid = policy is not None and "invalid" not in {policy, subdomains, missing}
    psd = tags.get("psd", "u").lower()
    return DmarcRecord(
        policy=cast("DmarcPolicy", policy) if valid else "none",
        subdomains=cast("DmarcPolicy | None", subdomains) if valid else "none",
        missing=cast("DmarcPolicy | None", missing) if valid else "none",
        psd=cast("Literal['y', 'n']", psd) if psd in {"y", "n"} else "u",
        testing=tags.get("t", "n").lower() == "y",
        strict_dkim=tags.get("adkim", "r").lower() == "s",
        strict_spf=tags.get("aspf", "r").lower() == "s",
        applies=valid or any(_uri(uri.strip()) is not None for uri in tags.get("rua", "").split(",")),
    )


def requested(record: DmarcRecord, *, below: bool, exists: bool) -> DmarcPolicy:
    """Return the handling that a record asks for after a failure; `below`: the author domain is a subdomain of the
    record's domain, and `exists` or not.
    """
    policy = record.policy
    if below:
        policy = record.subdomains or policy
        if not exists:
            policy = record.missing or policy
    return _LOWER[policy] if record.testing else policy


def _policy(tags: dict[str, str], tag: str) -> str | None:
    value = tags.get(tag)
    if value is None:
        return None
    return value.lower() if value.lower() in _POLICIES else "invalid"
