"""The operator's part of the console: the queue, an account, and what others see of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, expect

from engine.audience.broadcasts.types import REVIEWED_ABOVE
from engine.people.open_session import open_session
from engine.people.sessions.rules import COOKIE, Device
from loadtests.kit.service import Service
from ops import admin
from tests.browser.test_broadcasts import drafted, list_of
from tests.harness.api import Api
from tests.harness.browser import ConsolePage, ConsoleUser, opened

OPERATOR = "owner@hello.test"  # the first run's owner, in local mode


@asynccontextmanager
async def as_operator(browser: Browser, service: Service) -> AsyncIterator[ConsolePage]:
    """Open a page for the operator."""
    pepper = service.settings.pepper
    async with admin.opened(service.settings) as pool:
        user = await pool.fetchval("SELECT id FROM users WHERE email = $1", OPERATOR)
        session = await open_session(pool, pepper, user, method="password", device=Device.of("127.0.0.1", "tests"))
    async with opened(browser, service.base_url) as page:
        await page.page.context.add_cookies([{"name": COOKIE, "value": session.secret, "url": service.base_url}])
        yield page


async def test_the_operator_holds_and_resumes_a_domain(browser: Browser, service: Service, user: ConsoleUser) -> None:
    domain = f"held.{user.domain}"
    async with as_operator(browser, service) as page:
        await page.go("/operator/queue")
        await page.page.get_by_role("button", name="Hold mail").click()
        dialog = page.page.get_by_role("dialog", name="Hold mail")
        await dialog.get_by_label("Target").fill(domain)
        await dialog.get_by_label("Reason").fill("The receiver asked for it")
        await dialog.get_by_role("button", name="Hold mail").click()
        hold = page.page.get_by_role("table", name="Holds").get_by_role("row").filter(has_text=domain)
        await expect(hold).to_contain_text("The receiver asked for it")
        await hold.get_by_role("button", name="Resume").click()
        await page.page.get_by_role("dialog").get_by_role("button", name="Resume").click()
        await expect(hold).to_have_count(0)


async def test_the_operator_finds_suspends_and_resumes_an_account(
    browser: Browser, service: Service, user: ConsoleUser
) -> None:
    async with as_operator(browser, service) as page:
        await page.go("/operator/accounts")
        await page.page.get_by_role("searchbox").fill(user.access.account)
        await page.page.get_by_role("row").filter(has_text=user.access.account).get_by_role("link").click()
        await page.page.get_by_role("button", name="Suspend").click()
        dialog = page.page.get_by_role("dialog")
        await dialog.get_by_label("Reason").fill("Mail to bought addresses")
        await dialog.get_by_role("button", name="Suspend account").click()
        suspensions = page.page.get_by_role("table", name="Suspensions")
        await expect(suspensions).to_contain_text("Mail to bought addresses")
        await page.page.get_by_role("button", name="Resume").click()
        await page.page.get_by_role("dialog").get_by_role("button", name="Resume account").click()
        await expect(suspensions).to_have_count(0)


@pytest.mark.parametrize("decision", ["Approve", "Reject"])
async def test_the_operator_decides_on_a_broadcast_that_waits_for_review(
    browser: Browser, service: Service, served: Api, page: ConsolePage, user: ConsoleUser, decision: str
) -> None:
    people = REVIEWED_ABOVE + 1
    name = f"{decision} me {user.domain}"
    broadcast = await drafted(served, user, await list_of(served, user, people), name=name, perMinute=1)
    await page.go(f"/broadcasts/{broadcast}")
    await page.page.get_by_role("button", name="Send or schedule").click()
    await page.page.get_by_role("dialog").get_by_role("button", name=f"Send to {people:,} people").click()
    await expect(page.page.get_by_text("in review", exact=True).first).to_be_visible()
    async with as_operator(browser, service) as operator:
        await operator.go("/operator/reviews")
        await operator.page.get_by_role("link", name=name).click()
        await expect(operator.page.get_by_text(f"signed_up: {people:,}")).to_be_visible()
        await operator.page.get_by_role("button", name=decision).click()
        dialog = operator.page.get_by_role("dialog")
        if decision == "Reject":
            await dialog.get_by_label("Note").fill("Say where these people signed up")
        await dialog.get_by_role("button", name=f"{decision} broadcast").click()
        await expect(operator.page.get_by_role("button", name=decision)).to_have_count(0)
    await page.go(f"/broadcasts/{broadcast}")
    outcome = "sending" if decision == "Approve" else "Say where these people signed up"
    await expect(page.page.get_by_text(outcome).first).to_be_visible()


async def test_a_plan_of_shards_is_shown_before_it_is_carried_out(browser: Browser, service: Service) -> None:
    async with as_operator(browser, service) as page:
        for part in ("nodes", "sites", "held", "reviews"):
            await page.go(f"/operator/{part}")
            await page.settled()
        await page.go("/operator/shards")
        await page.page.get_by_role("button", name="Split a domain").click()
        dialog = page.page.get_by_role("dialog", name="Split a domain")
        await dialog.get_by_label("Recipient domain").fill("large.test")
        await dialog.get_by_role("button", name="Show the plan").click()
        await expect(dialog.get_by_role("table", name="Steps of the plan").get_by_role("row")).to_have_count(5)
        await dialog.get_by_role("button", name="Cancel").click()


async def test_others_are_not_offered_the_operators_part(page: ConsolePage) -> None:
    await page.go("/operator")
    await expect(page.page.get_by_role("alert")).to_be_visible()
    await expect(page.page.get_by_role("link", name="Operator")).to_have_count(0)
