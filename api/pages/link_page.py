"""Serve links that mail carries: `GET` and `HEAD` show a page and change nothing, `POST` has the link's effect.

Scanners follow every link, so only a POST has an effect. It needs neither cookie nor body, and may be repeated.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import falcon
import falcon.asgi

from api.http.services import ApiServices
from api.pages.languages import preferred
from api.pages.page import PublicPage, show
from api.pages.refusals import show_unavailable, show_unknown
from engine.store.database_errors import DatabaseUnavailable
from engine.store.deadlines import within
from engine.store.group_commit import Overloaded

DEADLINE_S: Final = 10.0

OnAnswer = Callable[[str, int, str | None], None]  # operation, status, refusal


class LinkPage(ABC):
    """Answers requests for links of one kind; `operation` is their name in metrics."""

    operation: str

    def __init__(self, services: ApiServices, on_answer: OnAnswer) -> None:
        self.services = services
        self._on_answer = on_answer

    @abstractmethod
    async def page(self, request: falcon.asgi.Request, token: str, language: str, *, acts: bool) -> PublicPage | None:
        """Return the page of a link, after its effect if it `acts`; None for a link that the service did not make."""

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response, token: str) -> None:
        """Show the state of the link, and its buttons."""
        await self._answer(request, response, token, acts=False)

    on_head = on_get

    async def on_post(self, request: falcon.asgi.Request, response: falcon.asgi.Response, token: str) -> None:
        """Apply the link, and show the state after it."""
        await self._answer(request, response, token, acts=True)

    async def _answer(
        self, request: falcon.asgi.Request, response: falcon.asgi.Response, token: str, *, acts: bool
    ) -> None:
        language = preferred(request.get_header("Accept-Language"))
        try:
            with within(DEADLINE_S):
                page = await self.page(request, token, language, acts=acts)
        except (DatabaseUnavailable, OSError, Overloaded):  # TimeoutError is an OSError
            show_unavailable(request, response)
        else:
            if page is None:
                await show_unknown(request, response, self.services.limits, self.services.settings)
            else:
                show(response, page)
        self._on_answer(self.operation, int(str(response.status)[:3]), None)
