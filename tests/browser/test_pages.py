"""Every page of the console opens without a fault and without findings of axe; later in each theme and width."""

import re

import aiohttp
import pytest
from playwright.async_api import Browser, Route

from api.console import assets
from loadtests.drill.send_client import ApiAccess
from loadtests.drill.service import Service
from ops import admin
from tests.harness.accounts import make_account
from tests.harness.api import Api
from tests.harness.browser import DESKTOP, PHONE, ConsoleUser, opened
from tests.harness.everything import Ids, furnish

_ROUTE = re.compile(r'^  page\("(/[^":]*)"', re.MULTILINE)
MAIN = (assets.FILES / "app" / "main.js").read_text("utf-8")
PATHS = [path for path in _ROUTE.findall(MAIN) if "OUTSIDE" not in path]
SIGNED_OUT = set(_ROUTE.findall(MAIN.partition("const OUTSIDE")[2]))
SIGNED_IN = [path for path in PATHS if path not in SIGNED_OUT]

DETAILS = [
    "/messages/{message}",
    "/messages/{scheduled}",
    "/broadcasts/{broadcast}",
    "/templates/{template}",
    "/templates?tab=layouts",
    "/layouts/{layout}",
    "/inbox/{received}",
    "/contacts/{contact}",
    "/lists/{list}",
    "/lists/{list}/opt-outs",
    "/segments/{segment}",
    "/domains/{domain}",
    "/webhooks/{webhook}",
    "/receiving/routes",
    "/receiving/domains",
    "/receiving/mta-sts",
    "/deliverability/messages",
    "/deliverability/bounces",
    "/bounces/{suppression}",
    "/deliverability/dmarc",
    "/deliverability/tls",
    "/codes/settings",
    "/codes/checks",
    "/profile/sessions",
]
UNAVAILABLE = '{"error": {"type": "unavailable", "message": "A part of the service is not available. Try again."}}'


async def look(
    browser: Browser, service: Service, user: ConsoleUser | None, path: str, *, phone: bool, dark: bool
) -> None:
    """Open the page, check that it has one main heading and fits the width, and run axe."""
    size = PHONE if phone else DESKTOP
    async with opened(browser, service.base_url, user, size=size, dark=dark) as shown:
        await shown.go(path)
        if path != "/components":  # it shows busy parts on purpose
            await shown.settled()
        assert await shown.page.get_by_role("heading", level=1).count() == 1
        assert await shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the screen"
        assert await shown.axe() == []


@pytest.mark.parametrize("path", SIGNED_IN)
async def test_a_page_opens_without_faults(browser: Browser, service: Service, user: ConsoleUser, path: str) -> None:
    await look(browser, service, user, path, phone=False, dark=False)


@pytest.mark.parametrize("path", sorted(SIGNED_OUT))
async def test_a_page_for_strangers_opens_without_faults(browser: Browser, service: Service, path: str) -> None:
    await look(browser, service, None, path, phone=False, dark=False)


THEMES = pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
WIDTHS = pytest.mark.parametrize("phone", [False, True], ids=["1280", "375"])


@pytest.fixture(scope="session")
async def full(service: Service, http: aiohttp.ClientSession) -> tuple[ConsoleUser, Ids]:
    """Return the owner of an account that has one of everything, and the ids of its things."""
    async with admin.opened(service.settings) as pool:
        account = await make_account(pool, plan="enterprise")
        estate = await furnish(Api(service.base_url, http), pool, account, service.settings)
    access = ApiAccess(account.public_id, account.token, f"hello@{account.domain}")
    return ConsoleUser(estate.owner, access, service.base_url), estate.things


@pytest.mark.exhaustive
@THEMES
@WIDTHS
@pytest.mark.parametrize("path", [*SIGNED_IN, *DETAILS])
async def test_a_full_page_in_each_theme_and_width(
    browser: Browser, service: Service, full: tuple[ConsoleUser, Ids], path: str, phone: bool, dark: bool
) -> None:
    user, things = full
    await look(browser, service, user, path.format(**things), phone=phone, dark=dark)


@pytest.mark.exhaustive
@THEMES
@WIDTHS
@pytest.mark.parametrize("path", SIGNED_IN)
async def test_a_page_whose_calls_are_refused_in_each_theme_and_width(
    browser: Browser, service: Service, user: ConsoleUser, path: str, phone: bool, dark: bool
) -> None:
    async def refuse(route: Route) -> None:
        await route.fulfill(status=503, content_type="application/json", body=UNAVAILABLE, headers={"Retry-After": "9"})

    size = PHONE if phone else DESKTOP
    async with opened(browser, service.base_url, user, size=size, dark=dark) as shown:
        await shown.page.route(re.compile(r"/v1/(?!auth/|instance)"), refuse)
        await shown.go(path)
        if path != "/components":
            await shown.settled()
        assert await shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the screen"
        assert await shown.axe() == []
        shown.forgive("503")


@pytest.mark.exhaustive
@THEMES
@WIDTHS
@pytest.mark.parametrize("path", SIGNED_IN)
async def test_an_empty_page_in_each_theme_and_width(
    browser: Browser, service: Service, user: ConsoleUser, path: str, phone: bool, dark: bool
) -> None:
    await look(browser, service, user, path, phone=phone, dark=dark)


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", [*SIGNED_IN, *DETAILS])
async def test_buttons_can_be_pressed_while_the_replies_are_awaited(
    browser: Browser, service: Service, full: tuple[ConsoleUser, Ids], path: str
) -> None:
    user, things = full
    waiting: list[Route] = []

    async def hold(route: Route) -> None:
        waiting.append(route)

    async with opened(browser, service.base_url, user) as shown:
        await shown.page.route(re.compile(r"/v1/(?!auth/|instance)"), hold)
        await shown.go(path.format(**things))
        main = shown.page.get_by_role("main")
        buttons = main.locator("button:visible:not([disabled]):not([aria-disabled=true])")
        for number in range(await buttons.count()):
            if number >= await buttons.count():
                break
            await buttons.nth(number).evaluate("button => button.click()")
            await shown.page.keyboard.press("Escape")
        for route in waiting:
            await route.abort()
        shown.forgive("ERR_FAILED")
