"""Decode the content of MIME parts: base64, quoted-printable, uuencode (RFC 2045 6). Linear in the input, never raises.

The only decoder of stored and received messages: bodies, attachments, what the virus scanner sees, delivery reports.
It keeps all that some mail program shows, and says where the encoding is damaged.
"""

import binascii
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pybase64

SLICE: Final = 256 * 1024  # octets of base64 decoded at a time: 0.5 ms during which no other thread runs
_MAX_PIECES: Final = 100_000  # padded pieces of one part
_MAX_BROKEN: Final = 1_000  # lines of uuencode that can't be decoded

_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_NOT_PADDED: Final = bytes(set(range(256)) - set(_ALPHABET + b"="))
_LETTERS: Final = _ALPHABET + b"= \t\r\n"
# A letter that is not base64, or a blank between two others, as in words.
_foreign = re.compile(rb"[^A-Za-z0-9+/= \t\r\n]|(?<![ \t\r\n])[ \t]++(?![ \t\r\n])").search
_padding = re.compile(rb"=+").split

_BLANKS_AT_ENDS: Final = (b" \n", b"\t\n", b" \r\n", b"\t\r\n")
_blanks_at_ends = re.compile(rb"(?<![ \t])[ \t]++(?=\r?\n|\Z)").sub
_soft_cr = re.compile(rb"=\r(?!\n)").sub

_uu_begin = re.compile(rb"begin[ \t]+[0-7]{3,6}[ \t]+([^\r\n]*+)\r?\n").match
_yenc_begin = re.compile(rb"=ybegin [^\r\n]{0,200}?\bname=([^\r\n]*+)").match

IDENTITY: Final = frozenset({"", "7bit", "8bit", "binary", "7-bit", "8-bit"})
_NAMES: Final = {
    "base64": "base64", "x-base64": "base64", "base-64": "base64", "quoted-printable": "quoted-printable",
    "x-uuencode": "x-uuencode", "x-uue": "x-uuencode", "uuencode": "x-uuencode", "uue": "x-uuencode",
}  # fmt: skip


def known_encoding(declared: str) -> str:
    """Return the usual name of a declared encoding; an unknown one as it is, "" for those that change nothing."""
    name = declared.rstrip(".")
    return "" if name in IDENTITY else _NAMES.get(name, name)


def decode(raw: bytes, encoding: str, *, whole: bool = True) -> tuple[bytes, bool]:
    """Return the decoded octets, and True if the encoding is damaged or unknown.

    `encoding` is one of `known_encoding`. `whole`: False if `raw` is only the beginning of the content.
    """
    match encoding:
        case "":
            return raw, False
        case "base64":
            return _from_base64(raw, whole=whole)
        case "quoted-printable":
            return _from_quoted_printable(raw)
        case "x-uuencode":
            return _from_uuencode(raw)
        case _:
            return raw, True


# -- base64 -----------------------------------------------------------------------------------------


def _from_base64(raw: bytes, *, whole: bool) -> tuple[bytes, bool]:
    """Decode all that is base64: pieces after padding too, as many programs do, but not words after it."""
    with suppress(binascii.Error):
        return _sliced_base64(raw), False
    padded = raw.find(b"=")
    damaged = False
    end = len(raw)
    if padded >= 0 and (rest := raw[padded:].lstrip(b"= \t\r\n")):
        # Text below the padding was added by a mailing list; it would decode to noise.
        damaged = True
        start = len(raw) - len(rest)
        words = _foreign(raw, start)
        end = len(raw) if words is None else max(raw.rfind(b"\n", 0, words.start()) + 1, start)
    damaged = damaged or bool(raw[:end].translate(None, _LETTERS))
    letters = raw[:end].translate(None, _NOT_PADDED)
    pieces = []
    for piece in _padding(letters, _MAX_PIECES):
        octets, broken = _piece(piece)
        pieces.append(octets)
        damaged = damaged or (broken and whole)
    unpadded = letters.rstrip(b"=")
    short = whole and len(letters) - len(unpadded) < -len(unpadded.translate(None, b"=")) % 4 and not damaged
    return b"".join(pieces), damaged or short


def _piece(letters: bytes) -> tuple[bytes, bool]:
    """Decode letters up to a padding; True if one is left over."""
    letters = letters.translate(None, b"=") if b"=" in letters else letters
    rest = len(letters) % 4
    size = len(letters) - (rest == 1)
    return binascii.a2b_base64(letters[:size] + b"=" * (-size % 4)), rest == 1


