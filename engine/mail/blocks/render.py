"""Render a block document as HTML and text: the entry for everybody who makes mail of blocks. Pure.

Both parts are templates: their merge fields are filled in later, as in a part that was written by hand. Raises the 400
that names the block at fault.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from engine.base.errors import invalid
from engine.mail.blocks import html, inline, text
from engine.mail.blocks.html import PlacedImage
from engine.mail.blocks.inline import SectionTag
from engine.mail.blocks.look import look_of
from engine.mail.blocks.types import (
    MAX_BLOCKS,
    MAX_DOCUMENT,
    Block,
    BlockDocument,
    ColumnsBlock,
    ListBlock,
    TextBlock,
    blocks_of,
    images_of,
    text_of,
)

_is_id = re.compile(r"[A-Za-z0-9_-]{1,32}").fullmatch
_is_language = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,6})?").fullmatch


class RenderedBlocks(Struct, frozen=True):
    """The two parts of an email."""

    html: str
    text: str


def rendered(document: BlockDocument, images: Mapping[str, PlacedImage]) -> RenderedBlocks:
    """Return the parts of a document; `images` has those that the account owns, by id."""
    _check_size(document)
    _check_ids(document)
    _check_sections(document)
    for name, place in images_of(document).items():
        if name not in images:
            raise invalid(place, f"`{place}`: your account has no image {name!r}. Upload it first (`POST /v1/images`).")
    look = look_of(document.theme)
    return RenderedBlocks(html.page(document, look, images), text.page(document, look))


def _check_size(document: BlockDocument) -> None:
    size = len(text_of(document))
    if size > MAX_DOCUMENT:
        raise invalid(
            "blocks",
            f"The blocks have {size:,} characters as JSON; the limit is {MAX_DOCUMENT:,}. Shorten the email: Gmail "
            "cuts it off after 102 KB.",
        )


def _check_ids(document: BlockDocument) -> None:
    if document.language is not None and _is_language(document.language) is None:
        raise invalid(
            "blocks.language",
            f"`blocks.language` is {document.language!r}; use a language tag such as `en` or `pt-BR`.",
        )
    seen: set[str] = set()
    for place, block in blocks_of(document):
        if len(seen) == MAX_BLOCKS:
            raise invalid("blocks", f"The document has more than {MAX_BLOCKS} blocks, those in columns included.")
        if _is_id(block.id) is None:
            raise invalid(f"{place}.id", f"`{place}.id` is {block.id!r}; use 1 to 32 of A-Z, a-z, 0-9, `_` and `-`.")
        if block.id in seen:
            raise invalid(f"{place}.id", f"`{place}.id` {block.id!r} is used twice. Give each block its own.")
        seen.add(block.id)


def _check_sections(document: BlockDocument) -> None:
    """Check that section tags which stand alone come in pairs in each list of blocks and of items."""
    inline.check_sections(list(_alone(document.blocks, "blocks.blocks")))
    for place, block in blocks_of(document):
        if isinstance(block, ColumnsBlock):
            for number, column in enumerate(block.columns):
                inline.check_sections(list(_alone(column.blocks, f"{place}.columns[{number}].blocks")))
        elif isinstance(block, ListBlock):
            tags = [(f"{place}.items[{index}]", inline.section_tag(item)) for index, item in enumerate(block.items)]
            inline.check_sections([(where, tag) for where, tag in tags if tag is not None])


def _alone(blocks: Sequence[Block], place: str) -> Iterator[tuple[str, SectionTag]]:
    for index, block in enumerate(blocks):
        if isinstance(block, TextBlock) and (tag := inline.section_tag(block.text)) is not None:
            yield f"{place}[{index}].text", tag
