"""Journeys without a mouse: every control is reached by Tab, and focus is kept after dialogs."""

from playwright.async_api import Page, expect

from tests.harness.browser import ConsolePage

MAX_TABS = 90
_FOCUSED = """() => {
  const one = document.activeElement;
  return (one.labels?.[0]?.textContent ?? one.getAttribute("aria-label") ?? one.textContent ?? "").trim();
}"""


async def tab_to(page: Page, name: str) -> None:
    """Press Tab until the control with this name has the focus, and check that the focus can be seen."""
    for _ in range(MAX_TABS):
        await page.keyboard.press("Tab")
        if (await page.evaluate(_FOCUSED)).startswith(name):
            outline = "getComputedStyle(document.activeElement).outlineStyle"
            assert await page.evaluate(outline) != "none", f"the focus on {name} can't be seen"
            return
    raise AssertionError(f"Tab does not reach {name}")


async def test_a_message_is_sent_by_keyboard(page: ConsolePage) -> None:
    await page.go("/messages/new")
    await page.settled()
    keys = page.page.keyboard
    await tab_to(page.page, "To")
    await keys.type("ann@people.test")
    await tab_to(page.page, "Subject")
    await keys.type("By keyboard")
    await tab_to(page.page, "Text")
    await keys.type("No mouse was used.")
    await tab_to(page.page, "Check and preview")
    await keys.press("Enter")
    await expect(page.page.get_by_role("dialog", name="Before it is sent")).to_be_visible()
    await tab_to(page.page, "Send to 1 recipient")
    await keys.press("Enter")
    await expect(page.page.get_by_role("heading", level=1, name="By keyboard")).to_be_visible()
    await expect(page.page.get_by_role("heading", name="Delivered")).to_be_visible()


async def test_a_dialog_gives_the_focus_back(page: ConsolePage) -> None:
    await page.go("/streams")
    await page.settled()
    await tab_to(page.page, "New stream")
    await page.page.keyboard.press("Enter")
    dialog = page.page.get_by_role("dialog", name="New stream")
    await expect(dialog).to_be_visible()
    await page.page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    assert (await page.page.evaluate(_FOCUSED)).startswith("New stream")


async def test_rows_are_walked_and_opened_by_keyboard(page: ConsolePage) -> None:
    await page.go("/domains")
    await page.settled()
    await page.page.keyboard.press("j")
    await page.page.keyboard.press("Enter")
    await expect(page.page.get_by_role("heading", level=1, name="browser")).to_be_visible()
