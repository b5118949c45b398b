"""Serve double opt-in links: a `POST` confirms the contact."""

from datetime import datetime
from typing import Final

import falcon.asgi
from msgspec import Struct

from api.http.services import ApiServices
from api.pages.link_page import LinkPage, OnAnswer
from api.pages.page import PageForm, PublicPage
from engine.audience.contacts import confirmations
from engine.audience.contacts.confirmations import ConfirmationRow
from engine.base import clock
from engine.base.localized_texts import localized
from engine.mail import unsubscribe_token

PATH: Final = "/c/{token}"


class ConfirmationTexts(Struct, frozen=True):
    """The texts of one language: titles, and the paragraphs below them."""

    ask: str
    asks: str
    button: str
    done: str
    is_done: str
    gone: str
    is_gone: str


TEXTS: Final = localized(__file__, "confirmation_texts.toml", ConfirmationTexts)


class ConfirmationResource(LinkPage):
    """Answers requests for double opt-in links."""

    operation = "confirm_contact"

    def __init__(self, services: ApiServices, on_answer: OnAnswer) -> None:
        super().__init__(services, on_answer)
        self._key = confirmations.key_of(services.settings.pepper)

    async def page(self, request: falcon.asgi.Request, token: str, language: str, *, acts: bool) -> PublicPage | None:  # noqa: ARG002
        """Confirm the contact if the request `acts`, and return the page that shows who asks, or the state after it."""
        link = unsubscribe_token.link_of(self._key, token)
        if link is None:
            return None
        pool = self.services.pool
        row = await (confirmations.confirm(pool, link) if acts else confirmations.read(pool, link))
        return page_of(row, language, clock.now())


def page_of(row: ConfirmationRow | None, language: str, at: datetime) -> PublicPage:
    """Return the page for the state of a link; None: the contact is gone, or a later mail has another link. Pure."""
    texts = TEXTS[language]
    if row is None or (not row.confirmed and row.expires_at <= at):
        return PublicPage(language=language, title=texts.gone, paragraphs=(texts.is_gone,))
    title, text = (texts.done, texts.is_done) if row.confirmed else (texts.ask, texts.asks)
    paragraph = text.replace("{sender}", row.sender).replace("{address}", row.email)
    forms = () if row.confirmed else (PageForm(texts.button),)
    return PublicPage(language=language, title=title, sender=row.sender, paragraphs=(paragraph,), forms=forms)
