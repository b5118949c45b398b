"""Format header fields so that every server and mail client reads them alike (RFC 5322, 2047, 2369).

Each function returns complete, folded fields with CRLF. Values must not contain CR, LF or NUL: `compose` checks all of
them at once.
"""

import re
from binascii import b2a_base64
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from engine.mail.address import Mailbox
from engine.mail.encode import MAX_LINE

FOLD_AT: Final = 76  # RFC 5322 2.1.1 asks for 78, RFC 2047 2 for 76 where there are encoded words
WORD_LIMIT: Final = 75  # RFC 2047 2, one encoded word
_WRAPPING: Final = len("=?utf-8?q??=")
_PHRASE_WORD: Final = 64  # the first fits on a line with the longest field name, "Reply-To:"
_MIN_WORD: Final = 24  # with less room on the first line, the words begin on the next

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# RFC 2369 and RFC 8058: links in angle brackets, which readers take with any blank in them.
URL_LISTS: Final = frozenset({
    "list-archive", "list-help", "list-owner", "list-post", "list-subscribe", "list-unsubscribe",
})  # fmt: skip
# Readers look for encoded words in text only (RFC 2047 5): these fields are never encoded.
_STRUCTURED: Final = frozenset({
    "auto-submitted", "cfbl-address", "cfbl-feedback-id", "disposition-notification-to", "feedback-id", "in-reply-to",
    "list-id", "list-unsubscribe-post", "precedence", "references",
})  # fmt: skip
words_of = re.compile(r" *[^ ]+").findall  # each with its leading blanks, which unfolding preserves
_atoms = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?: [A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*").fullmatch
# Entries of a URL list, each with its comma; a comma or blank within angle brackets belongs to the URL.
_entries = re.compile(r"(?:<[^<>]*>|[^,])*+,?").findall
# Mail that the service writes itself: RFC 3834 5 and Exchange's own field keep automatic replies away.
AUTOMATIC: Final = {"Auto-Submitted": "auto-generated", "X-Auto-Response-Suppress": "All"}
# An answer that a program writes (RFC 3834 3.1.7).
ANSWERED: Final = {"Auto-Submitted": "auto-replied", "X-Auto-Response-Suppress": "All"}
_escaped = re.compile(r'(["\\])').sub


def _escapes(unescaped: bytes) -> tuple[str, ...]:
    table = [chr(code) if code in unescaped else f"={code:02X}" for code in range(256)]
    table[0x20] = "_"
    return tuple(table)


_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_IN_PHRASE: Final = _escapes(_LETTERS + b"!*+-/")  # RFC 2047 5 (3)
_IN_TEXT: Final = _escapes(bytes(set(range(0x21, 0x7F)) - set(b"=?_")))  # RFC 2047 4.2


def date_field(at: datetime) -> str:
    """Return `Date: Fri, 20 Nov 2026 08:09:10 +0000` for an aware time."""
    return _date_field(int(at.timestamp()))


def text_field(name: str, value: str) -> str:
    """Format a field that is no address list (Subject, a customer's own): as it is if possible, else in encoded words.

    Blanks around the value are removed, as every parser does.
    """
    value = value.strip(" \t")
    kind = name.lower()
    if value.isascii() and value.isprintable() and ("=?" not in value or kind in URL_LISTS or kind in _STRUCTURED):
        if kind in URL_LISTS:
            return url_list_field(name, value)
        if not value:
            return f"{name}:\r\n"
        if len(name) + len(value) <= FOLD_AT - 2:
            return f"{name}: {value}\r\n"
        words = words_of(" " + value)
        # A text that begins on the second line is shown by some readers with the blank that begins the line.
        if max(map(len, words)) <= (MAX_LINE if kind in _STRUCTURED else MAX_LINE - len(name) - 1):
            return folded(name, words)
    room = FOLD_AT - len(name) - 2
    words = encoded_words(value, _IN_TEXT, first=min(room, WORD_LIMIT) if room >= _MIN_WORD else WORD_LIMIT)
    return folded(name, [" " + word for word in words])


def mailbox_field(name: str, mailboxes: Sequence[Mailbox]) -> str:
    """Format From, To, Cc or Reply-To in ASCII, except for a non-ASCII local part (RFC 6532)."""
    if len(mailboxes) == 1 and not mailboxes[0].name:
        return f"{name}: {mailboxes[0].address}\r\n"
    last = len(mailboxes) - 1
    parts: list[str] = []
    for place, mailbox in enumerate(mailboxes):
        comma = "," if place < last else ""
        if mailbox.name:
            parts += [" " + word for word in phrase(mailbox.name)]
            parts.append(f" <{mailbox.address}>{comma}")
        else:
            parts.append(f" {mailbox.address}{comma}")
    return folded(name, parts)


def url_list_field(name: str, value: str) -> str:
    """Format List-Unsubscribe or its like, in ASCII: lines break after commas only.

    Readers unfold a break within a URL to a blank. RFC 2369 2 tells them to ignore it, but many lose the URL, so only
    one that no line can hold is divided.
    """
    room = MAX_LINE - 1
    entries = [entry.strip(" ") for entry in _entries(value)]
    return folded(name, [" " + one[at : at + room] for one in entries for at in range(0, len(one), room)])


def folded(name: str, words: Iterable[str]) -> str:
    """Join words, which carry their leading blanks, into one field; lines break only before such a blank.

    The first word stays on the line of the name, also above `FOLD_AT`, unless it is encoded or exceeds the line.
    """
    lines: list[str] = []
    line = name + ":"
    for word in words:
        full = len(line) + len(word) > FOLD_AT
        if full and (lines or len(line) > len(name) + 1 or len(line) + len(word) > MAX_LINE or _is_encoded(word)):
            lines.append(line)
            line = word
        else:
            line += word
    lines.append(line)
    return "\r\n".join(lines) + "\r\n"


def phrase(name: str) -> list[str]:
    """Format a display name as atoms, one quoted string, or encoded words (RFC 5322 3.2.5, RFC 2047 5)."""
    if name.isascii() and name.isprintable() and len(name) < _PHRASE_WORD and "=?" not in name:
        if _atoms(name) is not None:
            return [name]
        return ['"' + _escaped(r"\\\1", name) + '"']
    return encoded_words(name, _IN_PHRASE, first=_PHRASE_WORD, limit=_PHRASE_WORD)


def quoted_words(name: str, value: str) -> list[str]:
    """Return the parameter `name` with its value in encoded words in quotes.

    RFC 2047 5 forbids them there, but Outlook before 2010 reads no RFC 2231 and takes these.
    """
    words = encoded_words(value, _IN_PHRASE, first=_PHRASE_WORD, limit=_PHRASE_WORD)
    words[0] = f'{name}="{words[0]}'
    words[-1] += '"'
    return [" " + word for word in words]


def encoded_words(text: str, escapes: Sequence[str], *, first: int = WORD_LIMIT, limit: int = WORD_LIMIT) -> list[str]:
    """Encode text as RFC 2047 words in UTF-8, in Q or B, whichever is shorter, without dividing a character.

    `first` and `limit` are the maximum lengths of the first and of later words.
    """
    raw = text.encode()
    quoted = "".join([escapes[code] for code in raw])
    if len(quoted) <= (len(raw) + 2) // 3 * 4:
        return [f"=?utf-8?q?{piece}?=" for piece in _cut_quoted(quoted, first - _WRAPPING, limit - _WRAPPING)]
    return [
        f"=?utf-8?b?{b2a_base64(piece, newline=False).decode()}?="
        for piece in _cut_octets(raw, (first - _WRAPPING) // 4 * 3, (limit - _WRAPPING) // 4 * 3)
    ]


@lru_cache(maxsize=16)
def _date_field(second: int) -> str:
    """Format the Date of a Unix second; cached, because many messages share a second."""
    utc = datetime.fromtimestamp(second, UTC)
    return (
        f"Date: {_DAYS[utc.weekday()]}, {utc.day:02d} {_MONTHS[utc.month]} {utc.year:04d}"
        f" {utc.hour:02d}:{utc.minute:02d}:{utc.second:02d} +0000\r\n"
    )


def _is_encoded(word: str) -> bool:
    return word.startswith(" =?")


def _cut_quoted(quoted: str, first: int, limit: int) -> list[str]:
    """Cut Q-encoded text into pieces of at most `limit` characters, at the beginning of a UTF-8 character."""
    pieces, start, room = [], 0, first
    while len(quoted) - start > room:
        end = start + room
        if quoted[end - 1] == "=":
            end -= 1
        elif quoted[end - 2] == "=":
            end -= 2
        while quoted[end] == "=" and quoted[end + 1] in "89AB":  # =80 to =BF continue a character
            end -= 3
        pieces.append(quoted[start:end])
        start, room = end, limit
    pieces.append(quoted[start:])
    return pieces


def _cut_octets(raw: bytes, first: int, limit: int) -> list[bytes]:
    """Cut UTF-8 into pieces of at most `limit` octets, at the beginning of a character."""
    pieces, start, room = [], 0, first
    while len(raw) - start > room:
        end = start + room
        while 0x80 <= raw[end] < 0xC0:
            end -= 1
        pieces.append(raw[start:end])
        start, room = end, limit
    pieces.append(raw[start:])
    return pieces
