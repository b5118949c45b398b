"""Bounces and numbers of messages in the console: classes, the history of an address, reactivation, filters."""

import re

from playwright.async_api import expect

from tests.harness.api import Api
from tests.harness.browser import ConsolePage, ConsoleUser


async def send(served: Api, user: ConsoleUser, to: str, **fields: object) -> None:
    body = {"from": user.access.sender, "to": to, "subject": "Hi", "text": "Hello"} | fields
    assert (await served.post("/v1/emails", user.access.key, json=body)).status == 202


async def test_a_bounced_address_is_explained_and_reactivated(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    shown = page.page
    await send(served, user, "bounce@people.test")
    await page.go("/messages")
    await expect(shown.get_by_role("cell", name="bounced")).to_be_visible()
    await page.go("/deliverability/bounces")
    classes = shown.get_by_role("table", name="Bounces by class")
    await classes.get_by_role("button", name="user unknown").click()
    await expect(shown.get_by_text("class: user unknown")).to_be_visible()
    await shown.get_by_role("table", name="Bounces", exact=True).get_by_role("link", name="bounce@people.test").click()

    await expect(shown.get_by_role("heading", level=1, name="bounce@people.test")).to_be_visible()
    await expect(shown.get_by_role("table", name="Delivery history")).to_contain_text("5.1.1")
    await shown.get_by_role("button", name="Reactivate").click()
    await shown.get_by_role("dialog").get_by_role("button", name="Reactivate").click()
    await expect(shown.get_by_text("bounce@people.test can receive your email again")).to_be_visible()
    await expect(shown.get_by_role("heading", name="Suppressed")).to_have_count(0)
    await expect(shown.get_by_role("button", name="Reactivate")).to_have_count(0)


async def test_an_address_without_history_says_so(page: ConsolePage) -> None:
    await page.go("/bounces/nobody@people.test")
    await expect(page.page.get_by_text("Nothing is known about this address")).to_be_visible()
    page.forgive("404")


async def test_numbers_are_filtered_by_stream_and_tag(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    shown = page.page
    await send(served, user, "ann@people.test", tags=["welcome"])
    await send(served, user, "bob@people.test")
    await page.go("/deliverability/messages")
    figure = shown.get_by_text("Messages", exact=True).locator("..")
    await expect(figure.last).to_contain_text("2")
    await shown.get_by_role("searchbox", name="Tag").fill("welcome")
    await expect(figure.last).to_contain_text("1")
    await shown.get_by_label("Stream").select_option("transactional")
    await expect(figure.last).to_contain_text("1")
    await expect(shown.get_by_role("img", name="Messages by day")).to_be_visible()


async def test_a_bounce_leads_to_its_suppression_and_its_domain_to_the_messages(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    shown = page.page
    contact = {"email": "bounce@people.test", "consent": "signed_up"}
    made = await served.post("/v1/contacts", user.access.key, contact)
    await send(served, user, "bounce@people.test")
    await page.go("/messages")
    await expect(shown.get_by_role("cell", name="bounced")).to_be_visible()
    await page.go("/deliverability")
    await expect(shown.get_by_role("region", name="Last 7 days")).to_be_visible()
    table = shown.get_by_role("table", name="Deliveries by receiving domain")
    await expect(table.get_by_role("row").filter(has_text="people.test")).to_have_class("bad")
    assert await page.axe() == []
    await table.get_by_role("link", name="1", exact=True).click()
    await expect(shown).to_have_url(re.compile(r"/messages\?recipientDomain=people\.test&.*status=bounced"))
    await shown.get_by_role("table", name="Messages").get_by_role("link").first.click()
    await expect(shown.get_by_role("button", name="Send again")).to_have_count(0)
    await shown.get_by_role("button", name="More").click()
    await expect(shown.get_by_role("menuitem", name="Send again")).to_be_visible()
    await shown.keyboard.press("Escape")
    known = shown.get_by_role("link", name="View contact")
    await expect(known).to_have_attribute("href", re.compile(f"/contacts/{made.json['id']}$"))
    await shown.get_by_role("link", name="View suppression").click()
    await expect(shown.get_by_role("table", name="Suppressions")).to_contain_text("bounce@people.test")
