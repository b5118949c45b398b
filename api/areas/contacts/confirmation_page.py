"""Serve double opt-in links: `GET` and `HEAD` show a page and change nothing, `POST` confirms the contact.

Scanners follow every link, so only a POST has an effect. It needs neither cookie nor body, and may be repeated.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final
from uuid import UUID

import falcon.asgi

from api.areas.contacts.confirmation_texts import TEXTS
from api.http.services import ApiServices
from api.pages.languages import preferred
from api.pages.page import PageForm, PublicPage, show
from api.pages.refusals import show_unavailable, show_unknown
from engine.audience.contacts import confirmations
from engine.audience.contacts.confirmations import ConfirmationRow
from engine.base import clock
from engine.mail import unsubscribe_token
from engine.store.database_errors import DatabaseUnavailable
from engine.store.deadlines import within

PATH: Final = "/c/{token}"
DEADLINE_S: Final = 10.0
OPERATION: Final = "confirm_contact"  # in metrics

OnAnswer = Callable[[str, int, str | None], None]


class ConfirmationResource:
    """Answers requests for double opt-in links."""

    def __init__(self, services: ApiServices, on_answer: OnAnswer) -> None:
        pepper = services.settings.pepper
        self._key = confirmations.key_of(pepper)
        self._services = services
        self._on_answer = on_answer

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response, token: str) -> None:
        """Show who asks, and the button that confirms."""
        await self._answer(request, response, token, confirms=False)

    on_head = on_get

    async def on_post(self, request: falcon.asgi.Request, response: falcon.asgi.Response, token: str) -> None:
        """Confirm the contact and show the state after it."""
        await self._answer(request, response, token, confirms=True)

    async def _answer(
        self, request: falcon.asgi.Request, response: falcon.asgi.Response, token: str, *, confirms: bool
    ) -> None:
        link = unsubscribe_token.link_of(self._key, token)
        if link is None:
            await show_unknown(request, response, self._services.limits, self._services.settings)
        else:
            await self._show(request, response, link, confirms=confirms)
        self._on_answer(OPERATION, int(str(response.status)[:3]), None)

    async def _show(
        self, request: falcon.asgi.Request, response: falcon.asgi.Response, link: UUID, *, confirms: bool
    ) -> None:
        pool = self._services.pool
        try:
            with within(DEADLINE_S):
                row = await (confirmations.confirm(pool, link) if confirms else confirmations.read(pool, link))
        except (DatabaseUnavailable, OSError):  # TimeoutError is an OSError
            show_unavailable(request, response)
            return
        show(response, page_of(row, preferred(request.get_header("Accept-Language")), clock.now()))


def page_of(row: ConfirmationRow | None, language: str, at: datetime) -> PublicPage:
    """Return the page for the state of a link; None: the contact is gone, or a later mail has another link. Pure."""
    texts = TEXTS[language]
    if row is None or (not row.confirmed and row.expires_at <= at):
        return PublicPage(language=language, title=texts.gone, paragraphs=(texts.is_gone,))
    title, text = (texts.done, texts.is_done) if row.confirmed else (texts.ask, texts.asks)
    paragraph = text.replace("{sender}", row.sender).replace("{address}", row.email)
    forms = () if row.confirmed else (PageForm(texts.button),)
    return PublicPage(language=language, title=title, sender=row.sender, paragraphs=(paragraph,), forms=forms)
