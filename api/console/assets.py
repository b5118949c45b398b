"""Serve the web console: its start page for every path below `/console`, its modules and styles, and the mail frame;
`/` redirects to it.

The links in the service's own mails lead to the start page too (`/verify-email` and others).

The files are read, joined, hashed and compressed once, when the process starts. Their address holds the hash of all of
them, so that browsers may keep them for ever. The console calls the public API only.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import falcon
import falcon.asgi
from msgspec import Struct

from api.console.modules import JOINED, joined, without_comments
from api.http.static_files import FOREVER, MEDIA, REVALIDATED, StaticFile, serve
from engine.accounts.send_system_mail import END_SIGN_UP_PATH, FORGOT_PATH, PATHS

FILES: Final = Path(__file__).parent / "files"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:;"
    " font-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
# The frame shows the HTML of a mail. Its sandbox gives it an origin of its own: it can't read the console or cookies.
# It may load the images that accounts uploaded for their emails: they are public, and the same for all readers.
FRAME_POLICY: Final = (
    "sandbox allow-scripts; default-src 'none'; script-src {origin}; style-src 'unsafe-inline'; img-src data: {images};"
    " form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)
# As above, and pictures of other hosts: only for a mail whose reader asked for them.
REMOTE_FRAME_POLICY: Final = FRAME_POLICY.replace("img-src data:", "img-src data: https:")
FILES_PATH: Final = "/console-files"
FRAME_SCRIPT: Final = "app/frame.js"
FRAME_PATH: Final = "/console-frame"
REMOTE_FRAME_PATH: Final = "/console-frame/remote-images"


class ConsoleFiles(Struct, frozen=True):
    """All files of the console by their path below `/console-files/<version>/`; `version` is the hash of all."""

    version: str
    by_path: dict[str, StaticFile]
    first: tuple[str, ...]  # the modules that the start page loads before it can show anything


@cache
def files() -> ConsoleFiles:
    """Read the console's files, and join those of the vendored libraries that always load together."""
    vendor = FILES / "vendor"
    sources = {name: (vendor / name).read_text("utf-8") for name in JOINED.values()}
    found = {"vendor/preact.mjs": StaticFile.of(joined(sources).encode(), ".mjs")}
    plot = (vendor / "uPlot.iife.min.js").read_bytes() + b"\nexport default uPlot;\n"
    found["vendor/uplot.mjs"] = StaticFile.of(plot, ".mjs")
    found["vendor/uplot.css"] = StaticFile.of((vendor / "uPlot.min.css").read_bytes(), ".css")
    for face in sorted(vendor.glob("*.woff2")):
        found[f"vendor/{face.name}"] = StaticFile.of(face.read_bytes(), face.suffix)
    for path in sorted((FILES / "app").rglob("*")):
        if path.is_file() and path.suffix in MEDIA:
            name = path.relative_to(FILES).as_posix()
            content = path.read_bytes()
            found[name] = StaticFile.of(without_comments(content) if path.suffix == ".js" else content, path.suffix)
    digest = hashlib.sha256()
    for name, file in sorted(found.items()):
        digest.update(f"{name}\0{file.tag}\0".encode())
    core = tuple(name for name in sorted(found) if name.startswith("app/core/"))
    return ConsoleFiles(digest.hexdigest()[:16], found, ("vendor/preact.mjs", *core))


def prefix(public_url: str) -> str:
    """Return the path of the public URL without a final slash: empty unless the service is published below a path."""
    return urlsplit(public_url).path.rstrip("/")


