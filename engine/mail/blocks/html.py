"""Render blocks as the HTML that mail clients show: tables, attributes and inline styles. Pure.

Outlook on Windows lays out with Word: it needs tables, `width` attributes and, for columns, cells in conditional
comments. Gmail removes style sheets that it does not like, so each element carries its own style, and the sheet in the
head adds phones and dark mode only. No text of the author stands in a comment or a style sheet.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from engine.mail.blocks import colors, inline
from engine.mail.blocks.look import Look, style_sheets
from engine.mail.blocks.types import (
    Align,
    Block,
    BlockDocument,
    ButtonBlock,
    ColumnsBlock,
    DividerBlock,
    FooterBlock,
    HeadingBlock,
    ImageBlock,
    ListBlock,
    SpacerBlock,
    TextBlock,
)
from engine.mail.template import escape

_TABLE: Final = '<table role="presentation" cellpadding="0" cellspacing="0" border="0"'
_SIDE: Final = 32  # pixels left and right of the content
_GAP: Final = 8  # pixels left and right of a column, and above and below a block
_SIZES: Final = {1: 28, 2: 22, 3: 18}  # pixels of headings
_LOGO_HEIGHT: Final = 48
# Keeps the first words of the email out of the preview of an inbox, behind a short preheader.
_FILLER: Final = "&#847;&zwnj;&nbsp;" * 40
_EMPTY: Final = "<tr>\n<td>&nbsp;</td>\n</tr>\n"
_InCell = HeadingBlock | TextBlock | ButtonBlock | ImageBlock | DividerBlock | ListBlock | FooterBlock


class PlacedImage(Struct, frozen=True):
    """An image as the HTML shows it: its address (`https:` or `cid:`) and its size in pixels."""

    source: str
    width: int
    height: int


class Place(Struct, frozen=True):
    """Where blocks stand: the prefix of their path, the width for their content, and the padding of their cells."""

    path: str
    width: int
    cell: str


def page(document: BlockDocument, look: Look, images: Mapping[str, PlacedImage]) -> str:
    """Return the HTML part; the document's ids, sections and images were checked before."""
    painter = _Painter(look, images)
    theme = document.theme
    inner = Place("blocks.blocks", look.width - 2 * _SIDE, f'class="wb-pad" style="padding:{_GAP}px {_SIDE}px')
    logo = "" if theme.logo is None else painter.logo(images[theme.logo], inner)
    rows = painter.rows(document.blocks, inner)
    light = look.light
    language = "" if document.language is None else f' lang="{document.language}"'
    return (
        f'<!doctype html>\n<html{language} dir="auto" xmlns:o="urn:schemas-microsoft-com:office:office">\n'
        f'{_head(look)}<body class="wb-page" style="margin:0;padding:0;background-color:{light.background}">\n'
        f"{_preheader(document.preheader, light.background)}"
        f'{_TABLE} width="100%" class="wb-page" bgcolor="{light.background}" '
        f'style="background-color:{light.background}">\n<tr>\n<td align="center" style="padding:24px 8px">\n'
        f'<!--[if mso]>{_TABLE} width="{look.width}" align="center"><tr><td><![endif]-->\n'
        f'{_TABLE} width="100%" align="center" class="wb-surface" bgcolor="{light.surface}" '
        f'style="max-width:{look.width}px;margin:0 auto;background-color:{light.surface};border-radius:8px">\n'
        f'<tr>\n<td style="padding:{_SIDE - _GAP}px 0">\n{_TABLE} width="100%">\n{logo}{rows}</table>\n</td>\n</tr>\n'
        "</table>\n<!--[if mso]></td></tr></table><![endif]-->\n</td>\n</tr>\n</table>\n</body>\n</html>\n"
    )


