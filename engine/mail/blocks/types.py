"""Define block documents: an email as a list of headings, texts, buttons and so on.

The JSON of a document is the form of the API and of the database. The number of a document's version changes only with
a form that older readers can't understand.
"""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

MAX_BLOCKS: Final = 200  # of a document, those in columns included
# Characters of a document as JSON. Gmail clips emails above 102 KB, so a real one is far smaller; the worst text of
# this length takes about a second to render.
MAX_DOCUMENT: Final = 150_000
MAX_URL: Final = 2_000
MAX_PREHEADER: Final = 200
MIN_WIDTH: Final = 480
MAX_WIDTH: Final = 720
DEFAULT_WIDTH: Final = 600
DEFAULT_ACCENT: Final = "#2450d8"

BlockId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=32,
        description="Unique in the document: letters, digits, `_` and `-`",
        examples=["greeting"],
    ),
]
# The lengths keep a line break behind the last digit out, which `$` lets pass.
Color = Annotated[str, Meta(min_length=7, max_length=7, pattern=r"^#[0-9a-fA-F]{6}$", examples=["#2450d8"])]
Align = Annotated[
    Literal["left", "center", "right"], Meta(description="Where the content of the block goes", examples=["left"])
]
Url = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_URL,
        description="An http, https or mailto address, or a merge field such as `{{link}}`",
        examples=["https://shop.example/orders"],
    ),
]
ImageId = Annotated[str, Meta(max_length=60, description="The id of an image of `POST /v1/images`")]
_MARKUP: Final = "`**bold**`, `*italic*`, `[text](https://…)`, merge fields; a line break stays one, `\\` escapes"


