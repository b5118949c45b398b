"""Render a public page, and answer with it: HTML without script, that no other site may frame and nobody caches.

Used for unsubscribing, for the confirmation links of one-time codes and for those of double opt-in. The page shows
text and forms; a form posts to the page's own URL, with a query that says which button was pressed. Answers set no
cookie and never redirect (RFC 8058 3.1).
"""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Final

import falcon
import falcon.asgi
from msgspec import Struct

STYLE: Final = (Path(__file__).parent / "page.css").read_text("utf-8")


class PageForm(Struct, frozen=True):
    """A form with one button. `query` is that of the URL it posts to, such as `choice=undo`; "": none."""

    button: str
    query: str = ""
    note: str = ""  # a sentence above the button
    secondary: bool = False  # drawn less prominently


class PublicPage(Struct, frozen=True, kw_only=True):
    """The texts of one page, all plain text. `sender` is shown on top; `paragraphs` may have none."""

    language: str
    title: str
    sender: str = ""
    paragraphs: tuple[str, ...] = ()
    forms: tuple[PageForm, ...] = ()
    hint: str = ""  # in small letters at the end


def show(response: falcon.asgi.Response, page: PublicPage, status: str = falcon.HTTP_200) -> None:
    """Answer with a page; for HEAD the server leaves its body out."""
    response.status = status
    response.content_type = "text/html; charset=utf-8"
    response.data = html_of(page).encode()
    response.set_header("Content-Security-Policy", policy())
    response.set_header("Content-Language", page.language)
    response.set_header("X-Robots-Tag", "noindex, nofollow")
    response.set_header("X-Frame-Options", "DENY")
    response.set_header("Vary", "Accept-Language")


@cache
def policy() -> str:
    """Return the Content-Security-Policy: the page's own style and its own forms, nothing else."""
    digest = b64encode(sha256(STYLE.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )


def html_of(page: PublicPage) -> str:
    """Return the HTML of a page."""
    title = escape(page.title)
    head = (
        f'<!DOCTYPE html>\n<html lang="{escape(page.language)}">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="robots" content="noindex, nofollow">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
    )
    parts = [head]
    if page.sender:
        parts.append(f'<p class="sender" dir="auto">{escape(page.sender)}</p>\n')
    parts.append(f"<h1>{title}</h1>\n")
    parts += [f"<p>{escape(text)}</p>\n" for text in page.paragraphs]
    parts += [_form(one) for one in page.forms]
    if page.hint:
        parts.append(f'<p class="hint">{escape(page.hint)}</p>\n')
    parts.append("</main>\n</body>\n</html>\n")
    return "".join(parts)


def _form(form: PageForm) -> str:
    """Return a form that posts to the URL of the page; a query that begins with `?` keeps its path (RFC 3986 5.2)."""
    note = f"<p>{escape(form.note)}</p>\n" if form.note else ""
    kind = ' class="secondary"' if form.secondary else ""
    return (
        f'<form method="post" action="?{escape(form.query)}">\n{note}'
        f'<button type="submit"{kind}>{escape(form.button)}</button>\n</form>\n'
    )
