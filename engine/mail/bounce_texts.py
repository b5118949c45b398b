"""Find the failed recipients in the text of a bounce that has no fields for programs.

Most servers list each address on a line of its own, then say why; others mention it in a sentence, some leave it out.
`read_notice` cuts off the returned message and scores the addresses of what is left by their place in the line.
"""

import re
from collections.abc import Iterator, Set
from typing import Final, NamedTuple

from engine.mail.bounce_words import DAEMONS, RETURNED_MARK
from engine.mail.delivery_status import MAX_DIAGNOSTIC, printable, quoted_reply, status_in

MAX_LINES: Final = 2_000
MAX_LINE: Final = 1_000  # characters
MAX_CANDIDATES: Final = 1_000
MAX_NOTICE: Final = 100_000  # characters
_REGION_LINES: Final = 30

_address = re.compile(
    r"[^\s<>()\[\]:;,\"'=|@«»“”„‘’\x00-\x20]{1,64}@[^\s<>()\[\]:;,\"'=|@«»“”„‘’/?!&]{1,253}"
).finditer
_header_line = re.compile(
    r"[ \t>|*]*(return-path|received|message-id|mime-version|x-[a-z0-9-]+|from|to|subject|date|cc|reply-to|sender"
    r"|content-type|dkim-signature|delivered-to|authentication-results|references|in-reply-to|content-transfer-encoding"
    r"|thread-topic|arc-[a-z-]+|received-spf|importance|list-[a-z-]+|organization|user-agent|precedence)[ \t]?:",
    re.IGNORECASE,
).match
_TRACE: Final = frozenset({"return-path", "received", "message-id", "mime-version", "dkim-signature", "delivered-to"})
_listed = re.compile(r"[ \t>*•·\-–—#\d.)\]\[«\"'“]*(?:<|\(|\"|'|mailto:|rfc822;|smtp:)*\s*$", re.IGNORECASE).match
_labelled = re.compile(
    r"(?:rcpt to|recipients?|original recipient|final recipient|to|address(?:es)?|user|mailbox|e-?mail|an|empfänger|adresse|empfaenger"
    r"|destinataires?|destinatarios?|destinatari|indirizzo|dirección|endereço|ontvanger|adres|odbiorca|adresat|получатель|адрес|кому|für"
    r"|宛先|收件人|收信人|邮箱|地址|受信者|先|account|unknown user|invalid recipient|no such user|user unknown|for|envelope-to|failed|failure)"
    r"[^\w@]{0,12}[<(\[\"'“«]*\s*$",
    re.IGNORECASE,
).search
_about_sender = re.compile(
    r"(?:\bfrom|sender|absender|expéditeur|remitente|mittente|remetente|afzender|nadawca|отправител[ья]|送信者|发件人|寄件者|contact|mailto|reply"
    r"|\bvon|\bby|e-?mail to|write to|forward(?:ed)? (?:it )?to|message-?id|mail from|helpdesk|support|assistance|please send|via|envelope-from)[^\w@]{0,12}[<(\[\"'“«]*\s*$",
    re.IGNORECASE,
).search
_failing = re.compile(
    r"unknown|not found|no such|unable|undeliver|deliver|reject|fail|invalid|exist|full|quota|denied|unavailable|disabled|not (?:a|valid|listed|local)"
    r"|error|problem|could not|couldn|cannot|inactive|suspended|unbekannt|nicht|inconnu|n'a|pas|no se|non|não|niet|nie |не |ません|不|无|無|未|失|满|5\d\d ",
    re.IGNORECASE,
).search
# An SMTP reply within a line; the words before it differ by server: "said:", "<<<", "reason:", "error:", "#".
_reply = re.compile(r"(?:^|[\s:;(<>\"'#«\[=,])([45]\d\d)[ \-#:;]{1,3}(?:\(?#?([45]\.\d{1,3}\.\d{1,3})\b|(?=[A-Za-z<\"'(\[*»À-￿]))").search
_weak_number = re.compile(r"(?:port|bytes|line|lines|id|size|code)\s*$", re.IGNORECASE).search
_host_said = re.compile(r"\bhost ([A-Za-z0-9.-]{3,253})(?:\[|\s|\()|while talking to ([A-Za-z0-9.-]{3,253}?)\.?:|\bserver ([A-Za-z0-9.-]{3,253}\.[A-Za-z0-9.-]+)").search


class FailedAddress(NamedTuple):
    """An address in a notice with what is said of it."""

    address: str
    diagnostic: str  # one line
    reply_code: int | None
    status: str | None
    remote_mta: str


class _Candidate(NamedTuple):
    address: str
    line: int
    after: int  # offset in the line behind the address
    score: int


def divided_notice(text: str) -> tuple[list[str], str]:
    """Return the lines of the notice, and the text of the returned message, "" if there is none."""
    lines = [line[:MAX_LINE] for line in text[:MAX_NOTICE].split("\n")[:MAX_LINES]]
    end = _end_of_notice(lines)
    return lines[:end], "\n".join(line.lstrip("> |") if line[:1] in {">", "|"} else line for line in lines[end:])


