"""The console in a real browser: people with accounts, pages that report every fault, and axe."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final
from uuid import UUID

from axe_playwright_python.async_playwright import Axe
from msgspec import Struct
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Response, expect

from engine.base import ids
from engine.base.plans import Plan
from engine.people.sessions.rules import COOKIE
from loadtests.kit.accounts import ApiAccess
from loadtests.kit.service import Service
from ops import admin
from tests.harness.patience import PATIENCE_S
from tests.harness.people import TestPerson, make_person

ARGUMENTS: Final = (
    "--no-sandbox",  # root in containers; the pages are ours
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
_AXE: Final = Axe()
RULES: Final = {
    "resultTypes": ["violations"],
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
}
DESKTOP: Final = (1280, 900)
PHONE: Final = (375, 812)
TABLET: Final = (768, 1024)
# A refused request is part of some journeys; the browser reports it as an error of its own.
_REFUSED_REQUEST = re.compile(r"Failed to load resource: the server responded with a status of 4\d\d")
_numbers = count(1)

expect.set_options(timeout=PATIENCE_S * 1000)


class ConsoleUser(Struct, frozen=True):
    """A person with an account of their own on a running service, signed in, with an API key and a verified domain."""

    person: TestPerson
    access: ApiAccess
    base_url: str

    @property
    def domain(self) -> str:
        """Return the account's verified domain."""
        return self.access.sender.partition("@")[2]


async def new_user(service: Service, role: str = "owner", plan: Plan = Plan.SCALE) -> ConsoleUser:
    """Return a new person with `role` on a new account, with a key of all scopes and a verified domain."""
    settings = service.settings
    number = next(_numbers)
    async with admin.opened(settings) as pool:
        account = await admin.create_account(
            pool, name=f"Browser {number}", email=f"browser{number}@journeys.test", plan=plan, daily_cap=100_000
        )
        key = await admin.create_key(pool, settings, account=account["accountId"], name="browser", scopes=["all"])
        name = f"browser{number}.test"
        await admin.add_domain(pool, settings, account=account["accountId"], name=name, verified=True)
        owner: UUID = ids.parse_id(ids.Kind.ACCOUNT, account["accountId"])
        person = await make_person(pool, owner, role, email=f"ann{number}@{name}", pepper=settings.pepper)
    return ConsoleUser(person, ApiAccess(account["accountId"], key["apiKey"], f"hello@{name}"), service.base_url)


class ConsolePage:
    """A page of the console that notes every error of its scripts, its policy and its requests.

    `faults` holds them; a test that provokes one takes it out with `forgive`.
    """

    def __init__(self, page: Page, base_url: str) -> None:
        self.page = page
        self.faults: list[str] = []
        self._root = f"{base_url}/console"
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("response", self._answered)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not _REFUSED_REQUEST.match(message.text):
            self.faults.append(f"{message.type}: {message.text}")

    def _answered(self, response: Response) -> None:
        if response.status >= 500 or (response.status == 404 and "/console-files/" in response.url):
            self.faults.append(f"{response.status} of {response.request.method} {response.url}")

    def forgive(self, part: str) -> None:
        """Forget the faults that contain `part`: the test provoked them."""
        self.faults = [fault for fault in self.faults if part not in fault]

    async def go(self, path: str) -> None:
        """Open a page of the console by its path (`/messages`), and wait until its heading is shown."""
        await self.page.goto(self._root + path)
        await expect(self.page.get_by_role("heading", level=1).first).to_be_visible()

    async def settled(self) -> None:
        """Wait until the page has shown the replies of its requests: nothing is busy, no skeleton is left.

        It has a heading then: without one, a slow page would count as settled before its module has come.
        """
        await expect(self.page.get_by_role("heading", level=1).first).to_be_visible()
        await expect(self.page.locator("[aria-busy=true], .skeleton")).to_have_count(0)

    async def axe(self) -> list[str]:
        """Return the findings of axe (WCAG 2.2 AA and best practice) on what the page shows."""
        if not await self.page.evaluate("'axe' in window"):  # half a megabyte of script
            await self.page.evaluate(_AXE.axe_script)
        found: list[dict[str, Any]] = await self.page.evaluate(
            "rules => axe.run(document, rules).then(results => results.violations)", RULES
        )
        self.forgive("Failed to execute 'postMessage' on 'DOMWindow'")  # axe speaks to frames, which have no origin
        return [
            f"{one['id']}: {one['help']}: " + "; ".join(node["html"][:200] for node in one["nodes"][:3])
            for one in found
        ]


@asynccontextmanager
async def opened(
    browser: Browser,
    base_url: str,
    user: ConsoleUser | None = None,
    *,
    size: tuple[int, int] = DESKTOP,
    dark: bool = False,
) -> AsyncIterator[ConsolePage]:
    """Open a page in a context of its own, signed in as `user`; fails at the end if a fault was noted."""
    context: BrowserContext = await browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        permissions=["clipboard-read", "clipboard-write"],
        accept_downloads=True,
    )
    try:
        if user is not None:
            await context.add_cookies([{"name": COOKIE, "value": user.person.secret, "url": base_url}])
        shown = ConsolePage(await context.new_page(), base_url)
        yield shown
        assert not shown.faults, shown.faults
    finally:
        await context.close()
