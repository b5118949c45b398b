"""Saved views: filters of a list under a name, chosen, renamed, shared and deleted."""

import re

from playwright.async_api import expect

from tests.harness.browser import ConsolePage


async def test_filters_are_saved_chosen_again_renamed_and_deleted(page: ConsolePage) -> None:
    shown = page.page
    await page.go("/messages?status=bounced&tag=a&tag=b")
    await shown.get_by_role("button", name="Views").click()
    await shown.get_by_role("menuitem", name="Save these filters").click()
    await shown.get_by_role("dialog").get_by_label("Name").fill("Bounced <b>a and b</b>")
    await shown.get_by_role("dialog").get_by_label("Share with the account").check()
    assert await page.axe() == []
    await shown.get_by_role("dialog").get_by_label("Name").press("Enter")
    await expect(shown.get_by_role("button", name="Bounced <b>a and b</b>")).to_be_visible()

    await page.go("/messages")
    await shown.get_by_role("button", name="Views").click()
    await shown.get_by_role("menuitem", name="Bounced <b>a and b</b>").click()
    await expect(shown).to_have_url(re.compile(r"status=bounced&tag=a&tag=b$"))
    await shown.get_by_role("button", name="Bounced <b>a and b</b>").click()
    await shown.get_by_role("menuitem", name="Manage views").click()
    dialog = shown.get_by_role("dialog", name="Manage views")
    assert await page.axe() == []
    await dialog.get_by_label("Name").fill("Bounces")
    await dialog.get_by_label("Name").press("Enter")
    await expect(dialog.get_by_role("button", name="Delete the view Bounces")).to_be_visible()
    await dialog.get_by_role("button", name="Delete the view Bounces").click()
    await expect(dialog.get_by_role("listitem")).to_have_count(0)


async def test_every_list_with_filters_has_views(page: ConsolePage) -> None:
    for path in ("/suppressions?reason=complaint", "/requests?status=4xx", "/contacts?search=ann", "/inbox?search=ann"):
        await page.go(path)
        await page.page.get_by_role("button", name="Views").click()
        await expect(page.page.get_by_role("menuitem", name="Save these filters")).to_be_visible()
