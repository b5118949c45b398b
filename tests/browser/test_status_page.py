"""The public status page in a browser: readable without script, and what axe finds."""

from datetime import timedelta

import pytest
from msgspec import structs
from playwright.async_api import Browser, expect

from engine.base import clock
from engine.base.settings import Settings
from engine.sending.status_page import rules, service, store
from engine.store.postgres import close_pool, open_pool
from tests.conftest import NewDatabase, ServeApi
from tests.harness.api import Api
from tests.harness.browser import DESKTOP, PHONE, opened


@pytest.fixture(scope="module")
async def shown(settings: Settings, lasting_database: NewDatabase, serve: ServeApi) -> Api:
    """An API whose status page has 89 days of history with some faults, an open and a closed incident."""
    own = structs.replace(settings, database_url=await lasting_database(), status_page=True)
    assert own.database_url is not None
    pool = await open_pool(own.database_url, name="tests", largest=2)
    today = rules.quarter_of(clock.now())
    for component, bad in (("accepting", {}), ("delivering", {20: 1, 3: 2}), ("webhooks", {41: 2, 40: 1})):
        quarters = [today - timedelta(days=ago, minutes=15 * n) for ago in range(80) for n in range(4)]
        states = [bad.get(ago, 0) if n == 2 else 0 for ago in range(80) for n in range(4)]
        await store.WRITE_QUARTERS.execute(pool, [component] * len(quarters), quarters, states)
    await service.open_incident(
        pool, "Webhooks are late", "Webhook deliveries are up to 10 minutes late.\nNext: 14:30."
    )
    await service.update_incident(pool, "Webhooks are late", "Deliveries are on time again.", close=True)
    await service.open_incident(
        pool, "Sending is slow", "Emails leave up to 10 minutes late. Next update at 14:30 UTC."
    )
    await close_pool(pool)
    return serve(own)


@pytest.mark.parametrize(
    ("size", "dark"),
    [
        pytest.param(DESKTOP, False, id="desktop-light"),
        pytest.param(PHONE, True, id="phone-dark"),
    ],
)
async def test_axe_finds_nothing_and_nothing_is_cut_off(
    browser: Browser, shown: Api, size: tuple[int, int], *, dark: bool
) -> None:
    async with opened(browser, shown.base_url, size=size, dark=dark) as page:
        await page.page.goto(f"{shown.base_url}/status")
        await expect(page.page.get_by_role("img", name="Delivering emails, last 90 days: 78 up")).to_be_visible()
        assert await page.axe() == []
        assert await page.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


async def test_it_needs_no_script(browser: Browser, shown: Api) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(f"{shown.base_url}/status")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("components")
    await page.get_by_text("Days with a fault").first.click()
    await expect(page.get_by_text("Down, 75.00% uptime").first).to_be_visible()
    await context.close()
