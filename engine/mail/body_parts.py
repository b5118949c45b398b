"""Choose what of a message is its text, its HTML, and its attachments (RFC 8621 4.1.4).

One choice for the mailbox, search, the record of submitted mail, forwarding and the virus scanner. It differs from the
RFC where its algorithm would lose or hide words:

- In multipart/alternative a name makes no file: each child is the same message in another form.
- In multipart/related the root is the part that `start` names (RFC 2387 3.2), or the first that can be a body.
- A multipart within an alternative is HTML as a whole if it has HTML, and text otherwise.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from engine.mail.charsets import CharsetFlaw
from engine.mail.mime_tree import FoundDoubt, MimeEntity, MimeTree, ReadLimit, read_tree
from engine.mail.transfer_encoding import decode, inline_names

PLAIN: Final = "text/plain"
HTML: Final = "text/html"
_BODIES: Final = (PLAIN, HTML)
_ALTERNATIVE: Final = "multipart/alternative"
_RELATED: Final = "multipart/related"


class MailPart(NamedTuple):
    """A leaf of the MIME tree, with the offsets of its encoded content in the message."""

    kind: str  # "text/plain"
    charset: str  # as declared; "" where none is
    encoding: str  # see `known_encoding`
    start: int
    end: int
    names: tuple[str, ...] = ()  # the one to show first
    cid: str | None = None
    inline: bool = False  # Content-Disposition says so
    flowed: bool = False  # format=flowed (RFC 3676)
    delsp: bool = False
    flaw: CharsetFlaw | None = None  # of its names


class MailContent(NamedTuple):
    """The parts of a message in order; a text part may be in `text`, in `html`, or in both.

    `text` and `html` contain parts of both types where one form has no alternative.
    """

    text: list[MailPart]
    html: list[MailPart]
    attached: list[MailPart]
    limit: ReadLimit | None
    doubts: list[FoundDoubt]


def mail_content(mime: bytes) -> MailContent:
    """Divide a message into its text, HTML and attachments; never raises."""
    return content_of_tree(mime, read_tree(mime))


def content_of_tree(mime: bytes, tree: MimeTree) -> MailContent:
    """Divide the parts of a tree; attached messages are not looked into."""
    sorted_parts = _SortedParts(mime)
    if _divided(tree.root):
        sorted_parts.place(tree.root, text=True, html=True)
    else:
        sorted_parts.leaf(tree.root, _may_be_body(tree.root, 0, "multipart/mixed", 0), text=True, html=True)
    return MailContent(sorted_parts.text, sorted_parts.html, sorted_parts.attached, tree.limit, tree.doubts)


def decoded_part(mime: bytes, part: MailPart, max_octets: int | None = None) -> tuple[bytes, bool]:
    """Return the decoded content of a part, and True if its encoding is damaged or unknown; never raises.

    Decodes only the first `max_octets` octets of the encoded content if given.
    """
    end = part.end if max_octets is None else min(part.end, part.start + max_octets)
    return decode(mime[part.start : end], part.encoding, whole=end == part.end)


def spellings(mime: bytes, entity: MimeEntity) -> Iterator[str]:
    """Yield every file name that a mail program could show for an entity, perhaps several times."""
    for field in (entity.disposition, entity.content_type, *entity.repeated):
        if field.named:
            yield from field.spellings("filename")
            yield from field.spellings("name")
    if (entity.encoding == "x-uuencode" or entity.kind == PLAIN) and not entity.children:
        yield from inline_names(mime, entity.body, entity.end)


class _SortedParts:
    """The parts of a message while its tree is walked."""

    def __init__(self, mime: bytes) -> None:
        self._mime = mime
        self.text: list[MailPart] = []
        self.html: list[MailPart] = []
        self.attached: list[MailPart] = []

    def place(self, parent: MimeEntity, *, text: bool, html: bool) -> None:
        """Place the children of a multipart; `text` and `html` say to which bodies they belong."""
        alternative = parent.kind == _ALTERNATIVE
        texts, htmls = len(self.text), len(self.html)
        root = _related_root(parent) if parent.kind == _RELATED else 0
        for index, child in enumerate(parent.children):
            if _divided(child):
                self._place_within(child, alternative=alternative, text=text, html=html)
            elif alternative:
                self.leaf(
                    child, _may_be_body(child, index, parent.kind, root),
                    text=child.kind != HTML, html=child.kind == HTML,
                )  # fmt: skip
            else:
                self.leaf(child, _may_be_body(child, index, parent.kind, root), text=text, html=html)
        if alternative:
            found_texts, found_htmls = self.text[texts:], self.html[htmls:]
            if not found_texts:
                self.text += found_htmls
            if not found_htmls:
                self.html += found_texts

    def _place_within(self, child: MimeEntity, *, alternative: bool, text: bool, html: bool) -> None:
        if child.kind == _ALTERNATIVE:
            self.place(child, text=True, html=True)
        elif alternative:
            self.place(child, text=not _has_html(child), html=_has_html(child))
        else:
            self.place(child, text=text, html=html)

    def leaf(self, entity: MimeEntity, is_body: bool, *, text: bool, html: bool) -> None:  # noqa: FBT001
        """Add a leaf to the bodies or to the attachments."""
        part = _mail_part(self._mime, entity)
        if not is_body:
            self.attached.append(part)
            return
        if text:
            self.text.append(part)
        if html:
            self.html.append(part)


def _divided(entity: MimeEntity) -> bool:
    """Return True for a multipart with parts; an attached message is a leaf."""
    return entity.multipart and bool(entity.children)


def _has_html(parent: MimeEntity) -> bool:
    return any(
        _has_html(child) if _divided(child) else child.kind == HTML and child.disposition.major != "attachment"
        for child in parent.children
    )


def _may_be_body(entity: MimeEntity, index: int, parent: str, root: int) -> bool:
    """Return True if a leaf is part of the message rather than a file."""
    if entity.disposition.major == "attachment" or entity.limit is not None:
        return False
    if entity.kind not in _BODIES and not entity.multipart:
        return False
    if parent == _ALTERNATIVE:
        return True
    if parent == _RELATED:
        return index == root
    return index == 0 or not _has_name(entity)


def _related_root(parent: MimeEntity) -> int:
    start = parent.content_type.value("start").strip().removeprefix("<").removesuffix(">")
    fallback = 0
    for index, child in reversed(list(enumerate(parent.children))):
        if start and child.cid == start:
            return index
        if child.kind in _BODIES or child.multipart:
            fallback = index
    return fallback


def _has_name(entity: MimeEntity) -> bool:
    return entity.disposition.named or entity.content_type.named


def _mail_part(mime: bytes, entity: MimeEntity) -> MailPart:
    content_type, disposition = entity.content_type, entity.disposition
    undivided = entity.multipart and entity.limit is None  # a multipart without a delimiter line is shown as text
    flowed = bool(content_type.parameters) and content_type.value("format").lower() == "flowed"
    return MailPart(
        PLAIN if undivided else entity.kind,
        content_type.value("charset") if content_type.parameters else "",
        entity.encoding,
        entity.body,
        entity.end,
        _names(mime, entity)
        if content_type.named or disposition.named or entity.encoding == "x-uuencode" or entity.repeated
        else (),
        entity.cid,
        disposition.major == "inline",
        flowed and entity.kind == PLAIN,
        flowed and content_type.value("delsp").lower() == "yes",
        disposition.flaw or content_type.flaw,
    )


def _names(mime: bytes, entity: MimeEntity) -> tuple[str, ...]:
    """Return the file names from Content-Disposition (RFC 2183 2.3), then from Content-Type, each once."""
    found: list[str] = []
    for field in (entity.disposition, entity.content_type, *entity.repeated):
        if field.named:
            found += field.names("filename")
            found += field.names("name")
    if entity.encoding == "x-uuencode" and (name := next(inline_names(mime, entity.body, entity.end), "")):
        found.append(name)
    return tuple(dict.fromkeys(found))


def first_of_a_kind(parts: Sequence[MailPart], texts: Sequence[str]) -> tuple[str, list[str]]:
    """Return the type of the first part with words, and the texts of all parts of that type.

    They are the author's: mailing lists and gateways add their own parts, mostly in plain text.
    """
    kind = next((part.kind for part, text in zip(parts, texts, strict=True) if text.strip()), "")
    return kind, [text for part, text in zip(parts, texts, strict=True) if part.kind == kind]
