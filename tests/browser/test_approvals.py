"""Emails of agents that wait for a person: the bell leads to them, and they are sent or declined there."""

import re

import pytest
from playwright.async_api import expect

from loadtests.kit.service import Service
from ops import admin
from tests.harness.accounts import add_key
from tests.harness.api import Api
from tests.harness.browser import ConsolePage, ConsoleUser


@pytest.mark.parametrize(("button", "state"), [("Approve and send", "sent"), ("Decline", "declined")])
async def test_the_bell_leads_to_what_waits_and_a_person_decides(
    page: ConsolePage, service: Service, user: ConsoleUser, served: Api, button: str, state: str
) -> None:
    shown, account = page.page, user.access.account_id
    async with admin.opened(service.settings) as pool:
        key = await add_key(pool, account, scopes=["emails:send"], approval="required")
    email = {"from": user.access.sender, "to": "ann@waiting.test", "subject": "Offer", "text": "An offer."}
    asked = await served.post("/v1/agent-sends", key, {"email": email})
    assert asked.status == 202, asked
    await page.go("/streams")
    await shown.get_by_role("button", name="Notices: 1 unread").click()
    await shown.get_by_role("link", name="Emails of agents wait for approval: 1.").click()
    await expect(shown).to_have_url(re.compile(r"/approvals$"))
    await shown.get_by_role("link", name="Offer").click()
    await expect(shown.get_by_role("main")).to_contain_text("An offer.")
    assert await page.axe() == []

    await shown.get_by_role("button", name=button).click()
    await shown.get_by_role("dialog").get_by_role("button", name=button).click()

    await expect(shown.get_by_role("main").get_by_text(state, exact=True)).to_be_visible()
    assert (await served.get(f"/v1/agent-sends/{asked.json['id']}", key)).json["state"] == state
