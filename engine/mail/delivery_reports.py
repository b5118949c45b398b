"""Read bounces: delivery status notifications (RFC 3464, RFC 6533) and the many forms that are none.

`read_delivery_report` takes any message that arrived at a return path, says what kind it is, and lists what it says of
each recipient. `engine/delivery/reported.py` turns that into outcomes. Pure; never raises.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct, structs

from engine.mail import bounce_words
from engine.mail.bounce_texts import FailedAddress, divided_notice, phase_of, read_notice
from engine.mail.delivery_status import (
    MAX_DIAGNOSTIC,
    Action,
    DeliveryStatus,
    RecipientReport,
    address_of,
    has_status,
    printable,
    read_status,
)
from engine.mail.replies import Phase
from engine.mail.report_parts import (
    RETURNED_HEADERS,
    Head,
    ReportPart,
    first,
    head_of,
    report_parts,
)
from engine.mail.return_path_tokens import tokens_in

__all__ = ["Action", "DeliveryReport", "RecipientReport", "ReportKind", "read_delivery_report"]

MIN_REASON: Final = 40  # characters of a diagnostic without a reply code that are taken for a reason
_SCANNED: Final = 4_000  # characters of a notice that are searched for words

_message_id = re.compile(r"<([^<>\s]{3,250}@[^<>\s]{1,250})>").search
_message_id_line = re.compile(
    r"^[ \t>|]*message-id:\s*<([^<>\s]{3,250}@[^<>\s]{1,250})>", re.IGNORECASE | re.MULTILINE
).search
_mailbox = re.compile(r"[^\s<>()\[\]:;,\"']{1,64}@[^\s<>()\[\]:;,\"']{1,253}").findall
_reply_subject = re.compile(r"(?:re|aw|sv|antw|odp|rép|res|fwd?|wg|tr|vs)\s*(?:\[\d+\])?\s*:").match
_words = re.compile(r"[^\s<>()\[\]:;,\"']{1,64}").findall
_RECEIPT: Final = "disposition-notification"  # RFC 8098
_disposition_line = re.compile(r"^disposition[ \t]*:", re.IGNORECASE | re.MULTILINE).search
_STATUS_KINDS: Final = frozenset({"message/delivery-status", "message/global-delivery-status"})
_RECIPIENT_FIELDS: Final = ("x-failed-recipients", "x-failed-recipient")
_TO_FIELDS: Final = ("to", "cc", "bcc", "x-envelope-to", "envelope-to", "x-original-to", "delivered-to", "resent-to")


class ReportKind(StrEnum):
    """The kind of a message that arrived at a return path."""

    BOUNCE = "bounce"
    DELAY = "delay"
    SUCCESS = "success"
    AUTO_REPLY = "auto_reply"  # vacation notes, read receipts and other automatic answers
    CHALLENGE = "challenge"  # demands an action of the sender before the mail is delivered
    UNREADABLE = "unreadable"  # none of these, or a bounce without a recipient


class DeliveryReport(Struct, frozen=True):
    """A report with its recipients.

    `message_id` of the returned message is without angle brackets. `tokens` are the tokens of return paths that occur
    anywhere in the report, unverified, each 40 characters.
    """

    kind: ReportKind
    recipients: tuple[RecipientReport, ...] = ()
    message_id: str | None = None
    tokens: tuple[str, ...] = ()
    reporting_mta: str = ""
    envelope_id: str = ""


class _SortedReport(Struct, frozen=True):
    """The parts of a report by their use: its header, its text, the fields for programs, the returned message."""

    head: Head
    notice: list[str]
    status: DeliveryStatus | None
    returned: Head
    is_receipt: bool


def read_delivery_report(raw: bytes, parts: Sequence[ReportPart] | None = None) -> DeliveryReport:
    """Read a message that arrived at a return path; at most the first `report_parts.MAX_READ` octets count.

    `parts`: its `report_parts`, if the caller has them.
    """
    report = _sorted(report_parts(raw) if parts is None else parts)
    recipients = _recipients(report)
    kind = _kind(report, recipients)
    if kind in {ReportKind.AUTO_REPLY, ReportKind.CHALLENGE, ReportKind.UNREADABLE}:
        recipients = ()
    elif kind is ReportKind.DELAY and report.status is None:
        recipients = tuple(structs.replace(one, action=Action.DELAYED) for one in recipients)
    return DeliveryReport(
        kind=kind,
        recipients=recipients,
        message_id=_returned_id(report),
        tokens=tokens_in(raw),
        reporting_mta=report.status.reporting_mta[:255] if report.status else "",
        envelope_id=report.status.envelope_id if report.status else "",
    )


def _sorted(parts: Sequence[ReportPart]) -> _SortedReport:
    """Sort the parts of a report; one that was forwarded as an attachment counts as if it had arrived itself."""
    status_part = _status_part(parts)
    level = status_part.level if status_part else 0
    head: Head = next((part.head for part in parts if part.opens and part.level == level), {})
    returned: Head = next((part.head for part in parts if part.opens and part.level == level + 1), {})
    texts = [part for part in parts if part.level == level and not part.opens and part.text]
    attached = next((part for part in texts if part.kind in RETURNED_HEADERS), None)
    if attached is not None and not returned:
        returned = head_of(attached.text)
    plain = [one.text for one in texts if one.kind == "text/plain" and one is not status_part]
    readable = plain if any(text.strip() for text in plain) else [one.text for one in texts if one.kind == "text/html"]
    notice, rest = divided_notice("\n\n".join(readable))
    if not returned:
        returned = head_of(rest)
    status = read_status(status_part.text) if status_part else None
    receipt = status is None and (_RECEIPT in first(head, "content-type").lower() or any(map(_is_receipt, texts)))
    return _SortedReport(head, notice, status, returned, receipt)


def _status_part(parts: Sequence[ReportPart]) -> ReportPart | None:
    """Return the part with the fields of a delivery status: as declared, else by its content."""
    declared = [part for part in parts if part.kind in _STATUS_KINDS and has_status(part.text)]
    found = declared or [
        part for part in parts if not part.opens and part.level <= 1 and has_status(part.text) and not _is_receipt(part)
    ]
    return min(found, key=lambda part: part.level) if found else None


def _is_receipt(part: ReportPart) -> bool:
    """Return True if a part says what became of a delivered message; its fields resemble those of a delivery status."""
    return _RECEIPT in part.kind or (has_status(part.text) and _disposition_line(part.text) is not None)


# --- recipients ----------------------------------------------------------------------------------


def _recipients(report: _SortedReport) -> tuple[RecipientReport, ...]:
    known = _sent_to(report.returned)
    own = _own(report)
    failed = read_notice(report.notice, known, own)
    if report.status is not None and report.status.recipients:
        alone = len(report.status.recipients) == 1
        phase = phase_of(report.notice) if alone else None
        return tuple(_completed(one, failed, known, phase, alone=alone) for one in report.status.recipients)
    listed = _in_fields(report.head)
    if listed:
        return tuple(_from_text(address, _about(address, failed) or _whole(report.notice)) for address in listed)
    if not failed and known:
        failed = _unnamed(report.notice, known)
    return tuple(_from_text(one.address, one) for one in failed)


def _completed(
    one: RecipientReport, failed: list[FailedAddress], known: set[str], phase: Phase | None, *, alone: bool
) -> RecipientReport:
    """Add what only the text of a notification says: the reason, the phase, an address.

    `phase` is the one that the whole text names; `alone`: the notification is about one recipient.
    """
    said = _about(one.final, failed) or _about(one.address, failed)
    if said is None and alone and len(failed) == 1:
        said = failed[0]
    address = one.address
    if "@" not in address:
        local = [name for name in known if name.partition("@")[0] == address.lower()] or list(known)
        address = local[0] if len(local) == 1 else said.address if said else address
    one = structs.replace(one, address=address, phase=one.phase or (said and said.phase) or phase)
    clear = one.diagnostic and (one.reply_code or len(one.diagnostic) > MIN_REASON)
    if clear or said is None or not said.diagnostic:
        return one
    return structs.replace(
        one, diagnostic=said.diagnostic, reply_code=said.reply_code or one.reply_code,
        remote_mta=one.remote_mta or said.remote_mta,
    )  # fmt: skip


def _from_text(address: str, said: FailedAddress) -> RecipientReport:
    return RecipientReport(
        address=address, action=Action.FAILED, status=said.status, diagnostic=said.diagnostic,
        remote_mta=said.remote_mta, reply_code=said.reply_code, phase=said.phase,
    )  # fmt: skip


def _about(address: str, failed: list[FailedAddress]) -> FailedAddress | None:
    lowered = address.lower()
    return next((one for one in failed if one.address.lower() == lowered), None) if lowered else None


def _whole(notice: list[str]) -> FailedAddress:
    """Return what a notice says as a whole, for a recipient whom it does not name."""
    text = " ".join(" ".join(notice).split())
    return FailedAddress("", text[:MAX_DIAGNOSTIC], None, None, "")


def _in_fields(head: Head) -> list[str]:
    """Return the recipients that the header of a bounce lists, as Exim writes them."""
    for name in _RECIPIENT_FIELDS:
        found = [address_of(one) for value in head.get(name, ()) for one in value.split(",")[:100]]
        if any("@" in one for one in found):
            return list(dict.fromkeys(one for one in found if "@" in one))
    return []


def _unnamed(notice: list[str], known: set[str]) -> list[FailedAddress]:
    """Return the only recipient of the returned message, or those whose local part a notice names."""
    text = " ".join(notice).lower()
    words = set(_words(text))
    named = [one for one in sorted(known) if one.partition("@")[0] in words]
    found = named or (list(known) if len(known) == 1 else [])
    return [_whole(notice)._replace(address=one) for one in found[:100]]


def _sent_to(returned: Head) -> set[str]:
    """Return the recipients that the returned message names, in lower case."""
    found = [address for name in _TO_FIELDS for value in returned.get(name, ()) for address in _mailbox(value)]
    return {address.lower() for address in found[:1_000]}


def _own(report: _SortedReport) -> set[str]:
    """Return the addresses that are no recipients: of the report's header, and the sender of the returned message."""
    values = [
        value for name in ("from", "to", "sender", "reply-to", "return-path") for value in report.head.get(name, ())
    ]
    values += [value for name in ("from", "return-path", "sender") for value in report.returned.get(name, ())]
    return {address.lower() for value in values for address in _mailbox(value)} - _sent_to(report.returned)


