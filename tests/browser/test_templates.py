"""Templates in the console: write, preview, save as versions, compare, restore, test, and not overwrite others."""

import re

import orjson
import pytest
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
    await page.go("/templates/new?start=html")
    await shown.get_by_label("Id", exact=True).fill("welcome")
    await shown.get_by_label("Subject", exact=True).fill("Hi {{first}}")
    await shown.get_by_role("textbox", name="HTML").fill("<h1>Dear {{first}}</h1>")
    await shown.get_by_label("first", exact=True).fill("<Zoe>")
    await expect(shown.get_by_text("Subject: Hi <Zoe>")).to_be_visible()
    await expect(shown.frame_locator("iframe").get_by_role("heading")).to_have_text("Dear <Zoe>")
    await shown.get_by_role("button", name="Create template").click()
    await expect(shown.get_by_text("Version 1.")).to_be_visible()
    await page.go("/templates?search=WELC")
    await expect(shown.get_by_role("link", name="welcome")).to_be_visible()
    await shown.get_by_label("Search by name, id or subject").fill("nothing")
    await expect(shown.get_by_role("heading", name="Nothing found")).to_be_visible()


async def test_a_fault_is_marked_at_its_line(page: ConsolePage) -> None:
    shown = page.page
    await page.go("/templates/new?start=html")
    editor = shown.get_by_role("textbox", name="HTML")
    await editor.fill("<p>one</p>\n{{#open}}\n")
    await expect(editor).to_have_attribute("aria-invalid", "true")
    await expect(shown.locator(".editor-mark")).to_have_text("2")
    await editor.fill("<p>one</p>\n{{#open}}x{{/open}}\n")
    await expect(shown.locator(".editor-mark")).to_have_count(0)


async def test_tab_indents_and_esc_leaves_the_editor(page: ConsolePage) -> None:
    shown = page.page
    await page.go("/templates/new?start=html")
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