def _sliced_base64(raw: bytes) -> bytes:
    """Decode well-formed base64 in slices of whole lines: in a thread, other threads run between two of them.

    Raises binascii.Error for anything else, also where lines end within a group of four characters.
    """
    pieces: list[bytes] = []
    start = 0
    while start < len(raw):
        end = raw.find(b"\n", start + SLICE) + 1 or len(raw)
        letters = raw[start:end].translate(None, b"\r\n \t")
        if end < len(raw) and letters.endswith(b"="):
            raise binascii.Error("padding before the end")
        pieces.append(pybase64.b64decode(letters, validate=True))
        start = end
    return b"".join(pieces)


# -- quoted-printable -------------------------------------------------------------------------------


def _from_quoted_printable(raw: bytes) -> tuple[bytes, bool]:
    """Decode, with blanks at line ends deleted (RFC 2045 6.7 rule 3); what is no escape stays as it is."""
    if raw[-1:] in {b" ", b"\t"} or any(ending in raw for ending in _BLANKS_AT_ENDS):
        raw = _blanks_at_ends(b"", raw)
    soft_crlf = raw.count(b"=\r\n")
    damaged = raw.count(b"=\r") != soft_crlf
    if damaged:  # the decoder below would drop all up to the next line feed
        raw = _soft_cr(b"=\n", raw)
    if b"==" in raw:  # the decoder would drop one of them, also where the second begins an escape
        damaged, raw = True, raw.replace(b"==", b"=3D=").replace(b"==", b"=3D=")  # twice: pairs may touch
    octets = binascii.a2b_qp(raw)
    soft_lf = raw.count(b"=\n")
    cut_off = raw.endswith(b"=") and not raw.endswith(b"==")
    removed = len(raw) - len(octets) - 3 * soft_crlf - 2 * soft_lf - cut_off
    escapes = raw.count(b"=") - soft_crlf - soft_lf - cut_off
    return octets, damaged or removed != 2 * escapes


# -- uuencode ---------------------------------------------------------------------------------------


def inline_names(mime: bytes, start: int, end: int) -> Iterator[str]:
    """Yield the names of the files that stand in a text between two offsets, uuencoded or in yEnc."""
    for mark, begin in ((b"begin", _uu_begin), (b"=ybegin", _yenc_begin)):
        at = start if mime.startswith(mark, start, end) else mime.find(b"\n" + mark, start, end)
        while at >= 0:
            at += mime.startswith(b"\n", at)
            if (found := begin(mime, at, end)) is not None:
                yield found[1].decode("utf-8", "replace").strip()
            at = mime.find(b"\n" + mark, at, end)


def _from_uuencode(raw: bytes) -> tuple[bytes, bool]:
    """Decode the lines between `begin` and `end`; without `begin`, all lines."""
    begin = _uu_beginning(raw)
    start = 0 if begin is None else begin.end()
    damaged = begin is None or bool(raw[: begin.start()].strip())
    pieces: list[bytes] = []
    ended, broken_lines = False, 0
    for number, line in enumerate(raw[start:].split(b"\n")):
        line = line.rstrip(b"\r")  # noqa: PLW2901 - the same line
        if ended:
            damaged = damaged or bool(line.strip())
            if damaged:
                break
        elif line.strip() == b"end":
            ended = True
        elif line.strip() and not (number and line in {b"`", b" "}):
            octets, broken = _uu_line(line)
            pieces.append(octets)
            broken_lines += broken
            if broken_lines > _MAX_BROKEN:
                break
    return b"".join(pieces), damaged or not ended or broken_lines > 0


def _uu_beginning(raw: bytes) -> "re.Match[bytes] | None":
    """Return the first line `begin` of uuencoded content."""
    at = 0
    while at >= 0:
        if (found := _uu_begin(raw, at)) is not None:
            return found
        at = raw.find(b"\nbegin", at) + 1 or -1
    return None


def _uu_line(line: bytes) -> tuple[bytes, bool]:
    with suppress(binascii.Error):
        return binascii.a2b_uu(line), False
    # Some encoders write too many letters; the first one counts the octets.
    size = (((line[0] - 32) & 63) * 4 + 5) // 3
    with suppress(binascii.Error):
        return binascii.a2b_uu(line[:size]), len(line) < size
    return b"", True
