"""Serve confirmation links of one-time codes: `GET` and `HEAD` show a page and change nothing, `POST` approves.

Scanners follow every link, so only the button of the page has an effect.
"""

from collections.abc import Callable
from typing import Final

import falcon
import falcon.asgi

from api.areas.verifications.link_texts import TEXTS
from api.http.services import ApiServices
from api.pages.languages import preferred
from api.pages.page import PageForm, PublicPage, show
from api.pages.refusals import show_unavailable, show_unknown
from engine.codes.verifications import service
from engine.codes.verifications.types import LinkedRow, VerificationStatus
from engine.store.database_errors import DatabaseUnavailable
from engine.store.deadlines import within

DEADLINE_S: Final = 10.0
OPERATION: Final = "confirm_link"  # in metrics

OnAnswer = Callable[[str, int, str | None], None]


class ConfirmationLink:
    """`/v/{token}`."""

    def __init__(self, services: ApiServices, on_answer: OnAnswer) -> None:
        self._services = services
        self._on_answer = on_answer

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response, token: str) -> None:
        """Show whether the link can be used, and the button."""
        await self._answer(request, response, token, approve=False)

    on_head = on_get

    async def on_post(self, request: falcon.asgi.Request, response: falcon.asgi.Response, token: str) -> None:
        """Approve the verification, and show its state; repeating changes nothing."""
        await self._answer(request, response, token, approve=True)

    async def _answer(
        self, request: falcon.asgi.Request, response: falcon.asgi.Response, token: str, *, approve: bool
    ) -> None:
        services = self._services
        try:
            with within(DEADLINE_S):
                row = await self._state(token, approve=approve)
        except (DatabaseUnavailable, OSError):  # TimeoutError is an OSError
            show_unavailable(request, response)
        else:
            if row is None:
                await show_unknown(request, response, services.limits, services.settings)
            else:
                show(response, page_of(row, preferred(request.get_header("Accept-Language"))))
        self._on_answer(OPERATION, int(str(response.status)[:3]), None)

    async def _state(self, token: str, *, approve: bool) -> LinkedRow | None:
        pool, keys = self._services.pool, self._services.codes.keys
        if approve:
            return await service.approve_by_link(pool, keys, token)
        known = await service.linked(pool, keys, token)
        return None if known is None else known[1]


def page_of(row: LinkedRow, language: str) -> PublicPage:
    """Return the page for a verification as it is."""
    texts = TEXTS[language]
    known = {VerificationStatus.PENDING: texts.ask, VerificationStatus.APPROVED: texts.done}
    title, text = known.get(VerificationStatus(row.status), texts.ended)
    return PublicPage(
        language=language,
        title=title,
        sender=row.brand_name or "",
        paragraphs=(text,),
        forms=(PageForm(texts.button),) if row.status == VerificationStatus.PENDING else (),
    )