async def test_a_layout_is_written_and_chosen_for_a_template(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    await published(served, user)
    shown = page.page
    await page.go("/templates?tab=layouts")
    await shown.get_by_role("link", name="New layout").first.click()
    await shown.get_by_label("Id", exact=True).fill("brand")
    editor = shown.get_by_role("textbox", name="HTML")
    await editor.fill("<p>no place</p>")
    await expect(editor).to_have_attribute("aria-invalid", "true")
    await editor.fill("<main>{{{content}}}</main><footer>{{company}}</footer>")
    await expect(shown.frame_locator("iframe").locator("main")).to_contain_text("The content of a template goes here.")
    await shown.get_by_label("company", exact=True).fill("Shop & Co")
    await expect(shown.frame_locator("iframe").locator("footer")).to_have_text("Shop & Co")
    await shown.get_by_role("button", name="Create layout").click()
    await expect(shown.get_by_text("Version 1.")).to_be_visible()

    await page.go("/templates/receipt")
    await shown.get_by_label("Layout", exact=True).select_option("brand")
    await expect(shown.frame_locator("iframe").locator("main")).to_contain_text("Hello Ann")
    await shown.get_by_role("button", name="Save", exact=True).click()
    await expect(shown.get_by_text("Version 2.")).to_be_visible()
    assert (await served.get("/v1/templates/receipt", user.access.key)).json["layout"] == "brand"

    await page.go("/layouts/brand")
    await expect(shown.get_by_role("button", name="Delete", exact=True)).to_have_attribute("aria-disabled", "true")
    await shown.get_by_role("textbox", name="HTML").fill("<section>{{{content}}}</section>")
    await expect(shown.frame_locator("iframe").locator("section")).to_contain_text("Hello Ann")
    await shown.get_by_role("button", name="Save", exact=True).click()
    await expect(shown.get_by_text("Version 2 saved, with the next version of 1 template")).to_be_visible()
    read = (await served.get("/v1/templates/receipt", user.access.key)).json
    assert (read["version"], read["layoutVersion"]) == (3, 2)

    await page.go("/templates/receipt?tab=versions")
    await shown.get_by_role("button", name="Compare version 3").click()
    region = shown.get_by_role("region", name="Differences: Layout")
    await expect(region).to_contain_text("brand, version 2")


async def test_what_somebody_else_saved_of_a_layout_is_not_overwritten(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    layout = {"id": "brand", "html": "<main>{{{content}}}</main>"}
    assert (await served.post("/v1/layouts", user.access.key, layout)).status == 201
    shown = page.page
    await page.go("/layouts/brand")
    await shown.get_by_role("textbox", name="HTML").fill("<i>{{{content}}}</i>")
    body = orjson.dumps({"html": "<b>{{{content}}}</b>"})
    await served.request("PATCH", "/v1/layouts/brand", token=user.access.key, body=body, headers=JSON)
    await shown.get_by_role("button", name="Save", exact=True).click()
    await shown.get_by_role("button", name="Discard mine and load theirs").click()
    await expect(shown.get_by_role("textbox", name="HTML")).to_have_value("<b>{{{content}}}</b>")
    await shown.get_by_role("button", name="Delete", exact=True).click()
    await shown.get_by_label("Type brand to confirm").fill("brand")
    await shown.get_by_role("button", name="Delete layout").click()
    await expect(shown.get_by_role("heading", name="No layouts")).to_be_visible()


async def test_lists_are_given_as_json_in_the_preview_and_in_a_send(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    html = "{{#items}}<li>{{title}}</li>{{/items}}<p>{{customer.name}}</p>"
    await published(served, user, html=html, text=None, subject="Order {{order}}")
    shown = page.page
    await page.go("/templates/receipt")
    await shown.get_by_text("Lists and objects", exact=True).click()
    data = shown.get_by_label("Data (JSON)")
    await data.fill('{"items": [')
    await expect(shown.get_by_text("This is not JSON")).to_be_visible()
    await data.fill('{"items": [{"title": "Lamp"}, {"title": "Desk"}], "customer": {"name": "Zoe"}}')
    frame = shown.frame_locator("iframe")
    await expect(frame.locator("li")).to_have_text(["Lamp", "Desk"])
    await expect(frame.locator("p")).to_have_text("Zoe")
    await expect(shown.get_by_label("title", exact=True)).to_have_count(0)
    await page.go("/templates/receipt?tab=use")
    await expect(shown.get_by_role("figure", name="Send with curl")).to_contain_text('"items"')

    await page.go("/messages/new?template=receipt")
    await shown.get_by_label("To", exact=True).fill("ann@people.test")
    await shown.get_by_label("Data (JSON)").fill('{"items": [{"title": "Chair"}], "order": 7}')
    await expect(shown.frame_locator("iframe").locator("li")).to_have_text("Chair")  # beside the form
    await shown.get_by_role("button", name="Check and preview").click()
    review = shown.get_by_role("dialog", name="Check before sending")
    await expect(review.get_by_text("Order 7")).to_be_visible()
    await expect(review.frame_locator("iframe").locator("li")).to_have_text("Chair")


async def test_the_preview_has_the_looks_that_the_body_of_a_mail_gives(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    html = '<html><head><style>p { color: rgb(4, 5, 6) }</style></head><body style="background: rgb(1, 2, 3)"><p>Hi</p>'
    await published(served, user, html=html, text=None)
    await page.go("/templates/receipt")
    frame = page.page.frame_locator("iframe")
    await expect(frame.locator("p")).to_have_css("color", "rgb(4, 5, 6)")
    await expect(frame.locator("body")).to_have_css("background-color", "rgb(1, 2, 3)")


@pytest.mark.parametrize(
    ("html", "scheme"),
    [
        ("<p>Hi</p>", "dark"),
        ('<table bgcolor="#ffffff"><tr><td><p>Hi</p></td></tr></table>', "light"),
        ('<div style="background: #fff"><p>Hi</p></div>', "light"),
        ("<style>b { background: red } @media (prefers-color-scheme: dark) { b { color: red } }</style>", "dark"),
    ],
    ids=["plain", "bgcolor", "background", "own dark colours"],
)  # fmt: skip
async def test_a_mail_with_a_background_and_no_dark_colours_stays_light(
    page: ConsolePage, served: Api, user: ConsoleUser, html: str, scheme: str
) -> None:
    await published(served, user, html=html, text=None)
    await page.go("/templates/receipt")
    await page.page.get_by_role("button", name="Dark", exact=True).click()
    await expect(page.page.get_by_role("button", name="Light", exact=True)).to_be_visible()
    await expect(page.page.frame_locator("iframe").locator("html")).to_have_css("color-scheme", scheme)
    await expect(page.page.locator("iframe")).to_have_class(re.compile("dark" if scheme == "dark" else "^mail-frame$"))


async def test_the_dark_preview_has_the_dark_colours_of_the_mail(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    html = (
        "<style>p { color: rgb(1, 2, 3) } @media (prefers-color-scheme: dark) { p { color: rgb(4, 5, 6) } }"
        " @media screen and (prefers-color-scheme: light) { p { background: rgb(7, 8, 9) } }</style><p>Hi</p>"
    )
    await published(served, user, html=html, text=None)
    await page.go("/templates/receipt")
    text = page.page.frame_locator("iframe").locator("p")
    await expect(text).to_have_css("color", "rgb(1, 2, 3)")
    await expect(text).to_have_css("background-color", "rgb(7, 8, 9)")
    await page.page.get_by_role("button", name="Dark", exact=True).click()
    await expect(text).to_have_css("color", "rgb(4, 5, 6)")
    await expect(text).to_have_css("background-color", "rgba(0, 0, 0, 0)")