def _returned_id(report: _SortedReport) -> str | None:
    """Return the Message-ID of the returned message, from its header or as the notice quotes it."""
    for value in (first(report.returned, "message-id"), first(report.head, "in-reply-to")):
        found = _message_id(value)
        if found is not None:
            return printable(found[1])
    found = _message_id_line("\n".join(report.notice)) or _message_id(first(report.head, "references")[-600:])
    return printable(found[1]) if found else None


# --- kind ----------------------------------------------------------------------------------------


def _kind(report: _SortedReport, recipients: Sequence[RecipientReport]) -> ReportKind:
    if report.status is not None and report.status.recipients:
        return _kind_by_actions(recipients)
    if report.is_receipt:
        return ReportKind.AUTO_REPLY
    text = "\n".join(report.notice)[:_SCANNED].lower()
    subject = first(report.head, "subject").lower()
    if not any(name in report.head for name in _RECIPIENT_FIELDS):
        automatic = _automatic(report, subject, text)
        if automatic is not None:
            return automatic
        if not _fails(report, subject, text):
            return ReportKind.UNREADABLE
    if not recipients:
        return ReportKind.UNREADABLE
    if bounce_words.DELAY.search(f"{subject}\n{text}") and not bounce_words.GIVEN_UP.search(text):
        return ReportKind.DELAY
    return ReportKind.BOUNCE


