"""Broadcasts written by blocks: from an import to the result, with previews for contacts."""

from playwright.async_api import FilePayload, expect

from tests.browser.test_broadcasts import drafted, list_of
from tests.browser.test_composer import DOCUMENT, block
from tests.harness.api import Api
from tests.harness.browser import ConsolePage, ConsoleUser


async def test_contacts_are_imported_and_written_to_within_twelve_clicks(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    audience = await list_of(served, user, 0)
    await served.post("/v1/streams", user.access.key, {"name": "Announcements"})
    shown = page.page
    await shown.add_init_script(
        "window.presses = 0; addEventListener('pointerdown', () => { window.presses += 1; }, true)"
    )
    people = "email,name\nann@readers.test,Ann\nbob@readers.test,Bob\n"
    await page.go(f"/lists/{audience}")
    await page.settled()
    await shown.get_by_role("link", name="Import CSV").click()
    async with shown.expect_file_chooser() as chooser:
        await shown.get_by_label("CSV file").click()
    await (await chooser.value).set_files(FilePayload(name="a.csv", mimeType="text/csv", buffer=people.encode()))
    await shown.get_by_text("Consent of these contacts").click()
    await shown.keyboard.type("Signed")
    await shown.get_by_role("button", name="Check the file").click()
    await shown.get_by_role("button", name="Import 2 contacts").click()
    await shown.get_by_role("link", name="Write a broadcast").click()
    await shown.get_by_role("button", name="News").click()
    await block(shown, "Heading").first.click()
    await shown.keyboard.press("ControlOrMeta+A")
    await shown.keyboard.type("A new lamp for {{name}}")
    await shown.get_by_role("button", name="Save and send a test").click()
    dialog = shown.get_by_role("dialog")
    await dialog.get_by_role("button", name="Send the test to 1 person").click()
    await dialog.get_by_role("button", name="Send or schedule").click()
    await dialog.get_by_role("button", name="Send to 2 people").click()
    await expect(shown.get_by_text("to 2 contacts of")).to_be_visible()
    delivered = shown.locator(".figure").filter(has_text="Delivered")
    await expect(delivered).to_contain_text("100")
    assert await shown.evaluate("window.presses") <= 12


async def test_a_broadcast_of_blocks_is_previewed_for_the_first_contact_and_kept(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    audience = await list_of(served, user, 2)
    broadcast = await drafted(served, user, audience, text=None, blocks=DOCUMENT)
    shown = page.page
    await page.go(f"/broadcasts/{broadcast}")
    await expect(shown.frame_locator("iframe").get_by_role("heading")).to_have_text("Hello Ann 1")
    await page.go(f"/broadcasts/{broadcast}/edit")
    await block(shown, "Footer").click()
    await shown.get_by_label("Text of the footer").fill("Bye ")
    await shown.keyboard.type("{{uns")
    await shown.keyboard.press("Enter")
    await shown.get_by_role("group", name="Show").get_by_role("button", name="Preview").click()
    await expect(shown.frame_locator("iframe").get_by_role("heading")).to_have_text("Hello Ann 1")
    await shown.get_by_role("button", name="Save draft").first.click()
    await expect(shown.get_by_role("heading", name="News", level=1)).to_be_visible()
    read = (await served.get(f"/v1/broadcasts/{broadcast}", user.access.key)).json
    assert read["blocks"]["blocks"][-1]["text"] == "Bye {{unsubscribe_url}}"
    await page.go(f"/broadcasts/{broadcast}/edit")
    await shown.get_by_role("group", name="Content").get_by_role("button", name="HTML").click()
    await shown.get_by_role("button", name="Leave the blocks").click()
    await shown.get_by_role("textbox", name="HTML").fill("<p>Hi {{name}}</p>")
    await shown.get_by_role("button", name="Save draft").first.click()
    await expect(shown.frame_locator("iframe").get_by_text("Hi Ann 1")).to_be_visible()
    read = (await served.get(f"/v1/broadcasts/{broadcast}", user.access.key)).json
    assert (read["blocks"], read["html"]) == (None, "<p>Hi {{name}}</p>")


async def test_warnings_about_links_leave_the_unsubscribe_link_out(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    broadcast = await drafted(served, user, await list_of(served, user, 1), html="<p>Hi</p>")
    shown = page.page
    await page.go(f"/broadcasts/{broadcast}")
    await shown.get_by_role("button", name="Send or schedule").click()
    dialog = shown.get_by_role("dialog")
    await expect(dialog).to_contain_text("A footer with an unsubscribe link")
    await expect(dialog.get_by_text("links")).to_have_count(0)
