"""The documentation in a browser: search, tabs without script, the first email from the page, and what axe finds."""

import pytest
from playwright.async_api import Browser, expect

from loadtests.kit.service import Service
from tests.harness.browser import DESKTOP, PHONE, ConsolePage, ConsoleUser, opened
from tests.harness.docs_queries import queries, wrong

_SEARCH_ALL = """async (texts) => {
  const { searcher } = await import("/docs-files/search.js");
  const search = searcher(await (await fetch("/docs/search.json")).json());
  return Object.fromEntries(texts.map((text) => [text, search(text)]));
}"""
PAGES = (
    "/docs",
    "/docs/start",
    "/docs/webhooks",
    "/docs/errors",
    "/docs/api",
    "/docs/api/emails",
    "/docs/operating/flow",
)


async def test_a_search_leads_to_the_section(browser: Browser, service: Service) -> None:
    async with opened(browser, service.base_url) as page:
        await page.page.goto(f"{service.base_url}/docs")
        await page.page.keyboard.press("/")
        await page.page.keyboard.type("rate_limited")
        await expect(page.page.get_by_role("option").first).to_contain_text("rate_limited")
        await page.page.keyboard.press("Enter")
        await page.page.wait_for_url("**/docs/errors#rate_limited")


async def test_each_plain_query_finds_its_page_first(browser: Browser, service: Service) -> None:
    asked = queries()
    async with opened(browser, service.base_url) as page:
        await page.page.goto(f"{service.base_url}/docs")
        found = await page.page.evaluate(_SEARCH_ALL, list(asked))
    assert wrong(asked, found) == {}


async def test_a_typo_still_leads_to_the_guide(browser: Browser, service: Service) -> None:
    async with opened(browser, service.base_url) as page:
        await page.page.goto(f"{service.base_url}/docs")
        await page.page.get_by_role("combobox", name="Search the documentation").fill("supression list")
        await expect(page.page.get_by_role("option").first).to_contain_text("Suppressions")
        await page.page.keyboard.press("Enter")
        await page.page.wait_for_url("**/docs/suppressions")


async def test_a_language_once_chosen_is_shown_on_the_next_page(browser: Browser, service: Service) -> None:
    async with opened(browser, service.base_url) as page:
        await page.page.goto(f"{service.base_url}/docs/api/emails")
        await page.page.get_by_text("JavaScript", exact=True).first.click()
        await page.page.goto(f"{service.base_url}/docs/api/domains")
        await expect(page.page.get_by_label("JavaScript").first).to_be_checked()


async def test_pages_and_tabs_work_without_script(browser: Browser, service: Service) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(f"{service.base_url}/docs/api/emails")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Emails")
    await expect(page.get_by_role("searchbox")).to_have_count(0)  # it would do nothing
    await page.get_by_text("JavaScript", exact=True).first.click()
    await expect(page.get_by_text("await fetch").first).to_be_visible()
    await context.close()


async def test_a_signed_in_reader_sends_the_first_email_from_the_page(page: ConsolePage, user: ConsoleUser) -> None:
    await page.page.goto(f"{user.base_url}/docs/start")
    await expect(page.page.get_by_label("From")).to_have_value(f"hello@{user.domain}")
    await page.page.get_by_role("button", name="Create a key and send").click()
    await expect(page.page.get_by_role("listitem").filter(has_text="delivered")).to_be_visible()
    await page.page.get_by_role("link", name="The message in the console").click()
    await expect(page.page.get_by_role("heading", level=1, name="Hello")).to_be_visible()


@pytest.mark.parametrize(
    ("size", "dark"),
    [
        pytest.param(DESKTOP, False, id="desktop-light"),
        pytest.param(DESKTOP, True, id="desktop-dark", marks=pytest.mark.exhaustive),
        pytest.param(PHONE, False, id="phone-light", marks=pytest.mark.exhaustive),
        pytest.param(PHONE, True, id="phone-dark", marks=pytest.mark.exhaustive),
    ],
)
async def test_axe_finds_nothing(browser: Browser, service: Service, size: tuple[int, int], *, dark: bool) -> None:
    async with opened(browser, service.base_url, size=size, dark=dark) as page:
        for path in PAGES:
            await page.page.goto(service.base_url + path)
            assert await page.axe() == [], path
            wider = await page.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wider <= 0, path
