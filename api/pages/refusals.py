"""Answer with a page where a link can't be used: unknown, tried too often from one address, or no database."""

from typing import Final

import falcon
import falcon.asgi
from msgspec import Struct

from api.pages.languages import preferred
from api.pages.page import PublicPage, show
from engine.base.localized_texts import localized
from engine.base.netaddr import network_of
from engine.base.settings import Settings
from engine.store.rate_limits import RateLimiter


class RefusalTexts(Struct, frozen=True):
    """The pages for an unknown link, too many of them, and an unavailable service: each a title and a sentence."""

    unknown: tuple[str, str]
    too_many: tuple[str, str]
    unavailable: tuple[str, str]


TEXTS: Final = localized(__file__, "refusal_texts.toml", RefusalTexts)


async def show_unknown(
    request: falcon.asgi.Request, response: falcon.asgi.Response, limits: RateLimiter, settings: Settings
) -> None:
    """Answer 404 for a link that the service did not make, or 429 when its network has tried too many of them.

    Genuine links are not counted, so that mail providers may use any number of them.
    """
    bucket = f"ip:{network_of(request.remote_addr)}"
    status = await limits.check(bucket, settings.unauthenticated_rate)
    texts, language = _texts(request)
    if status.allowed:
        _show(response, language, texts.unknown, falcon.HTTP_404)
        return
    response.set_header("Retry-After", str(max(1, round(status.retry_after_s))))
    _show(response, language, texts.too_many, falcon.HTTP_429)


def show_unavailable(request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
    """Answer 503: the database is away, and nothing was changed."""
    texts, language = _texts(request)
    response.set_header("Retry-After", "60")
    _show(response, language, texts.unavailable, falcon.HTTP_503)


def _texts(request: falcon.asgi.Request) -> tuple[RefusalTexts, str]:
    language = preferred(request.get_header("Accept-Language"))
    return TEXTS[language], language


def _show(response: falcon.asgi.Response, language: str, texts: tuple[str, str], status: str) -> None:
    show(response, PublicPage(language=language, title=texts[0], paragraphs=(texts[1],)), status)
