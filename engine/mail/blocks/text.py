"""Render blocks as plain text, for readers without HTML and for spam filters that compare both parts. Pure."""

from collections.abc import Sequence
from typing import Final

from engine.mail.blocks import inline
from engine.mail.blocks.look import Look
from engine.mail.blocks.types import (
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

_LINE: Final = "-" * 32


def page(document: BlockDocument, look: Look) -> str:
    """Return the text part of a document; it was checked before."""
    parts = _parts(document.blocks, look)
    # The line of a tag disappears when it is rendered, so that only content has an empty line behind it.
    lines = [part + ("\n" if inline.section_tag(part) else "\n\n") for part in parts]
    return "".join(lines).rstrip("\n") + "\n" if lines else ""


def _parts(blocks: Sequence[Block], look: Look) -> list[str]:
    return [part for block in blocks for part in _block(block, look) if part.strip()]


def _block(block: Block, look: Look) -> list[str]:
    match block:
        case HeadingBlock() | FooterBlock() | TextBlock():
            return [_marked(block.text, look)]
        case ButtonBlock():
            return [f"{inline.plain(block.text, '').text}: {block.url}"]
        case ImageBlock():
            return [_image(block)]
        case ListBlock():
            return [_list(block, look)]
        case ColumnsBlock():
            return _columns(block, look)
        case DividerBlock():
            return [_LINE]
        case SpacerBlock():
            return []


def _columns(block: ColumnsBlock, look: Look) -> list[str]:
    """Return the columns one after the other; in one line if each has one, as a product and its price."""
    columns = [_parts(column.blocks, look) for column in block.columns]
    if all(len(parts) == 1 and "\n" not in parts[0] for parts in columns):
        return ["  ".join(parts[0] for parts in columns)]
    return [part for parts in columns for part in parts]


def _image(block: ImageBlock) -> str:
    alt = inline.plain(block.alt, "").text
    if block.url is not None:
        return f"{alt}: {block.url}" if alt else block.url
    return f"[{alt}]" if alt else ""


def _list(block: ListBlock, look: Look) -> str:
    """Return the items; those of a list with sections are not numbered, as nobody knows yet how many are shown."""
    tags = [inline.section_tag(item) for item in block.items]
    is_numbered = block.style == "number" and not any(tags)
    lines: list[str] = []
    for number, (item, tag) in enumerate(zip(block.items, tags, strict=True), start=1):
        mark = f"{number}. " if is_numbered else "- "
        lines.append(
            tag.source if tag is not None else mark + _marked(item, look).replace("\n", "\n" + " " * len(mark))
        )
    return "\n".join(lines)


def _marked(source: str, look: Look) -> str:
    tag = inline.section_tag(source)
    return inline.markup(source, "", look.link).text.strip() if tag is None else tag.source
