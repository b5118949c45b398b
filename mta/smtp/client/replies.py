"""Reads the replies of a remote server out of the bytes it sends, within bounds; no I/O.

Everything a server says passes here first: what is malformed, oversized or binary stops at this door, and
what goes on is printable text.
"""

import re
from typing import Final

from msgspec import Struct

from engine.mail.replies import Reply

# RFC 5321 4.5.3.1.5 allows 512 octets a line; servers with long policy texts and URLs go beyond. Postfix
# reads 2,048 (line_length_limit); the double leaves room and still bounds what a hostile peer can store.
MAX_LINE: Final = 4_096
MAX_LINES: Final = 512
MAX_REPLY: Final = 64 * 1024
MAX_TEXT: Final = 1_000

_ENHANCED = re.compile(r"([245])\.\d{1,3}\.\d{1,3}(?=\s|$)", re.ASCII)
# Nearly every reply: one line of printable ASCII. Code, text, and the enhanced code it begins with.
_PLAIN = re.compile(rb"([2-5]\d\d) (([245]\.\d{1,3}\.\d{1,3})(?=[ \r]|$)(?:[ -~]*[!-~])?|[!-~](?:[ -~]*[!-~])?)\r?")
_CACHED_LINE: Final = 128
_CACHED_WHOLE: Final = 512  # octets of several lines
_CACHE_SIZE: Final = 1_024


class ParsedReply(Struct, frozen=True, gc=False):
    """One complete reply; `lines` holds the texts after the code where there are several lines."""

    reply: Reply
    lines: tuple[str, ...] = ()


# Servers repeat themselves: most one-line replies have been parsed before. Cleared when full.
_seen: dict[bytes, ParsedReply] = {}
_seen_whole: dict[bytes, ParsedReply] = {}  # likewise, of several lines that came in one piece: as EHLO is answered


class ReplyReader:
    """Turns received bytes into replies. After a malformed one `broken` says why and nothing more is read."""

    __slots__ = ("_code", "_lines", "_partial", "_size", "broken")

    def __init__(self) -> None:
        self.broken: str | None = None
        self._partial = b""
        self._code = b""
        self._lines: list[bytes] = []
        self._size = 0

    @property
    def pending(self) -> bool:
        """True while part of a line or of a multi-line reply has been received."""
        return bool(self._partial or self._lines)

    @property
    def _between(self) -> bool:
        """True between replies: nothing of the next one has been received."""
        return self.broken is None and not self.pending

    def feed(self, data: bytes) -> list[ParsedReply]:
        """The replies that `data` completes, in order. Those before a malformed one are still returned."""
        if not self._between:
            return [] if self.broken is not None else self._read(data)
        known = _seen_whole.get(data)
        if known is not None:
            return [known]
        heard = self._read(data)
        if len(heard) == 1 and heard[0].lines and self._between:
            _keep(_seen_whole, data, heard[0], _CACHED_WHOLE)
        return heard

    def _read(self, data: bytes) -> list[ParsedReply]:
        heard: list[ParsedReply] = []
        lines = (self._partial + data).split(b"\n") if self._partial else data.split(b"\n")
        self._partial = lines.pop()
        for line in lines:
            known = _seen.get(line) if not self._lines else None
            if known is None:
                known = self._line(line)
            if known is not None:
                heard.append(known)
            elif self.broken is not None:
                self._partial = b""
                return heard
        if len(self._partial) > MAX_LINE:
            self.broken = f"a reply line exceeds {MAX_LINE:,} octets"
            self._partial = b""
        return heard

    def _line(self, raw: bytes) -> ParsedReply | None:
        if not self._lines and len(raw) < MAX_TEXT:
            plain = _PLAIN.fullmatch(raw)
            if plain is not None:
                code, text, enhanced = plain.groups()
                reply = _reply(int(code), text.decode(), enhanced.decode() if enhanced else None)
                return _keep(_seen, raw, ParsedReply(reply), _CACHED_LINE)
        line = raw[:-1] if raw.endswith(b"\r") else raw
        self.broken = self._fault(line)
        if self.broken is not None:
            return None
        if line[3:4] == b"-":
            self._code = line[:3]
            self._lines.append(line[4:])
            self._size += len(line)
            return None
        if self._lines:
            heard = _many(int(line[:3]), [*self._lines, line[4:]])
            self._lines = []
            self._size = 0
            return heard
        text = printable(line[4:]).strip()
        return _keep(_seen, raw, ParsedReply(_reply(int(line[:3]), text, _enhanced(text))), _CACHED_LINE)

    def _fault(self, line: bytes) -> str | None:
        """Why `line` can't be the next line of a reply (RFC 5321 4.2)."""
        code = line[:3]
        if len(line) > MAX_LINE:
            return f"a reply line exceeds {MAX_LINE:,} octets"
        # RFC 5321 4.2.1: first digit 2 to 5; isdigit() on bytes is ASCII only.
        if len(code) < 3 or not code.isdigit() or not b"200" <= code <= b"599":
            return f"not an SMTP reply: {printable(line[:60])!r}"
        if line[3:4] not in (b"", b" ", b"-"):
            return f"not an SMTP reply: {printable(line[:60])!r}"
        if self._lines and code != self._code:
            return f"a reply changes its code from {self._code.decode()} to {code.decode()}"
        if len(self._lines) >= MAX_LINES:
            return f"a reply exceeds {MAX_LINES} lines"
        if self._size + len(line) > MAX_REPLY:
            return f"a reply exceeds {MAX_REPLY:,} octets"
        return None


def _keep(seen: dict[bytes, ParsedReply], raw: bytes, heard: ParsedReply, most: int) -> ParsedReply:
    if len(raw) <= most:
        if len(seen) >= _CACHE_SIZE:
            seen.clear()
        seen[raw] = heard
    return heard


def printable(raw: bytes) -> str:
    """`raw` as printable text: bytes that are not UTF-8 and control characters become U+FFFD, tabs a space.

    PostgreSQL refuses NUL in text, and terminals obey escape sequences.
    """
    text = raw.decode("utf-8", "replace")
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "\ufffd" for letter in text)


def _many(code: int, raw_lines: list[bytes]) -> ParsedReply:
    lines = tuple(printable(line).strip() for line in raw_lines)
    enhanced = _enhanced(lines[0])
    # RFC 2034 4 repeats the enhanced code on every line; once is enough to read.
    rest = [line.removeprefix(enhanced).strip() if enhanced else line for line in lines[1:]]
    text = " ".join(part for part in (lines[0], *rest) if part)
    return ParsedReply(_reply(code, text, enhanced), lines)


def _enhanced(text: str) -> str | None:
    found = _ENHANCED.match(text)
    return found.group() if found is not None else None


def _reply(code: int, text: str, enhanced: str | None) -> Reply:
    if enhanced is not None and int(enhanced[0]) != code // 100:
        enhanced = None  # RFC 3463 2: the class must agree with the code; a contradiction informs nobody
    return Reply(code, text[:MAX_TEXT], enhanced)
