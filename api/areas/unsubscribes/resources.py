"""Serve unsubscribe links: `GET` and `HEAD` show a page and change nothing, `POST` unsubscribes (RFC 8058).

Scanners follow every link, so only a POST has an effect. It needs neither cookie nor body; mail clients send
`List-Unsubscribe=One-Click`, others nothing, so the body isn't read. The buttons of the page name their choice in the
query, and any POST without a known choice unsubscribes from all.
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

import falcon
import falcon.asgi

from api.areas.unsubscribes.unsubscribe_page import CHOICE, page_of
from api.http.decode import query_parameter
from api.http.services import ApiServices
from api.pages.languages import preferred
from api.pages.page import show
from api.pages.refusals import show_unavailable, show_unknown
from engine.base.errors import Refusal
from engine.mail import unsubscribe_token
from engine.sending.unsubscribes.service import Unsubscriber
from engine.sending.unsubscribes.types import LinkChoice, LinkSource, LinkState, LinkUse
from engine.store.database_errors import DatabaseUnavailable
from engine.store.deadlines import within
from engine.store.group_commit import Overloaded

PATH: Final = "/u/{token}"
DEADLINE_S: Final = 10.0
OPERATION: Final = "unsubscribe"  # in metrics

OnAnswer = Callable[[str, int, str | None], None]


class UnsubscribeResource:
    """Answers requests for unsubscribe links."""

    def __init__(self, services: ApiServices, on_answer: OnAnswer) -> None:
        pepper = services.settings.pepper
        self._key = unsubscribe_token.key_of(pepper)
        self._limits = services.limits
        self._settings = services.settings
        self._unsubscriber = Unsubscriber(services.pool)
        self._on_answer = on_answer

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response, token: str) -> None:
        """Show the state of the link, and its buttons."""
        await self._answer(request, response, token, None)

    on_head = on_get

    async def on_post(self, request: falcon.asgi.Request, response: falcon.asgi.Response, token: str) -> None:
        """Apply the choice in the query, by default unsubscribe from all, and show the state after it."""
        await self._answer(request, response, token, _choice_of(request))

    async def _answer(
        self, request: falcon.asgi.Request, response: falcon.asgi.Response, token: str, choice: LinkChoice | None
    ) -> None:
        link = unsubscribe_token.link_of(self._key, token)
        if link is None:
            await show_unknown(request, response, self._limits, self._settings)
        else:
            await self._show(request, response, link, choice)
        self._on_answer(OPERATION, int(str(response.status)[:3]), None)

    async def _show(
        self, request: falcon.asgi.Request, response: falcon.asgi.Response, link: UUID, choice: LinkChoice | None
    ) -> None:
        try:
            with within(DEADLINE_S):
                state = await self._state(link, choice)
        except (DatabaseUnavailable, OSError, Overloaded):  # TimeoutError is an OSError
            show_unavailable(request, response)
            return
        show(response, page_of(state, preferred(request.get_header("Accept-Language")), choice))

    async def _state(self, link: UUID, choice: LinkChoice | None) -> LinkState | None:
        if choice is None:
            return await self._unsubscriber.read(link)
        return await self._unsubscriber.use(LinkUse(link, choice, LinkSource.PAGE))


def _choice_of(request: falcon.asgi.Request) -> LinkChoice:
    try:
        return LinkChoice(query_parameter(request, CHOICE) or "")
    except (Refusal, ValueError):
        return LinkChoice.ALL
