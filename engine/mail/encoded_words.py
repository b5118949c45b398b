"""Decode RFC 2047 encoded words as lenient mail programs do (Thunderbird, MimeKit). Pure; linear in the input.

Received mail is shown in this reading, and the checks of submitted mail judge it, so that a word that only some
programs decode hides nothing. A text may hold octets that are not UTF-8, in the form of `surrogateescape`.
"""

import binascii
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from engine.mail.charsets import CharsetFlaw, decode_text

_word_start = re.compile(r"=\?([^?]{0,60})\?([BbQq])\?").search
_hex_pair = re.compile(r"[0-9A-Fa-f]{2}").match
_language = re.compile(r"\*.*", re.DOTALL).sub  # RFC 2231 5
_escape = re.compile(rb"=([0-9A-Fa-f]{2})").sub
_not_base64: Final = bytes(set(range(256)) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="))
_folds = re.compile(rb"\r?\n(?=[ \t])").sub
_escaped_octets = re.compile("[\udc80-\udcff]").search
_controls = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+").sub
_hidden_control = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]").search  # all but the tab
_break = re.compile(r"[\x00\x0a-\x0d\x1c-\x1e\x85\u2028\u2029]").search  # where some program begins a new line


class EncodedWord(NamedTuple):
    """An encoded word and its place in the text; `payload` is what stands between its second `?` and its end."""

    start: int
    end: int
    charset: str  # as declared, without its language; may be empty
    octets: bytes
    payload: str


def unfolded(value: bytes) -> str:
    """Return a field's value without folds and its line end, as text that keeps its octets (`surrogateescape`)."""
    value = value.rstrip(b"\r\n")
    if b"\n" in value:
        value = _folds(b"", value)
    return value.decode("utf-8", "surrogateescape")


def words(text: str, *, nested: bool = False) -> Iterator[EncodedWord]:
    """Yield the encoded words in order.

    A payload may contain blanks, `?` and octets outside ASCII. A word that begins within another ends the outer one,
    which then is none; with `nested`, the outer one counts, as for programs that look for the next `?=`.
    """
    found, end = _word_start(text), -1
    while found is not None:
        if end < found.end():
            end = text.find("?=", found.end())
        if end < 0:
            return
        inner = None if nested else _word_start(text, found.end(), end)
        if inner is not None:
            found = inner
            continue
        if found[2] in "Qq":
            end = _end_of_q(text, end)
        payload = text[found.end() : end]
        octets = _octets(found[2], payload)
        if octets is None:
            found = _word_start(text, found.start() + 2)
            continue
        yield EncodedWord(found.start(), end + 2, _language("", found[1]).strip(), octets, payload)
        found = _word_start(text, end + 2)


def _end_of_q(text: str, end: int) -> int:
    """Return the end of a word whose first `?=` is at `end`: one before two hexadecimal digits is `?` and an escape."""
    while _hex_pair(text, end + 2) is not None:
        later = text.find("?=", end + 2)
        if later < 0 or _word_start(text, end + 2, later + 1) is not None:
            break
        end = later
    return end


def decoded(text: str) -> str:
    """Return a text with its encoded words decoded, without the blanks between two of them."""
    return decoded_text(text)[0]


def decoded_text(text: str, *, nested: bool = False) -> tuple[str, CharsetFlaw | None]:
    """Return a text with its encoded words decoded, valid in UTF-8, and the first flaw of its characters."""
    if "=?" not in text:
        return _plain(text)
    found = _Decoded()
    at = 0
    for word in words(text, nested=nested):
        found.add_plain(text[at : word.start])
        found.add_word(word)
        at = word.end
    found.add_plain(text[at:])
    return found.ended()


def shown(text: str) -> tuple[str, CharsetFlaw | None]:
    """Return a decoded text without control characters and outer blanks, and its flaw."""
    text, flaw = decoded_text(text)
    return (text if text.isprintable() else _controls(" ", text)).strip(), flaw


def readings(text: str) -> tuple[str, ...]:
    """Return the texts that mail programs may show for this one.

    They differ where a word begins within another, and where a word decodes to another one, as some decode twice.
    """
    return tuple(dict.fromkeys(_read_in_all_ways(text)))


