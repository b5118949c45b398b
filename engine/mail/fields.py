"""Parse message headers: the fields with their offsets, their text decoded, the mailboxes in them.

Written for mail from others, including hostile mail: every function is linear in its input and has one exception.
"""

import binascii
import re
import unicodedata
from collections.abc import Iterator
from typing import Final, NamedTuple

from engine.mail.address import BadAddress, Mailbox, parse_mailbox
from engine.mail.charsets import in_charset

MAX_HEADER: Final = 102_400  # octets of the whole header, as in Postfix's header_size_limit
MAX_FIELDS: Final = 1_000
MAX_ENTRY: Final = 10_000  # characters of one mailbox, its name still encoded

_field_name = re.compile(rb"([!-9;-~]+)[ \t]*").fullmatch  # RFC 5322 2.2; blanks before the colon: 4.5.8
_encoded_word = re.compile(r"=\?([^?\s*]{1,40})(?:\*[^?\s]{0,40})?\?([BbQq])\?([^?\s]*)\?=").finditer  # RFC 2231 5
_special = re.compile(r'["\\(),;:<>]').finditer
_quoted_name = re.compile(r'"((?:[^"\\]|\\.)*)"').fullmatch
_escaped = re.compile(r"\\(.)").sub
_unquoted_specials = re.compile(r'[<>",;:@\\]').search
_comment = re.compile(r"\(([^()\\]*)\)").sub
_trailing_comment = re.compile(r"([^\s()]+)[ \t]*\(([^()\\]*)\)").fullmatch
_controls = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]+").sub
_hidden_control = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]").search  # all but the tab
_mapped_stops = re.compile("[\u3002\uff0e\uff61]").search  # UTS 46 2.3 maps them to the full stop


class BadHeader(ValueError):  # noqa: N818 - named for what was given
    """The bytes are not a header (RFC 5322 2.2), or exceed MAX_HEADER or MAX_FIELDS; the message says why."""


class Field(NamedTuple):
    """A header field: `name` in lower case, `value` without its last CRLF, and its offsets in the message."""

    name: bytes
    value: bytes
    start: int
    end: int


def divided(mime: bytes) -> tuple[int, int]:
    """Return the offsets of the end of the header (last CRLF included) and of the body; without an empty line there is
    no body.
    """
    if mime.startswith(b"\r\n"):
        return 0, 2
    end = mime.find(b"\r\n\r\n")
    return (len(mime), len(mime)) if end < 0 else (end + 2, end + 4)


def fields(mime: bytes, head_end: int) -> list[Field]:
    """Return the fields of a header with CRLF lines, in order. Raises BadHeader."""
    if head_end > MAX_HEADER:
        raise BadHeader(f"The header has {head_end} octets; at most {MAX_HEADER} are allowed.")
    found: list[Field] = []
    name, start, value_at, at = b"", 0, 0, 0
    for line in mime[:head_end].removesuffix(b"\r\n").split(b"\r\n") if head_end else ():
        if line[:1] in (b" ", b"\t"):
            # A line of blanks ends the header for some mail clients and not for others (RFC 5322 3.2.2).
            if not at or not line.strip(b" \t"):
                raise BadHeader("The header begins with a folded line, or contains a line of blanks only.")
        else:
            if at:
                found.append(Field(name, mime[value_at : at - 2], start, at))
            name, colon = _name(line)
            start, value_at = at, at + colon
            if len(found) >= MAX_FIELDS:
                raise BadHeader(f"The header has more than {MAX_FIELDS} fields.")
        at += len(line) + 2
    if at:
        found.append(Field(name, mime[value_at : at - 2], start, at))
    return found


def _name(line: bytes) -> tuple[bytes, int]:
    """Return the name of a field in lower case, and the offset of its value in the line. Raises BadHeader."""
    name, colon, _ = line.partition(b":")
    match = _field_name(name)
    if match is None or not colon:
        shown = line[:40].decode("ascii", "backslashreplace")
        raise BadHeader(f"A line of the header is no field: {shown!r}. An empty line must end the header.")
    return match[1].lower(), len(name) + 1


def text_of(value: bytes, max_octets: int = 4_096) -> str:
    """Return a field's value as readable text: unfolded, encoded words decoded, no control characters.

    Only the first `max_octets` are read. The result is valid UTF-8 without NUL, so it can be stored.
    """
    text = value[:max_octets].replace(b"\r\n", b"").decode("utf-8", "replace").strip(" \t")
    if "=?" in text:
        text = decoded(text)
    return text if text.isprintable() else _controls(" ", text).strip(" ")


