"""Read the fields of delivery status notifications (RFC 3464, RFC 6533), including those of servers that deviate."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from msgspec import Struct

from engine.mail.encoded_words import decoded
from engine.mail.replies import Phase
from engine.mail.report_parts import field_lines

MAX_RECIPIENTS: Final = 1_000
MAX_DIAGNOSTIC: Final = 1_000  # characters
MAX_ADDRESS: Final = 320  # characters

_RECIPIENT: Final = ("final-recipient", "original-recipient", "x-actual-recipient")
_recipient_line = re.compile(r"^(?:final|original)-recipient[ \t]*:", re.IGNORECASE | re.MULTILINE).search
_type = re.compile(r"\s*([a-z0-9-]{1,20})\s*;\s*", re.IGNORECASE).match
_encoded_plus = re.compile(r"\+(2B|3D|20)").sub  # RFC 3461 4: xtext, which some servers don't decode
_unitext = re.compile(r"\\x\{([0-9A-Fa-f]{2,6})\}").sub  # RFC 6533 3
_comment = re.compile(r"\s*\([^()]*\)\s*$").sub
# Postfix: "(in reply to RCPT TO command)", "while sending MAIL FROM", "refused to talk to me"; Exim: "after pipelined
# MAIL FROM:<…>", "after end of data"; sendmail and Courier: ">>> DATA", ">>> ."; hMailServer: "sent: RCPT TO:<…>";
# Stalwart: "rejected command 'DATA'"; Yahoo: "[RCPT_TO]"; qmail-remote.c: the sentences at the end.
_command = re.compile(
    r"(?:(?:in reply to|in response to|after|while sending|while receiving|while performing|>>>|-->|sent:|command) '?"
    r"(?:the )?(?:sending )?(?:pipelined )?)"
    r"(end of (?:data|message)|mail from|rcpt to|data block|data|bdat|[ehl]{2}lo|starttls|auth|body|rcpt"
    r"|initial (?:server )?(?:connection|greeting)|mail(?= command))\b"
    r"|(?<=>>> )(\.)(?=\s|$)|\[(rcpt_to|mail_from|eom|body)\]|\b(rcpt to|mail from):\s?<"
    r"|(does not like recipient|failed after i sent the message|failed on data|but sender was rejected"
    r"|but greeting failed|but my name was rejected|refused to talk to me)",
    re.IGNORECASE,
).finditer
_PHASES: Final = {
    "end of data": Phase.BODY, "end of message": Phase.BODY, "body": Phase.BODY, "data block": Phase.BODY,
    ".": Phase.BODY, "eom": Phase.BODY, "rcpt_to": Phase.RCPT, "mail_from": Phase.MAIL,
    "bdat": Phase.BODY, "data": Phase.DATA, "rcpt to": Phase.RCPT, "rcpt": Phase.RCPT,
    "mail from": Phase.MAIL, "mail": Phase.MAIL, "auth": Phase.EHLO, "helo": Phase.EHLO, "ehlo": Phase.EHLO,
    "lhlo": Phase.EHLO, "starttls": Phase.STARTTLS, "initial connection": Phase.GREETING,
    "initial greeting": Phase.GREETING, "initial server greeting": Phase.GREETING,
    "initial server connection": Phase.GREETING, "refused to talk to me": Phase.GREETING,
    "does not like recipient": Phase.RCPT, "failed after i sent the message": Phase.BODY, "failed on data": Phase.DATA,
    "but sender was rejected": Phase.MAIL, "but greeting failed": Phase.GREETING,
    "but my name was rejected": Phase.EHLO,
}  # fmt: skip
_is_command = re.compile(r'"?\|').match  # Exim and sendmail report the pipe to which a mailbox led
_mailbox = re.compile(r"[^\s<>()\[\]:;,\"'|]{1,64}@[^\s<>()\[\]:;,\"'|]{1,253}").findall
# A reply that begins with the mailbox it is about; some servers join those of several recipients.
_reply_about = re.compile(
    r"(?<!\S)[45]\d\d[ -](?:[45]\.\d{1,3}\.\d{1,3} )? {0,3}<?([^\s<>]{1,64}@[^\s<>:;,]{1,253})"
).finditer
_status = re.compile(r"(?<![\d.])([245])\.(\d{1,3})\.(\d{1,3})(?!\.?\d)").search
_reply_code = re.compile(r"[\s\"'<(#]*([2345]\d\d)(?=[\s\-#:;,.]|$)").match


class Action(StrEnum):
    """The value of an Action field (RFC 3464 2.3.3)."""

    FAILED = "failed"
    DELAYED = "delayed"
    DELIVERED = "delivered"
    RELAYED = "relayed"
    EXPANDED = "expanded"


class RecipientReport(Struct, frozen=True):
    """The part of a report about one recipient.

    `address` is the one that the sender used, as the report writes it; `final` that to which it led, where it differs.
    `diagnostic` is one printable line, without the reply code; `reply_code` is None where no SMTP reply is quoted.
    """

    address: str
    action: Action
    status: str | None = None  # RFC 3463, "5.1.1"
    diagnostic: str = ""
    remote_mta: str = ""
    reply_code: int | None = None
    final: str = ""
    phase: Phase | None = None  # in which the quoted reply was given, where the report says it


class DeliveryStatus(Struct, frozen=True):
    """The fields of one delivery-status part."""

    recipients: tuple[RecipientReport, ...]
    reporting_mta: str
    envelope_id: str


def has_status(text: str) -> bool:
    """Return True if a text holds fields of a delivery status."""
    return _recipient_line(text) is not None


def read_status(text: str) -> DeliveryStatus:
    """Read the fields of a delivery-status part; recipients without an address are kept with address ""."""
    about: dict[str, str] = {}
    recipients: list[RecipientReport] = []
    for block in _blocks(text, about):
        recipients.append(_recipient(block))
        if len(recipients) >= MAX_RECIPIENTS:
            break
    reporter = about.get("reporting-mta", "")
    envelope_id = printable(about.get("original-envelope-id", ""))[:MAX_ADDRESS]
    return DeliveryStatus(tuple(recipients), printable(_after_type(reporter)), envelope_id)


def _blocks(text: str, about: dict[str, str]) -> Iterator[dict[str, str]]:
    """Yield the fields of each recipient; `about` receives those of the message.

    A blank line divides recipients; where it is missing, a repeated Final-Recipient does. Fields that a stray blank
    line separates from their recipient still count.
    """
    block: dict[str, str] = {}
    waiting: dict[str, str] | None = None
    for paragraph in re.split(r"\n[ \t]*\n", text):
        for name, value in field_lines(paragraph.split("\n")):
            if name in {"reporting-mta", "original-envelope-id"}:
                about.setdefault(name, value)
            elif name == "final-recipient" and name in block:
                if waiting:
                    yield waiting
                waiting, block = block, {name: value}
            else:
                block.setdefault(name, value)
        if any(name in block for name in _RECIPIENT):
            if waiting:
                yield waiting
            waiting, block = block, {}
        elif waiting is not None and "action" not in waiting:
            for name, value in block.items():  # not a new dict: a stranger may write 40,000 such paragraphs
                waiting.setdefault(name, value)
            block = {}
    if waiting:
        yield waiting


def _recipient(block: dict[str, str]) -> RecipientReport:
    final, original = address_of(block.get("final-recipient", "")), address_of(block.get("original-recipient", ""))
    actual = address_of(block.get("x-actual-recipient", ""))
    named = [_mailbox_of(one) for one in (original, final, actual)]
    address = next((one for one in named if "@" in one), next(filter(None, named), ""))
    status = status_in(block.get("status", ""))
    diagnostic = _after_type(block.get("diagnostic-code", ""), text=True)
    code, said = quoted_reply(_own_reply(diagnostic, {address.lower(), final.lower()}))
    if status is None or status.endswith(".0.0"):
        status = status_in(said) or status
    return RecipientReport(
        address=address,
        action=_action(block.get("action", ""), status, code),
        status=status,
        diagnostic=said,
        remote_mta=printable(_after_type(block.get("remote-mta", "")))[:255],
        reply_code=code,
        final=final if final.lower() != address.lower() else "",
        phase=phase_in(said),
    )


def _mailbox_of(value: str) -> str:
    """Return the recipient that a field names; of a command, the only mailbox among its arguments, else ""."""
    if _is_command(value) is None:
        return value
    found = set(_mailbox(value))
    return found.pop() if len(found) == 1 else ""


def _own_reply(text: str, addresses: set[str]) -> str:
    """Return the reply about one of `addresses` from the joined replies of several recipients, or the whole text."""
    starts = [(found.start(), found[1].lower()) for found in _reply_about(text[:MAX_DIAGNOSTIC])]
    if len(starts) < 2:
        return text
    ends = [*(at for at, _ in starts[1:]), len(text)]
    own = [text[at:end] for (at, about), end in zip(starts, ends, strict=True) if about in addresses]
    return own[-1] if own and len(own) < len(starts) else text


def _action(value: str, status: str | None, code: int | None) -> Action:
    """Return the action; where the field is missing or misspelled, the class of status or reply code decides."""
    word = value.strip().lower()
    for action in Action:
        if word.startswith(action.value[:5]):
            return action
    if word.startswith(("error", "undeliver", "bounce", "expired", "reject")):
        return Action.FAILED
    digit = status[0] if status else str(code or 5)[0]
    return {"2": Action.DELIVERED, "4": Action.DELAYED}.get(digit, Action.FAILED)


def address_of(value: str) -> str:
    """Return the address of a recipient field, without its type, comments and brackets; "" without one."""
    value = value.strip()[: MAX_ADDRESS * 2]
    kind = _type(value)
    if kind is not None:
        value = value[kind.end() :]
        if kind[1].lower() == "utf-8":
            value = _unitext(_character, value)
    value = decoded(value) if "=?" in value else value
    if "<" in value and "@" in value.partition("<")[2]:
        value = value.partition("<")[2].partition(">")[0]
    value = _comment("", value).strip(" \t<>'\";,")
    value = value.removeprefix("mailto:").removeprefix("SMTP:").removeprefix("smtp:")
    if "+" in value:
        value = _encoded_plus(lambda found: chr(int(found[1], 16)), value)
    return printable(value)[:MAX_ADDRESS]


def _character(found: re.Match[str]) -> str:
    code = int(found[1], 16)
    return chr(code) if 0x20 <= code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


def status_in(text: str) -> str | None:
    """Return the first enhanced status code in a text."""
    found = _status(text[:MAX_DIAGNOSTIC])
    return f"{found[1]}.{int(found[2])}.{int(found[3])}" if found else None


def phase_in(text: str, reply_at: int | None = None) -> Phase | None:
    """Return the phase that a text names as that of its reply; None if it names none.

    Of several commands, the last one before the reply at `reply_at` counts, else the first one behind it.
    """
    named = [(found.start(), _PHASES[found[found.lastindex or 0].lower()]) for found in _command(text)]
    before = [phase for at, phase in named if reply_at is not None and at < reply_at]
    return before[-1] if before else named[0][1] if named else None


def quoted_reply(text: str) -> tuple[int | None, str]:
    """Return the code with which a quoted SMTP reply begins, and the text behind it as one printable line."""
    found = _reply_code(text[:MAX_DIAGNOSTIC])
    said = text[found.end() :] if found else text
    return int(found[1]) if found else None, printable(said.lstrip(" -"))[:MAX_DIAGNOSTIC].strip()


def _after_type(value: str, *, text: bool = False) -> str:
    kind = _type(value)
    if kind is None or (text and kind[1].isdigit()):
        return value.strip()
    return value[kind.end() :].strip()


def printable(text: str) -> str:
    """Return text as one line that UTF-8 can encode, its blanks collapsed."""
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(text.split())
