"""Decide how to change an owner's zone so that it holds a domain's records. Pure.

A record counts as ours if its name has one of our selectors, if it has our comment, or if it points to our mail host.
Other records are never changed; conflicts are reported with advice.
"""

import re
from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from engine.sending.domains import records
from engine.sending.domains.types import MailHostIdentity, WantedRecord

Outcome = Literal["created", "updated", "unchanged", "conflict", "failed"]
COMMENT: Final = "Waybill"
_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*)"\s*')
_TXT_PIECE: Final = 255  # bytes of one string (RFC 1035 3.3.14)


class ZoneRecord(Struct, frozen=True):
    """A record of a zone; `content` is in the provider's form, TXT possibly in quoted strings."""

    id: str
    type: str
    name: str
    content: str
    priority: int | None = None
    comment: str | None = None

    @property
    def value(self) -> str:
        """Return the value in the form of WantedRecord."""
        if self.type == "TXT":
            return unquoted(self.content)
        target = self.content.rstrip(".").lower()
        return f"{self.priority or 0} {target}" if self.type == "MX" else target


class RecordStep(Struct, frozen=True):
    """The action for one record: nothing, create, update record `id`, or a conflict for its owner."""

    action: Literal["create", "update", "unchanged", "conflict"]
    id: str | None = None
    reason: str | None = None


def step_for(wanted: WantedRecord, held: Sequence[ZoneRecord], identity: MailHostIdentity) -> RecordStep:
    """Return the action for one record, given all records of the zone at its name."""
    alias = next((one for one in held if one.type == "CNAME"), None)
    if alias is not None and wanted.type != "CNAME":
        return _conflict(f"{wanted.host} is a CNAME for {alias.value}. Remove the CNAME, or do without this record.")
    if wanted.type == "CNAME":
        return _for_alias(wanted, held, identity)
    rivals = [one for one in held if one.type == wanted.type and _in_the_way(wanted, one)]
    if any(records.status_of(wanted, (one.value,)) == "ok" and _means_the_same(wanted, one) for one in rivals):
        if len(rivals) == 1 or wanted.type == "MX":
            return RecordStep("unchanged")
        return _conflict(
            f"{wanted.host} has {len(rivals)} records of this kind; only one is allowed. Remove the others."
        )
    ours = [one for one in rivals if _is_ours(wanted, one, identity)]
    if ours and len(rivals) == 1:
        return RecordStep("update", ours[0].id)
    if rivals:
        return _conflict(_advice(wanted, rivals[0]))
    return RecordStep("create")


def quoted(value: str) -> str:
    """Return a TXT value as quoted strings of at most 255 bytes each."""
    pieces = [value[start : start + _TXT_PIECE] for start in range(0, len(value), _TXT_PIECE)] or [""]
    return " ".join('"' + piece.replace("\\", "\\\\").replace('"', '\\"') + '"' for piece in pieces)


def unquoted(content: str) -> str:
    """Return the value of TXT content, in quoted strings or plain."""
    text = content.strip()
    pieces = _STRING.findall(text)
    if pieces and _STRING.sub("", text) == "":
        return re.sub(r"\\(.)", r"\1", "".join(pieces))
    return text


def _for_alias(wanted: WantedRecord, held: Sequence[ZoneRecord], identity: MailHostIdentity) -> RecordStep:
    """Return the action for a CNAME, which must be the only record at its name (RFC 1034 3.6.2)."""
    if not held:
        return RecordStep("create")
    only = held[0]
    if only.type == "CNAME" and only.value == wanted.value:
        return RecordStep("unchanged")
    if only.type == "CNAME" and len(held) == 1 and _is_ours(wanted, only, identity):
        return RecordStep("update", only.id)
    return _conflict(
        f"{wanted.host} has the record {only.type} {_short(only.value)}. Remove it, or do without this record."
    )


def _in_the_way(wanted: WantedRecord, one: ZoneRecord) -> bool:
    """Return True if a record of the same type serves the same purpose or conflicts with it."""
    return wanted.type == "MX" or wanted.purpose == "dkim" or bool(records.relevant(wanted, [one.value]))


def _means_the_same(wanted: WantedRecord, one: ZoneRecord) -> bool:
    """Return True if the record also sends its reports here, for records whose value is a suggestion."""
    if wanted.purpose in {"dmarc", "tls_rpt"}:
        return records.tags(wanted.value)["rua"].lower() in records.tags(one.value).get("rua", "").lower()
    return True


def _is_ours(wanted: WantedRecord, one: ZoneRecord, identity: MailHostIdentity) -> bool:
    if wanted.purpose == "dkim" or (one.comment or "").strip() == COMMENT:
        return True
    if wanted.type == "CNAME":
        return one.value.endswith(f".{identity.mail_host}")
    return False


def _advice(wanted: WantedRecord, rival: ZoneRecord) -> str:
    found = f"{wanted.host} already has {rival.type} {_short(rival.value)}, which was not changed."
    match wanted.purpose:
        case "dmarc" | "tls_rpt":
            address = records.tags(wanted.value)["rua"]
            return f"{found} To receive reports here as well, add {address} to its rua."
        case "inbound":
            return f"{found} Replace it with {wanted.value} only if this service should receive the domain's mail."
        case "return_path":
            return f"{found} Make sure that it has the effect of {wanted.value}."
        case _:
            return f"{found} Replace it with: {wanted.value}"


def _conflict(reason: str) -> RecordStep:
    return RecordStep("conflict", None, reason)


def _short(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."
