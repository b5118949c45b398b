"""What to do in an owner's zone to make it hold a domain's records, without touching what others put there. Pure.

A record is ours when it stands under one of our selectors, carries our comment, or names our mail host as only we
would; everything else is the owner's, is left alone and reported with what to do about it.
"""

import re
from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from engine.areas.domains import records
from engine.areas.domains.types import MailHostIdentity, WantedRecord

Outcome = Literal["created", "updated", "unchanged", "conflict", "failed"]
COMMENT: Final = "Waybill"
_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*)"\s*')
_TXT_PIECE: Final = 255  # octets of one string (RFC 1035 3.3.14)


class ZoneRecord(Struct, frozen=True):
    """One record that a zone holds; `content` as the provider writes it, a TXT perhaps in quoted pieces."""

    id: str
    type: str
    name: str
    content: str
    priority: int | None = None
    comment: str | None = None

    @property
    def value(self) -> str:
        """In the form of our own records."""
        if self.type == "TXT":
            return unquoted(self.content)
        target = self.content.rstrip(".").lower()
        return f"{self.priority or 0} {target}" if self.type == "MX" else target


class RecordStep(Struct, frozen=True):
    """What one record needs: nothing (`unchanged`), a new record, a change of record `id`, or its owner."""

    action: Literal["create", "update", "unchanged", "conflict"]
    id: str | None = None
    reason: str | None = None


def step_for(wanted: WantedRecord, held: Sequence[ZoneRecord], identity: MailHostIdentity) -> RecordStep:
    """What to do for one record, given all that the zone holds at its name."""
    alias = next((one for one in held if one.type == "CNAME"), None)
    if alias is not None and wanted.type != "CNAME":
        return _conflict(f"{wanted.host} is an alias of {alias.value}. Remove the CNAME, or leave this record out.")
    if wanted.type == "CNAME":
        return _for_alias(wanted, held, identity)
    rivals = [one for one in held if one.type == wanted.type and _in_the_way(wanted, one)]
    if any(records.status_of(wanted, (one.value,)) == "ok" and _means_the_same(wanted, one) for one in rivals):
        if len(rivals) == 1 or wanted.type == "MX":
            return RecordStep("unchanged")
        return _conflict(f"{wanted.host} holds {len(rivals)} such records where one may stand. Remove the others.")
    ours = [one for one in rivals if _is_ours(wanted, one, identity)]
    if ours and len(rivals) == 1:
        return RecordStep("update", ours[0].id)
    if rivals:
        return _conflict(_advice(wanted, rivals[0]))
    return RecordStep("create")


def quoted(value: str) -> str:
    """A TXT value as strings in quotes, each of at most 255 octets."""
    pieces = [value[start : start + _TXT_PIECE] for start in range(0, len(value), _TXT_PIECE)] or [""]
    return " ".join('"' + piece.replace("\\", "\\\\").replace('"', '\\"') + '"' for piece in pieces)


def unquoted(content: str) -> str:
    """The value of TXT content, whether it is written in quoted pieces or plainly."""
    text = content.strip()
    pieces = _STRING.findall(text)
    if pieces and _STRING.sub("", text) == "":
        return re.sub(r"\\(.)", r"\1", "".join(pieces))
    return text


def _for_alias(wanted: WantedRecord, held: Sequence[ZoneRecord], identity: MailHostIdentity) -> RecordStep:
    """A CNAME stands alone at its name (RFC 1034 3.6.2)."""
    if not held:
        return RecordStep("create")
    only = held[0]
    if only.type == "CNAME" and only.value == wanted.value:
        return RecordStep("unchanged")
    if only.type == "CNAME" and len(held) == 1 and _is_ours(wanted, only, identity):
        return RecordStep("update", only.id)
    return _conflict(f"{wanted.host} holds {only.type} {_short(only.value)}. Remove it, or leave this record out.")


def _in_the_way(wanted: WantedRecord, one: ZoneRecord) -> bool:
    """Whether a record of the same type does, or hinders, what the wanted one is for."""
    return wanted.type == "MX" or wanted.purpose == "dkim" or bool(records.relevant(wanted, [one.value]))


def _means_the_same(wanted: WantedRecord, one: ZoneRecord) -> bool:
    """For the records that are only a suggestion, doing the job is not enough: reports must come here."""
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
    found = f"{wanted.host} already holds {rival.type} {_short(rival.value)}, which was left as it is."
    match wanted.purpose:
        case "dmarc" | "tls_rpt":
            address = records.tags(wanted.value)["rua"]
            return f"{found} To have reports counted here too, add {address} to its rua."
        case "inbound":
            return f"{found} Replace it by {wanted.value} only if this service is to receive the domain's mail."
        case "return_path":
            return f"{found} Make sure it does what {wanted.value} does."
        case _:
            return f"{found} Replace it by: {wanted.value}"


def _conflict(reason: str) -> RecordStep:
    return RecordStep("conflict", None, reason)


def _short(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."
