"""Waiting times in the console: of an attempt on its waybill, and of all mail on Deliverability."""

from playwright.async_api import expect

from tests.harness.api import Api
from tests.harness.browser import ConsolePage, ConsoleUser


async def send(served: Api, user: ConsoleUser) -> str:
    body = {"from": user.access.sender, "to": "ann@people.test", "subject": "Hi", "text": "Hello"}
    answer = await served.post("/v1/emails", user.access.key, json=body)
    assert answer.status == 202
    return str(answer.json["id"])


async def test_an_attempt_says_where_its_time_went(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    shown = page.page
    await page.go(f"/messages/{await send(served, user)}")
    await expect(shown.get_by_text("Took ", exact=False).first).to_be_visible()
    await shown.get_by_role("button", name="Show all causes").click()
    await expect(shown.get_by_text("Fair share", exact=True)).to_be_visible()
    await expect(shown.get_by_text("of the connections")).to_be_visible()
    assert not await page.axe()


async def test_deliverability_sums_the_waits_by_provider_and_plots_them(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    shown = page.page
    await page.go("/deliverability/waits")
    await expect(shown.get_by_text("No attempts in this period")).to_be_visible()
    await page.go(f"/messages/{await send(served, user)}")
    await expect(shown.get_by_text("Took ", exact=False).first).to_be_visible()
    await page.go("/deliverability/waits")
    table = shown.get_by_role("table", name="Waiting times by provider")
    await expect(table.get_by_role("row").nth(1)).to_contain_text("Other providers")
    await expect(shown.get_by_role("img", name="Seconds waited by hour")).to_be_visible()
    assert not await page.axe()
