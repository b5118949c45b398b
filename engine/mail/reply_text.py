"""Extract what somebody wrote in a reply: the text without quoted messages and without the signature.

There is no standard for quoting; mail programs differ by product and language. The rules read lines, in one pass with a
bounded look ahead, so their cost is linear:

1. Lines that begin with `>` are quotes, and so is the line that introduces them ("On … wrote:").
2. After "-----Original Message-----", a block of "From: Sent: To: Subject:", or an introduction without `>` after it,
   all is quoted.
3. After `-- `, a closing phrase before a few short lines, or a line like "Sent from my iPhone", all is signature.
"""

import re
import unicodedata
from typing import Final

from engine.mail.reply_html import unquoted_html
from engine.mail.reply_words import DEVICES, LABELS, MOBILE, REGARDS, SEPARATORS, ends_with_wrote, opens, says_wrote

_AROUND_LABEL: Final = " \t\xa0>*_|\u200e\u200f"
_MAX_INTRODUCTION: Final = 300  # characters of "On … wrote:"
_BLANKS: Final = " \t\xa0"
_AROUND: Final = " \t\xa0-–—*_\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_MAX_LINE: Final = 250  # longer lines are text
_MAX_LINES: Final = 3_000  # not blank, in which a quote is looked for
_MAX_LABEL: Final = 40  # characters
_INTRODUCTION_LINES: Final = 4
_BLOCK_LINES: Final = 9
_MIN_LABELS: Final = 3
_SIGNATURE_LINES: Final = 12  # below `--` without a blank after it
_CLOSING_LINES: Final = 8
_MAX_CLOSING: Final = 70  # characters of a line below a closing phrase
_MOBILE_LINE: Final = 110
_MOBILE_REST: Final = 5

_moment = re.compile(r"\d{1,2}[:.hH時点시]\s?\d{2}|(?<!\d)(?:19|20)\d{2}(?!\d)|\d{1,2}[./-]\s?\d{1,2}[./-]").search
_address = re.compile(r"[^\s<>\"]@[^\s<>\"]").search
_dashed = re.compile(r"[\s>*]*[-_=–—*]{2,}\s*([^-_=–—*].{0,60}?)\s*[-_=–—*]{2,}\s*").fullmatch
_rule = re.compile(r"\s*(?:_{8,}|-{8,}|={4,}|[–—]{5,})\s*").fullmatch
_begins_forward = re.compile(
    r"(?:begin forwarded message|anfang der weitergeleiteten|début du message réexpédié|inicio del mensaje reenviado"
    r"|inizio messaggio inoltrato|início da mensagem|begin doorgestuurd bericht|vidarebefordrat brev)",
    re.IGNORECASE,
).match
_link_at_end = re.compile(r"[\s(\[]*<?https?://\S*+\s*").sub


def reply_text(text: str | None, html: str | None = None) -> str:
    """Return the author's own text of a message; "" if there is none.

    `html` serves where there is no text, or where the text shows no quote, because the markup of mail programs tells
    more than their words.
    """
    if text is None or not text.strip():
        return "" if html is None else _reply(unquoted_html(html))
    found = _reply(text)
    if html is not None and len(found) == len(text.strip()):
        by_html = _reply(unquoted_html(html))
        return by_html if 0 < len(by_html) < len(found) - 1 else found
    return found


def _reply(text: str) -> str:
    lines = text.strip().replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(_without_signature(_without_quotes(lines))).strip()


def _without_quotes(lines: list[str]) -> list[str]:
    """Return the lines that are not quoted."""
    kept: list[str] = []
    at = examined = 0
    while at < len(lines):
        line = lines[at]
        if line.lstrip(_BLANKS).startswith((">", "＞")):
            at += 1
        elif not line or len(line) > _MAX_LINE or examined > _MAX_LINES:
            kept.append(line)
            at += 1
        elif _begins_quoted(lines, at):
            break
        elif after := _introduction(lines, at):
            if not _is_quote(lines, after):
                break
            at = after
        else:
            kept.append(line)
            at += 1
            examined += 1
    return kept


def _begins_quoted(lines: list[str], at: int) -> bool:
    """Return True if all from this line on is a quoted or forwarded message."""
    line = lines[at]
    dashed = _dashed(line)
    if dashed is not None:
        words = unicodedata.normalize("NFC", dashed[1]).lower()
        if any(words.startswith(phrase) for phrase in SEPARATORS):
            return True
    if _rule(line) is not None:
        following = next((one for one in range(at + 1, min(at + 4, len(lines))) if lines[one].strip()), at)
        return following > at and _is_header(lines, following)
    return _begins_forward(line.strip()) is not None or _is_header(lines, at)


