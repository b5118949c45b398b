"""The mail of double opt-in, in all languages. Pure."""

from html import escape
from typing import Final, Literal

from msgspec import Struct

from engine.base.localized_texts import localized

Locale = Literal["en", "de", "es", "fr", "it", "nl", "pl", "pt"]


class ConfirmationMail(Struct, frozen=True):
    """The subject and bodies of one mail."""

    subject: str
    text: str
    html: str


class _ConfirmationTexts(Struct, frozen=True):
    subject: str
    ask: str
    button: str
    ignore: str


_TEXTS: Final = localized(__file__, "confirmation_mail.toml", _ConfirmationTexts)


def confirmation_mail(locale: Locale, *, sender: str, url: str) -> ConfirmationMail:
    """Return the mail that asks a contact to confirm; `sender` is the name that the contact knows."""
    texts = _TEXTS[locale]
    ask = texts.ask.replace("{sender}", sender)
    html = (
        f'<p dir="auto">{escape(ask)}</p>\n<p><a href="{escape(url)}">{escape(texts.button)}</a></p>\n'
        f"<p>{escape(texts.ignore)}</p>\n"
    )
    return ConfirmationMail(
        texts.subject.replace("{sender}", sender)[:900],
        f"{ask}\n\n{texts.button}:\n{url}\n\n{texts.ignore}\n",
        html,
    )
