"""Put unsubscribe links into messages: the header fields (RFC 2369, RFC 8058), the link in HTML and text. Pure.

`{{unsubscribe_url}}` places the link; a body without one gets a footer. A sender of one message calls `with_link`. A
broadcast calls `footed_html` and `footed_text` once for its content, and fills in each recipient's link with
`filled_html` and `filled_text`, or as the value `unsubscribe_url` of its template.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from html import escape
from typing import Final
from uuid import UUID

from msgspec import Struct

from engine.base.secrets import DerivedKey
from engine.base.settings import Settings
from engine.mail import unsubscribe_token
from engine.mail.html_tokens import RAW_TEXT, HtmlToken, TokenKind, attributes, tokens

NAME: Final = "unsubscribe_url"
PLACEHOLDER: Final = f"{{{{{NAME}}}}}"
LOCAL_PREFIX: Final = "u+"
DEFAULT_LANGUAGE: Final = "en"
LABELS: Final = {
    "de": "Abmelden",
    "en": "Unsubscribe",
    "es": "Cancelar la suscripción",
    "fr": "Se désabonner",
    "it": "Annulla l’iscrizione",
    "nl": "Afmelden",
    "pl": "Wypisz się",
    "pt": "Cancelar a subscrição",
}

_placeholder = re.compile(rf"\{{\{{\{{?[ \t]*+{NAME}[ \t]*+\}}\}}\}}?")
# Elements whose content is never shown; where one isn't closed, what follows isn't shown either.
_HIDING: Final = frozenset({"math", "object", "select", "svg", "template"})
_LINKS: Final = frozenset({"a", "area"})
_MAX_BEFORE_BODY: Final = 500  # tokens: a document's head is shorter


class UnsubscribeLink(Struct, frozen=True):
    """The two addresses of one link, as they stand in a message."""

    url: str
    mailto: str

    @property
    def header(self) -> str:
        """Return the value of List-Unsubscribe."""
        return f"<{self.url}>, <{self.mailto}>"

    @property
    def one_click(self) -> bool:
        """Return True if List-Unsubscribe-Post may stand beside it: RFC 8058 3.1 demands an https URL."""
        return self.url.startswith("https://")


class UnsubscribeLinks(Struct, frozen=True):
    """The links of an installation: `key` is that of `unsubscribe_token.key_of`."""

    key: DerivedKey
    public_url: str
    mail_host: str

    def of(self, link: UUID) -> UnsubscribeLink:
        """Return the addresses of the link with this id, stored or not; unless it is stored, its use has no effect."""
        token = unsubscribe_token.token(self.key, link)
        base = self.public_url.removesuffix("/")
        return UnsubscribeLink(f"{base}/u/{token}", f"mailto:{LOCAL_PREFIX}{token}@{self.mail_host}")


def links_of(settings: Settings) -> UnsubscribeLinks | None:
    """Return the links of the installation, None without WAYBILL_KEY_PEPPER."""
    if settings.key_pepper is None:
        return None
    return UnsubscribeLinks(unsubscribe_token.key_of(settings.pepper), settings.public_url, settings.mail_host)


def with_link(html: str | None, text: str | None, link: UnsubscribeLink) -> tuple[str | None, str | None]:
    """Return the bodies of one message with the link in each of them; a body that is None stays None."""
    language = DEFAULT_LANGUAGE if html is None else language_of(html)
    return (
        None if html is None else filled_html(footed_html(html), link.url),
        None if text is None else filled_text(footed_text(text, language), link.url),
    )


def footed_html(html: str) -> str:
    """Return HTML with a footer that holds the placeholder, unless readers see a placeholder already.

    The footer goes before the last `</body>`, else to the end, but never into markup that readers do not see: a
    comment, a style sheet or a tag that is not closed.
    """
    visible, at = _scan(html)
    if visible:
        return html
    footer = (
        '<p style="margin:24px 0 0;font:13px/1.5 sans-serif;text-align:center;color:#737373">'
        f'<a href="{PLACEHOLDER}" style="color:#737373">{LABELS[language_of(html)]}</a></p>'
    )
    return html[:at] + footer + html[at:]


def footed_text(text: str, language: str = DEFAULT_LANGUAGE) -> str:
    """Return plain text with a footer that holds the placeholder, unless it has a placeholder already."""
    if _placeholder.search(text):
        return text
    return f"{text.rstrip()}\n\n{LABELS[language]}: {PLACEHOLDER}\n".lstrip("\n")


def filled_html(html: str, url: str) -> str:
    """Replace the placeholders in HTML by the URL."""
    escaped = escape(url)
    return _placeholder.sub(lambda _: escaped, html)


def filled_text(text: str, url: str) -> str:
    """Replace the placeholders in plain text by the URL."""
    return _placeholder.sub(lambda _: url, text)


def language_of(html: str) -> str:
    """Return the language of the footer: that of the `html` or `body` element if it is among LABELS, else English."""
    for count, token in enumerate(tokens(html)):
        if token.kind is TokenKind.START and token.name in ("html", "body"):
            for name, value in attributes(html, token):
                code = value.strip()[:2].lower()
                if name == "lang" and code in LABELS and not value.strip()[2:3].isalpha():
                    return code
        if token.name == "body" or count > _MAX_BEFORE_BODY:
            break
    return DEFAULT_LANGUAGE


def _scan(html: str) -> tuple[bool, int]:
    """Return whether readers see a placeholder, and the offset at which they see a footer. Linear."""
    places = [found.start() for found in _placeholder.finditer(html)]
    visible, end = False, 0
    before_body: int | None = None
    for token in _shown(html):
        end = token.end
        if token.kind is TokenKind.END and token.name == "body":
            before_body = token.start
        elif not visible and _shows(token):
            visible = _holds(places, token)
    return visible, end if before_body is None else before_body


def _shown(html: str) -> Iterator[HtmlToken]:
    """Yield the tokens outside hidden elements, up to the begin of an element that hides the rest of the document."""
    depth = 0
    raw: HtmlToken | None = None  # the start tag of an element with raw text
    for token in tokens(html):
        if token.kind is TokenKind.START and token.name == "plaintext":
            return
        if token.name in _HIDING:
            depth = _depth_after(html, token, depth)
        if depth:
            continue
        if token.kind is TokenKind.START and token.name in RAW_TEXT:
            raw = token
            continue
        if token.kind is TokenKind.RAW and token.end == len(html):  # not closed
            return
        if raw is not None:
            yield raw
            raw = None
        yield token


def _depth_after(html: str, token: HtmlToken, depth: int) -> int:
    """Return how many hidden elements are open after a tag of one."""
    if token.kind is TokenKind.END:
        return max(0, depth - 1)
    return depth if html[token.end - 2] == "/" else depth + 1


def _shows(token: HtmlToken) -> bool:
    """Return True for text, and for a tag that can be a link."""
    return token.kind is TokenKind.TEXT or (token.kind is TokenKind.START and token.name in _LINKS)


def _holds(places: list[int], token: HtmlToken) -> bool:
    """Return True if one of the ascending offsets lies in the token."""
    at = bisect_left(places, token.start)
    return at < len(places) and places[at] < token.end
