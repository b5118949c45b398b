"""Serve unsubscribe links (RFC 8058).

Mail clients post `List-Unsubscribe=One-Click`, others nothing, so the body isn't read. The buttons of the page name
their choice in the query, and any POST without a known choice unsubscribes from all.
"""

from typing import Final

import falcon.asgi

from api.areas.unsubscribes.unsubscribe_page import CHOICE, page_of
from api.http.decode import query_parameter
from api.http.services import ApiServices
from api.pages.link_page import LinkPage, OnAnswer
from api.pages.page import PublicPage
from engine.base.errors import Refusal
from engine.mail import unsubscribe_token
from engine.sending.unsubscribes.service import Unsubscriber
from engine.sending.unsubscribes.types import LinkChoice, LinkSource, LinkUse

PATH: Final = "/u/{token}"


class UnsubscribeResource(LinkPage):
    """Answers requests for unsubscribe links."""

    operation = "unsubscribe"

    def __init__(self, services: ApiServices, on_answer: OnAnswer) -> None:
        super().__init__(services, on_answer)
        self._key = unsubscribe_token.key_of(services.settings.pepper)
        self._unsubscriber = Unsubscriber(services.pool)

    async def page(self, request: falcon.asgi.Request, token: str, language: str, *, acts: bool) -> PublicPage | None:
        """Apply the choice in the query, by default unsubscribe from all, and return the page of the state."""
        link = unsubscribe_token.link_of(self._key, token)
        if link is None:
            return None
        if not acts:
            return page_of(await self._unsubscriber.read(link), language)
        choice = _choice_of(request)
        return page_of(await self._unsubscriber.use(LinkUse(link, choice, LinkSource.PAGE)), language, choice)


def _choice_of(request: falcon.asgi.Request) -> LinkChoice:
    try:
        return LinkChoice(query_parameter(request, CHOICE) or "")
    except (Refusal, ValueError):
        return LinkChoice.ALL
