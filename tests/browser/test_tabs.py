"""Several tabs of one browser: one connection for all, through restarts and refusals, and no tab that shows or changes
what is another session's.
"""

import os
import re
import signal
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Route, expect

from engine.base import ids
from engine.base.plans import Plan
from loadtests.kit.service import Service
from ops import admin
from tests.harness.api import Api
from tests.harness.browser import ConsolePage, ConsoleUser


@pytest.fixture
async def second(page: ConsolePage, service: Service) -> AsyncIterator[ConsolePage]:
    """Yield a second tab of the browser of `page`."""
    tab = ConsolePage(await page.page.context.new_page(), service.base_url)
    yield tab
    assert not tab.faults, tab.faults


async def sign_out(page: ConsolePage, user: ConsoleUser) -> None:
    await page.page.get_by_role("button", name=user.person.email).click()
    await page.page.get_by_role("menuitem", name="Sign out").click()
    await expect(page.page.get_by_role("heading", level=1, name="Sign in")).to_be_visible()


async def test_a_sign_out_clears_the_other_tabs_and_what_the_browser_kept(
    page: ConsolePage, second: ConsolePage, user: ConsoleUser
) -> None:
    await page.go("/streams")
    await second.go("/domains")
    await expect(second.page.get_by_role("link", name=user.domain)).to_be_visible()
    await page.page.evaluate("localStorage.setItem('waybill.samples.welcome', '{\"name\": \"Ann\"}')")
    await sign_out(page, user)
    await expect(second.page.get_by_role("heading", level=1, name="Sign in")).to_be_visible()
    assert user.domain not in await second.page.content()
    assert await page.page.evaluate("Object.keys(localStorage).join()") == ""


async def test_a_tab_of_another_account_changes_nothing_of_the_one_chosen_since(
    page: ConsolePage, user: ConsoleUser, service: Service
) -> None:
    await page.go("/streams")
    await page.settled()
    account = await other_account(service, user)
    # As another program with the same cookie does: the tab hears nothing of it.
    await page.page.evaluate(
        """async (accountId) => {
          const { csrfToken } = await (await fetch("/v1/auth/me")).json();
          await fetch("/v1/auth/switch", { method: "POST", body: JSON.stringify({ accountId }),
            headers: { "Content-Type": "application/json", "X-CSRF-Token": csrfToken } });
        }""",
        account,
    )
    await page.page.get_by_role("button", name="New stream").first.click()
    dialog = page.page.get_by_role("dialog", name="New stream")
    await dialog.get_by_label("Name").fill("Invoices")
    await dialog.get_by_role("button", name="Create").click()
    await expect(page.page.get_by_role("button", name="Second account")).to_be_visible()
    await expect(page.page.get_by_text("so nothing was saved")).to_be_visible()
    await page.settled()
    await expect(page.page.get_by_role("row").filter(has_text="Invoices")).to_have_count(0)


async def test_a_change_of_the_account_is_taken_over_by_the_other_tabs(
    page: ConsolePage, second: ConsolePage, user: ConsoleUser, service: Service
) -> None:
    await other_account(service, user)
    await page.go("/streams")
    await second.go("/domains")
    await page.page.get_by_role("button", name="Browser", exact=False).first.click()
    await page.page.get_by_role("menuitem", name="Second account").click()
    await expect(second.page.get_by_role("button", name="Second account")).to_be_visible()
    await expect(second.page.get_by_role("heading", level=1, name="Home")).to_be_visible()


TABS = 5
TAIL = re.compile(r"/v1/messages/tail\b")


async def send(served: Api, user: ConsoleUser, subject: str) -> None:
    body = {"from": user.access.sender, "to": ["ann@example.com"], "subject": subject, "text": "Hello"}
    assert (await served.post("/v1/emails", user.access.key, json=body)).status == 202


async def test_five_tabs_share_one_connection_and_each_shows_each_message_once(
    page: ConsolePage, served: Api, user: ConsoleUser, service: Service
) -> None:
    tails: list[str] = []
    page.page.context.on("request", lambda one: tails.append(one.url) if TAIL.search(one.url) else None)
    tabs = [page, *[ConsolePage(await page.page.context.new_page(), service.base_url) for _ in range(TABS - 1)]]
    for tab in tabs:
        await tab.go("/messages")
    await expect(tabs[-1].page.get_by_text("Live", exact=True)).to_be_visible()
    await send(served, user, "to all tabs")
    for tab in tabs:
        await expect(tab.page.get_by_role("row").filter(has_text="to all tabs")).to_have_count(1)
        assert not tab.faults
    assert len(tails) == 1, tails


async def test_a_page_goes_on_after_the_api_was_killed(
    page: ConsolePage, served: Api, user: ConsoleUser, service: Service
) -> None:
    await send(served, user, "before")
    await page.go("/messages")
    await expect(page.page.get_by_text("Live", exact=True)).to_be_visible()
    before = set(service.api_workers())
    assert before
    async with page.page.expect_response(TAIL):  # another worker answers
        for worker in before:
            os.kill(worker, signal.SIGKILL)
    await expect(page.page.get_by_text("Live", exact=True)).to_be_visible()
    await send(served, user, "after")
    await expect(page.page.get_by_role("row").filter(has_text="after")).to_have_count(1)
    await expect(page.page.get_by_role("row").filter(has_text="before")).to_have_count(1)
    page.forgive("net::ERR_")


async def test_each_limit_has_its_words_and_says_when_it_ends(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    async def refuse(route: Route) -> None:
        if route.request.method == "POST":
            error = {"type": "plan_limit_reached", "message": "The plan allows 25 streams.", "resource": "streams"}
            await route.fulfill(status=403, json={"error": error})
        else:
            limited = {"type": "rate_limited", "message": "Slow down."}
            await route.fulfill(status=429, headers={"Retry-After": "3"}, json={"error": limited})

    await page.go("/streams")
    await page.settled()
    await page.page.route("**/v1/streams**", refuse)
    await page.page.get_by_role("button", name="New stream").first.click()
    dialog = page.page.get_by_role("dialog", name="New stream")
    await dialog.get_by_label("Name").fill("Invoices")
    await dialog.get_by_role("button", name="Create").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("Limit of the plan: The plan allows 25 streams.")
    await page.page.keyboard.press("Escape")
    await page.page.reload()
    await expect(page.page.get_by_role("alert")).to_contain_text("Too many requests: Slow down. Retry in 3 s.")


async def other_account(service: Service, user: ConsoleUser) -> str:
    """Return the id of a second account of the person."""
    address = f"second-{user.person.email}"
    async with admin.opened(service.settings) as pool:
        made = await admin.create_account(pool, name="Second account", email=address, plan=Plan.SCALE, daily_cap=100)
        account: str = made["accountId"]
        owner = ids.parse_id(ids.Kind.ACCOUNT, account)
        await pool.execute(
            "INSERT INTO members (account_id, user_id, role) VALUES ($1, $2, 'owner')", owner, user.person.id
        )
    return account
