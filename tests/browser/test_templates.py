"""Templates in the console: write, preview, save as versions, compare, restore, test, and not overwrite others."""

import orjson
from playwright.async_api import expect

from tests.harness.api import Api
from tests.harness.browser import ConsolePage, ConsoleUser

RECEIPT = {
    "id": "receipt",
    "name": "Receipt",
    "subject": "Your order {{order}}",
    "html": "<p>Hello {{name}}</p>\n<p>It is on its way.</p>",
    "text": "Hello {{name}}",
}
JSON = {"Content-Type": "application/json"}


async def published(api: Api, user: ConsoleUser, **fields: object) -> None:
    assert (await api.post("/v1/templates", user.access.key, RECEIPT | fields)).status == 201


async def changed(api: Api, user: ConsoleUser, **fields: object) -> None:
    body = orjson.dumps(fields)
    answer = await api.request("PATCH", "/v1/templates/receipt", token=user.access.key, body=body, headers=JSON)
    assert answer.status == 200, answer


async def test_a_template_is_written_with_a_preview_and_found_again(page: ConsolePage) -> None:
    shown = page.page
    await page.go("/templates/new")
    await shown.get_by_label("Id", exact=True).fill("welcome")
    await shown.get_by_label("Subject", exact=True).fill("Hi {{first}}")
    await shown.get_by_role("textbox", name="HTML").fill("<h1>Dear {{first}}</h1>")
    await shown.get_by_label("first", exact=True).fill("<Zoe>")
    await expect(shown.get_by_role("heading", name="Hi <Zoe>")).to_be_visible()
    await expect(shown.frame_locator("iframe").get_by_role("heading")).to_have_text("Dear <Zoe>")
    await shown.get_by_role("button", name="Create template").click()
    await expect(shown.get_by_text("Version 1.")).to_be_visible()
    await page.go("/templates?search=WELC")
    await expect(shown.get_by_role("link", name="welcome")).to_be_visible()
    await shown.get_by_label("Search by name, id or subject").fill("nothing")
    await expect(shown.get_by_role("heading", name="Nothing found")).to_be_visible()


async def test_a_fault_is_marked_at_its_line(page: ConsolePage) -> None:
    shown = page.page
    await page.go("/templates/new")
    editor = shown.get_by_role("textbox", name="HTML")
    await editor.fill("<p>one</p>\n{{#open}}\n")
    await expect(editor).to_have_attribute("aria-invalid", "true")
    await expect(shown.locator(".editor-mark")).to_have_text("2")
    await editor.fill("<p>one</p>\n{{#open}}x{{/open}}\n")
    await expect(shown.locator(".editor-mark")).to_have_count(0)


async def test_tab_indents_and_esc_leaves_the_editor(page: ConsolePage) -> None:
    shown = page.page
    await page.go("/templates/new")
    editor = shown.get_by_role("textbox", name="HTML")
    await editor.fill("<p>")
    await editor.press("Home")
    await editor.press("Tab")
    await expect(editor).to_have_value("  <p>")
    await editor.press("End")
    await editor.press("Enter")
    await expect(editor).to_have_value("  <p>\n  ")
    await editor.press("Shift+Tab")
    await expect(editor).to_have_value("  <p>\n")
    await editor.press("Escape")
    await editor.press("Tab")
    await expect(editor).not_to_be_focused()


async def test_versions_are_compared_and_restored(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    await published(served, user)
    await changed(served, user, html="<p>Hello {{name}}</p>\n<p>It has arrived.</p>")
    shown = page.page
    await page.go("/templates/receipt?tab=versions")
    await shown.get_by_role("button", name="Compare version 1").click()
    region = shown.get_by_role("region", name="Differences: HTML")
    await expect(region).to_contain_text("removed: <p>It is on its way.</p>")
    await expect(region).to_contain_text("added: <p>It has arrived.</p>")
    await expect(region.locator("mark").last).to_have_text("arrived")
    await shown.get_by_role("button", name="Put version 1 into the editor").click()
    await shown.get_by_role("button", name="Save", exact=True).click()
    await expect(shown.get_by_text("Version 3.")).to_be_visible()
    read = await served.get("/v1/templates/receipt", user.access.key)
    assert read.json["html"] == RECEIPT["html"]


async def test_what_somebody_else_saved_is_not_overwritten(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    await published(served, user)
    shown = page.page
    await page.go("/templates/receipt")
    await shown.get_by_role("textbox", name="HTML").fill("<p>Mine</p>")
    await changed(served, user, html="<p>Theirs</p>")
    await shown.get_by_role("button", name="Save", exact=True).click()
    await expect(shown.get_by_text("Somebody saved version 2 while you edited version 1.")).to_be_visible()
    assert (await served.get("/v1/templates/receipt", user.access.key)).json["html"] == "<p>Theirs</p>"
    await shown.get_by_role("button", name="Compare", exact=True).click()
    await shown.get_by_role("button", name="Replace version 2 with mine").click()
    await expect(shown.get_by_text("Version 3.")).to_be_visible()
    assert (await served.get("/v1/templates/receipt", user.access.key)).json["html"] == "<p>Mine</p>"


async def test_a_template_is_duplicated_and_tested(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    await published(served, user)
    shown = page.page
    await page.go("/templates/receipt")
    await shown.get_by_role("button", name="Send a test").click()
    await shown.get_by_role("button", name="Send the test to 1 person").click()
    await shown.get_by_role("link", name="see its waybill").click()
    await expect(shown.get_by_role("heading", name="[Test] Your order 1042").first).to_be_visible()
    await page.go("/templates/receipt")
    await shown.get_by_role("button", name="More actions").click()
    await shown.get_by_role("menuitem", name="Duplicate").click()
    await shown.get_by_role("button", name="Duplicate", exact=True).click()
    await expect(shown.get_by_role("heading", name="Receipt (copy)")).to_be_visible()
    assert (await served.get("/v1/templates/receipt-copy", user.access.key)).json["html"] == RECEIPT["html"]
