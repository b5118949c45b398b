"""Read stored MIME: the text, the HTML, the attachments, every file name.

It reads messages that the service composed, and those from SMTP submission and the raw endpoint. The division into
parts is that of `mime_tree`, the choice of the bodies that of `body_parts`; here a message beyond a limit is refused,
and so is, for submission, one in which mail programs could show other parts. Only UnreadableMail is raised.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec import Struct

from engine.mail.body_parts import MailContent, MailPart, content_of_tree, decoded_part, spellings
from engine.mail.body_text import joined_html, joined_text, part_text
from engine.mail.mime_tree import (
    MAX_DEPTH,
    MAX_PARTS,
    MESSAGES,
    Doubt,
    MimeEntity,
    MimeTree,
    ReadLimit,
    read_tree,
    walk,
)
from engine.mail.transfer_encoding import IDENTITY, decode

_MAX_NAMES: Final = 1_000  # of one part: those of uuencoded files in a text
_MAX_ENCODED_LEVELS: Final = 4  # of attached messages in base64, which no RFC allows and some programs read

_LIMIT_TEXTS: Final = {
    ReadLimit.PARTS: f"The message has more than {MAX_PARTS} parts.",
    ReadLimit.DEPTH: f"The message nests deeper than {MAX_DEPTH} multiparts.",
    ReadLimit.BOUNDARIES: "The message has too many lines that look like part boundaries.",
}
_DOUBT_TEXTS: Final = {
    Doubt.NO_BOUNDARY: "A multipart has no line with its boundary, but other parts.",
    Doubt.UNDECLARED: "A multipart has lines of two boundaries, or a text has lines that begin like one.",
    Doubt.OUTSIDE: "A part is before the first boundary of a multipart, or after the last.",
    Doubt.REPEATED: "A part has two fields of one name; Content-Type, for example, is allowed once.",
    Doubt.MALFORMED: "The header of a part begins with a line that isn't a field.",
    Doubt.CUT: "The header of a part is too long, or has too many parameters.",
}


class UnreadableMail(ValueError):  # noqa: N818 - named for what was given
    """The message exceeds a limit of the reader, hides parts, or has no such attachment."""


class Bodies(Struct, frozen=True):
    """The plain text and the HTML of a message, with LF line ends; None if there is none."""

    text: str | None
    html: str | None


class File(Struct, frozen=True):
    """An attachment of a message.

    `names` lists its file names, the one to show first: mail clients differ in which of them they use. Empty if it has
    none.
    """

    names: tuple[str, ...]
    content_type: str  # type/subtype in lower case
    content: bytes
    cid: str | None = None  # without its angle brackets


class Entity(NamedTuple):
    """A node of the MIME tree (RFC 2045 2.4), with offsets in the message.

    `composite`: multipart or one of MESSAGES, whose child entities follow. `message`: it has the header of a message.
    """

    start: int
    body: int
    end: int
    kind: str
    encoding: str  # see `known_encoding`
    composite: bool
    message: bool


class ShownName(NamedTuple):
    """A file name that some mail program shows, and the one that this reader shows for the same entity."""

    spelled: str
    shown: str


def bodies(mime: bytes) -> Bodies:
    """Return the text and HTML that a recipient sees, with replacement characters for bytes that can't be decoded.

    HTML in the place of text is turned to text, unless all of the message is HTML; `html` likewise. Raises
    UnreadableMail beyond MAX_DEPTH or MAX_PARTS.
    """
    found = _content(mime)
    texts = dict.fromkeys((*found.text, *found.html), "")
    for part in texts:
        texts[part] = part_text(mime, part).text
    return Bodies(
        joined_text(found.text, [texts[part] for part in found.text]),
        joined_html(found.html, [texts[part] for part in found.html]),
    )


def attachment(mime: bytes, index: int) -> bytes:
    """Return the decoded content of attachment `index` (from 0, in the order of the MIME text).

    For a composed message, that is `Composed.places[i]` of the draft's attachment `i`. Raises UnreadableMail if there
    is no such attachment.
    """
    attached = _content(mime).attached
    if 0 <= index < len(attached):
        return decoded_part(mime, attached[index])[0]
    raise UnreadableMail(f"The message has no attachment number {index}.")


def files(mime: bytes) -> Iterator[File]:
    """Yield all attachments with their content, in the order of `attachment`. Raises UnreadableMail."""
    for part in _content(mime).attached:
        yield _file(mime, part)


def submitted_files(mime: bytes) -> tuple[Iterator[ShownName], Iterator[File]]:
    """Return the names that mail programs could show for any part, also in attached messages, and the attachments.

    Raises UnreadableMail also where the structure hides a part from this reader that another program may show.
    """
    tree = read_tree(mime, into_messages=True)
    _check_limits(tree)
    hidden = next((found for found in tree.doubts if found.hides_part), None)
    if hidden is not None:
        raise UnreadableMail(_DOUBT_TEXTS[hidden.doubt])
    attached = content_of_tree(mime, tree).attached
    return _shown_names(mime, tree.root, 0), (_file(mime, part) for part in attached)


def entities(mime: bytes) -> Iterator[Entity]:
    """Yield all entities, parents before children, also those of attached messages. Raises UnreadableMail."""
    tree = read_tree(mime, into_messages=True)
    for one in walk(tree.root):
        if one.limit is not None:
            break
        yield Entity(one.start, one.body, one.end, one.kind, one.encoding, bool(one.children), one.message)
    _check_limits(tree)


def _content(mime: bytes) -> MailContent:
    tree = read_tree(mime)
    _check_limits(tree)
    return content_of_tree(mime, tree)


def _check_limits(tree: MimeTree) -> None:
    if tree.limit is not None:
        raise UnreadableMail(_LIMIT_TEXTS[tree.limit])


def _file(mime: bytes, part: MailPart) -> File:
    return File(part.names, part.kind, decoded_part(mime, part)[0], part.cid)


def _shown_names(mime: bytes, root: MimeEntity, level: int) -> Iterator[ShownName]:
    for one in walk(root):
        shown = ""
        for number, name in enumerate(spellings(mime, one)):
            if number == _MAX_NAMES:
                raise UnreadableMail(f"A part has more than {_MAX_NAMES} file names.")
            shown = shown or name
            yield ShownName(name, shown)
        if one.kind in MESSAGES and one.encoding not in IDENTITY and level < _MAX_ENCODED_LEVELS:
            inner, _ = decode(mime[one.body : one.end], one.encoding)
            yield from _shown_names(inner, read_tree(inner, into_messages=True).root, level + 1)
