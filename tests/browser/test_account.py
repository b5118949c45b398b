"""The account, its people and its money: renaming, inviting, sub-accounts, buying a plan, the log, roles."""

import re

import pytest
from playwright.async_api import Browser, expect

from engine.base.plans import Plan
from loadtests.kit.service import Service
from ops import admin
from tests.harness.api import Api
from tests.harness.browser import PHONE, ConsolePage, ConsoleUser, new_user, opened
from tests.harness.mailed_links import token_mailed
from tests.harness.people import PASSWORD, make_person


async def test_an_account_is_renamed_and_its_deletion_scheduled_and_undone(page: ConsolePage) -> None:
    await page.go("/account")
    await page.page.get_by_label("Account name").fill("Renamed")
    await page.page.get_by_role("button", name="Rename").click()
    await expect(page.page.get_by_role("button", name="Renamed")).to_be_visible()  # the switcher
    await page.page.get_by_role("tab", name="Data and deletion").click()
    await page.page.get_by_role("button", name="Delete account").click()
    dialog = page.page.get_by_role("dialog", name="Delete the account Renamed?")
    await expect(dialog.get_by_role("button", name="Delete account")).to_have_attribute("aria-disabled", "true")
    await dialog.get_by_label("Type Renamed to confirm").fill("Renamed")
    await dialog.get_by_role("button", name="Delete account").click()
    await page.page.get_by_role("button", name="Keep the account").click()
    await expect(page.page.get_by_role("button", name="Delete account")).to_be_visible()


async def test_a_person_is_invited_joins_and_is_removed(
    page: ConsolePage, browser: Browser, service: Service, user: ConsoleUser
) -> None:
    guest = f"guest@{user.domain}"
    await page.go("/team")
    await page.page.get_by_role("button", name="Invite").first.click()
    dialog = page.page.get_by_role("dialog", name="Invite a person")
    await dialog.get_by_label("Address").fill(guest)
    await dialog.get_by_label("Role").select_option("admin")
    await dialog.get_by_role("button", name="Send invitation").click()
    await expect(page.page.get_by_role("table", name="Invitations")).to_contain_text(guest)
    token = await token_mailed(service, guest, "accept-invite")
    async with opened(browser, service.base_url) as other:
        await other.page.goto(f"{service.base_url}/accept-invite#token={token}")
        await other.page.get_by_label("Password").fill("several uncommon words in a row")
        await other.page.get_by_role("button", name="Accept").click()
        await expect(other.page.get_by_role("heading", level=1, name="You are a member of the account")).to_be_visible()
    await page.go("/team")
    await page.page.get_by_role("button", name=f"Actions of {guest}").click()
    await page.page.get_by_role("menuitem", name="Remove").click()
    await page.page.get_by_role("button", name="Remove member").click()
    await expect(page.page.get_by_role("row").filter(has_text=guest)).to_have_count(0)


async def test_an_invitation_needs_no_password_in_a_session(
    page: ConsolePage, service: Service, user: ConsoleUser
) -> None:
    await page.page.goto(f"{service.base_url}/accept-invite#token={'x' * 43}")
    await expect(page.page.get_by_text(f"You are signed in as {user.person.email}")).to_be_visible()
    await expect(page.page.get_by_label("Password")).to_have_count(0)
    await page.page.get_by_role("button", name="Use another address").click()
    await expect(page.page.get_by_label("Password")).to_be_visible()


async def test_the_ownership_is_transferred_and_the_former_owner_is_an_admin(
    page: ConsolePage, service: Service, user: ConsoleUser
) -> None:
    async with admin.opened(service.settings) as pool:
        heir = await make_person(
            pool, user.person.account_id, "admin", email=f"heir@{user.domain}", pepper=service.settings.pepper
        )
    await page.go("/team")
    await page.page.get_by_role("button", name="Transfer ownership").click()
    dialog = page.page.get_by_role("dialog", name="Transfer ownership")
    await dialog.get_by_label("New owner").select_option(label=heir.email)
    await dialog.get_by_role("button", name="Transfer ownership").click()
    password = dialog.get_by_label("Your password")
    await expect(password.or_(page.page.get_by_text("now owns the account")).first).to_be_visible()
    if await password.count():  # the session is not fresh
        await password.fill(PASSWORD)
        await dialog.get_by_role("button", name="Transfer ownership").click()
    members = page.page.get_by_role("table", name="Members")
    await expect(members.get_by_role("row").filter(has_text=heir.email)).to_contain_text("owner")
    await expect(members.get_by_role("row").filter(has_text=user.person.email)).to_contain_text("admin")


async def test_a_sub_account_is_opened_entered_and_suspended(page: ConsolePage, user: ConsoleUser) -> None:
    await page.go("/sub-accounts")
    await page.page.get_by_role("button", name="New sub-account").first.click()
    await page.page.get_by_label("Name").fill("Shop")
    await page.page.get_by_role("button", name="Create sub-account").click()
    await page.page.get_by_role("button", name="Actions of Shop").click()
    await page.page.get_by_role("menuitem", name="Work in it").click()
    await page.page.get_by_role("button", name="Join and switch").click()
    switcher = page.page.get_by_role("button", name="Shop")
    await expect(switcher).to_be_visible()
    await switcher.click()
    await page.page.get_by_role("menuitem", name="Browser").click()
    await expect(page.page.get_by_text("Switched to Browser")).to_be_visible()
    await page.go("/sub-accounts")
    await page.page.get_by_role("button", name="Actions of Shop").click()
    await page.page.get_by_role("menuitem", name="Suspend").click()
    await page.page.get_by_role("button", name="Suspend", exact=True).click()
    await expect(page.page.get_by_role("row").filter(has_text="Shop")).to_contain_text("suspended by you")