def _is_header(lines: list[str], at: int) -> bool:
    """Return True if the header of a quoted message begins here: From, Date, To, Subject in any language and order."""
    if _kind_of(lines[at]) is None:
        return False
    kinds: set[str] = set()
    telling = False
    for line in lines[at : at + _BLOCK_LINES]:
        kind = _kind_of(line)
        if kind is None and not line.strip() and len(kinds) > 1:
            break
        if kind is not None:
            kinds.add(kind)
            telling = telling or _moment(line) is not None or _address(line) is not None
    return telling and "from" in kinds and len(kinds) >= _MIN_LABELS


def _kind_of(line: str) -> str | None:
    colon = line[:_MAX_LABEL].replace("：", ":").find(":")
    if colon < 1:
        return None
    label = line[:colon].strip(_AROUND_LABEL).lower()
    return LABELS.get(label if label.isascii() else unicodedata.normalize("NFC", label))


def _introduction(lines: list[str], at: int) -> int:
    """Return the number of the line after an introduction such as "On … wrote:" that begins here, or 0."""
    first = lines[at].strip(_AROUND)
    if not _may_introduce(first):
        return 0
    joined = first
    for after in range(at + 1, min(at + 1 + _INTRODUCTION_LINES, len(lines) + 1)):
        if len(joined) > _MAX_INTRODUCTION:
            return 0
        ended = joined.endswith((":", "：")) or ends_with_wrote(joined)
        if ended and _introduces(joined, first, quoted=_is_quote(lines, after)):
            return after
        if after >= len(lines) or not lines[after].strip(_BLANKS):
            return 0
        joined += " " + lines[after].strip(_AROUND)
    return 0


def _may_introduce(first: str) -> bool:
    """Return True if an introduction may begin with this line."""
    return opens(first) is not None or _moment(first) is not None or _address(first) is not None or says_wrote(first)


def _introduces(line: str, first: str, *, quoted: bool) -> bool:
    """Return True if a line, or several joined, introduce a quoted message; `quoted`: one follows for certain."""
    colon = line.endswith((":", "："))
    if _moment(line) is None:
        return quoted and colon and says_wrote(line) and (_address(line) is not None or opens(first) is not None)
    if says_wrote(line):
        named = opens(first) is not None or _address(line) is not None
        return quoted or named or (colon and _moment(first[:20]) is not None and ends_with_wrote(line))
    # Without a word for "wrote", as in `2026-11-22 15:57 GMT+01:00 Ann <ann@example.com>:`.
    return colon and _address(line) is not None and _moment(first[:40]) is not None


def _is_quote(lines: list[str], at: int) -> bool:
    """Return True if the next line that is not blank begins with `>`."""
    for line in lines[at : at + 3]:
        if line.strip(_BLANKS):
            return line.lstrip(_BLANKS).startswith((">", "＞"))
    return False


def _without_signature(lines: list[str]) -> list[str]:
    """Return the lines above the signature."""
    if "-- " in lines:  # RFC 3676 4.3
        lines = lines[: lines.index("-- ")]
    for at, below in _last_lines(lines):
        bare = lines[at].strip(_BLANKS)
        if bare in {"--", "__"} or (below <= _MOBILE_REST and _is_mobile(bare)):
            return lines[:at]
        if below <= _CLOSING_LINES and _is_closing(bare) and any(lines[:at]):
            rest = [line.strip() for line in lines[at + 1 :]]
            if max(map(len, rest), default=0) <= _MAX_CLOSING:
                return lines[:at]
    return lines


def _last_lines(lines: list[str]) -> list[tuple[int, int]]:
    """Return the numbers of the last lines that are not blank, in order, each with how many such lines follow it."""
    found: list[tuple[int, int]] = []
    for at in range(len(lines) - 1, -1, -1):
        if lines[at] and lines[at].strip():
            found.append((at, len(found)))
            if len(found) > _SIGNATURE_LINES:
                break
    return found[::-1]


def _is_mobile(line: str) -> bool:
    line = (_link_at_end("", line) if "http" in line else line).lower()
    if len(line) > _MOBILE_LINE or not line.strip(" *_[(<-–—").startswith(MOBILE) or line[-1:] in {"?", ":"}:
        return False
    named, comma, _ = line.partition(",")
    return not comma or any(word in named for word in DEVICES)


def _is_closing(line: str) -> bool:
    return len(line) < 40 and unicodedata.normalize("NFC", line).lower().strip(" ,.!*_") in REGARDS
