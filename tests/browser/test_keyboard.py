"""Journeys without a mouse: every control is reached by Tab, and focus is kept after dialogs."""

import pytest
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
    await expect(page.page.get_by_role("dialog", name="Check before sending")).to_be_visible()
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


@pytest.mark.parametrize(
    ("path", "opener", "fields", "heading"),
    [
        ("/domains", "Add domain", {"Return path label": "rp", "Domain": "enter.test"}, "enter.test"),
        ("/lists", "New list", {"Description": "Made by Enter", "Name": "By Enter"}, "By Enter"),
    ],
)
async def test_enter_in_any_field_sends_a_dialog(
    page: ConsolePage, path: str, opener: str, fields: dict[str, str], heading: str
) -> None:
    await page.go(path)
    await page.settled()
    await page.page.get_by_role("button", name=opener).first.click()
    dialog = page.page.get_by_role("dialog")
    for name, text in fields.items():
        await page.page.keyboard.press("Enter")
        await expect(dialog).to_be_visible()  # a required field is still empty
        await dialog.get_by_label(name, exact=True).fill(text)
    await dialog.get_by_label(next(iter(fields)), exact=True).press("Enter")
    await expect(dialog).to_have_count(0)
    await expect(page.page.get_by_text(heading).first).to_be_visible()


async def test_ctrl_enter_sends_a_dialog_from_a_text_area(page: ConsolePage) -> None:
    await page.go("/webhooks")
    await page.page.get_by_role("button", name="Add endpoint").first.click()
    dialog = page.page.get_by_role("dialog", name="Add an endpoint")
    await dialog.get_by_role("textbox", name="URL").fill("https://people.test/hook")
    await dialog.get_by_text("Limit it to domains or streams").click()
    headers = dialog.get_by_label("Headers of every post")
    await headers.fill("X-Shop: 1")
    await headers.press("Enter")
    await expect(dialog).to_be_visible()
    await headers.press("Control+Enter")
    await expect(page.page.get_by_role("dialog", name="Signing secret")).to_be_visible()


async def test_rows_are_walked_and_opened_by_keyboard(page: ConsolePage) -> None:
    await page.go("/domains")
    await page.settled()
    await page.page.keyboard.press("j")
    await page.page.keyboard.press("Enter")
    await expect(page.page.get_by_role("heading", level=1, name="browser")).to_be_visible()