def hidden_control(value: bytes) -> str | None:
    """Return the first control character (except tab) in the decoded encoded words of a field's value, or None.

    A mail client that decodes before it splits lines would see a new header field or line there. Where clients decode
    twice, line breaks alone count: a subject may look like encoded words, and is encoded for that.
    """
    if b"=?" not in value:
        return None
    once, nested, twice = _read_in_all_ways(unfolded(value))
    found = _hidden_control(once) or _hidden_control(nested) or _break(twice)
    return None if found is None else found[0]


def hides_break(text: str) -> bool:
    """Return True if a client that decodes twice would find a line break in a text that we encode."""
    return "=?" in text and _break(decoded(text)) is not None


def _read_in_all_ways(text: str) -> tuple[str, str, str]:
    """Return what clients show that are lenient, that decode words within words, and that decode twice."""
    once = decoded(text)
    if _word_start(once) is None:  # the outer word would have stayed
        return once, once, once
    return once, decoded_text(text, nested=True)[0], decoded(once)


class _Decoded:
    """Collect the pieces of a text; octets of adjacent words in one charset are joined, since some encoders divide
    characters.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._run: list[bytes] = []
        self._charset = ""
        self._raw = False  # the run has octets that no encoding should let through
        self._blanks = ""  # since the last word
        self._flaw: CharsetFlaw | None = None

    def add_plain(self, text: str) -> None:
        """Add what stands between two words."""
        if self._run and not text.strip(" \t"):
            self._blanks = text
            return
        self._end_run()
        self._add(*_plain(text))

    def add_word(self, word: EncodedWord) -> None:
        """Add a word."""
        self._blanks = ""  # between two words they have no meaning
        if self._run and word.charset.lower() != self._charset:
            self._end_run()
        self._charset = word.charset.lower()
        self._raw = self._raw or not word.payload.isascii()
        self._run.append(word.octets)

    def ended(self) -> tuple[str, CharsetFlaw | None]:
        """Return the text and its first flaw."""
        self._end_run()
        return "".join(self._pieces), self._flaw

    def _end_run(self) -> None:
        if self._run:
            self._add(*_in_charset(b"".join(self._run), self._charset, raw=self._raw))
            self._pieces.append(self._blanks)
            self._run.clear()
            self._raw, self._blanks = False, ""

    def _add(self, text: str, flaw: CharsetFlaw | None) -> None:
        self._pieces.append(text)
        self._flaw = self._flaw or flaw


def _plain(text: str) -> tuple[str, CharsetFlaw | None]:
    if text.isascii() or _escaped_octets(text) is None:
        return text, None
    return decode_text(text.encode("utf-8", "surrogateescape"), "")


def _in_charset(octets: bytes, charset: str, *, raw: bool) -> tuple[str, CharsetFlaw | None]:
    if not raw:
        return decode_text(octets, charset or "utf-8")
    text, flaw = decode_text(octets, "")  # UTF-8, whatever the word declares, or a guess
    if flaw is None:
        return text, None
    declared, declared_flaw = decode_text(octets, charset or "utf-8")
    return (text, flaw) if declared_flaw else (declared, None)


def _octets(encoding: str, payload: str) -> bytes | None:
    """Return the decoded octets of a payload; None if it is not in its encoding."""
    raw = payload.encode("utf-8", "surrogateescape")
    if encoding in "Qq":
        raw = raw.replace(b"_", b" ")
        return _escape(_escaped, raw) if b"=" in raw else raw
    letters = raw.translate(None, _not_base64)
    if raw and not letters.strip(b"="):
        return None
    whole = letters.rstrip(b"=")
    if b"=" not in whole:
        return _base64(whole)
    # Some encoders join words that each end with padding.
    return b"".join([_base64(piece) for piece in letters.split(b"=") if piece])


def _escaped(found: "re.Match[bytes]") -> bytes:
    return bytes((int(found[1], 16),))


def _base64(letters: bytes) -> bytes:
    size = len(letters) - (len(letters) % 4 == 1)
    return binascii.a2b_base64(letters[:size] + b"=" * (-size % 4))
