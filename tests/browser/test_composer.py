"""The composer of emails: by mouse, by keys and by dragging, with merge fields, images and undo, in templates and
broadcasts.
"""

import base64
import io
import re
from typing import Any

import pytest
from PIL import Image
from playwright.async_api import Browser, FilePayload, Locator, Page, expect

from loadtests.kit.service import Service
from tests.browser.test_keyboard import tab_to
from tests.harness.api import Api
from tests.harness.browser import DESKTOP, ConsolePage, ConsoleUser, opened

HOSTILE = "<img src=x onerror=hostile=1>\"'--></style></title><script>hostile=1</script>"
DOCUMENT: dict[str, Any] = {
    "version": 1,
    "blocks": [
        {"id": "b1", "type": "heading", "text": "Hello {{name}}"},
        {"id": "b2", "type": "text", "text": "Your order is **ready**."},
        {"id": "b3", "type": "button", "text": "Open", "url": "https://shop.example/"},
        {"id": "b4", "type": "columns", "columns": [{"blocks": []}, {"blocks": []}]},
        {"id": "b5", "type": "footer", "text": "Shop Ltd."},
    ],
}


def picture(width: int = 40, height: int = 20) -> bytes:
    """Return a PNG."""
    file = io.BytesIO()
    Image.new("RGB", (width, height), "#2450d8").save(file, "PNG")
    return file.getvalue()


def block(page: Page, text: str) -> Locator:
    """Return the block of the canvas whose name begins with `text`."""
    return page.get_by_role("group", name=re.compile(f"^{re.escape(text)}"))


def kind(page: Page, name: str) -> Locator:
    """Return the button of the palette for a kind of blocks."""
    return page.get_by_role("toolbar", name="Blocks and undo").get_by_role("button", name=name, exact=True)


async def order(page: Page) -> list[str]:
    """Return the ids of the blocks in the canvas, from top to bottom."""
    found: list[str] = await page.locator("[data-block]").evaluate_all("all => all.map(one => one.dataset.block)")
    return found


async def stored(api: Api, user: ConsoleUser, template: str = "receipt") -> dict[str, Any]:
    """Return a template as the service has it."""
    answer = await api.get(f"/v1/templates/{template}", user.access.key)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


async def composed(api: Api, user: ConsoleUser, document: dict[str, Any] = DOCUMENT) -> None:
    """Create the template `receipt` of blocks."""
    body: dict[str, object] = {"id": "receipt", "name": "Receipt", "subject": "Your order", "blocks": document}
    body["variables"] = [{"name": "name", "required": False}, {"name": "number", "required": False}]
    answer = await api.post("/v1/templates", user.access.key, body)
    assert answer.status == 201, answer


async def saved(page: Page, version: int) -> None:
    """Save the template, and wait until it is that version."""
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_text(f"Version {version}.")).to_be_visible()


