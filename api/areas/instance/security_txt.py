"""`/.well-known/security.txt` (RFC 9116): where to report vulnerabilities of this installation."""

from datetime import timedelta
from typing import Any, Final

import falcon
import falcon.asgi

from api.http.static_files import StaticFile, serve
from engine.base import clock
from engine.base.settings import Settings

PATH: Final = "/.well-known/security.txt"
VALID: Final = timedelta(days=180)  # less than a year is recommended (RFC 9116 2.5.5)
_CACHE: Final = "public, max-age=3600"


class SecurityTxt:
    """Answers with the contact of the settings, and 404 without one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Answer with the file; it expires half a year after the day of the request."""
        contact = self._settings.security_contact
        if contact is None:
            response.status, response.content_type = falcon.HTTP_404, "text/plain"
            response.text = "This installation names no security contact.\n"
            return
        serve(
            request, response, StaticFile.of(_text(contact, self._settings.public_url).encode(), ".txt"), cache=_CACHE
        )

    on_head = on_get


def add_routes(app: "falcon.asgi.App[Any, Any]", settings: Settings) -> None:
    """Add the file to the application."""
    app.add_route(PATH, SecurityTxt(settings))


def _text(contact: str, public_url: str) -> str:
    base = public_url.rstrip("/")
    expires = clock.now().replace(hour=0, minute=0, second=0, microsecond=0) + VALID
    lines = [
        f"Contact: {contact if contact.startswith('https://') else f'mailto:{contact}'}",
        f"Expires: {expires:%Y-%m-%dT%H:%M:%SZ}",
        f"Policy: {base}/docs/security",
    ]
    if base.startswith("https://"):  # RFC 9116 2.5.2 allows no other scheme
        lines.append(f"Canonical: {base}{PATH}")
    return "\n".join([*lines, ""])