def decoded(text: str) -> str:
    """Decode RFC 2047 words and drop blanks between two of them; words that can't be decoded stay as they are."""
    pieces: list[str] = []
    run: list[bytes] = []  # octets of adjacent words in one charset: some encoders divide characters
    charset, at = "", 0
    for match in _encoded_word(text):
        between = text[at : match.start()]
        octets = _word_octets(match[2], match[3])
        if octets is None:
            continue
        if between.strip(" \t") or not run or match[1].lower() != charset:
            _end_run(pieces, run, charset)
            if between.strip(" \t") or not pieces:
                pieces.append(between)
        run.append(octets)
        charset, at = match[1].lower(), match.end()
    _end_run(pieces, run, charset)
    pieces.append(text[at:])
    return "".join(pieces)


def hidden_control(value: bytes) -> str | None:
    """Return the first control character (except tab) in the decoded encoded words of a field's value, or None.

    A mail client that decodes before it splits lines would see a new header field or line there.
    """
    if b"=?" not in value:
        return None
    found = _hidden_control(decoded(value.replace(b"\r\n", b"").decode("utf-8", "replace")))
    return None if found is None else found[0]


def _end_run(pieces: list[str], run: list[bytes], charset: str) -> None:
    if run:
        pieces.append(in_charset(b"".join(run), charset))
        run.clear()


def _word_octets(encoding: str, payload: str) -> bytes | None:
    try:
        raw = payload.encode("ascii")
        if encoding in "Bb":
            return binascii.a2b_base64(raw + b"=" * (-len(raw) % 4))
        return binascii.a2b_qp(raw, header=True)
    except ValueError:
        return None


def entries(value: str) -> Iterator[str]:
    """Yield the entries of an unfolded address list (RFC 5322 3.4), including those of groups, without outer blanks."""
    start = skip = depth = 0
    quoted = angle = False
    for match in _special(value):
        letter, at = match[0], match.start()
        if at < skip:
            continue
        if letter == "\\":
            skip = at + 2 if quoted or depth else at
        elif quoted or (letter == '"' and not depth):
            quoted = (letter != '"') if quoted else True
        elif letter in "()":
            depth = max(0, depth + (1 if letter == "(" else -1))
        elif depth:
            continue
        elif letter in "<>":
            angle = letter == "<"
        elif letter in ",;" or (letter == ":" and not angle):
            if letter != ":" and (entry := value[start:at].strip(" \t")):
                yield entry
            start, angle = at + 1, False
    if entry := value[start:].strip(" \t"):
        yield entry


def mailbox(entry: str) -> Mailbox:
    """Parse one entry of an address list, with its name decoded. Raises BadAddress.

    Strict about unquoted text before the brackets, because mail clients differ in which address they would show.
    Accepts the obsolete form `name@example.com (Name)` too.
    """
    if len(entry) > MAX_ENTRY:
        raise BadAddress(f"The address and its name are longer than {MAX_ENTRY} characters.")
    old = _trailing_comment(entry)
    if old is not None:
        return Mailbox(_shown(old[2]), _unmapped(old[1]).address)
    if "(" in entry and '"' not in entry:
        entry = _comment(" ", entry).strip(" \t")
    if not entry.endswith(">"):
        return _unmapped(entry)
    name, bracket, address = entry[:-1].rpartition("<")
    if not bracket:
        raise BadAddress("The address ends with > but has no <.")
    name, address = name.strip(" \t"), address.strip(" \t")
    quoted = _quoted_name(name)
    if quoted is not None:
        name = _escaped(r"\1", quoted[1])
    elif name.lower() != address.lower() and (special := _unquoted_specials(name)) is not None:
        raise BadAddress(f"The name before the address holds {special[0]} outside quotes.")
    return Mailbox(_shown(name), _unmapped(address).address)


def _unmapped(address: str) -> Mailbox:
    """Parse an address that is passed on as it is written. Raises BadAddress.

    Refuses a domain that is valid only after IDNA mapping (UTS 46): other software does not map it, or maps it
    differently.
    """
    domain = address.rpartition("@")[2].rstrip("> ")
    if not domain.isascii():
        lowered = domain.lower()
        if _mapped_stops(domain) or unicodedata.normalize("NFKC", lowered) != lowered:
            raise BadAddress(f"The domain {domain} is written with characters that programs read differently.")
    return parse_mailbox(address)


def _shown(name: str) -> str:
    text = decoded(name) if "=?" in name else name
    return _controls(" ", text).strip(" \t")