def _kind_by_actions(recipients: Sequence[RecipientReport]) -> ReportKind:
    actions = {one.action for one in recipients}
    if Action.FAILED in actions:
        return ReportKind.BOUNCE
    return ReportKind.DELAY if Action.DELAYED in actions else ReportKind.SUCCESS


def _automatic(report: _SortedReport, subject: str, text: str) -> ReportKind | None:
    """Return the kind of an automatic answer; None for what may be a bounce, which daemons mark as such, too."""
    head = report.head
    daemon = _from_daemon(head) and _speaks_of_delivery(f"{subject}\n{text}")
    if bounce_words.CHALLENGE.search(f"{subject}\n{text}") and not daemon:
        return ReportKind.CHALLENGE
    if bounce_words.AUTO_REPLY_SUBJECT.search(subject):
        return ReportKind.AUTO_REPLY
    marked = (
        first(head, "auto-submitted").lower().startswith("auto-replied")
        or any(
            name in head
            for name in ("x-autoreply", "x-autorespond", "x-autoresponder", "x-auto-reply-from", "x-vacation")
        )
        or first(head, "precedence").lower() in {"auto_reply", "auto-reply"}
        or first(head, "x-autogenerated").lower() == "reply"
    )
    return ReportKind.AUTO_REPLY if marked and not daemon else None


def _fails(report: _SortedReport, subject: str, text: str) -> bool:
    """Return True if two of three say that a delivery failed: sender, subject, text; people who reply don't count."""
    multipart = first(report.head, "content-type").lower().startswith("multipart/report")
    daemon = _from_daemon(report.head) or multipart
    if not daemon and _reply_subject(subject) is not None:
        return False
    signs = (daemon, bounce_words.FAILURE_SUBJECT.search(subject) is not None, _speaks_of_delivery(text))
    return sum(signs) >= 2


def _speaks_of_delivery(text: str) -> bool:
    return (bounce_words.FAILURE.search(text) or bounce_words.DELAY.search(text)) is not None


def _from_daemon(head: Head) -> bool:
    if first(head, "return-path").replace(" ", "") == "<>":
        return True
    found = _mailbox(first(head, "from")) or [first(head, "from").strip()]
    return bounce_words.DAEMONS.match(found[0].partition("@")[0].lower()) is not None
