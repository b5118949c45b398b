"""Serve the documentation at `/docs`, and `llms.txt`: every page of the site is in memory once it was asked for."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import falcon
import falcon.asgi

from api.http.static_files import PAGE_POLICY, REVALIDATED, serve
from engine.base.settings import Settings

if TYPE_CHECKING:
    from api.docs.site import DocumentationSite

_LISTS: Final = ("/llms.txt", "/llms-full.txt")
_NO_PAGE: Final = "/docs/not-found"


class SiteHolder:
    """The site of one process, built by the first request that needs it. `document` returns the OpenAPI document."""

    def __init__(self, document: Callable[[], bytes], settings: Settings) -> None:
        self._document = document
        self._settings = settings
        self._site: DocumentationSite | None = None
        self._building = asyncio.Lock()

    async def site(self) -> "DocumentationSite":
        """Return the site; it is built in a thread, once."""
        if self._site is None:
            async with self._building:
                if self._site is None:
                    self._site = await asyncio.to_thread(self._build)
        return self._site

    def _build(self) -> "DocumentationSite":
        from api.docs.site import SiteBuilder  # noqa: PLC0415 - Markdown and Pygments load with the first page

        return SiteBuilder(self._document(), self._settings).build()


class DocumentationPage:
    """`/docs`, every path below it, its files, and the lists for programs."""

    def __init__(self, holder: SiteHolder) -> None:
        self._holder = holder

    async def on_get(
        self,
        request: falcon.asgi.Request,
        response: falcon.asgi.Response,
        path: str = "",  # noqa: ARG002 - Falcon passes it
    ) -> None:
        """Answer with the page or file; an unknown page gets the page that helps to find another, with status 404."""
        site = await self._holder.site()
        wanted = request.path.rstrip("/").removesuffix(".html")
        file = site.files.get(wanted)
        if file is None:
            file = site.files[_NO_PAGE]
            response.status = 404
        serve(request, response, file, cache=REVALIDATED, policy=PAGE_POLICY)

    async def on_head(self, request: falcon.asgi.Request, response: falcon.asgi.Response, path: str = "") -> None:
        """Answer with the headers alone."""
        await self.on_get(request, response, path)


def add_routes(app: "falcon.asgi.App[Any, Any]", document: Callable[[], bytes], settings: Settings) -> None:
    """Add the documentation to the application."""
    page = DocumentationPage(SiteHolder(document, settings))
    for path in ("/docs", "/docs/{path:path}", "/docs-files/{path:path}", *_LISTS):
        app.add_route(path, page)
