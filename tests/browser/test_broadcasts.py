"""Broadcasts in the console: write, preview for a contact, check, send, watch, and stop."""

from datetime import timedelta

from playwright.async_api import expect

from engine.base import clock
from tests.harness.api import Api
from tests.harness.browser import ConsolePage, ConsoleUser

MAX_IMPORT = 1_000


async def list_of(api: Api, user: ConsoleUser, people: int) -> str:
    """Return a new list with so many contacts, whose mail is delivered."""
    token = user.access.key
    made = await api.post("/v1/lists", token, {"name": "Customers"})
    contacts = [{"email": f"ann{number}@readers.test", "name": f"Ann {number}"} for number in range(people)]
    for first in range(0, people, MAX_IMPORT):
        part = contacts[first : first + MAX_IMPORT]
        body = {"consent": "signed_up", "list": made.json["id"], "contacts": part}
        assert (await api.post("/v1/contacts/import", token, body)).json["created"] == len(part)
    return str(made.json["id"])


async def drafted(api: Api, user: ConsoleUser, audience: str, **fields: object) -> str:
    assert (await api.post("/v1/streams", user.access.key, {"name": "Announcements"})).status in {201, 409}
    body = {"name": "News", "from": user.access.sender, "list": audience, "subject": "News", "text": "Hi {{name}}"}
    answer = await api.post("/v1/broadcasts", user.access.key, body | fields)
    assert answer.status == 201, answer
    return str(answer.json["id"])