def _head(look: Look) -> str:
    """Return the head. It has no title: that of an email is its subject (HTML, 4.2.2)."""
    scheme = "light dark" if look.dark else "dark"
    sheets = "".join(f"<style>\n{sheet}\n</style>\n" for sheet in style_sheets(look))
    return (
        '<head>\n<meta charset="utf-8">\n<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        '<meta name="x-apple-disable-message-reformatting">\n'
        '<meta name="format-detection" content="telephone=no,date=no,address=no,email=no">\n'
        f'<meta name="color-scheme" content="{scheme}">\n<meta name="supported-color-schemes" content="{scheme}">\n'
        "<!--[if mso]><xml><o:OfficeDocumentSettings><o:PixelsPerInch>96</o:PixelsPerInch></o:OfficeDocumentSettings>"
        f"</xml><style>h1,h2,h3,p,a,li{{font-family:{look.outlook_font}!important}}</style><![endif]-->\n"
        f"{sheets}</head>\n"
    )


def _preheader(text: str, background: str) -> str:
    if not text:
        return ""
    return (
        '<div style="display:none;max-height:0;max-width:0;overflow:hidden;opacity:0;mso-hide:all;font-size:1px;'
        f'line-height:1px;color:{background}">{inline.plain(text, "blocks.preheader").html}{_FILLER}</div>\n'
    )


