"""The frame around every page: keys, palette, theme, calls, lost sessions and lost networks."""

import pytest
from playwright.async_api import Browser, expect

from loadtests.kit.service import Service
from ops import admin
from tests.harness.browser import DESKTOP, PHONE, TABLET, ConsolePage, ConsoleUser, opened
from tests.harness.people import PASSWORD


async def end_sessions(service: Service, user: ConsoleUser) -> None:
    """End all sessions of the person, as a sign-out elsewhere does."""
    async with admin.opened(service.settings) as pool:
        await pool.execute("DELETE FROM sessions WHERE user_id = $1", user.person.id)


async def test_keys_lead_to_pages_and_show_help(page: ConsolePage) -> None:
    await page.go("/streams")
    await page.page.keyboard.press("g")
    await page.page.keyboard.press("a")
    await expect(page.page.get_by_role("heading", level=1, name="Alerts")).to_be_visible()
    await page.page.keyboard.press("?")
    await expect(page.page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    await page.page.keyboard.press("Escape")
    await expect(page.page.get_by_role("dialog")).to_have_count(0)


async def test_the_palette_finds_pages_and_pasted_ids(page: ConsolePage) -> None:
    await page.go("/")
    await page.page.keyboard.press("Control+k")
    search = page.page.get_by_role("combobox", name="Page, action, id or address")
    await search.fill("suppr")
    await expect(page.page.get_by_role("option").first).to_contain_text("Suppressions")
    await search.fill("dom_01jx0000000000000000000000")
    await expect(page.page.get_by_role("option").first).to_contain_text("Domain dom_")
    await search.fill("alerts")
    await page.page.keyboard.press("Enter")
    await expect(page.page.get_by_role("heading", level=1, name="Alerts")).to_be_visible()


@pytest.mark.parametrize("action", ["Create an API key", "Add a domain", "Add a webhook", "Invite a person"])
async def test_an_action_of_the_palette_opens_its_dialog(page: ConsolePage, action: str) -> None:
    await page.go("/")
    await page.page.keyboard.press("Control+k")
    await page.page.get_by_role("combobox", name="Page, action, id or address").fill(action)
    await expect(page.page.get_by_role("option").first).to_contain_text(action)
    await page.page.keyboard.press("Enter")
    await expect(page.page.get_by_role("dialog").get_by_role("textbox").first).to_be_focused()
    await page.page.keyboard.press("Escape")
    await expect(page.page.get_by_role("dialog")).to_have_count(0)
    assert "new" not in page.page.url


async def test_the_palette_finds_guides_behind_its_own_pages(page: ConsolePage) -> None:
    await page.go("/")
    await page.page.keyboard.press("Control+k")
    search = page.page.get_by_role("combobox", name="Page, action, id or address")
    await search.fill("webhok retry")
    guide = page.page.get_by_role("option").filter(has_text="Webhooks · Docs").first
    async with page.page.context.expect_page() as opened:
        await guide.click()
    shown = await opened.value
    await expect(shown.get_by_role("heading", level=1, name="Webhooks")).to_be_visible()
    await page.page.keyboard.press("Control+k")
    await search.fill("webhooks")
    await expect(page.page.get_by_role("option").filter(has_text="Docs").first).to_be_visible()
    await expect(page.page.get_by_role("option").first).to_contain_text("Page")


async def test_the_calls_behind_a_page_are_shown_as_code(page: ConsolePage) -> None:
    await page.go("/streams")
    await page.settled()
    await page.page.get_by_role("button", name="API calls of this page").first.click()
    dialog = page.page.get_by_role("dialog", name="API calls of this page")
    await expect(dialog).to_contain_text("/v1/streams?limit=50")
    await expect(dialog).to_contain_text("Bearer $KEY")
    await dialog.get_by_role("button", name="Python").click()
    await expect(dialog).to_contain_text("httpx.get(")


async def test_a_lost_session_asks_for_a_sign_in_and_keeps_the_draft(
    page: ConsolePage, service: Service, user: ConsoleUser
) -> None:
    await page.go("/alerts")
    await page.settled()
    await end_sessions(service, user)
    await page.page.get_by_role("button", name="Create the default rules").first.click()
    over = page.page.get_by_role("dialog", name="Your session has ended")
    await over.get_by_label("Password").fill(PASSWORD)
    await over.get_by_role("button", name="Sign in", exact=True).click()
    await expect(page.page.get_by_text("5 rules created")).to_be_visible()
    await expect(over).to_have_count(0)


async def test_a_lost_network_is_said_and_the_page_goes_on_afterwards(page: ConsolePage) -> None:
    await page.go("/alerts")
    await page.settled()
    await expect(page.page.get_by_role("button", name="Create the default rules").first).to_be_visible()
    await page.page.context.set_offline(True)
    await page.page.get_by_role("button", name="Create the default rules").first.click()
    await expect(page.page.get_by_role("alert").first).to_contain_text("The service can't be reached")
    await page.page.context.set_offline(False)
    await page.page.get_by_role("button", name="Create the default rules").first.click()
    await expect(page.page.get_by_role("row", name="Bounce rate")).to_be_visible()
    page.forgive("ERR_INTERNET_DISCONNECTED")


async def test_a_refused_request_names_its_cause_and_id(page: ConsolePage) -> None:
    await page.page.route("**/v1/streams**", lambda route: route.fulfill(
        status=429, headers={"Retry-After": "7", "X-Request-Id": "request-12345"}, content_type="application/json",
        body='{"error": {"type": "rate_limited", "message": "Too many requests."}}',
    ))  # fmt: skip
    await page.go("/streams")
    note = page.page.get_by_role("alert")
    await expect(note).to_contain_text("Too many requests")
    await expect(note).to_contain_text("Retry in 7 s.")
    await expect(note).to_contain_text("request-12345")
    await page.page.unroute("**/v1/streams**")
    await page.page.get_by_role("button", name="Try again").click()
    await expect(page.page.get_by_role("table", name="Streams")).to_be_visible()


async def test_after_signing_out_back_shows_nothing_of_the_account(page: ConsolePage, user: ConsoleUser) -> None:
    await page.go("/streams")
    await page.settled()
    await page.page.get_by_role("button", name=user.person.email).click()
    await page.page.get_by_role("menuitem", name="Sign out").click()
    await expect(page.page.get_by_role("heading", level=1, name="Sign in")).to_be_visible()
    await page.page.go_back()
    await expect(page.page.get_by_role("heading", level=1, name="Sign in")).to_be_visible()
    assert user.access.account not in await page.page.content()


async def test_on_a_phone_the_navigation_opens_as_a_drawer(
    browser: Browser, service: Service, user: ConsoleUser
) -> None:
    async with opened(browser, service.base_url, user, size=PHONE) as page:
        await page.go("/streams")
        await expect(page.page.get_by_role("link", name="Alerts")).to_be_hidden()
        await page.page.get_by_role("button", name="Open the navigation").click()
        await page.page.get_by_role("link", name="Alerts").click()
        await expect(page.page.get_by_role("heading", level=1, name="Alerts")).to_be_visible()
        await expect(page.page.get_by_role("link", name="Streams")).to_be_hidden()


async def test_on_a_phone_the_head_has_its_main_button_and_a_menu(
    browser: Browser, service: Service, user: ConsoleUser
) -> None:
    async with opened(browser, service.base_url, user, size=PHONE) as page:
        shown = page.page
        await page.go("/suppressions")
        await expect(shown.get_by_role("button", name="Suppress address").first).to_be_visible()
        await expect(shown.get_by_role("button", name="Import file")).to_have_count(0)
        await shown.get_by_role("button", name="More actions").click()
        await expect(shown.get_by_role("menuitem", name="Export: CSV")).to_be_visible()
        assert await page.axe() == []
        await shown.get_by_role("menuitem", name="Import file").click()
        await expect(shown.get_by_role("dialog", name="Import suppressions")).to_be_visible()
        await shown.keyboard.press("Escape")
        await shown.set_viewport_size({"width": DESKTOP[0], "height": DESKTOP[1]})
        await expect(shown.get_by_role("button", name="Import file")).to_be_visible()


async def test_the_chosen_theme_is_kept(page: ConsolePage, user: ConsoleUser) -> None:
    await page.go("/streams")
    await page.page.get_by_role("button", name=user.person.email).click()
    await page.page.get_by_role("menuitem", name="Dark theme").click()
    await page.page.reload()
    await expect(page.page.locator("html")).to_have_attribute("data-theme", "dark")


async def test_a_message_html_of_a_stranger_can_not_leave_its_frame(browser: Browser, service: Service) -> None:
    async with opened(browser, service.base_url) as page:
        answer = await page.page.goto(f"{service.base_url}/console-frame")
        assert answer is not None
        assert "sandbox allow-scripts" in answer.headers["content-security-policy"]
        assert await page.page.evaluate("origin") == "null"


async def test_a_browser_that_refuses_to_copy_is_no_fault(page: ConsolePage) -> None:
    await page.page.context.clear_permissions()
    await page.go("/smtp")
    await page.page.get_by_role("button", name="Copy").first.click()
    await expect(page.page.get_by_text("The browser refused to copy").first).to_be_visible()


async def test_the_console_is_set_in_its_own_typeface_with_figures_of_one_width(page: ConsolePage) -> None:
    await page.go("/components")
    loaded = await page.page.evaluate("document.fonts.ready.then(() => [...document.fonts].map((one) => one.status))")
    assert "loaded" in loaded
    widths = await page.page.evaluate("""() => {
      const cell = document.createElement("span");
      cell.className = "numeric";
      document.querySelector("main").append(cell);
      return ["1111", "8888"].map((text) => { cell.textContent = text; return cell.getBoundingClientRect().width; });
    }""")
    assert widths[0] == widths[1] > 0


async def test_the_navigation_folds_to_icons_that_keep_their_names(
    browser: Browser, service: Service, user: ConsoleUser
) -> None:
    async with opened(browser, service.base_url, user, size=TABLET) as shown:
        await shown.go("/streams")
        link = shown.page.get_by_role("link", name="Messages", exact=True)
        await expect(link).to_have_attribute("title", "Messages")
        side = shown.page.get_by_role("navigation", name="Pages")
        assert await side.evaluate("side => side.offsetWidth") < 80
        await shown.page.get_by_role("button", name="Switch account").click()
        await expect(shown.page.get_by_role("menuitem", name="Account settings")).to_be_visible()


async def test_the_navigation_shows_the_page_and_that_more_is_below(page: ConsolePage) -> None:
    await page.page.set_viewport_size({"width": 1280, "height": 600})
    await page.go("/audit")
    await expect(page.page.get_by_role("link", name="Audit log")).to_be_in_viewport()
    shadows = await page.page.locator(".side-pages").evaluate("side => getComputedStyle(side).backgroundAttachment")
    assert shadows == "local, local, scroll, scroll"  # covers that move with the content, and the shadows


# A scrollbar that takes room; the headless browser has none otherwise.
_SCROLLBAR = """() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("html::-webkit-scrollbar { width: 15px; }");
  document.adoptedStyleSheets = [sheet];
}"""


async def test_a_backdrop_covers_the_place_of_the_scrollbar_and_nothing_moves(page: ConsolePage) -> None:
    await page.go("/streams")
    await page.settled()
    await page.page.evaluate(_SCROLLBAR)
    width = "document.querySelector('main').getBoundingClientRect().width"
    free = "innerWidth - document.documentElement.getBoundingClientRect().width"
    before = await page.page.evaluate(width)
    assert await page.page.evaluate(free) == 15
    for opener in ("New stream", "Search"):
        await page.page.get_by_role("button", name=opener).first.click()
        await expect(page.page.locator("dialog[open]")).to_be_visible()
        assert await page.page.evaluate(free) == 0
        assert await page.page.evaluate(width) == before
        await page.page.keyboard.press("Escape")
        await expect(page.page.locator("dialog[open]")).to_have_count(0)


@pytest.mark.parametrize("path", ["/webhooks", "/templates", "/contacts", "/alerts"])
async def test_an_empty_page_has_one_primary_action(page: ConsolePage, path: str) -> None:
    await page.go(path)
    await page.settled()
    await expect(page.page.locator(".empty .button.primary")).to_be_visible()
    painted = await page.page.locator("main .button.primary:visible").evaluate_all(
        "all => all.map(one => getComputedStyle(one).color).filter(colour => colour === 'rgb(255, 255, 255)')"
    )
    assert len(painted) == 1


async def test_the_page_of_components_shows_controls_in_their_states(page: ConsolePage) -> None:
    await page.go("/components")
    await expect(page.page.locator(".plot canvas").last).to_be_visible()
    for name in ("Choice", "Choice with an error", "Choice that can't be changed"):
        field = page.page.get_by_label(name, exact=True)
        drawn = await field.evaluate("one => [getComputedStyle(one).appearance, getComputedStyle(one).backgroundImage]")
        assert drawn[0] == "none", name
        assert "svg" in drawn[1], name
    for state in ("Default", "Disabled", "Not allowed", "Busy"):
        row = page.page.locator(".row").filter(has=page.page.get_by_text(state, exact=True))
        await expect(row.get_by_role("button", name="Delete").first).to_be_visible()
    assert not await page.axe()
