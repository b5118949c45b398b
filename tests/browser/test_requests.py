"""The log of API requests in the console."""

import asyncio

from playwright.async_api import expect

from tests.harness.api import Api
from tests.harness.browser import ConsolePage, ConsoleUser
from tests.harness.patience import PATIENCE_S


async def test_a_refused_request_is_found_and_explained(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    assert (await served.post("/v1/emails", user.access.key, json={})).status == 400

    async with asyncio.timeout(PATIENCE_S):
        while not (await served.get("/v1/requests?status=4xx", user.access.key)).json["data"]:
            await asyncio.sleep(0.1)
    await page.go("/requests")
    await page.page.get_by_role("button", name="Refused").click()
    row = page.page.get_by_role("row").filter(has_text="invalid_request")
    await row.get_by_role("link", name="/v1/emails").click()
    dialog = page.page.get_by_role("dialog", name="API request")
    await expect(dialog).to_contain_text("The response names it in error.field")
    await dialog.get_by_role("button", name="invalid_request").click()
    await expect(page.page.get_by_text("error: invalid_request")).to_be_visible()
    await expect(row).to_have_count(1)
