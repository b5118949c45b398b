"""Serve the clients of this version at `/sdk`: a Python wheel and its index for pip, modules and their npm package."""

import asyncio
import html
from collections.abc import Callable
from typing import Any, Final

import falcon
import falcon.asgi
import orjson
from msgspec import Struct

from api.sdk import javascript, npm_package, python_package, wheel

PATH: Final = "/sdk"
_MEDIA: Final = {
    ".gz": "application/gzip",
    ".html": "text/html; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".mts": "text/plain; charset=utf-8",
    ".tgz": "application/gzip",
    ".ts": "text/plain; charset=utf-8",
    ".whl": "application/octet-stream",
}
_POLICY: Final = "default-src 'none'; style-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title></head>
<body>
{body}
</body>
</html>
"""


class ClientFile(Struct, frozen=True):
    """The octets of one file as served."""

    content: bytes
    media: str
    digest: str  # SHA-256, hexadecimal

    @classmethod
    def of(cls, name: str, content: bytes) -> "ClientFile":
        """Return the file; its name decides the media type."""
        return cls(content, _MEDIA["." + name.rpartition(".")[2]], wheel.digest(content))


class ClientFiles:
    """The clients' files by their path, made by the first request that asks for one: 0.2 s of CPU, in a thread."""

    def __init__(self, document: Callable[[], bytes], version: str, public_url: str) -> None:
        self._document = document
        self._version = version
        self._public_url = public_url.rstrip("/")
        self._files: dict[str, ClientFile] | None = None
        self._making = asyncio.Lock()

    async def get(self, path: str) -> ClientFile | None:
        """Return the file at a path below `/sdk`, None if there is none."""
        if self._files is None:
            async with self._making:
                if self._files is None:
                    self._files = await asyncio.to_thread(self._make)
        return self._files.get(path)

    def _make(self) -> dict[str, ClientFile]:
        document = orjson.loads(self._document())
        files = python_package.files(document, self._version)
        packed = wheel.wheel(files, self._version)
        name = wheel.wheel_name(self._version)
        found = {f"/{name}": packed, f"/{wheel.sdist_name(self._version)}": wheel.sdist(files, self._version)}
        scripts = javascript.files(document, self._version)
        found |= {f"/{script}": text.encode() for script, text in scripts.items()}
        found[f"/{npm_package.package_name(self._version)}"] = npm_package.package(scripts, self._version)
        made = {path: ClientFile.of(path, content) for path, content in found.items()}
        pages = self._pages(name, made)
        return made | {path: ClientFile.of("page.html", text.encode()) for path, text in pages.items()}

    def _pages(self, name: str, made: dict[str, ClientFile]) -> dict[str, str]:
        """Return the page for people, and the index of the simple repository API (PEP 503)."""
        base = f"{self._public_url}{PATH}"
        links = "\n".join(
            f'<li><a href="{base}{path}">{html.escape(path[1:])}</a> <code>sha256 {file.digest}</code></li>'
            for path, file in made.items()
        )
        packed = npm_package.package_name(self._version)
        body = (
            f"<h1>Clients of Waybill {html.escape(self._version)}</h1>\n"
            f"<pre>pip install {base}/{name}\nnpm install {base}/{packed}</pre>\n<ul>\n{links}\n</ul>\n"
            f'<p><a href="{self._public_url}/docs">Documentation</a></p>'
        )
        link = f'<a href="{base}/{name}#sha256={made[f"/{name}"].digest}" data-requires-python="{{}}">{name}</a>'
        project = link.format(html.escape(wheel.REQUIRES_PYTHON))
        packages = f'<a href="{base}/simple/{wheel.DISTRIBUTION}/">{wheel.DISTRIBUTION}</a>'
        return {
            "": _PAGE.format(title="Clients of Waybill", body=body),
            "/simple": _PAGE.format(title="Simple index", body=packages),
            f"/simple/{wheel.DISTRIBUTION}": _PAGE.format(title=f"Links for {wheel.DISTRIBUTION}", body=project),
        }


class ClientFileEndpoint:
    """`/sdk` and the paths below it."""

    def __init__(self, files: ClientFiles) -> None:
        self._files = files

    async def on_get(
        self,
        request: falcon.asgi.Request,
        response: falcon.asgi.Response,
        path: str = "",  # noqa: ARG002 - Falcon passes it
    ) -> None:
        """Answer with the file; 404 for an unknown path, such as the wheel of another version."""
        file = await self._files.get(request.path.removeprefix(PATH).rstrip("/"))
        if file is None:
            raise falcon.HTTPNotFound
        tag = f'"{file.digest[:32]}"'
        response.set_header("Cache-Control", "no-cache")
        response.set_header("ETag", tag)
        response.set_header("Content-Security-Policy", _POLICY)
        response.set_header("Access-Control-Allow-Origin", "*")  # pages of other origins may import the modules
        response.set_header("Cross-Origin-Resource-Policy", "cross-origin")
        if tag in (request.get_header("If-None-Match") or ""):
            response.status = 304
            return
        response.content_type = file.media
        response.data = file.content

    async def on_head(self, request: falcon.asgi.Request, response: falcon.asgi.Response, path: str = "") -> None:
        """Answer with the headers alone."""
        await self.on_get(request, response, path)


def add_routes(app: "falcon.asgi.App[Any, Any]", document: Callable[[], bytes], version: str, public_url: str) -> None:
    """Add the clients to the application."""
    endpoint = ClientFileEndpoint(ClientFiles(document, version, public_url))
    app.add_route(PATH, endpoint)
    app.add_route(PATH + "/{path:path}", endpoint)