async def test_a_broadcast_is_written_and_previewed_for_a_contact(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    audience = await list_of(served, user, 2)
    await served.post("/v1/streams", user.access.key, {"name": "Announcements"})
    shown = page.page
    await page.go("/broadcasts/new")
    await shown.get_by_label("Name", exact=True).fill("November")
    await shown.get_by_label("Audience").select_option(f"list {audience}")
    await shown.get_by_label("Subject", exact=True).fill("News for {{name}}")
    await shown.get_by_role("button", name="HTML", exact=True).click()
    await shown.get_by_role("textbox", name="HTML").fill("<h1>Dear {{name}}</h1>")
    await expect(shown.frame_locator("iframe").get_by_role("heading")).to_have_text("Dear Ann 1")
    await shown.get_by_role("button", name="Save draft").first.click()
    await expect(shown.get_by_role("heading", name="November", level=1)).to_be_visible()
    await shown.get_by_label("Contact", exact=True).select_option(label="ann0@readers.test")
    await expect(shown.get_by_text("News for Ann 0")).to_be_visible()


async def test_the_preview_of_a_broadcast_has_the_layout_of_its_template(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    layout: dict[str, object] = {
        "id": "brand",
        "html": "<main>{{{content}}}</main><footer>{{company}} {{unsubscribe_url}}</footer>",
    }
    layout["variables"] = [{"name": "company", "default": "Shop"}]
    assert (await served.post("/v1/layouts", user.access.key, layout)).status == 201
    template = {"id": "news", "subject": "News", "html": "<h1>Dear {{name}}</h1>", "layout": "brand"}
    assert (await served.post("/v1/templates", user.access.key, template)).status == 201
    audience = await list_of(served, user, 1)
    shown = page.page
    await page.go("/broadcasts/new")
    await shown.get_by_label("Audience").select_option(f"list {audience}")
    await shown.get_by_text("From a template").click()
    await shown.get_by_label("Template", exact=True).select_option("news")
    frame = shown.frame_locator("iframe")
    await expect(frame.locator("main")).to_have_text("Dear Ann 0")
    await expect(frame.locator("footer")).to_contain_text("Shop https://example.com/unsubscribe")
    await expect(shown.get_by_text("A footer with the unsubscribe link")).to_have_count(0)


async def test_sending_names_the_number_of_people(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    broadcast = await drafted(served, user, await list_of(served, user, 3), perMinute=1)
    shown = page.page
    await page.go(f"/broadcasts/{broadcast}")
    await shown.get_by_role("button", name="Send or schedule").click()
    dialog = shown.get_by_role("dialog", name="Send News to 3 people?")
    await expect(dialog).to_contain_text("A footer with an unsubscribe link")
    await dialog.get_by_role("button", name="Send to 3 people").click()
    await expect(shown.get_by_role("img", name="Messages by hour")).to_be_visible()
    await shown.get_by_role("button", name="Pause").click()
    await expect(shown.get_by_text("Someone on your team or an API key paused it.")).to_be_visible()
    await shown.get_by_role("button", name="Resume").click()
    await expect(shown.get_by_role("button", name="Pause")).to_be_visible()
    await shown.get_by_role("button", name="More").click()
    await shown.get_by_role("menuitem", name="Cancel").click()
    await shown.get_by_role("button", name="Cancel broadcast").click()
    await expect(shown.get_by_text("This broadcast was canceled.")).to_be_visible()


async def test_a_scheduled_broadcast_can_be_moved_and_canceled_but_not_edited(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    broadcast = await drafted(served, user, await list_of(served, user, 1))
    shown = page.page
    await page.go(f"/broadcasts/{broadcast}")
    await expect(shown.get_by_role("link", name="Edit")).to_be_visible()
    await shown.get_by_role("button", name="Send or schedule").click()
    await shown.get_by_role("button", name="Later").click()
    tomorrow = clock.now() + timedelta(days=1)
    await shown.get_by_label("Start at").fill(f"{tomorrow:%Y-%m-%dT%H:%M}")
    await shown.get_by_role("button", name="Schedule", exact=True).click()
    await expect(shown.get_by_role("button", name="Change the time")).to_be_visible()
    await expect(shown.get_by_role("link", name="Edit")).to_have_count(0)
    await page.go(f"/broadcasts/{broadcast}/edit")
    await expect(shown.get_by_text("only a draft can be changed")).to_be_visible()


async def test_a_draft_lists_what_is_left_before_it_is_sent(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    shown = page.page
    made = await served.post("/v1/lists", user.access.key, {"name": "Empty"})
    empty = await drafted(served, user, str(made.json["id"]))
    await page.go(f"/broadcasts/{empty}")
    lines = shown.get_by_role("list", name="Ready to send?").get_by_role("listitem")
    await expect(lines.first).to_contain_text("The audience has no contacts.")
    await expect(lines.last).to_contain_text("No test was sent since the last change.")

    draft = await drafted(served, user, await list_of(served, user, 2))
    await page.go(f"/broadcasts/{draft}?open=test")
    await shown.get_by_role("dialog").get_by_role("button", name="Send the test to 1 person").click()
    await expect(shown.get_by_role("dialog").get_by_role("status")).to_contain_text("accepted")
    await shown.get_by_role("dialog").get_by_role("button", name="Close").last.click()
    await expect(lines).to_contain_text(
        ["2 contacts in the audience now", f"{user.domain} is verified.", "unsubscribe link", "A test was sent"]
    )
    assert await page.axe() == []


async def test_the_result_of_a_broadcast_names_the_addresses_that_bounced(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    audience = await list_of(served, user, 1)
    lost = {"email": "bounced@simulator.test", "consent": "signed_up", "lists": [audience]}
    assert (await served.post("/v1/contacts", user.access.key, lost)).status == 201
    broadcast = await drafted(served, user, audience)
    sent = await served.post(f"/v1/broadcasts/{broadcast}/send", user.access.key, {})
    assert sent.status in {200, 202}, sent
    await page.go(f"/broadcasts/{broadcast}")
    result = page.page.get_by_role("region", name="Result")

    await expect(result).to_contain_text("to 2 contacts of Customers.")
    await expect(result.get_by_role("link", name="bounced@simulator.test")).to_be_visible()
    await expect(page.page.get_by_role("progressbar")).to_have_count(0)
    await expect(page.page.get_by_role("region", name="While it was sent")).to_have_count(0)
    assert await page.axe() == []