def _end_of_notice(lines: list[str]) -> int:
    """Return the place of the line at which the returned message begins: a marker, or a run of header lines."""
    for place, line in enumerate(lines):
        # The first lines may be a title such as "Returned mail"; sendmail's transcript has addresses behind it.
        if place > 1 and len(line) < 160 and RETURNED_MARK.match(line) is not None:
            following = [one for one in lines[place + 1 : place + 8] if one.strip()]
            if not following or any(_header_line(one) for one in following) or line.lstrip(" \t").startswith(("-", "=", "*")):
                return place
        found = _header_line(line)
        if found is not None and found[1].lower() in _TRACE and _is_header(lines, place):
            return place
    return len(lines)


def _is_header(lines: list[str], place: int) -> bool:
    """Return True if at least three of the next lines are header fields or their continuations."""
    following = lines[place : place + 12]
    return sum(1 for line in following if _header_line(line) is not None) >= 3


def read_notice(lines: list[str], known: Set[str], own: Set[str]) -> list[FailedAddress]:
    """Return the failed recipients of a notice.

    `known`: the recipients of the returned message, in lower case; `own`: addresses that can't be recipients (the
    sender, the daemon). Empty if no address qualifies.
    """
    candidates = _chosen(list(_candidates(lines, known, own)))
    places = sorted({one.line for one in candidates})
    return [_described(lines, one, places) for one in candidates]


def _candidates(lines: list[str], known: Set[str], own: Set[str]) -> Iterator[_Candidate]:
    count = 0
    for place, line in enumerate(lines):
        if "@" not in line:
            continue
        for found in _address(line):
            address = found[0].strip(".*`").rstrip(".-_")
            lowered = address.lower()
            count += 1
            if count > MAX_CANDIDATES:
                return
            if "@" not in address or lowered in own:
                continue
            yield _Candidate(address, place, found.end(), _score(line, found.start(), found.end(), lowered, known))


def _score(line: str, start: int, end: int, address: str, known: Set[str]) -> int:
    before, after = line[:start], line[end:]
    score = 4 if address in known else 0
    if _listed(before) is not None and len(before) < 40:
        score += 3 if not after.strip(" \t>)]\"':;,.") or after[:2].strip(" ")[:1] in {">", ":", ")", "("} else 2
    elif _labelled(before) is not None:
        score += 3 if re.search(r"rcpt to|recipient|unknown|invalid|no such|failed", before[-40:], re.IGNORECASE) else 2
    if _about_sender(before) is not None:
        score -= 4
    if _failing(line) is not None:
        score += 1
    local = address.partition("@")[0]
    if DAEMONS.match(local) is not None or local.startswith(("abuse", "support", "helpdesk", "hostmaster", "info@")):
        score -= 2
    return score - (2 if "." not in address.partition("@")[2] else 0)


def _chosen(candidates: list[_Candidate]) -> list[_Candidate]:
    """Return each address of the best class once: known ones, then listed ones, then any with a hint of failure."""
    for least in (5, 3, 1, 0):
        found = [one for one in candidates if one.score >= least]
        if found:
            break
    else:
        return []
    if least == 5:  # a known recipient beside listed ones: all that stand in lists of failures
        found = [one for one in candidates if one.score >= 4]
    unique: dict[str, _Candidate] = {}
    for one in found:
        unique.setdefault(one.address.lower(), one)
    return list(unique.values())


def _described(lines: list[str], one: _Candidate, places: list[int]) -> FailedAddress:
    """Return an address with the text that follows it up to the next one, or precedes it where none follows."""
    later = next((place for place in places if place > one.line), len(lines))
    end = min(later, one.line + _REGION_LINES)
    behind = [lines[one.line][one.after :], *lines[one.line + 1 : end]]
    whole = [lines[one.line], *lines[one.line + 1 : end]]
    region = behind if _says(" ".join(behind)) else [*_before(lines, one.line, places), *whole]
    found = _reply_in(region) or _reply_in([lines[one.line]])
    if found is None and len(places) == 1:  # sendmail's transcript, or an explanation above the list
        found = _reply_in(lines)
    host = _host_said(" ".join(region)[:4_000])
    remote = next((group for group in host.groups() if group), "").rstrip(".") if host else ""
    if found is not None:
        code, text = quoted_reply(found)
        return FailedAddress(one.address, text, code, status_in(text), remote)
    text = printable(" ".join(region))[:MAX_DIAGNOSTIC].strip(" :>)")
    return FailedAddress(one.address, text, None, status_in(text), remote)


def _says(text: str) -> bool:
    """Return True if a text holds at least two words."""
    return len(re.findall(r"[^\W\d_]{2,}", text[:500])) >= 2


def _before(lines: list[str], place: int, places: list[int]) -> list[str]:
    """Return the lines before a list of addresses: the last paragraphs, at most ten lines."""
    first = min(places)
    return [line for line in lines[max(0, first - 10) : first] if line.strip()]


def _reply_in(lines: list[str]) -> str | None:
    """Return the first SMTP reply quoted in lines, joined with the lines that continue it."""
    for place, line in enumerate(lines):
        found = _reply(line)
        if found is None or (found[2] is None and _weak_number(line[: found.start(1)]) is not None):
            continue
        pieces = [line[found.start(1) :]]
        for following in lines[place + 1 : place + 8]:
            if not following.strip() or _stops(following):
                break
            pieces.append(following.strip().removeprefix("<<<").strip())
        return " ".join(pieces)[:MAX_DIAGNOSTIC]
    return None


def _stops(line: str) -> bool:
    """Return True if a line begins something new behind a reply."""
    return line.startswith(("---", "===", ">>>", "***", "   -----")) or line.strip().startswith(("-----", "====="))