class StartPage:
    """`/console`, every path below it, and the links in mails: the same small page, whose script shows what the path
    names.
    """

    def __init__(self, public_url: str) -> None:
        known = files()
        base = f"{prefix(public_url)}{FILES_PATH}/{known.version}"
        preloads = "".join(f'<link rel="modulepreload" href="{base}/{name}">\n' for name in known.first)
        page = (FILES / "console.html").read_text("utf-8").replace("{{base}}", base).replace("{{preloads}}", preloads)
        self._file = StaticFile.of(page.encode(), ".html")

    async def on_get(
        self,
        request: falcon.asgi.Request,
        response: falcon.asgi.Response,
        path: str = "",  # noqa: ARG002 - Falcon passes it
    ) -> None:
        """Answer with the start page."""
        serve(request, response, self._file, policy=POLICY)

    async def on_head(self, request: falcon.asgi.Request, response: falcon.asgi.Response, path: str = "") -> None:
        """Answer with the headers alone."""
        await self.on_get(request, response, path)


class Root:
    """`/`: people who open the bare address want the console."""

    def __init__(self, public_url: str) -> None:
        self._console = f"{prefix(public_url)}/console/"

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:  # noqa: ARG002 - Falcon passes it
        """Redirect to the console."""
        response.status = falcon.HTTP_302
        response.set_header("Location", self._console)
        response.set_header("Cache-Control", REVALIDATED)

    async def on_head(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Redirect to the console."""
        await self.on_get(request, response)


class ModuleFile:
    """`/console-files/<version>/…`: a module or style. An old version gets the current file, not to be kept."""

    async def on_get(
        self, request: falcon.asgi.Request, response: falcon.asgi.Response, version: str, path: str
    ) -> None:
        """Answer with the file; 404 for an unknown path."""
        known = files()
        file = known.by_path.get(path)
        if file is None:
            raise falcon.HTTPNotFound
        serve(request, response, file, cache=FOREVER if version == known.version else REVALIDATED)
        if path == FRAME_SCRIPT:  # the sandbox that loads it has an opaque origin
            response.set_header("Cross-Origin-Resource-Policy", "cross-origin")


class MailFrame:
    """`/console-frame`: an empty page in a sandbox, which draws the HTML that the console posts to it."""

    def __init__(self, public_url: str, policy: str) -> None:
        parts = urlsplit(public_url)
        base = f"{prefix(public_url)}{FILES_PATH}/{files().version}"
        page = (FILES / "frame.html").read_text("utf-8").replace("{{base}}", base)
        self._file = StaticFile.of(page.encode(), ".html")
        self._policy = policy
        self._images = f"{prefix(public_url)}/images/"
        self._fallback = f"{parts.scheme}://{parts.netloc}"

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Answer with the frame's page; 'self' means nothing in a sandbox, so the policy names the origin."""
        origin = _origin(request) or self._fallback
        serve(request, response, self._file, policy=self._policy.format(origin=origin, images=origin + self._images))
        response.set_header("X-Frame-Options", "SAMEORIGIN")


def _origin(request: falcon.asgi.Request) -> str | None:
    """Return the origin that the browser asked, if its Host header is a plain name or address with a port."""
    host = request.get_header("Host") or ""
    if not host or not all(char.isascii() and (char.isalnum() or char in ".-:[]") for char in host):
        return None
    scheme = request.get_header("X-Forwarded-Proto") or request.scheme
    return f"{'https' if scheme == 'https' else 'http'}://{host}"


def add_routes(app: "falcon.asgi.App[Any, Any]", public_url: str) -> None:
    """Add the console to the application."""
    start = StartPage(public_url)
    app.add_route("/", Root(public_url))
    app.add_route("/console", start)
    app.add_route("/console/{path:path}", start)
    for path in (
        *PATHS.values(),
        FORGOT_PATH,
        END_SIGN_UP_PATH,
    ):  # links in mails: the token is in the fragment, which stays in the browser
        app.add_route(path, start)
    app.add_route(FRAME_PATH, MailFrame(public_url, FRAME_POLICY))
    app.add_route(REMOTE_FRAME_PATH, MailFrame(public_url, REMOTE_FRAME_POLICY))
    app.add_route(FILES_PATH + "/{version}/{path:path}", ModuleFile())
