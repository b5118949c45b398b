"""Turn the octets of an XML document into UTF-8 that a strict parser reads, piece by piece.

Reports of strangers declare wrong encodings, hold control characters, schema tags that nothing closes, and addresses in
unescaped angle brackets. Used by `dmarc_reports.py`.
"""

import codecs
import re
from typing import Final

_DECLARATION: Final = 512  # octets in which the declaration of the encoding ends
MAX_TAIL: Final = 8_192  # octets of a tag that are held back until its end arrives

_declared = re.compile(rb"""^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["']""").match
_schema_tag = re.compile(rb"</?xs:schema[^<>]*>").sub
_bracketed_address = re.compile(rb"<([^<>\s\"'=/?!]{1,128}@[^<>\s\"']{1,255})>").sub
# XML 1.0 2.2 allows none of these characters, not even escaped.
_CONTROLS: Final = bytes.maketrans(bytes(set(range(32)) - {9, 10, 13}), b" " * 29)
_BOMS: Final = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_charset = re.compile(
    r"iso-?8859-\d{1,2}|latin-?1|windows-125\d|koi8-[ru]|gb2312|gbk|gb18030|big5|shift_jis|euc-(?:jp|kr)", re.IGNORECASE
).fullmatch


class XmlText:
    """Converts one document; holds an incremental decoder and the beginning of a tag that is not complete yet."""

    def __init__(self) -> None:
        self._start = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._tail = b""

    def feed(self, piece: bytes) -> bytes:
        """Return the next octets of the document in UTF-8; nothing until the declaration must be complete."""
        if self._decoder is None:
            self._start += piece
            if len(self._start) < _DECLARATION:
                return b""
            return self._begin()
        return self._whole_tags(self._decoder.decode(piece).encode("utf-8", "replace"))

    def finish(self) -> bytes:
        """Return what was held back."""
        begun = self._begin() if self._decoder is None else b""
        tail, self._tail = self._tail, b""
        return begun + _repaired(tail)

    def _begin(self) -> bytes:
        start = self._start.removeprefix(codecs.BOM_UTF8).lstrip()
        self._start = b""
        self._decoder = codecs.getincrementaldecoder(_encoding(start))("replace")
        return self._whole_tags(self._decoder.decode(start).lstrip("\ufeff").encode("utf-8", "replace"))

    def _whole_tags(self, text: bytes) -> bytes:
        text = self._tail + text
        opened = text.rfind(b"<", max(0, len(text) - MAX_TAIL))
        if opened < 0 or text.find(b">", opened) >= 0:
            opened = len(text)
        self._tail = text[opened:]
        return _repaired(text[:opened])


def _encoding(start: bytes) -> str:
    """Return the encoding of a document by its first octets: byte order mark, zero octets, then the declaration."""
    for mark, name in _BOMS:
        if start.startswith(mark):
            return name
    if start.startswith(b"<\0"):
        return "utf-16-le"
    if start.startswith(b"\0<"):
        return "utf-16-be"
    declared = _declared(start)
    if declared is None or _charset(declared[1].decode()) is None:
        return "utf-8"
    try:
        return codecs.lookup(declared[1].decode()).name
    except LookupError:
        return "utf-8"


def _repaired(text: bytes) -> bytes:
    if b"@" in text:
        text = _bracketed_address(rb"&lt;\1&gt;", text)
    if b"xs:schema" in text:
        text = _schema_tag(b"", text)
    return text.translate(_CONTROLS)
