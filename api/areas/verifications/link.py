"""Serve confirmation links of one-time codes: a `POST` approves the verification."""

from typing import Final

import falcon.asgi
from msgspec import Struct

from api.pages.link_page import LinkPage
from api.pages.page import PageForm, PublicPage
from engine.base.localized_texts import localized
from engine.codes.verifications import service
from engine.codes.verifications.types import LinkedRow, VerificationStatus


class LinkTexts(Struct, frozen=True):
    """Title and sentence of the page that asks, with its button, of the page after it, and of an ended link."""

    ask: tuple[str, str]
    button: str
    done: tuple[str, str]
    ended: tuple[str, str]


TEXTS: Final = localized(__file__, "link_texts.toml", LinkTexts)


class ConfirmationLink(LinkPage):
    """`/v/{token}`."""

    operation = "confirm_link"

    async def page(self, request: falcon.asgi.Request, token: str, language: str, *, acts: bool) -> PublicPage | None:  # noqa: ARG002
        """Approve the verification if the request `acts`, and return the page for its state."""
        pool, keys = self.services.pool, self.services.codes.keys
        if acts:
            row = await service.approve_by_link(pool, keys, token)
        else:
            known = await service.linked(pool, keys, token)
            row = None if known is None else known[1]
        return None if row is None else page_of(row, language)


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