async def test_an_email_is_composed_with_the_mouse(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    shown = page.page
    await page.go("/templates/new")
    await shown.get_by_role("button", name="Blank").click()
    await shown.get_by_label("Id", exact=True).fill("receipt")
    await shown.get_by_label("Subject", exact=True).fill("Your order")
    await kind(shown, "Heading").click()
    await shown.get_by_label("Text of the heading").fill("Thank you")
    await kind(shown, "Text").click()
    await shown.get_by_label("Text of the paragraph").fill("It is on its way.")
    await kind(shown, "Button").click()
    await shown.get_by_label("Text of the button").fill("Track it")
    await shown.get_by_label("Address", exact=True).fill("https://shop.example/track")
    await kind(shown, "Divider").click()
    await kind(shown, "Footer").click()
    await block(shown, "Text").click()
    await shown.get_by_role("button", name="Duplicate").click()
    await block(shown, "Divider").click()
    await shown.get_by_role("button", name="Delete", exact=True).click()
    await shown.get_by_role("button", name="Create template").click()
    await expect(shown.get_by_text("Version 1.")).to_be_visible()
    made = await stored(served, user)
    types = [one["type"] for one in made["blocks"]["blocks"]]
    assert types == ["heading", "text", "text", "button", "footer"]
    assert made["blocks"]["blocks"][3]["url"] == "https://shop.example/track"
    assert "It is on its way." in made["html"]
    assert "Thank you" in made["text"]


async def test_an_email_is_composed_by_keyboard_alone(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    shown = page.page
    keys = shown.keyboard
    said = shown.locator(".cp [role=status]")
    await page.go("/templates/new")
    await page.settled()
    await tab_to(shown, "Blank")
    await keys.press("Enter")
    await tab_to(shown, "Id")
    await keys.type("receipt")
    await tab_to(shown, "Subject")
    await keys.type("Your order")
    await tab_to(shown, "Heading")
    await keys.press("Enter")
    await keys.press("ControlOrMeta+A")
    await keys.type("Thank you")
    await keys.press("Escape")
    await expect(block(shown, "Heading: Thank you")).to_be_focused()
    await keys.press("ControlOrMeta+D")
    await expect(said).to_have_text("Heading: Thank you duplicated")
    await keys.press("Enter")
    await keys.press("ControlOrMeta+A")
    await keys.type("First")
    await keys.press("Escape")
    await keys.press("Alt+ArrowUp")
    await expect(said).to_have_text("Moved to position 1 of 2")
    await expect(block(shown, "Heading: First")).to_be_focused()
    await keys.press("ArrowDown")
    await expect(block(shown, "Heading: Thank you")).to_be_focused()
    await keys.press("Delete")
    await expect(said).to_have_text("Heading: Thank you deleted. 1 block left.")
    await expect(block(shown, "Heading: First")).to_be_focused()
    await shown.get_by_role("button", name="Create template").focus()
    await keys.press("Enter")
    await expect(shown.get_by_text("Version 1.")).to_be_visible()
    made = await stored(served, user)
    assert [one["text"] for one in made["blocks"]["blocks"]] == ["First"]


async def test_blocks_are_dragged_within_the_email_and_into_columns(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    await composed(served, user)
    shown = page.page
    await page.go("/templates/receipt")
    await expect(block(shown, "Footer")).to_be_visible()
    await block(shown, "Text").click()
    await drag(shown, shown.locator(".cp-grip"), block(shown, "Heading"), high=True)
    assert await order(shown) == ["b2", "b1", "b3", "b4", "b5"]
    await block(shown, "Button").click()
    await drag(shown, shown.locator(".cp-grip"), shown.get_by_role("list", name="Column 2"))
    assert await order(shown) == ["b2", "b1", "b4", "b3", "b5"]
    await drag(shown, kind(shown, "Divider"), shown.get_by_role("list", name="Column 1"))
    await saved(shown, 2)
    blocks = (await stored(served, user))["blocks"]["blocks"]
    columns = [[one["type"] for one in column["blocks"]] for column in blocks[2]["columns"]]
    assert columns == [["divider"], ["button"]]


async def drag(page: Page, what: Locator, onto: Locator, *, high: bool = False) -> None:
    """Drag with the mouse to the middle of a part of the canvas, or near its upper edge."""
    await what.hover()
    await page.mouse.down()
    box = await onto.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + (4 if high else box["height"] / 2)
    await page.mouse.move(x, y - 30, steps=4)
    await page.mouse.move(x, y, steps=4)
    await expect(page.locator(".cp-drop")).to_have_count(1)
    await page.mouse.up()
    await expect(page.locator(".cp-drop")).to_have_count(0)


async def test_undo_and_redo_cover_text_moves_and_settings(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    await composed(served, user)
    shown = page.page
    keys = shown.keyboard
    await page.go("/templates/receipt")
    await block(shown, "Heading").click()
    await shown.get_by_label("Text of the heading").press_sequentially("!!")
    await keys.press("Escape")
    await keys.press("Alt+ArrowDown")
    await shown.get_by_role("button", name="Center").click()
    await expect(block(shown, "Heading: Hello {{name}}!!")).to_be_visible()
    await keys.press("ControlOrMeta+Z")
    await expect(shown.get_by_role("button", name="Left")).to_have_attribute("aria-pressed", "true")
    await keys.press("ControlOrMeta+Z")
    assert (await order(shown))[:2] == ["b1", "b2"]
    await keys.press("ControlOrMeta+Z")
    await expect(block(shown, "Heading: Hello {{name}}, selected")).to_be_visible()
    await expect(shown.get_by_role("button", name="Save", exact=True)).to_have_attribute("aria-disabled", "true")
    await keys.press("ControlOrMeta+Shift+Z")
    await keys.press("ControlOrMeta+Shift+Z")
    await expect(block(shown, "Heading: Hello {{name}}!!")).to_be_visible()
    assert (await order(shown))[:2] == ["b2", "b1"]


async def test_typing_two_braces_offers_the_merge_fields(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    await composed(served, user)
    shown = page.page
    keys = shown.keyboard
    await page.go("/templates/receipt")
    await block(shown, "Text").click()
    field = shown.get_by_label("Text of the paragraph")
    await field.fill("Order ")
    await keys.type("{{")
    await expect(shown.get_by_role("option")).to_have_text(["name", "number"])
    await keys.type("nu")
    await expect(shown.get_by_role("option")).to_have_text(["number"])
    await expect(shown.locator(".cp [role=status]")).to_have_text("Merge field number, 1 of 1. Enter inserts it.")
    await keys.press("Enter")
    await expect(field).to_have_value("Order {{number}}")
    await keys.type(" for {{")
    await keys.press("ArrowDown")
    await keys.press("ArrowUp")
    await keys.press("Enter")
    await expect(field).to_have_value("Order {{number}} for {{name}}")
    await keys.type(" {{")
    await keys.press("Escape")
    await expect(shown.get_by_role("option")).to_have_count(0)
    await expect(field).to_be_focused()


async def test_bold_and_links_are_written_by_the_toolbar(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    await composed(served, user)
    shown = page.page
    await page.go("/templates/receipt")
    await block(shown, "Text").click()
    field = shown.get_by_label("Text of the paragraph")
    await field.fill("See the shop")
    await shown.keyboard.press("ControlOrMeta+A")
    await shown.get_by_role("button", name="Bold").click()
    await expect(field).to_have_value("**See the shop**")
    await shown.get_by_role("button", name="Bold").click()
    await expect(field).to_have_value("See the shop")
    await shown.get_by_role("button", name="Link", exact=True).click()
    dialog = shown.get_by_role("dialog", name="Link")
    await dialog.get_by_label("Address").fill("https://shop.example/(new)")
    await dialog.get_by_label("Address").press("Enter")
    await expect(field).to_have_value("[See the shop](https://shop.example/%28new%29)")
    await shown.get_by_role("tab", name="Preview").click()
    link = shown.frame_locator("iframe").get_by_role("link", name="See the shop")
    await expect(link).to_have_attribute("href", "https://shop.example/%28new%29")


async def test_an_image_is_uploaded_described_and_shown(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    await composed(served, user)
    shown = page.page
    await page.go("/templates/receipt")
    await kind(shown, "Image").click()
    dialog = shown.get_by_role("dialog", name="Image")
    await dialog.get_by_label("Upload an image").set_input_files(
        FilePayload(name="lamp.png", mimeType="image/png", buffer=picture())
    )
    await dialog.get_by_label("Description").fill("A blue lamp")
    await dialog.get_by_role("button", name="Insert image").click()
    await expect(block(shown, "Image: A blue lamp")).to_be_visible()
    await expect(shown.locator(".cp-image img")).to_have_js_property("naturalWidth", 40)
    await shown.get_by_role("tab", name="Preview").click()
    image = shown.frame_locator("iframe").get_by_alt_text("A blue lamp")
    address = (await served.get("/v1/images", user.access.key)).json["data"][0]["url"]
    await expect(image).to_have_attribute("src", address)
    await expect(image).to_have_js_property("naturalWidth", 40)  # it is loaded without asking for remote images
    await saved(shown, 2)
    assert address in (await stored(served, user))["html"]


@pytest.mark.parametrize("way", ["paste", "drop"])
async def test_an_image_is_pasted_or_dropped(page: ConsolePage, served: Api, user: ConsoleUser, way: str) -> None:
    await composed(served, user)
    shown = page.page
    await page.go("/templates/receipt")
    await block(shown, "Heading").focus()
    content = base64.b64encode(picture()).decode()
    await shown.locator(".cp-paper").evaluate(
        """(paper, [way, content]) => {
          const transfer = new DataTransfer();
          const octets = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
          transfer.items.add(new File([octets], "lamp.png", { type: "image/png" }));
          const shared = { bubbles: true, cancelable: true };
          paper.dispatchEvent(way === "paste"
            ? new ClipboardEvent("paste", { ...shared, clipboardData: transfer })
            : new DragEvent("drop", { ...shared, dataTransfer: transfer }));
        }""",
        [way, content],
    )
    dialog = shown.get_by_role("dialog", name="Image")
    await dialog.get_by_label("Description").fill("A lamp")
    await dialog.get_by_label("Description").press("Enter")
    await expect(block(shown, "Image: A lamp")).to_be_visible()


async def test_a_file_that_is_no_image_is_refused_before_it_is_sent(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    await composed(served, user)
    shown = page.page
    await page.go("/templates/receipt")
    await kind(shown, "Image").click()
    dialog = shown.get_by_role("dialog", name="Image")
    await dialog.get_by_label("Upload an image").set_input_files(
        FilePayload(name="page.svg", mimeType="image/svg+xml", buffer=b"<svg/>")
    )
    await expect(dialog.get_by_text("page.svg is no PNG, JPEG, GIF or WebP image.")).to_be_visible()
    await expect(dialog.get_by_role("button", name="Insert image")).to_have_attribute("aria-disabled", "true")


async def test_saved_blocks_come_back_and_old_versions_with_them(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    await composed(served, user)
    shown = page.page
    await page.go("/templates/receipt")
    await block(shown, "Footer").click()
    await shown.get_by_label("Text of the footer").fill("Another address")
    await saved(shown, 2)
    document = (await stored(served, user))["blocks"]
    await page.go("/templates/receipt")
    await expect(block(shown, "Footer: Another address")).to_be_visible()
    await expect(shown.get_by_role("button", name="Save", exact=True)).to_have_attribute("aria-disabled", "true")
    await shown.get_by_role("tab", name="Versions").click()
    await shown.get_by_role("button", name="Compare version 1").click()
    await expect(shown.get_by_role("region", name="Differences: HTML")).to_contain_text("Another address")
    await shown.get_by_role("button", name="Put version 1 into the editor").click()
    await expect(block(shown, "Footer: Shop Ltd.")).to_be_visible()
    await saved(shown, 3)
    restored = (await stored(served, user))["blocks"]
    assert restored != document
    assert restored["blocks"][-1]["text"] == "Shop Ltd."


async def test_editing_the_html_leaves_block_mode_after_a_word(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    await composed(served, user)
    shown = page.page
    await page.go("/templates/receipt")
    await shown.get_by_role("tab", name="HTML").click()
    await expect(shown.get_by_role("figure", name="HTML")).to_contain_text("Hello {{name}}")
    await shown.get_by_role("button", name="Edit the HTML").click()
    dialog = shown.get_by_role("dialog", name="Edit the HTML instead of the blocks?")
    await dialog.get_by_role("button", name="Cancel").click()
    await shown.get_by_role("tab", name="Blocks").click()
    await expect(block(shown, "Heading")).to_be_visible()
    await shown.get_by_role("tab", name="HTML").click()
    await shown.get_by_role("button", name="Edit the HTML").click()
    await dialog.get_by_role("button", name="Edit the HTML").click()
    editor = shown.get_by_role("textbox", name="HTML")
    await expect(editor).to_have_value(re.compile("Hello {{name}}"))
    await editor.fill("<p>Mine</p>")
    await saved(shown, 2)
    made = await stored(served, user)
    assert (made["blocks"], made["html"]) == (None, "<p>Mine</p>")
    await page.go("/templates/receipt")
    await expect(shown.get_by_role("textbox", name="HTML")).to_have_value("<p>Mine</p>")
    await shown.get_by_role("tab", name="Blocks").click()
    await shown.get_by_role("button", name="Receipt").click()
    await expect(block(shown, "Heading").first).to_be_visible()
    await saved(shown, 3)
    assert (await stored(served, user))["blocks"] is not None


async def test_a_refused_block_is_marked_with_the_reason(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    await composed(served, user)
    shown = page.page
    await page.go("/templates/receipt")
    await block(shown, "Button").click()
    await shown.get_by_label("Address", exact=True).fill("javascript:alert(1)")
    await expect(shown.locator(".cp-block.wrong")).to_have_attribute("data-block", "b3")
    await expect(shown.locator(".cp-wrong")).to_contain_text("https://")
    await shown.get_by_label("Address", exact=True).fill("https://shop.example/")
    await expect(shown.locator(".cp-block.wrong")).to_have_count(0)


async def test_markup_in_every_field_is_text(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    text = HOSTILE
    blocks = [
        {"id": "a", "type": "heading", "text": text},
        {"id": "b", "type": "text", "text": f"**{text}** [{text}](https://shop.example/)"},
        {"id": "c", "type": "button", "text": text[:100], "url": "https://shop.example/?%22%3E"},
        {"id": "d", "type": "list", "items": [text, text]},
        {"id": "e", "type": "footer", "text": text},
    ]
    image = (
        await served.post(
            "/v1/images", user.access.key, {"filename": "lamp.png", "content": base64.b64encode(picture()).decode()}
        )
    ).json
    blocks.append({"id": "f", "type": "image", "image": image["id"], "alt": text})
    await composed(served, user, {"version": 1, "preheader": text, "blocks": blocks})
    shown = page.page
    await page.go("/templates/receipt")
    await expect(shown.locator(".cp-heading")).to_have_text(text)
    for name in ("Heading", "Text", "Button", "Points", "Footer", "Image"):
        await block(shown, "List" if name == "Points" else name).click()
    for tab in ("Preview", "HTML", "Text"):
        await shown.get_by_role("tab", name=tab).click()
        await page.settled()
    await shown.get_by_role("tab", name="Preview").click()
    await expect(shown.frame_locator("iframe").get_by_role("heading")).to_have_text(text)
    for frame in shown.frames:
        assert await frame.evaluate("typeof hostile") == "undefined"
    assert await shown.locator(".cp script, .cp [onerror]").count() == 0


async def test_a_starting_document_is_shown_with_its_sample_values(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    shown = page.page
    await page.go("/templates/new")
    await shown.get_by_role("button", name="Receipt").click()
    await expect(block(shown, "Heading")).to_be_visible()
    await shown.get_by_role("tab", name="Preview").click()
    await expect(shown.get_by_label("name", exact=True)).to_have_value("Ann")
    await expect(shown.frame_locator("iframe").get_by_text("Desk lamp")).to_be_visible()
    await shown.get_by_role("button", name="Create template").click()
    await expect(shown.get_by_text("Version 1.")).to_be_visible()
    assert (await stored(served, user))["blocks"]["blocks"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, (768, 900), (390, 844)], ids=["desktop", "tablet", "phone"])
async def test_the_composer_has_no_findings_of_axe(
    browser: Browser, service: Service, user: ConsoleUser, served: Api, size: tuple[int, int], *, dark: bool
) -> None:
    await composed(served, user)
    async with opened(browser, service.base_url, user, size=size, dark=dark) as page:
        shown = page.page
        await page.go("/templates/new")
        await page.settled()
        assert await page.axe() == []
        await page.go("/templates/receipt")
        await block(shown, "Text").click()
        await shown.keyboard.type(" {{")
        await expect(shown.get_by_role("option").first).to_be_visible()
        assert await page.axe() == []
        await shown.keyboard.press("Escape")
        if size == DESKTOP:  # a narrow dialog covers parts of the buttons below it, which axe takes for small ones
            await kind(shown, "Image").click()
            await page.settled()
            assert await page.axe() == []
            await shown.keyboard.press("Escape")
        await shown.get_by_role("button", name="Design").click()
        await shown.evaluate("window.scrollTo(0, 0)")  # the bar above a phone's page would cover parts of buttons
        assert await page.axe() == []
        wide = await shown.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0