class _Painter:
    """The look and the images that all blocks of one document share."""

    def __init__(self, look: Look, images: Mapping[str, PlacedImage]) -> None:
        self._look = look
        self._images = images

    def rows(self, blocks: Sequence[Block], place: Place) -> str:
        """Return a table row per block; a section tag that stands alone goes between the rows."""
        return "".join(self._row(block, f"{place.path}[{index}]", place) for index, block in enumerate(blocks))

    def logo(self, image: PlacedImage, place: Place) -> str:
        """Return the row of the logo."""
        height = min(_LOGO_HEIGHT, image.height)
        width = min(place.width, max(1, round(image.width * height / image.height)))
        return _cell(place, "left", self._picture(image, width, "Logo"))

    def _row(self, block: Block, path: str, place: Place) -> str:
        if isinstance(block, ColumnsBlock):
            return self._columns(block, path, place)
        if isinstance(block, SpacerBlock):
            size = f"height:{block.height}px;font-size:0;line-height:{block.height}px"
            return f'<tr>\n<td height="{block.height}" style="{size}">&nbsp;</td>\n</tr>\n'
        if isinstance(block, TextBlock) and (tag := inline.section_tag(block.text)) is not None:
            return f"{tag.source}\n"
        align: Align = "left" if isinstance(block, DividerBlock | ListBlock) else block.align
        return _cell(place, align, self._content(block, path, place.width))

    def _content(self, block: _InCell, path: str, width: int) -> str:
        match block:
            case TextBlock():
                return self._paragraph(block.text, f"{path}.text")
            case HeadingBlock():
                return self._heading(block, f"{path}.text")
            case ButtonBlock():
                return self._button(block, path)
            case ImageBlock():
                return self._image(block, path, width)
            case ListBlock():
                return self._list(block, path)
            case FooterBlock():
                return self._footer(block, f"{path}.text")
            case DividerBlock():
                return self._line()

    def _marked(self, source: str, path: str) -> str:
        return inline.markup(source, path, self._look.link).html

    def _paragraph(self, source: str, path: str) -> str:
        return f'<p class="wb-text" style="{self._look.text(16, "1.5")}">{self._marked(source, path)}</p>'

    def _heading(self, block: HeadingBlock, path: str) -> str:
        style = self._look.text(_SIZES[block.level], "1.25", weight=700)
        name = f"h{block.level}"
        return f'<{name} class="wb-text wb-{name}" style="{style}">{self._marked(block.text, path)}</{name}>'

    def _footer(self, block: FooterBlock, path: str) -> str:
        style = self._look.text(13, "1.5", self._look.light.muted)
        return f'<p class="wb-muted" style="{style}">{self._marked(block.text, path)}</p>'

    def _button(self, block: ButtonBlock, path: str) -> str:
        """Return a cell with the color and a padded link. Outlook takes the padding from `mso-padding-alt`."""
        color = self._look.accent if block.color is None else block.color
        style = self._look.text(16, "1.25", colors.text_on(color), weight=600)
        url = escape(inline.checked_url(block.url, f"{path}.url"))
        return (
            f'{_TABLE} align="{block.align}">\n<tr>\n<td align="center" bgcolor="{color}" '
            f'style="background-color:{color};border-radius:6px;mso-padding-alt:12px 24px">'
            f'<a href="{url}" style="{style};display:inline-block;padding:12px 24px;border-radius:6px;'
            f'text-decoration:none">{inline.plain(block.text, f"{path}.text").html}</a></td>\n</tr>\n</table>'
        )

    def _image(self, block: ImageBlock, path: str, most: int) -> str:
        image = self._images[block.image]
        width = min(block.width or image.width, most)
        shown = self._picture(image, width, inline.plain(block.alt, f"{path}.alt").html)
        if block.url is None:
            return shown
        return (
            f'<a href="{escape(inline.checked_url(block.url, f"{path}.url"))}" style="text-decoration:none">{shown}</a>'
        )

    def _picture(self, image: PlacedImage, width: int, alt: str) -> str:
        """Return an image. Its style of text shows `alt` well where images are blocked."""
        height = max(1, round(image.height * width / image.width))
        return (
            f'<img src="{escape(image.source)}" width="{width}" height="{height}" alt="{alt}" class="wb-text" '
            f'style="{self._look.text(14, "1.4")};display:inline-block;vertical-align:middle;border:0;width:100%;'
            f'max-width:{width}px;height:auto">'
        )

    def _list(self, block: ListBlock, path: str) -> str:
        name = "ol" if block.style == "number" else "ul"
        style = self._look.text(16, "1.5")
        items = []
        for index, item in enumerate(block.items):
            tag = inline.section_tag(item)
            content = "" if tag is not None else self._marked(item, f"{path}.items[{index}]")
            items.append(f"{tag.source}\n" if tag is not None else f'<li style="margin:0 0 4px">{content}</li>\n')
        return f'<{name} class="wb-text" style="{style};padding:0 0 0 24px">\n{"".join(items)}</{name}>'

    def _line(self) -> str:
        style = f"border-top:1px solid {self._look.light.line};font-size:0;line-height:0"
        return (
            f'{_TABLE} width="100%">\n<tr>\n<td class="wb-line" height="1" style="{style}">&nbsp;</td>\n</tr>\n</table>'
        )

    def _columns(self, block: ColumnsBlock, path: str, place: Place) -> str:
        """Return columns as inline blocks, which wrap on narrow screens, in cells that Outlook alone sees."""
        room = place.width + 2 * _GAP
        whole = sum(column.weight for column in block.columns)
        parts: list[str] = []
        for number, column in enumerate(block.columns):
            width = room * column.weight // whole
            inner = Place(f"{path}.columns[{number}].blocks", width - 2 * _GAP, f'style="padding:{_GAP}px')
            begin = f'{_TABLE} width="{room}"><tr><td width="{width}" valign="top">'
            begin = begin if number == 0 else f'</td><td width="{width}" valign="top">'
            parts.append(
                f'<!--[if mso]>{begin}<![endif]--><div class="wb-col" style="display:inline-block;width:100%;'
                f'max-width:{width}px;vertical-align:top">\n{_TABLE} width="100%">\n'
                f"{self.rows(column.blocks, inner) or _EMPTY}</table>\n</div>"
            )
        cell = f'class="wb-cols" style="padding:0 {_SIDE - _GAP}px;font-size:0;text-align:left"'
        return f"<tr>\n<td {cell}>{''.join(parts)}<!--[if mso]></td></tr></table><![endif]--></td>\n</tr>\n"


def _cell(place: Place, align: Align, content: str) -> str:
    return f'<tr>\n<td align="{align}" {place.cell};text-align:{align}">{content}</td>\n</tr>\n'
