"""Parse the replies of a mail server from received bytes, within size limits; no I/O.

The client session reads all replies through `ReplyReader`, so that later code only meets complete replies of
printable text.
"""

import re
from typing import Final

from msgspec import Struct

from engine.mail.replies import Reply

# RFC 5321 4.5.3.1.5 allows 512 octets per line; servers with long policy texts and URLs exceed it. Postfix
# reads 2,048 (line_length_limit); twice that leaves room and still limits the memory that a hostile server can use.
MAX_LINE: Final = 4_096
MAX_LINES: Final = 512
MAX_REPLY: Final = 64 * 1024
MAX_TEXT: Final = 1_000

_ENHANCED = re.compile(r"([245])\.\d{1,3}\.\d{1,3}(?=\s|$)", re.ASCII)
# The usual reply, one line of printable ASCII: code, text, and the enhanced code at the start of the text.
_PLAIN = re.compile(rb"([2-5]\d\d) (([245]\.\d{1,3}\.\d{1,3})(?=[ \r]|$)(?:[ -~]*[!-~])?|[!-~](?:[ -~]*[!-~])?)\r?")
_CACHED_LINE: Final = 128
_CACHED_MULTI_LINE: Final = 512  # octets of several lines
_CACHE_SIZE: Final = 1_024


class ParsedReply(Struct, frozen=True, gc=False):
    """A complete reply; of a multi-line reply, `lines` holds the text of each line."""

    reply: Reply
    lines: tuple[str, ...] = ()


# Parsed one-line replies by their octets, because servers repeat the same few. Cleared when full.
_seen: dict[bytes, ParsedReply] = {}
_seen_multi_line: dict[bytes, ParsedReply] = {}  # multi-line replies received in one piece, such as to EHLO


class ReplyReader:
    """Parser state of one connection. After a malformed reply `broken` says why, and later bytes are ignored."""

    __slots__ = ("_code", "_lines", "_partial", "_size", "broken")

    def __init__(self) -> None:
        self.broken: str | None = None
        self._partial = b""
        self._code = b""
        self._lines: list[bytes] = []
        self._size = 0

    @property
    def pending(self) -> bool:
        """Return True while a reply has been received in part."""
        return bool(self._partial or self._lines)

    @property
    def _idle(self) -> bool:
        """Return True between replies."""
        return self.broken is None and not self.pending

    def feed(self, data: bytes) -> list[ParsedReply]:
        """Return the replies that `data` completes, in order, including those before a malformed one."""
        if not self._idle:
            return [] if self.broken is not None else self._read(data)
        known = _seen_multi_line.get(data)
        if known is not None:
            return [known]
        parsed = self._read(data)
        if len(parsed) == 1 and parsed[0].lines and self._idle:
            _remember(_seen_multi_line, data, parsed[0], _CACHED_MULTI_LINE)
        return parsed

    def _read(self, data: bytes) -> list[ParsedReply]:
        parsed: list[ParsedReply] = []
        lines = (self._partial + data).split(b"\n") if self._partial else data.split(b"\n")
        self._partial = lines.pop()
        for line in lines:
            known = _seen.get(line) if not self._lines else None
            if known is None:
                known = self._line(line)
            if known is not None:
                parsed.append(known)
            elif self.broken is not None:
                self._partial = b""
                return parsed
        if len(self._partial) > MAX_LINE:
            self.broken = f"a reply line exceeds {MAX_LINE:,} octets"
            self._partial = b""
        return parsed

    def _line(self, raw: bytes) -> ParsedReply | None:
        if not self._lines and len(raw) < MAX_TEXT:
            plain = _PLAIN.fullmatch(raw)
            if plain is not None:
                code, text, enhanced = plain.groups()
                reply = _reply(int(code), text.decode(), enhanced.decode() if enhanced else None)
                return _remember(_seen, raw, ParsedReply(reply), _CACHED_LINE)
        line = raw[:-1] if raw.endswith(b"\r") else raw
        if not line and self._lines and self._size <= MAX_REPLY:
            self._size += len(b"\r\n")
            return None  # some servers put empty lines between those of the reply to EHLO; Postfix ignores them, too
        self.broken = self._syntax_error(line)
        if self.broken is not None:
            return None
        if line[3:4] == b"-":
            self._code = line[:3]
            self._lines.append(line[4:])
            self._size += len(line)
            return None
        if self._lines:
            parsed = _multi_line(int(line[:3]), [*self._lines, line[4:]])
            self._lines = []
            self._size = 0
            return parsed
        text = printable(line[4:]).strip()
        return _remember(_seen, raw, ParsedReply(_reply(int(line[:3]), text, _enhanced_code(text))), _CACHED_LINE)

    def _syntax_error(self, line: bytes) -> str | None:
        """Return why `line` can't be the next line of a reply (RFC 5321 4.2); None if it can."""
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


def _remember(seen: dict[bytes, ParsedReply], raw: bytes, parsed: ParsedReply, max_octets: int) -> ParsedReply:
    if len(raw) <= max_octets:
        if len(seen) >= _CACHE_SIZE:
            seen.clear()
        seen[raw] = parsed
    return parsed


def printable(raw: bytes) -> str:
    """Return `raw` as printable text: invalid UTF-8 and control characters become U+FFFD, white space a space.

    PostgreSQL rejects NUL in text, and terminals execute escape sequences.
    """
    text = raw.decode("utf-8", "replace")
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "\ufffd" for letter in text)


def _multi_line(code: int, raw_lines: list[bytes]) -> ParsedReply:
    lines = tuple(printable(line).strip() for line in raw_lines)
    enhanced = _enhanced_code(lines[0])
    # RFC 2034 4 repeats the enhanced code on every line; keep the first.
    rest = [line.removeprefix(enhanced).strip() if enhanced else line for line in lines[1:]]
    text = " ".join(part for part in (lines[0], *rest) if part)
    return ParsedReply(_reply(code, text, enhanced), lines)


def _enhanced_code(text: str) -> str | None:
    found = _ENHANCED.match(text)
    return found.group() if found is not None else None


def _reply(code: int, text: str, enhanced: str | None) -> Reply:
    if enhanced is not None and int(enhanced[0]) != code // 100:
        enhanced = None  # RFC 3463 2: the class must match the code; drop an enhanced code that contradicts it
    return Reply(code, text[:MAX_TEXT], enhanced)
