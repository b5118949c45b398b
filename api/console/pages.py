"""Serve the pages that links in system mail lead to; each has one form, which calls the API.

The token is in the link's fragment (`#`), which browsers send to no server, log or Referer. All visitors get the same
pages, which load nothing from other hosts and contain no inline script.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import falcon
import falcon.asgi
from msgspec import Struct

from engine.areas.people.rules import MAX_PASSWORD, MIN_PASSWORD
from engine.mail.template import TemplatePart, compile_part, render

FILES: Final = Path(__file__).parent / "files"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'none';"
    " frame-ancestors 'none'; base-uri 'none'"
)
ASSETS: Final = {"mailbox.css": "text/css; charset=utf-8", "mailbox.js": "text/javascript; charset=utf-8"}
_SIGN_IN: Final = "You can close this page and sign in."


class ConsolePage(Struct, frozen=True):
    """The texts of one page, its form and the operation that it calls; `again` is the page to request a new link."""

    title: str
    intro: str
    button: str
    call: str
    done: str
    next: str
    token: bool = True
    email: bool = False
    typed: str = ""  # the label of the password field, if the page has one
    new: bool = False  # True if the person chooses the password on this page
    again: str = ""
    again_why: str = ""
    again_label: str = ""


PAGES: Final[Mapping[str, ConsolePage]] = {
    "/verify-email": ConsolePage(
        title="Confirm your address",
        intro="Press the button to confirm that you received this mail.",
        button="Confirm my address",
        call="v1/auth/verify-email",
        done="Your address is confirmed",
        next="Your account can create API keys now. You can close this page.",
    ),
    "/reset-password": ConsolePage(
        title="Set a new password",
        intro="This ends all your sessions. From then on, sign in with the new password.",
        button="Set the password",
        call="v1/auth/password/reset",
        done="Your password is set",
        next=_SIGN_IN,
        typed="New password",
        new=True,
        again="forgot-password",
        again_why="Was the link used already, or has it expired?",
        again_label="Ask for a new one.",
    ),
    "/confirm-email": ConsolePage(
        title="Confirm your new address",
        intro="From then on you sign in with this address, and your other sessions end.",
        button="Use this address",
        call="v1/auth/email/change/confirm",
        done="Your address is changed",
        next="Sign in with it from now on. A notice was sent to the old address.",
    ),
    "/accept-invite": ConsolePage(
        title="Accept the invitation",
        intro="Enter the password that you sign in with. If you are new here, choose one.",
        button="Accept",
        call="v1/team/invites/accept",
        done="You are a member of the account now",
        next=_SIGN_IN,
        typed="Password",
        again="forgot-password",
        again_why="Have you forgotten your password?",
        again_label="Ask for a new one.",
    ),
    "/forgot-password": ConsolePage(
        title="Forgot your password?",
        intro="Enter the address that you sign in with. We send it a link to set a new password.",
        button="Send the link",
        call="v1/auth/password/forgot",
        done="Check your mailbox",
        next="If the address has a sign-in here, a link was sent to it. The link works for an hour.",
        token=False,
        email=True,
    ),
}


class PageContent:
    """A Falcon resource that serves the same octets to all visitors."""

    def __init__(self, octets: bytes, media: str) -> None:
        self._octets = octets
        self._media = media

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:  # noqa: ARG002
        """Answer with the page or file."""
        response.data = self._octets
        response.content_type = self._media
        response.set_header("Content-Security-Policy", POLICY)
        response.set_header("Referrer-Policy", "no-referrer")
        response.set_header("X-Content-Type-Options", "nosniff")
        response.set_header("X-Frame-Options", "DENY")
        response.set_header("Cross-Origin-Opener-Policy", "same-origin")
        response.set_header("Cache-Control", "no-cache")

    async def on_head(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Answer with the headers alone: mail scanners ask with HEAD."""
        await self.on_get(request, response)


def add_routes(app: "falcon.asgi.App[Any, Any]") -> None:
    """Add the pages and their files to the application."""
    for path, page in PAGES.items():
        app.add_route(path, PageContent(html(page), "text/html; charset=utf-8"))
    for name, media in ASSETS.items():
        app.add_route(f"/assets/{name}", PageContent((FILES / name).read_bytes(), media))


@cache
def html(page: ConsolePage) -> bytes:
    """Return the page as served."""
    flags = {name: "yes" for name in ("token", "email", "new") if getattr(page, name)}
    texts = ("title", "intro", "button", "call", "done", "next", "again", "again_why", "again_label")
    values = {name: str(getattr(page, name)) for name in texts} | flags
    values |= {"password": page.typed, "least": str(MIN_PASSWORD), "most": str(MAX_PASSWORD)}
    return render(compile_part((FILES / "layout.html").read_text("utf-8"), TemplatePart.HTML), values).encode()
