"""Read complaints: abuse reports (ARF: RFC 5965, 6591, 6650; CFBL: RFC 9477) and those of Microsoft, which are none.

Mailbox providers hide much of what they report, above all the recipient, and deviate from the format. A report counts
by what leads back to a message: our return path, the Message-ID, our CFBL-Feedback-ID. Pure; never raises.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from engine.mail.delivery_status import address_of, printable
from engine.mail.report_parts import (
    RETURNED_HEADERS,
    Head,
    ReportPart,
    first,
    head_of,
    report_parts,
)
from engine.mail.return_path_tokens import tokens_in

MAX_MESSAGES: Final = 100  # reported messages that are read from one report
MAX_ADDRESSES: Final = 100
MAX_DOMAINS: Final = 100

MAX_LOOKED_AT: Final = 64 * 1024  # octets in which the words of a complaint are looked for

_REPORT: Final = "message/feedback-report"
_COMPLAINT_WORDS: Final = (
    b"feedback-report", b"feedback-type", b"x-hmxmroriginalrecipient", b"x-ms-exchange-original-recipient",
)  # fmt: skip
_message_id = re.compile(r"<?([^<>\s]{1,250}@[^<>\s]{1,250})>?").match  # some reporters drop the brackets
_feedback_line = re.compile(r"^feedback-type[ \t]*:", re.IGNORECASE | re.MULTILINE).search
_REDACTED: Final = re.compile(r"redact|\[removed\]|\[hidden\]|^x+@|\*{2,}", re.IGNORECASE)


class FeedbackType(StrEnum):
    """The value of a Feedback-Type field (IANA's registry of feedback report types)."""

    ABUSE = "abuse"
    FRAUD = "fraud"
    VIRUS = "virus"
    NOT_SPAM = "not-spam"
    AUTH_FAILURE = "auth-failure"
    OPT_OUT = "opt-out"
    OPT_OUT_LIST = "opt-out-list"
    MISCATEGORIZED = "miscategorized"  # by Yahoo and Outlook.com: moved between folders
    OTHER = "other"


class ReportedMessage(Struct, frozen=True):
    """The identifiers that lead from a complaint back to a message, without angle brackets; "" if one is missing."""

    message_id: str = ""
    feedback_id: str = ""
    cfbl_feedback_id: str = ""
    sender: str = ""
    subject: str = ""


class FeedbackReport(Struct, frozen=True):
    """A complaint.

    `recipients` are as written, without redacted ones. `return_path` is the envelope sender that the report names.
    `tokens` are those of return paths anywhere in the report, unverified. `messages` is empty if the report has none.
    """

    type: FeedbackType
    declared_type: str
    tokens: tuple[str, ...]
    return_path: str
    recipients: tuple[str, ...]
    messages: tuple[ReportedMessage, ...]
    arrived: datetime | None
    reported_domains: tuple[str, ...]
    source_ip: str
    user_agent: str
    count: int  # incidents that the report stands for


def looks_like_complaint(raw: bytes) -> bool:
    """Return True if the beginning of a message has a word of complaints; far cheaper than reading the report."""
    beginning = raw[:MAX_LOOKED_AT].lower()
    return any(word in beginning for word in _COMPLAINT_WORDS)


def read_feedback_report(raw: bytes, parts: Sequence[ReportPart] | None = None) -> FeedbackReport | None:
    """Read a complaint; None if the message is none. `parts`: its `report_parts`, if the caller has them."""
    parts = report_parts(raw) if parts is None else parts
    fields = _fields(parts)
    if fields is None:
        fields = _microsoft(parts)
    if fields is None:
        return None
    messages = list(_messages(parts))
    declared = first(fields, "feedback-type").lower()[:40]
    return FeedbackReport(
        type=_type(declared),
        declared_type=printable(declared),
        tokens=tokens_in(raw),
        return_path=_return_path(fields, messages),
        recipients=_recipients(fields, messages),
        messages=tuple(_message(head) for head in messages),
        arrived=_time(first(fields, "arrival-date") or first(fields, "received-date")),
        reported_domains=tuple(
            printable(one).lower()[:253] for one in fields.get("reported-domain", ())[:MAX_ADDRESSES]
        ),
        source_ip=printable(first(fields, "source-ip"))[:64],
        user_agent=printable(first(fields, "user-agent"))[:255],
        count=_count(first(fields, "incidents")),
    )


def _fields(parts: Sequence[ReportPart]) -> Head | None:
    """Return the fields of the report part: as declared, else of a text that has a Feedback-Type; None without one."""
    for part in parts:
        if part.kind == _REPORT:
            return head_of(_unindented(part.text))
    for part in parts:
        if part.level == 0 and not part.opens and (found := _feedback_line(part.text)) is not None:
            return head_of(part.text[_paragraph_start(part.text, found.start()) :].split("\n\n", 1)[0])
    report = next((part for part in parts if part.opens and part.level == 0), None)
    if report is not None and "report-type=feedback-report" in first(report.head, "content-type").lower().replace(
        '"', ""
    ):
        return {"feedback-type": ["abuse"]}  # the type counts even if the part is missing
    return None


def _unindented(text: str) -> str:
    """Return the fields without blank lines between them, which some reporters write."""
    return "\n".join(line for line in text.split("\n") if line.strip())


def _paragraph_start(text: str, at: int) -> int:
    return text.rfind("\n\n", 0, at) + 2 if "\n\n" in text[:at] else 0


def _microsoft(parts: Sequence[ReportPart]) -> Head | None:
    """Return the fields of a report of Microsoft's Junk Mail Reporting Program: a forwarded message, its recipient in a
    field that Outlook.com adds; None for any other message.
    """
    heads = [part.head for part in parts if part.opens]
    for head in heads:
        recipients = head.get("x-hmxmroriginalrecipient") or head.get("x-ms-exchange-original-recipient")
        if recipients and (len(heads) > 1 or _from_microsoft(head)):
            return {
                "feedback-type": ["abuse"],
                "original-rcpt-to": list(recipients),
                "source-ip": head.get("x-originating-ip", []),
                "user-agent": ["Microsoft JMRP"],
            }
    return None


def _from_microsoft(head: Head) -> bool:
    sender = first(head, "from").lower()
    return any(name in sender for name in ("@hotmail.com", "@microsoft.com", "@outlook.com", "staff@"))


def _messages(parts: Sequence[ReportPart]) -> Iterator[Head]:
    """Yield the headers of the reported messages: attached, as headers only, or pasted into the last text part."""
    found = 0
    for part in parts:
        if found >= MAX_MESSAGES:
            return
        head = part.head if part.opens and part.level > 0 else None
        if part.kind in RETURNED_HEADERS and part.text:
            head = head_of(part.text)
        if head and ("from" in head or "message-id" in head or "received" in head):
            found += 1
            yield head
    if not found:
        for part in reversed(parts):
            if part.kind in {"text/plain", "application/octet-stream"} and part.level == 0 and not part.opens:
                pasted = _pasted(part.text)
                if pasted:
                    yield pasted
                    return


def _pasted(text: str) -> Head:
    """Return the header of a message pasted into a text; empty if there is none."""
    for paragraph in text.split("\n\n", 200)[:200]:
        head = head_of(paragraph)
        if len(head) >= 3 and ("message-id" in head or "received" in head) and "feedback-type" not in head:
            return head
    return {}


def _message(head: Head) -> ReportedMessage:
    found = _message_id(first(head, "message-id"))
    return ReportedMessage(
        message_id=printable(found[1]) if found else "",
        feedback_id=printable(first(head, "feedback-id"))[:255],
        cfbl_feedback_id=printable(first(head, "cfbl-feedback-id"))[:255].replace(" ", ""),
        sender=address_of(first(head, "from")),
        subject=printable(first(head, "subject"))[:255],
    )


def _type(declared: str) -> FeedbackType:
    """Return the type; an unknown one counts as `other` (RFC 5965 3.1), a missing one as `abuse`."""
    word = declared.strip(" \"';").replace("_", "-").replace(" ", "-")
    if not word or word in {"spam", "complaint", "junk"}:
        return FeedbackType.ABUSE
    if word in {"notspam", "not-junk", "ham"}:
        return FeedbackType.NOT_SPAM
    if word in {"unsubscribe", "optout"}:
        return FeedbackType.OPT_OUT
    return FeedbackType(word) if word in set(FeedbackType) else FeedbackType.OTHER


def _return_path(fields: Head, messages: Sequence[Head]) -> str:
    """Return the envelope sender: as the report names it, else the Return-Path of the message."""
    names = ("original-mail-from", "return-path", "x-original-mail-from")
    values = [value for name in names for value in fields.get(name, ())]
    values += [value for head in messages for value in head.get("return-path", ())]
    return next((found for value in values if "@" in (found := address_of(value))), "")


def _recipients(fields: Head, messages: Sequence[Head]) -> tuple[str, ...]:
    """Return the reporting recipients; only if the report names none, those of the message."""
    names = ("original-rcpt-to", "removal-recipient", "original-recipient", "final-recipient", "x-original-rcpt-to")
    found = _addresses(value for name in names for value in fields.get(name, ()))
    if found:
        return found
    names = ("x-hmxmroriginalrecipient", "delivered-to", "x-original-to", "envelope-to", "to")
    return _addresses(value for head in messages for name in names for value in head.get(name, ()))


def _addresses(values: Iterator[str] | Sequence[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for value in values:
        for one in value.split(",")[:MAX_ADDRESSES]:
            address = address_of(one)
            if "@" in address and _REDACTED.search(address) is None and len(found) < MAX_ADDRESSES:
                found.setdefault(address)
    return tuple(found)


def _time(value: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(value[:100])
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def _count(value: str) -> int:
    return int(value) if value.isascii() and value.isdigit() and 0 < len(value) < 7 else 1
