"""Turn the HTML of a reply into text, without what mail programs mark as quote or signature. Linear in the input."""

from collections.abc import Iterator
from typing import Final

from engine.mail.html_text import html_to_text, text_of_tokens
from engine.mail.html_tokens import HtmlToken, TokenKind, attributes, tokens

_MAX_TAG: Final = 2_000  # characters of a tag that is examined

# Classes and ids of elements that hold a quote, its introduction, or a signature.
_LEFT_OUT: Final = frozenset({
    "gmail_attr", "gmail_extra", "gmail_quote", "gmail_quote_container", "gmail_signature", "moz-cite-prefix",
    "moz-forward-container", "moz-signature", "ms-outlook-mobile-signature", "protonmail_quote",
    "protonmail_signature_block", "signature", "skiff_quote", "tutanota_quote", "yahoo_quoted", "yahoo-signature",
    "zmail_extra", "zmail_extra_hr", "applemailsignature", "hmquote", "iwmquote", "mail_android_quote", "quote-header",
    "freebirdformquote", "mobile-signature", "email_quote", "front-blockquote",
})  # fmt: skip
# After these, all is quoted; the quote is not within the element.
_ENDING: Final = frozenset({
    "appendonsend", "divrplyfwdmsg", "isforwardcontent", "mail-editor-reference-message-container",
    "olk_src_body_section", "outlookmessageheader", "replysplit", "reply-intro", "stopspelling", "x_divrplyfwdmsg",
    "x_appendonsend", "orig-message-header", "ms-outlook-mobile-reference-message",
})  # fmt: skip
_PREFIXES: Final = ("yahoo_quoted", "gmail_quote", "zmail_extra", "ymail_android_signature")
_VOID: Final = frozenset({"br", "hr", "img", "input", "link", "meta", "wbr"})


def unquoted_html(html: str) -> str:
    """Return the text of the HTML without marked quotes; all of its text if nothing else would be left."""
    found = text_of_tokens(html, _unquoted(html))
    return found if found.strip() else html_to_text(html)


def _unquoted(html: str) -> Iterator[HtmlToken]:
    """Yield the tokens outside of quotes and signatures."""
    skipped, depth = "", 0  # the name of the element that is left out, and how many of that name are open within
    for token in tokens(html):
        if skipped:
            if token.name == skipped and token.kind is not TokenKind.RAW:
                depth += 1 if token.kind is TokenKind.START else -1
                skipped = skipped if depth else ""
            continue
        if token.kind is TokenKind.START:
            marks = _marks(html, token)
            if not _ENDING.isdisjoint(marks):
                return
            if not _LEFT_OUT.isdisjoint(marks) or any(mark.startswith(_PREFIXES) for mark in marks):
                if token.name not in _VOID:
                    skipped, depth = token.name, 1
                continue
        yield token


def _marks(html: str, tag: HtmlToken) -> set[str]:
    """Return the classes and ids of an element in lower case; `hmquote` for a quote by its type or name."""
    if tag.end - tag.start > _MAX_TAG or tag.end - tag.start < len(tag.name) + 6:
        return set()
    marks: set[str] = set()
    for name, value in attributes(html, tag):
        if name in {"class", "id"}:
            marks.update(value.lower().split())
        elif (name == "type" and tag.name == "blockquote" and value.lower() == "cite") or (
            name == "name" and value.lower() == "quote"
        ):
            marks.add("hmquote")
    return marks
