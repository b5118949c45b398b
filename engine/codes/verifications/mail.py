"""Compose the built-in mail with a one-time code, in the language and with the branding of the account. Pure."""

from html import escape
from typing import Final

from msgspec import Struct

from engine.base.localized_texts import localized

DEFAULT_LOCALE: Final = "en"
MAX_LOGO_SHOWN = (200, 60)  # pixels, width and height


class CodeMail(Struct, frozen=True):
    """A mail as composed: its subject never holds the code."""

    subject: str
    text: str
    html: str


class LogoImage(Struct, frozen=True):
    """The logo of an account: its public URL and size in pixels."""

    url: str
    width: int
    height: int


class _CodeTexts(Struct, frozen=True):
    subject: str
    subject_of: str
    intro: str
    link: str
    button: str
    expires: str
    ignore: str


TEXTS: Final = localized(__file__, "mail_texts.toml", _CodeTexts)


def language(locale: str) -> str:
    """Return the language of a locale such as `de-AT`, English for one that has no texts."""
    wanted = locale.replace("_", "-").partition("-")[0].lower()
    return wanted if wanted in TEXTS else DEFAULT_LOCALE


def compose(
    code: str, *, minutes: int, locale: str, brand: str | None, logo: LogoImage | None, link: str | None
) -> CodeMail:
    """Return the mail with a code, and with a confirmation link where one is given."""
    chosen = language(locale)
    words = TEXTS[chosen]
    subject = words.subject if brand is None else words.subject_of.replace("{brand}", brand)
    expires = words.expires.replace("{minutes}", str(minutes))
    lines = [words.intro, "", f"    {code}", ""]
    if link is not None:
        lines += [words.link, link, ""]
    lines += [expires, words.ignore]
    if brand is not None:
        lines += ["", brand]
    parts = [_head(brand, logo), f"<p>{escape(words.intro)}</p>", f'<p class="code">{escape(code)}</p>']
    if link is not None:
        shown = f'<a class="button" href="{escape(link)}">{escape(words.button)}</a>'
        parts.append(f"<p>{escape(words.link)}</p><p>{shown}</p>")
    parts.append(f'<p class="small">{escape(expires)}<br>{escape(words.ignore)}</p>')
    return CodeMail(subject, "\n".join(lines) + "\n", _page(chosen, subject, "".join(parts)))


def _head(brand: str | None, logo: LogoImage | None) -> str:
    if logo is None:
        return "" if brand is None else f'<p class="brand">{escape(brand)}</p>'
    scale = min(1.0, MAX_LOGO_SHOWN[0] / logo.width, MAX_LOGO_SHOWN[1] / logo.height)
    width, height = max(1, round(logo.width * scale)), max(1, round(logo.height * scale))
    return f'<p><img src="{escape(logo.url)}" alt="{escape(brand or "")}" width="{width}" height="{height}"></p>'


def _page(lang: str, title: str, content: str) -> str:
    """Return the HTML; both colour schemes are declared, so that clients do not invert the colours themselves."""
    return (
        f'<!DOCTYPE html><html lang="{lang}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
        '<meta name="supported-color-schemes" content="light dark">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
        f'</head><body><div class="box">{content}</div></body></html>'
    )


_STYLE: Final = (
    ":root{color-scheme:light dark;supported-color-schemes:light dark}"
    "body{margin:0;background:#fff;color:#1c1e21;font:16px/1.5 system-ui,-apple-system,Segoe UI,Roboto,sans-serif}"
    ".box{max-width:480px;margin:0 auto;padding:32px 24px}.brand{font-weight:600}"
    ".code{font:600 32px/1.25 ui-monospace,Menlo,Consolas,monospace;letter-spacing:6px;margin:16px 0}"
    ".button{display:inline-block;padding:10px 18px;border-radius:6px;background:#1f5fbf;color:#fff}"
    ".button{text-decoration:none}"
    ".small{font-size:14px;color:#5c6168}"
    "@media (prefers-color-scheme:dark){body{background:#16181c;color:#eceef1}.small{color:#a4abb5}}"
)
