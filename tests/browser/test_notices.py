"""The bell: what needs a person, read, dismissed and followed, by keyboard alone."""

import re

from playwright.async_api import expect

from loadtests.kit.service import Service
from ops import admin
from tests.harness.api import Api
from tests.harness.browser import ConsolePage, ConsoleUser


async def make_trouble(service: Service, user: ConsoleUser, served: Api) -> str:
    """Give the account a failing webhook endpoint and a disabled one; return the id of the former."""
    made = [
        (await served.post("/v1/webhooks", user.access.key, {"url": f"https://hooks.test/{name}?key=1"})).json["id"]
        for name in ("failing", "<b>off</b>")
    ]
    await served.patch(f"/v1/webhooks/{made[1]}", user.access.key, {"status": "disabled"})
    async with admin.opened(service.settings) as pool:
        await pool.execute(
            "UPDATE webhooks SET failures = 3, failing_since = now() WHERE account_id = $1 AND status = 'active'",
            user.access.account_id,
        )
    return str(made[0])


async def test_without_anything_to_do_the_bell_says_so(page: ConsolePage) -> None:
    await page.go("/streams")
    await page.page.get_by_role("button", name="Notices", exact=True).click()

    await expect(page.page.get_by_role("dialog", name="Notices")).to_contain_text("Nothing needs you")
    assert await page.axe() == []


async def test_notices_are_counted_read_dismissed_and_followed_by_keyboard(
    page: ConsolePage, service: Service, user: ConsoleUser, served: Api
) -> None:
    shown = page.page
    failing = await make_trouble(service, user, served)
    await page.go("/streams")
    await expect(shown.get_by_role("button", name="Notices: 2 unread")).to_be_visible()
    await shown.keyboard.press("n")
    dialog = shown.get_by_role("dialog", name="Notices")
    lines = dialog.get_by_role("list", name="Notices").get_by_role("listitem")
    await expect(lines).to_have_count(2)
    await expect(lines.first).to_contain_text("Posts to the webhook endpoint hooks.test/failing are failing.")
    await expect(lines.last).to_contain_text("<b>off</b>")
    assert await page.axe() == []

    await dialog.get_by_role("button", name=re.compile("Dismiss: The webhook")).focus()
    await shown.keyboard.press("Enter")
    await expect(lines).to_have_count(1)
    await lines.first.get_by_role("link").focus()
    await shown.keyboard.press("Enter")
    await expect(dialog).to_have_count(0)
    await expect(shown).to_have_url(re.compile(f"/webhooks/{failing}$"))
    await expect(shown.get_by_role("button", name="Notices", exact=True)).to_be_visible()


async def test_home_shows_what_the_bell_tells(
    page: ConsolePage, service: Service, user: ConsoleUser, served: Api
) -> None:
    failing = await make_trouble(service, user, served)
    await page.go("/")
    link = page.page.get_by_role("link", name="Posts to the webhook endpoint hooks.test/failing are failing.")

    await expect(link).to_have_attribute("href", re.compile(f"/webhooks/{failing}$"))


async def test_alerts_shows_what_fires_and_adds_the_rules_that_are_missing(
    page: ConsolePage, service: Service, user: ConsoleUser, served: Api
) -> None:
    shown = page.page
    failing = await make_trouble(service, user, served)
    await served.post("/v1/alerts/rules", user.access.key, {"kind": "bounce_rate", "threshold": 0.05})
    await page.go("/alerts")
    firing = shown.get_by_role("list", name="Firing now").get_by_role("link")
    await expect(firing).to_have_count(2)
    await expect(firing.first).to_have_attribute("href", re.compile(f"/webhooks/{failing}$"))
    await expect(shown.get_by_role("row", name="Bounce rate")).to_contain_text("in 24 hours")
    await expect(shown.get_by_role("main")).to_contain_text("without email to simulator addresses")

    await shown.get_by_role("button", name="Add rule").click()
    await shown.get_by_role("menuitem", name="Blocklists").click()
    await expect(shown.get_by_role("row", name="Blocklists")).to_be_visible()
    assert await page.axe() == []
