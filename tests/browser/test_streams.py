"""Streams in the console: create, see, delete."""

from playwright.async_api import expect

from tests.harness.browser import ConsolePage


async def test_a_stream_is_created_and_deleted(page: ConsolePage) -> None:
    await page.go("/streams")
    await page.page.get_by_role("button", name="New stream").click()
    await page.page.get_by_label("Name").fill("Announcements")
    await page.page.get_by_role("button", name="Create stream").click()
    row = page.page.get_by_role("row").filter(has_text="Announcements")
    await expect(row).to_be_visible()
    await row.get_by_role("button", name="Actions of Announcements").click()
    await page.page.get_by_role("menuitem", name="Delete").click()
    await page.page.get_by_role("button", name="Delete stream").click()
    await expect(row).to_have_count(0)
