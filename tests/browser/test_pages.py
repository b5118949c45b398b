"""Every page of the console opens without a fault and without findings of axe; later in each theme and width."""

import re

import aiohttp
import pytest
from playwright.async_api import Browser, Route

from api.console import assets
from loadtests.kit.accounts import ApiAccess
from loadtests.kit.service import Service
from ops import admin
from tests.harness.accounts import make_account
from tests.harness.api import Api
from tests.harness.browser import DESKTOP, PHONE, TABLET, ConsolePage, ConsoleUser, opened
from tests.harness.everything import Ids, furnish
from tests.harness.sampling import sampled

_ROUTE = re.compile(r'^  page\("(/[^":]*)"', re.MULTILINE)
MAIN = (assets.FILES / "app" / "main.js").read_text("utf-8")
PATHS = [path for path in _ROUTE.findall(MAIN) if "OUTSIDE" not in path]
SIGNED_OUT = set(_ROUTE.findall(MAIN.partition("const OUTSIDE")[2]))
SIGNED_IN = [path for path in PATHS if path not in SIGNED_OUT]

DETAILS = [
    "/messages/{message}",
    "/messages/{scheduled}",
    "/approvals/{agent_send}",
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
    "/deliverability/waits",
    "/deliverability/tls",
    "/account/limits",
    "/account/data",
    "/codes/settings",
    "/codes/checks",
    "/profile/sessions",
]
UNAVAILABLE = '{"error": {"type": "unavailable", "message": "A part of the service is not available. Try again."}}'


Look = tuple[tuple[int, int], bool]  # size, and whether in dark colours
USUAL: Look = (DESKTOP, False)
EVERY: list[Look] = [USUAL, (DESKTOP, True), (PHONE, True), (PHONE, False), (TABLET, False), (TABLET, True)]


async def look(shown: ConsolePage, path: str, looks: list[Look], headings: int | None = 1) -> None:
    """Open the page; check in each look that it has one main heading and fits the width, and run axe."""
    await shown.go(path)
    if path != "/components":  # it shows busy parts on purpose
        await shown.settled()
    for (width, height), dark in looks:
        await shown.page.set_viewport_size({"width": width, "height": height})
        await shown.page.emulate_media(color_scheme="dark" if dark else "light")
        if headings is not None:
            assert await shown.page.get_by_role("heading", level=1).count() == headings
        wider = await shown.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wider <= 0, f"wider than {width} px"
        assert await shown.axe() == [], (width, dark)


@pytest.mark.parametrize("path", sampled(SIGNED_IN, 3))
async def test_a_page_opens_without_faults(browser: Browser, service: Service, user: ConsoleUser, path: str) -> None:
    async with opened(browser, service.base_url, user) as shown:
        await look(shown, path, [USUAL])


@pytest.mark.parametrize("path", sorted(SIGNED_OUT))
async def test_a_page_for_strangers_opens_without_faults(browser: Browser, service: Service, path: str) -> None:
    async with opened(browser, service.base_url) as shown:
        await look(shown, path, [USUAL])


@pytest.fixture(scope="session")
async def full(service: Service, http: aiohttp.ClientSession) -> tuple[ConsoleUser, Ids]:
    """Return the owner of an account that has one of everything, and the ids of its things."""
    async with admin.opened(service.settings) as pool:
        account = await make_account(pool, plan="enterprise")
        estate = await furnish(Api(service.base_url, http), pool, account, service.settings)
    access = ApiAccess(account.public_id, account.token, f"hello@{account.domain}")
    return ConsoleUser(estate.owner, access, service.base_url), estate.things


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", [*SIGNED_IN, *DETAILS])
async def test_a_full_page_in_each_theme_and_width(
    browser: Browser, service: Service, full: tuple[ConsoleUser, Ids], path: str
) -> None:
    user, things = full
    async with opened(browser, service.base_url, user) as shown:
        await look(shown, path.format(**things), EVERY)


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", SIGNED_IN)
async def test_a_page_whose_calls_are_refused_in_each_theme_and_width(
    browser: Browser, service: Service, user: ConsoleUser, path: str
) -> None:
    async def refuse(route: Route) -> None:
        await route.fulfill(status=503, content_type="application/json", body=UNAVAILABLE, headers={"Retry-After": "9"})

    async with opened(browser, service.base_url, user) as shown:
        await shown.page.route(re.compile(r"/v1/(?!auth/|instance)"), refuse)
        await look(shown, path, EVERY, headings=None)
        shown.forgive("503")


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", SIGNED_IN)
async def test_an_empty_page_in_each_theme_and_width(
    browser: Browser, service: Service, user: ConsoleUser, path: str
) -> None:
    async with opened(browser, service.base_url, user) as shown:
        await look(shown, path, EVERY[1:])  # test_a_page_opens_without_faults has the first


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
