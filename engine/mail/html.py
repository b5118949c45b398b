"""Sanitise the HTML of received mail, so that a browser can show it: no script, no form, nothing loaded from elsewhere.

The tree is nh3's (ammonia on html5ever, the parser of a browser). Before it comes `html_limits`, which keeps its cost
linear; the filter below decides on every value of an attribute. Sanitise when a message is read, not when it is
stored, so that a later fix covers old mail too. Takes about 10 ms for 100 KB: call it outside the event loop.
"""

import re
from typing import Final

import nh3
from msgspec import Struct

from engine.mail.html_limits import HtmlLimit, exceeded_limit

MAX_DATA_URL: Final = 512 * 1024  # characters of an image in the HTML itself
_TAGS: Final = """
    a abbr acronym address article aside b bdi bdo big blockquote br caption center cite code col colgroup dd del
    details dfn div dl dt em figcaption figure font footer h1 h2 h3 h4 h5 h6 header hgroup hr i img ins kbd li main mark
    nav ol p pre q rp rt ruby s samp section small span strike strong sub summary sup table tbody td tfoot th thead time
    tr tt u ul var wbr
"""
# Removed with all that they contain; of other unknown elements the content stays.
_REMOVED: Final = """
    applet audio base canvas embed frame frameset iframe math noembed noframes noscript object plaintext script
    select style svg template textarea title video xmp
"""
# `class`, `id` and `name` are left out: they would take on styles of the page around, or hide its global variables.
_ATTRIBUTES: Final = {
    "*": "align bgcolor dir height lang style title valign width",
    "a": "href",
    "col": "span",
    "colgroup": "span",
    "details": "open",
    "font": "color face size",
    "hr": "noshade size",
    "img": "alt border hspace src vspace",
    "li": "type value",
    "ol": "reversed start type",
    "table": "border cellpadding cellspacing summary",
    "td": "abbr colspan nowrap rowspan scope",
    "th": "abbr colspan nowrap rowspan scope",
    "time": "datetime",
    "ul": "type",
}
_STYLES: Final = """
    background background-color border border-bottom border-bottom-color border-bottom-left-radius
    border-bottom-right-radius border-bottom-style border-bottom-width border-collapse border-color border-left
    border-left-color border-left-style border-left-width border-radius border-right border-right-color
    border-right-style border-right-width border-spacing border-style border-top border-top-color
    border-top-left-radius border-top-right-radius border-top-style border-top-width border-width box-sizing
    caption-side clear color direction display empty-cells float font font-family font-size font-style font-variant
    font-weight height letter-spacing line-height list-style list-style-position list-style-type margin margin-bottom
    margin-left margin-right margin-top max-height max-width min-height min-width padding padding-bottom padding-left
    padding-right padding-top table-layout text-align text-decoration text-decoration-color text-decoration-line
    text-decoration-style text-indent text-transform vertical-align white-space width word-break word-spacing word-wrap
    overflow-wrap
"""
_PROPERTIES: Final = frozenset(_STYLES.split())
_declaration = re.compile(r"\s*+([A-Za-z-]{1,40})\s*+:\s*+(.*)", re.DOTALL).fullmatch
# Not `)*+`: before 3.11.5, Python misses matches of a possessive group with alternatives (cpython gh-106052).
# No url(), image-set(), var(), expression() or attr(), no escapes; negative lengths could cover what lies around.
_value = re.compile(
    r"""(?:(?:rgb|hsl)a?\([0-9.,%\s/]*+\)|"[\w .,-]*+"|'[\w .,-]*+'"""
    r"""|[A-Za-z0-9#%.,!/\s]|(?<=[A-Za-z0-9])-(?=[A-Za-z]))*""",
    re.IGNORECASE,
).fullmatch
_in_url = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\ufeff]+").sub  # browsers ignore some of them within a scheme
_link = re.compile(r"(?:https?://|mailto:|tel:)[^\s]", re.IGNORECASE).match
_image = re.compile(
    r"(?:cid:.|data:image/(?:png|gif|jpeg|jpg|webp|bmp);base64,[A-Za-z0-9+/=]++\Z)", re.IGNORECASE
).match


class SanitisedHtml(Struct, frozen=True):
    """The HTML to show; None if it exceeds the limit `omitted`."""

    html: str | None
    omitted: HtmlLimit | None = None


def sanitise(html: str) -> SanitisedHtml:
    """Return the harmless part of an HTML document as a fragment; never raises."""
    limit = exceeded_limit(html)
    if limit is not None:
        return SanitisedHtml(None, limit)
    text = html.replace("\0", "").encode("utf-8", "replace").decode()
    return SanitisedHtml(_CLEANER.clean(text))


def _filtered(tag: str, name: str, value: str) -> str | None:
    """Return the value to show for an attribute, or None to leave the attribute out."""
    if name == "style":
        return _style(value) or None
    if name == "href":
        return _url(value) if tag == "a" else None
    if name == "src":
        return _image_source(value)
    return value


def _url(value: str) -> str | None:
    """Return a link that leads out of the page by a harmless scheme."""
    url = _in_url("", value)
    return url if _link(url) is not None else None


def _image_source(value: str) -> str | None:
    """Return the source of an image that is a part of the message; remote ones tell the sender who reads."""
    if len(value) > MAX_DATA_URL:
        return None
    url = _in_url("", value)
    return url if _image(url) is not None else None


def _style(value: str) -> str:
    """Return the declarations of harmless properties with harmless values."""
    kept = []
    for declaration in value.split(";"):
        found = _declaration(declaration)
        if found is not None and found[1].lower() in _PROPERTIES and _value(found[2]) is not None:
            kept.append(f"{found[1].lower()}:{found[2].strip()}")
    return ";".join(kept)


_CLEANER: Final = nh3.Cleaner(
    tags=set(_TAGS.split()),
    clean_content_tags=set(_REMOVED.split()),
    attributes={tag: set(names.split()) for tag, names in _ATTRIBUTES.items()},
    attribute_filter=_filtered,
    link_rel="noopener noreferrer nofollow",
    url_schemes={"http", "https", "mailto", "tel", "cid", "data"},
    url_relative="deny",
)