class BlockTheme(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The colors, typeface, width and logo of an email that is made of blocks."""

    accent: Annotated[Color, Meta(description="The color of buttons and links")] = DEFAULT_ACCENT
    background: Annotated[Color, Meta(description="The color around the content")] = "#f4f5f7"
    surface: Annotated[Color, Meta(description="The color behind the content")] = "#ffffff"
    text: Annotated[Color, Meta(description="The color of text")] = "#1c1f24"
    font: Annotated[Literal["sans", "serif", "mono"], Meta(description="The kind of typeface", examples=["sans"])] = (
        "sans"
    )
    width: Annotated[
        int, Meta(ge=MIN_WIDTH, le=MAX_WIDTH, description="The width of the content in pixels", examples=[600])
    ] = DEFAULT_WIDTH
    logo: ImageId | None = None


class _Block(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True, tag_field="type"):
    id: BlockId


class HeadingBlock(_Block, frozen=True, tag="heading"):
    """A heading."""

    text: Annotated[str, Meta(max_length=500, description=_MARKUP, examples=["Hello {{name}}"])]
    level: Annotated[Literal[1, 2, 3], Meta(description="1 is the largest", examples=[1])] = 1
    align: Align = "left"


class TextBlock(_Block, frozen=True, tag="text"):
    """A paragraph. One that holds only a section tag (`{{#items}}`) repeats or hides the blocks up to its end tag."""

    text: Annotated[str, Meta(max_length=10_000, description=_MARKUP, examples=["Your order is on its **way**."])]
    align: Align = "left"


class ButtonBlock(_Block, frozen=True, tag="button"):
    """A button that opens an address."""

    text: Annotated[str, Meta(min_length=1, max_length=100, description="The label", examples=["Track the parcel"])]
    url: Url
    align: Align = "left"
    color: Color | None = None


class ImageBlock(_Block, frozen=True, tag="image"):
    """An uploaded image."""

    image: ImageId
    alt: Annotated[
        str,
        Meta(
            max_length=300, description='What it shows, for readers without images; "": decoration', examples=["Lamp"]
        ),
    ]
    width: (
        Annotated[int, Meta(ge=16, le=MAX_WIDTH, description="Pixels; null: its own, up to the width of the column")]
        | None
    ) = None
    url: Url | None = None
    align: Align = "left"


class DividerBlock(_Block, frozen=True, tag="divider"):
    """A horizontal line."""


class SpacerBlock(_Block, frozen=True, tag="spacer"):
    """Empty space."""

    height: Annotated[int, Meta(ge=4, le=120, description="Pixels", examples=[24])] = 24


class ListBlock(_Block, frozen=True, tag="list"):
    """A list. An item that holds only a section tag repeats or hides the items up to its end tag."""

    items: Annotated[
        list[Annotated[str, Meta(max_length=1_000, description=_MARKUP)]],
        Meta(min_length=1, max_length=50, description=f"The items: {_MARKUP}", examples=[["One lamp", "Two bulbs"]]),
    ]
    style: Annotated[Literal["bullet", "number"], Meta(description="The marks", examples=["bullet"])] = "bullet"


class FooterBlock(_Block, frozen=True, tag="footer"):
    """Small print; `{{unsubscribe_url}}` in it is the unsubscribe link of broadcasts and streams that have one."""

    text: Annotated[
        str,
        Meta(max_length=2_000, description=_MARKUP, examples=["Shop Ltd. · [Unsubscribe]({{unsubscribe_url}})"]),
    ]
    align: Align = "left"


ColumnContent = (
    HeadingBlock | TextBlock | ButtonBlock | ImageBlock | DividerBlock | SpacerBlock | ListBlock | FooterBlock
)


class BlockColumn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A column with its blocks; the weights of a row say how its width is shared."""

    blocks: Annotated[list[ColumnContent], Meta(max_length=MAX_BLOCKS, description="Any blocks but columns")]
    weight: Annotated[int, Meta(ge=1, le=3, description="The share of the width", examples=[1])] = 1


class ColumnsBlock(_Block, frozen=True, tag="columns"):
    """Two or three columns side by side; on a phone they stand one below the other."""

    columns: Annotated[list[BlockColumn], Meta(min_length=2, max_length=3, description="From left to right")]


Block = (
    HeadingBlock
    | TextBlock
    | ButtonBlock
    | ImageBlock
    | ColumnsBlock
    | DividerBlock
    | SpacerBlock
    | ListBlock
    | FooterBlock
)


class BlockDocument(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """An email as blocks, from which the service makes the HTML and the text."""

    version: Annotated[int, Meta(ge=1, le=1, description="The version of this form", examples=[1])]
    blocks: Annotated[list[Block], Meta(max_length=MAX_BLOCKS, description="From top to bottom")]
    theme: BlockTheme = BlockTheme()
    images: Annotated[
        Literal["hosted", "inline"],
        Meta(
            description="`hosted`: readers load the images from this installation. `inline`: each message carries them",
            examples=["hosted"],
        ),
    ] = "hosted"
    preheader: Annotated[
        str, Meta(max_length=MAX_PREHEADER, description="The line that inboxes show beside the subject", examples=[""])
    ] = ""
    language: Annotated[str, Meta(max_length=10)] | None = None


_DECODER: Final = msgspec.json.Decoder(BlockDocument)
_ENCODER: Final = msgspec.json.Encoder()


def document_of(text: str) -> BlockDocument:
    """Return a stored document."""
    return _DECODER.decode(text)


def text_of(document: BlockDocument) -> str:
    """Return a document as it is stored."""
    return _ENCODER.encode(document).decode()


def blocks_of(document: BlockDocument) -> Iterator[tuple[str, Block]]:
    """Yield every block with its place in the request, such as `blocks.blocks[2].columns[0].blocks[1]`."""
    for index, block in enumerate(document.blocks):
        place = f"blocks.blocks[{index}]"
        yield place, block
        if isinstance(block, ColumnsBlock):
            for number, column in enumerate(block.columns):
                for inner, one in enumerate(column.blocks):
                    yield f"{place}.columns[{number}].blocks[{inner}]", one


def images_of(document: BlockDocument) -> dict[str, str]:
    """Return the ids of the images in a document, each with the place of its first use."""
    found: dict[str, str] = {}
    if document.theme.logo is not None:
        found[document.theme.logo] = "blocks.theme.logo"
    for place, block in blocks_of(document):
        if isinstance(block, ImageBlock):
            found.setdefault(block.image, f"{place}.image")
    return found
