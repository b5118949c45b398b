"""Draw text on the A4 pages of a PDF: the same bytes for the same text. Takes about 8 ms; call it in a thread.

Invoices and delivery certificates are made with it. The bytes depend on the versions of reportlab and arabic-reshaper,
which ops/lock pins, and on nothing else of a machine: fonts are read from `fonts/`, streams are not compressed (zlib's
output differs between its versions), and settings of the libraries in the environment are ignored.

DejaVu Sans (fonts/) has Latin, Greek, Cyrillic, Hebrew and Arabic letters and is embedded by the glyphs used. Chinese,
Japanese and Korean text uses the CID fonts that PDF readers have (ISO 32000-1, 9.7.5.2).
"""

import unicodedata
from collections.abc import Iterator
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from engine.accounts.bidi import visual_order

WIDTH: Final = 595.28  # points: A4
MARGIN: Final = 56.7  # 20 mm
LEADING: Final = 1.4
TEXT_SIZE: Final = 9.5
_HEIGHT: Final = 841.89
_BOTTOM: Final = 85.0
_FONTS: Final = Path(__file__).parent / "fonts"
_SANS, _BOLD = "DejaVuSans", "DejaVuSans-Bold"
_JAPANESE, _KOREAN, _CHINESE = "HeiseiKakuGo-W5", "HYGothic-Medium", "STSong-Light"
# Those of reportlab's settings that change documents; without this, variables such as RL_useA85 would.
_LIBRARY_SETTINGS: Final[dict[str, object]] = {
    "useA85": 0, "pdfComments": 0, "pdfMultiLine": 0, "reserveTTFNotdef": 1, "allowTTFSubsetting": [],
    "canvas_basefontname": "Helvetica", "canvas_baseColor": None, "documentLang": None,
    "defaultEncoding": "WinAnsiEncoding",
}  # fmt: skip


class PdfPage:
    """The page that is being drawn, and the height at which the next text goes, in points from the bottom."""

    def __init__(self, title: str, author: str, footer: str) -> None:
        """Begin a document; `footer` stands at the foot of each page, before its number."""
        from reportlab.pdfgen.canvas import Canvas  # noqa: PLC0415 - 10 MB that most processes never need

        _register()
        self._buffer = BytesIO()
        self._canvas: Any = Canvas(self._buffer, pagesize=(WIDTH, _HEIGHT), invariant=1, pageCompression=0)
        self._canvas.setTitle(title)
        self._canvas.setAuthor(author)
        self._footer = footer
        self.y = _HEIGHT - MARGIN

    def text(self, x: float, text: str, *, size: float = TEXT_SIZE, bold: bool = False, right: bool = False) -> None:
        """Draw a line of text at the present height, from `x` or, with `right`, up to it."""
        pieces = list(_runs(visual_order(text), bold=bold))
        widths = [self._canvas.stringWidth(piece, font, size) for piece, font in pieces]
        at = x - sum(widths) if right else x
        for (piece, font), width in zip(pieces, widths, strict=True):
            self._canvas.setFont(font, size)
            self._canvas.drawString(at, self.y, piece)
            at += width

    def down(self, lines: float = 1.0, size: float = TEXT_SIZE) -> None:
        """Move down; begin a new page at the bottom."""
        self.y -= lines * size * LEADING
        if self.y < _BOTTOM:
            self._end_page()
            self._canvas.showPage()
            self.y = _HEIGHT - MARGIN

    def rule(self) -> None:
        """Draw a thin line over the width of the page."""
        self._canvas.setLineWidth(0.5)
        self._canvas.line(MARGIN, self.y + 4, WIDTH - MARGIN, self.y + 4)

    def wrapped(self, text: str, width: float, size: float = TEXT_SIZE) -> list[str]:
        """Divide text into lines that fit the width, within a word where one is too long."""
        lines, line = [], ""
        for word in text.split():
            for part in self._parts(word, width, size):
                longer = f"{line} {part}".strip()
                if line and self._width(longer, size) > width:
                    lines.append(line)
                    longer = part
                line = longer
        return [*lines, line] if line else lines

    def attach(self, name: str, content: bytes, media: str) -> None:
        """Attach a file to the document (ISO 32000-1, 7.11.4); the library has no function for it. At most once."""
        from reportlab.pdfbase import pdfdoc  # noqa: PLC0415

        document = self._canvas._doc  # noqa: SLF001
        embedded = pdfdoc.PDFStream(content=content)
        embedded.filters = ()
        embedded.dictionary["Type"] = pdfdoc.PDFName("EmbeddedFile")
        embedded.dictionary["Subtype"] = pdfdoc.PDFName(media)
        shown = pdfdoc.PDFString(name)
        file = pdfdoc.PDFDictionary({
            "Type": pdfdoc.PDFName("Filespec"), "F": shown, "UF": shown,
            "EF": pdfdoc.PDFDictionary({"F": document.Reference(embedded)}),
        })  # fmt: skip
        tree = pdfdoc.PDFDictionary({"Names": pdfdoc.PDFArray([shown, document.Reference(file)])})
        document.Catalog.Names = pdfdoc.PDFDictionary({"EmbeddedFiles": tree})

    def finish(self) -> bytes:
        """Return the document."""
        self._end_page()
        self._canvas.save()
        return self._buffer.getvalue()

    def _parts(self, word: str, width: float, size: float) -> Iterator[str]:
        while self._width(word, size) > width:
            fits = max(1, int(len(word) * width / self._width(word, size)))
            yield word[:fits]
            word = word[fits:]
        yield word

    def _width(self, text: str, size: float) -> float:
        widths = [self._canvas.stringWidth(piece, font, size) for piece, font in _runs(text, bold=False)]
        return float(sum(widths))

    def _end_page(self) -> None:
        kept, self.y = self.y, MARGIN - 14
        self.text(MARGIN, f"{self._footer}, page {self._canvas.getPageNumber()}", size=7.5)
        self.y = kept


def _runs(text: str, *, bold: bool) -> Iterator[tuple[str, str]]:
    """Yield pieces of text with the font that has their letters."""
    if text and text.isascii():
        yield text, _BOLD if bold else _SANS
        return
    piece, font = "", ""
    for letter in unicodedata.normalize("NFC", text):
        own = _font_of(letter, bold=bold)
        if own != font and piece:
            yield piece, font
            piece = ""
        piece, font = piece + letter, own
    if piece:
        yield piece, font


def _font_of(letter: str, *, bold: bool) -> str:
    code = ord(letter)
    if 0x3040 <= code <= 0x30FF:
        return _JAPANESE
    if 0xAC00 <= code <= 0xD7AF or 0x1100 <= code <= 0x11FF:
        return _KOREAN
    if 0x2E80 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF or 0xFF00 <= code <= 0xFFEF:
        return _CHINESE
    return _BOLD if bold else _SANS


@cache
def _register() -> None:
    """Set up the library and its fonts, once per process."""
    from reportlab import rl_config  # noqa: PLC0415
    from reportlab.pdfbase import pdfmetrics  # noqa: PLC0415
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont  # noqa: PLC0415
    from reportlab.pdfbase.ttfonts import TTFont  # noqa: PLC0415

    for setting, value in _LIBRARY_SETTINGS.items():
        setattr(rl_config, setting, value)
    for name in (_SANS, _BOLD):  # of the glyphs used alone; text is extracted by the ToUnicode map
        pdfmetrics.registerFont(TTFont(name, str(_FONTS / f"{name}.ttf"), asciiReadable=0, shapable=False))
    for name in (_JAPANESE, _KOREAN, _CHINESE):
        pdfmetrics.registerFont(UnicodeCIDFont(name))