async def test_a_plan_is_bought_invoiced_and_cancelled(browser: Browser, service: Service) -> None:
    user = await new_user(service, plan=Plan.FREE)
    async with opened(browser, service.base_url, user) as page:
        await page.go("/billing")
        await page.page.get_by_role("button", name="Choose Starter").click()
        dialog = page.page.get_by_role("dialog", name="Starter, billed monthly")
        await dialog.get_by_label("Name on invoices").fill("<b>Müller</b> GmbH")
        await dialog.get_by_label("Country").select_option("DE")
        await dialog.get_by_role("button", name="Continue").click()
        await page.page.get_by_role("button", name="Pay", exact=True).click()
        await expect(page.page.get_by_text("The payment was made.")).to_be_visible()
        await page.go("/billing")
        await page.page.get_by_role("button", name="Cancel subscription").click()
        await page.page.get_by_role("dialog").get_by_role("button", name="Cancel subscription").click()
        await expect(page.page.get_by_text("Canceled: the account moves to the free plan")).to_be_visible()
        await page.go("/billing?part=invoices")
        async with page.page.expect_download() as saved:
            await page.page.get_by_role("button", name="as PDF").click()
        assert (await saved.value).suggested_filename.endswith(".pdf")
        await page.go("/billing?part=history")
        await expect(page.page.get_by_text("The history is intact.")).to_be_visible()


async def test_the_log_is_filtered_verified_and_exported(page: ConsolePage) -> None:
    await page.go("/audit")
    await page.page.get_by_role("button", name="Verify the log").click()
    await expect(page.page.get_by_text("The log is intact.")).to_be_visible()
    await page.page.get_by_label("Event", exact=True).select_option("domain.verified")
    await expect(page.page.get_by_role("row")).to_have_count(2)  # the head, and one event
    await expect(page.page.get_by_role("row").last).to_contain_text("The operator verified the domain")
    await page.page.get_by_label("Time", exact=True).select_option("Today")
    await expect(page.page).to_have_url(re.compile("range=0"))
    await page.page.get_by_role("cell").last.click(position={"x": 4, "y": 4})  # anywhere in the row
    await expect(page.page.get_by_role("dialog")).to_contain_text("Previous hash")
    await page.page.keyboard.press("Escape")
    async with page.page.expect_download() as saved:
        await page.page.get_by_role("button", name="Export").click()
    assert (await saved.value).suggested_filename.endswith(".ndjson")


async def test_a_phone_shows_filters_on_demand_and_the_action_beside_the_title(
    browser: Browser, service: Service, user: ConsoleUser
) -> None:
    async with opened(browser, service.base_url, user, size=PHONE) as page:
        await page.go("/audit")
        period = page.page.get_by_label("Time", exact=True)
        await expect(period).to_have_count(0)
        await page.page.get_by_role("button", name="Filters").click()
        await expect(period).to_be_visible()
        title = await page.page.get_by_role("heading", level=1).bounding_box()
        action = await page.page.get_by_role("button", name="Export").bounding_box()
        assert title is not None
        assert action is not None
        assert action["y"] < title["y"] + title["height"]


async def test_the_log_shows_what_people_did_first_and_in_sentences(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    assert (await served.post("/v1/streams", user.access.key, {"id": "by-key"})).status == 201
    await page.go("/streams")
    await page.page.get_by_role("button", name="New stream").first.click()
    await page.page.get_by_role("dialog").get_by_label("Name").fill("Notices")
    await page.page.keyboard.press("Enter")
    await expect(page.page.get_by_role("dialog")).to_have_count(0)
    await page.go("/audit")
    events = page.page.get_by_role("table", name="Events")
    await expect(events).to_contain_text(f"{user.person.email} created the stream Notices")
    await expect(events).not_to_contain_text("by-key")
    await page.page.get_by_role("button", name="Everything").click()
    await expect(events).to_contain_text("An API key created the stream by-key")


@pytest.mark.parametrize("standing", ["member", "suspended"])
async def test_who_may_not_change_the_account_is_told_why(browser: Browser, service: Service, standing: str) -> None:
    user = await new_user(service, role="member" if standing == "member" else "owner")
    if standing == "suspended":
        async with admin.opened(service.settings) as pool:
            await pool.execute("UPDATE accounts SET status = 'suspended' WHERE id = $1", user.person.account_id)
    async with opened(browser, service.base_url, user) as page:
        for path, name in (("/account", "Rename"), ("/team", "Invite"), ("/billing", "Choose Starter")):
            await page.go(path)
            button = page.page.get_by_role("button", name=name).first
            await expect(button).to_have_attribute("aria-disabled", "true")
            await expect(button).to_have_attribute("title", _WHY[standing])


_WHY = {
    "member": "Only admins and the owner of the account can do this; your role is member.",
    "suspended": "The account is suspended and read-only. Ask the operator.",
}
