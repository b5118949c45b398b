"""The list of messages in the console: live rows in all tabs, filters, sending again, export, a long list."""

import re
from urllib.parse import parse_qs, urlsplit

from playwright.async_api import Locator, Page, Route, expect

from tests.harness.api import Api
from tests.harness.browser import ConsolePage, ConsoleUser

PAGE = 100  # messages of one page of the list
TAIL = re.compile(r"/v1/messages/tail\b")


async def send(served: Api, user: ConsoleUser, *subjects: str) -> None:
    """Send a message with each subject."""
    for subject in subjects:
        body = {"from": user.access.sender, "to": ["ann@example.com"], "subject": subject, "text": "Hello"}
        assert (await served.post("/v1/emails", user.access.key, json=body)).status == 202


def rows(page: Page) -> Locator:
    """Return the rows of the list, without its head."""
    return page.get_by_role("table", name="Messages").get_by_role("row").filter(has=page.get_by_role("link"))


async def test_live_rows_reach_each_tab_once_over_one_connection(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    await send(served, user, "before")
    tails: list[str] = []
    page.page.context.on("request", lambda one: tails.append(one.url) if TAIL.search(one.url) else None)
    await page.go("/messages")
    await expect(page.page.get_by_text("Live", exact=True)).to_be_visible()
    other = await page.page.context.new_page()
    await other.goto(page.page.url)
    await expect(rows(other)).to_have_count(1)
    await expect(other.get_by_text("Live", exact=True)).to_be_visible()
    await send(served, user, "first", "second")
    for tab in (page.page, other):
        await expect(rows(tab)).to_have_count(3)
        await expect(tab.get_by_role("cell", name="delivered")).to_have_count(3)
    assert len(tails) == 1, tails
    await page.page.goto("about:blank")  # the other tab takes the connection over, behind the last event
    await send(served, user, "third")
    await expect(rows(other)).to_have_count(4)
    assert len(tails) == 2, tails
    assert int(parse_qs(urlsplit(tails[1]).query)["after"][0]) > 0


async def test_rows_wait_while_the_list_is_paused(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    await send(served, user, "before")
    await page.go("/messages")
    await expect(page.page.get_by_text("Live", exact=True)).to_be_visible()
    await page.page.get_by_role("button", name="Pause live updates").click()
    await send(served, user, "one", "two")
    await page.page.get_by_role("button", name="2 new").click()
    await expect(rows(page.page)).to_have_count(3)
    await expect(rows(page.page).first).to_contain_text("two")


async def test_without_a_connection_events_are_pulled(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    await send(served, user, "before")

    async def refuse(route: Route) -> None:
        await route.fulfill(status=429, json={"error": {"type": "too_many_streams", "message": "Too many"}})

    await page.page.route(TAIL, refuse)
    await page.page.clock.install()
    await page.go("/messages")
    await expect(page.page.get_by_text("Every 5 s")).to_be_visible()
    await send(served, user, "pulled")
    row = rows(page.page).filter(has_text="pulled")
    for _ in range(20):
        await page.page.clock.run_for(3_000)
        if await row.count():
            break
    await expect(row).to_have_count(1)


async def test_operators_in_the_search_field_become_filters_of_the_address(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    await send(served, user, "Your receipt", "Welcome")
    await page.go("/messages")
    search = page.page.get_by_role("combobox", name="Search messages")
    await search.fill("status:nonsense")
    await search.press("Enter")
    await expect(page.page.get_by_role("alert")).to_contain_text("must be one of queued, sending")
    await search.fill("to:example.com receipt")
    await search.press("Enter")
    await expect(rows(page.page)).to_have_count(1)
    await expect(page.page).to_have_url(re.compile(r"recipientDomain=example\.com"))
    await page.page.reload()
    await expect(rows(page.page)).to_have_count(1)
    await page.page.get_by_role("button", name="Remove the filter to: example.com").click()
    await page.page.get_by_role("button", name="Remove the filter “receipt”").click()
    await expect(rows(page.page)).to_have_count(2)


async def test_selected_messages_are_sent_again_and_the_list_is_saved(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    await send(served, user, "=1+1")
    await page.go("/messages")
    await expect(page.page.get_by_role("cell", name="delivered")).to_have_count(1)
    await page.page.get_by_role("checkbox", name="Select msg_").check()
    await page.page.get_by_role("button", name="Send again").click()
    await page.page.get_by_role("dialog").get_by_role("button", name="Send again").click()
    await expect(page.page.get_by_text("1 message resent")).to_be_visible()
    await expect(rows(page.page)).to_have_count(2)
    await page.page.get_by_role("button", name="Export").click()
    async with page.page.expect_download() as download:
        await page.page.get_by_role("menuitem", name="CSV").click()
    saved = (await (await download.value).path()).read_text("utf-8")
    assert saved.count("'=1+1") == 2


async def test_a_long_list_keeps_few_nodes_and_works_by_keys(page: ConsolePage) -> None:
    count = 2_000

    async def answer(route: Route) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        start = int(query.get("before", ["0"])[0])
        end = min(start + PAGE, count)
        data = [_message(number) for number in range(start, end)]
        await route.fulfill(
            json={"data": data, "nextCursor": str(end) if end < count else None, "hasMore": end < count}
        )

    await page.page.route(re.compile(r"/v1/messages\?"), answer)
    await page.go("/messages")
    table = page.page.get_by_role("table", name="Messages")
    while await table.get_attribute("aria-rowcount") != str(count + 1):
        await page.page.evaluate("scrollTo({ top: document.body.scrollHeight, behavior: 'instant' })")
    assert await page.page.evaluate("document.querySelectorAll('main *').length") <= 400
    await page.page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
    await page.page.keyboard.press("j")
    await page.page.keyboard.press("j")
    await expect(page.page.get_by_role("link", name="person1@example.com", exact=True)).to_be_focused()
    await page.page.keyboard.press("x")
    await expect(page.page.get_by_text("1 message selected")).to_be_visible()


def _message(number: int) -> dict[str, object]:
    return {
        "id": f"msg_{number:026d}", "status": "delivered", "from": "hello@hello.test",
        "to": [f"person{number}@example.com"], "subject": f"Receipt {number}", "stream": "transactional", "tags": [],
        "createdAt": f"2026-11-20T08:{number // 60 % 60:02d}:{number % 60:02d}.000Z",
    }  # fmt: skip


async def test_before_sending_the_spam_score_and_the_requirements_of_providers_are_shown(page: ConsolePage) -> None:
    shown = page.page
    await page.go("/messages/new")
    await shown.get_by_role("textbox", name="To", exact=True).fill("ann@people.test")
    await shown.get_by_label("Subject").fill("Receipt")
    await shown.get_by_label("Text", exact=True).fill("Hello")
    await shown.get_by_role("button", name="Check and preview").click()
    checks = shown.get_by_role("dialog").get_by_label("Spam and sender checks")
    await expect(checks).to_contain_text("Spam score 0")
    await expect(checks).to_contain_text(re.compile(r"Gmail: \d of \d"))
    await expect(checks).to_contain_text(re.compile(r"Microsoft: \d of \d"))
    await checks.get_by_text("All requirements").click()
    await expect(checks).to_contain_text("Emails are signed with the key of")
    assert await page.axe() == []


async def test_a_certificate_is_downloaded_from_the_page_of_a_message(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    await send(served, user, "certified")
    await page.go("/messages")
    await rows(page.page).filter(has_text="certified").get_by_role("link").first.click()
    await expect(page.page.get_by_text("delivered").first).to_be_visible()
    await page.page.get_by_role("button", name="More").click()
    await page.page.get_by_role("menuitem", name="Delivery certificate").click()
    dialog = page.page.get_by_role("dialog", name="Delivery certificate")
    await expect(dialog).to_contain_text("It doesn't prove")
    for name, ending in (("Download JSON", ".json"), ("Download PDF", ".pdf")):
        async with page.page.expect_download() as download:
            await dialog.get_by_role("button", name=name).click()
        assert (await download.value).suggested_filename.endswith(f"-certificate{ending}")
