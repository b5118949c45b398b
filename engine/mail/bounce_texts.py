"""Find the failed recipients in the text of a bounce that has no fields for programs.

Most servers list each address on a line of its own, then say why; others mention it in a sentence, some leave it out.
`read_notice` cuts off the returned message and scores the addresses of what is left by their place in the line.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final, NamedTuple

from engine.mail.bounce_words import DAEMONS, FAILING, OTHER_LABEL, RECIPIENT_LABEL, RETURNED_MARK, SURE_LABEL
from engine.mail.delivery_status import MAX_DIAGNOSTIC, phase_in, printable, quoted_reply, status_in
from engine.mail.replies import Phase

MAX_LINES: Final = 2_000
MAX_LINE: Final = 1_000  # characters
MAX_CANDIDATES: Final = 1_000
MAX_NOTICE: Final = 100_000  # characters
_REGION_LINES: Final = 30
_LABEL_LENGTH: Final = 40  # characters before an address in which a label is looked for

_DIVIDERS: Final = r"\s<>()\[\]:;,\"'=|@«»“”„‘’（）：；，。、【】《》「」！"
_address = re.compile(rf"[^{_DIVIDERS}\x00-\x20]{{1,64}}@[^{_DIVIDERS}/?!&]{{1,253}}").finditer
_header_line = re.compile(
    r"[ \t>|*]*(return-path|received|message-id|mime-version|x-[a-z0-9-]+|from|to|subject|date|cc|reply-to|sender"
    r"|content-type|dkim-signature|delivered-to|authentication-results|references|in-reply-to|content-transfer-encoding"
    r"|thread-topic|arc-[a-z-]+|received-spf|importance|list-[a-z-]+|organization|user-agent|precedence)[ \t]?:",
    re.IGNORECASE,
).match
_TRACE: Final = frozenset({"return-path", "received", "mime-version", "dkim-signature", "delivered-to"})
_listed = re.compile(r"[ \t>*•·\-–—#\d.)\]\[«\"'“]*(?:<|\(|\"|'|mailto:|rfc822;|smtp:)*\s*$", re.IGNORECASE).match
_original = re.compile(r"(?:generated|expanded) from:?[ \t]*<?$", re.IGNORECASE).search
_quotes_field = re.compile(
    r"[ \t>|*]*(?:to|cc|bcc|from|subject|reply-to|sender|message-id|references|date"
    r"|an|à|a|para|aan|do|кому|von|de|da|от)[ \t]?:",
    re.IGNORECASE,
).match
# An SMTP reply within a line; the words before it differ by server: "said:", "<<<", "reason:", "error:", "#".
_reply = re.compile(
    r"(?:^|[\s:;(<>\"'#«\[=,])([45]\d\d)[ \-#:;]{1,3}"
    r"(?:\(?#?([45]\.\d{1,3}\.\d{1,3})\b|(?=[A-Za-z<\"'(\[*»]|[^\x00-\xbf]))"
).search
_two_words = re.compile(r"[^\W\d_]{2,}[^\w]+[^\W\d_]{2,}|[\u3040-\u30ff\u4e00-\u9fff]{2}").search
_IDS: Final = re.compile(r"MTS-ID of the original|MSEXCH:", re.IGNORECASE)
_weak_number = re.compile(r"(?:port|bytes|line|lines|id|size|code)\s*$", re.IGNORECASE).search
_host_said = re.compile(
    r"\bhost ([A-Za-z0-9.-]{3,253})[\[\s(]|while talking to ([A-Za-z0-9.-]{3,253}?)\.?:"
    r"|\bserver ([A-Za-z0-9-]{1,63}\.[A-Za-z0-9.-]{3,253})"
).search


class FailedAddress(NamedTuple):
    """An address in a notice with what is said of it."""

    address: str
    diagnostic: str  # one line
    reply_code: int | None
    status: str | None
    remote_mta: str
    phase: Phase | None = None


class _QuotedReply(NamedTuple):
    line: int
    column: int
    text: str  # joined with the lines that continue it


class _Candidate(NamedTuple):
    address: str
    line: int
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
            if (
                not following
                or any(_header_line(one) for one in following)
                or line.lstrip(" \t").startswith(("-", "=", "*"))
            ):
                return place
        found = _header_line(line)
        if found is not None and found[1].lower() in _TRACE and _is_header(lines, place):
            return place
    return len(lines)


def _is_header(lines: list[str], place: int) -> bool:
    """Return True if at least three of the next lines are header fields or their continuations."""
    following = lines[place : place + 12]
    return sum(1 for line in following if _header_line(line) is not None) >= 3


def read_notice(lines: list[str], known: AbstractSet[str], own: AbstractSet[str]) -> list[FailedAddress]:
    """Return the failed recipients of a notice.

    `known`: the recipients of the returned message, in lower case; `own`: addresses that can't be recipients (the
    sender, the daemon). Empty if no address qualifies.
    """
    candidates = _chosen(list(islice(_candidates(lines, known, own), MAX_CANDIDATES)))
    places = sorted({one.line for one in candidates})
    return [_described(lines, one, places) for one in candidates]


def _candidates(lines: list[str], known: AbstractSet[str], own: AbstractSet[str]) -> Iterator[_Candidate]:
    for place, line in enumerate(lines):
        if "@" not in line:
            continue
        quotes = _quotes_field(line) is not None  # Exchange names the message by these fields
        fails = FAILING.search(line) is not None
        reply = _reply(line)
        for found in _address(line):
            address = found[0].strip(".*`").rstrip(".-_")
            lowered = address.lower()
            if "@" not in address or lowered in own:
                continue
            if quotes:
                yield _Candidate(address, place, -1)
            else:
                score = _score(line[: found.start()], line[found.end() :], lowered)
                if reply is not None and reply.start() < found.start():
                    score -= 2  # a reply may name the sender
                yield _Candidate(address, place, score + fails + (4 if lowered in known else 0))


def _score(before: str, after: str, address: str) -> int:
    """Return how well an address is placed for a failed recipient: alone in its line, or behind a label."""
    score, near = 0, before[-_LABEL_LENGTH:]
    if _original(near) is not None:
        return 2
    if len(before) < _LABEL_LENGTH and _listed(before) is not None:
        score += 3 if not after.strip(" \t>)]\"':;,.") or after[:2].strip(" ")[:1] in {">", ":", ")", "("} else 2
    elif RECIPIENT_LABEL.search(near) is not None:
        score += 3 if SURE_LABEL.search(near) else 2
    if OTHER_LABEL.search(near) is not None:
        score -= 4
    local, _, domain = address.partition("@")
    if DAEMONS.match(local) is not None or local.startswith(("abuse", "support", "helpdesk", "hostmaster", "info@")):
        score -= 2
    return score if "." in domain else score - 2


def _chosen(candidates: list[_Candidate]) -> list[_Candidate]:
    """Return each address of the best class once: known ones, then listed ones, then any with a hint of failure."""
    for least in (5, 3, 2, 1, 0, -1):
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
    """Return an address with the text around it: its line and those up to the next address."""
    later = bisect_right(places, one.line)
    end = places[later] if later < len(places) else len(lines)
    around = lines[one.line : min(end, one.line + _REGION_LINES)]
    found, near = _reply_in(around), around
    said = _paragraphs(around, one.address)
    if found is None and len(places) == 1:  # sendmail's transcript, or an explanation above the list
        found, near = _reply_in(lines), lines
    host = _host_said(" ".join(around)[:4_000])
    remote = next((group for group in host.groups() if group), "").rstrip(".") if host else ""
    phase = _phase_near(near, found)
    if found is not None:
        code, text = quoted_reply(found.text)
        return FailedAddress(one.address, text, code, status_in(text), remote, phase)
    text = printable(said or " ".join([*_before(lines, places), *around]))[:MAX_DIAGNOSTIC].strip(" :>)")
    return FailedAddress(one.address, text, None, status_in(text), remote, phase)


def _phase_near(lines: list[str], reply: _QuotedReply | None) -> Phase | None:
    """Return the phase that the lines around a quoted reply name."""
    if reply is None:
        return phase_of(lines)
    before = [*lines[: reply.line], lines[reply.line][: reply.column]]
    return phase_in(printable(" ".join(lines)), reply_at=len(printable(" ".join(before))))


def phase_of(lines: list[str]) -> Phase | None:
    """Return the first phase that a notice names, which may wrap its lines anywhere."""
    return phase_in(printable(" ".join(lines)))


def _paragraphs(lines: list[str], address: str) -> str:
    """Return the first paragraphs that give a reason, not only the address and a title; "" without one."""
    said: list[str] = []
    for line in lines:
        if said and (_stops(line) or (not line.strip() and _explains(" ".join(said).replace(address, "")))):
            break
        if line.strip() and _IDS.search(line) is None:
            said.append(line.strip())
    text = " ".join(said)
    return text if _says(text.replace(address, "")) else ""


def _explains(text: str) -> bool:
    """Return True if a text is longer than a title such as `Undeliverable address:`."""
    text = text.rstrip(" <>:()")
    if text.endswith(("reason", "reasons", "error", "Grund", "raison", "motivo")):
        return False
    return len(text.split()) >= 6 or (_says(text) and not text.isascii())


def _says(text: str) -> bool:
    """Return True if a text holds at least two words."""
    return _two_words(text[:1_000]) is not None


def _before(lines: list[str], places: list[int]) -> list[str]:
    """Return the lines before the first address, at most ten."""
    first = min(places)
    return [line for line in lines[max(0, first - 10) : first] if line.strip()]


def _reply_in(lines: list[str]) -> _QuotedReply | None:
    """Return the first SMTP reply quoted in lines."""
    for place, line in enumerate(lines):
        found = _reply(line)
        if found is None or (found[2] is None and _weak_number(line[: found.start(1)]) is not None):
            continue
        pieces = [line[found.start(1) :]]
        for following in lines[place + 1 : place + 8]:
            if not following.strip() or _stops(following):
                break
            pieces.append(following.strip().removeprefix("<<<").strip())
        return _QuotedReply(place, found.start(1), " ".join(pieces)[:MAX_DIAGNOSTIC])
    return None


def _stops(line: str) -> bool:
    """Return True if a line begins something new behind a reply."""
    if RETURNED_MARK.match(line) is not None and len(line) < 160:
        return True
    return line.startswith(("---", "===", ">>>", "***", "   -----")) or line.strip().startswith(("-----", "====="))
