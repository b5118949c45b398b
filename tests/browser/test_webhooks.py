"""Webhooks in the console: create, test, read the exact exchange, check the signature, replay."""

import json
import re

from playwright.async_api import expect

from tests.harness.api import Api
from tests.harness.browser import ConsolePage, ConsoleUser
from tests.harness.receiver import Receiver


async def secret_of(page: ConsolePage) -> str:
    """Return the secret that the open dialog shows, and close the dialog."""
    dialog = page.page.get_by_role("dialog", name="Signing secret")
    secret = await dialog.get_by_label("Secret", exact=True).locator("code").inner_text()
    await dialog.get_by_role("button", name="I have stored it").click()
    return secret


async def test_an_endpoint_is_created_tested_and_its_signature_checked(page: ConsolePage) -> None:
    shown = page.page
    async with Receiver() as receiver:
        receiver.status = 410
        receiver.headers = {"X-Trace": "<script>alert(1)</script>"}
        receiver.body = b"<img src=x onerror=alert(1)>"
        await page.go("/webhooks")
        await shown.get_by_role("button", name="Add endpoint").first.click()
        await shown.get_by_role("textbox", name="URL").fill(receiver.url)
        await shown.get_by_role("textbox", name="Description").fill("Shop")
        await shown.get_by_role("dialog").get_by_role("button", name="Add endpoint").click()
        secret = await secret_of(page)
        await shown.get_by_role("button", name="Send a test").first.click()
        await expect(shown.get_by_role("figure", name="Answer to attempt 1")).to_contain_text(
            "<img src=x onerror=alert(1)>"
        )
        await expect(shown.get_by_role("figure", name="Answer to attempt 1")).to_contain_text(
            "X-Trace: <script>alert(1)</script>"
        )
        body_shown = shown.get_by_role("figure", name="Body as posted")
        await expect(body_shown).to_contain_text('"type": "webhook.test"')
        assert json.loads(await body_shown.locator("code").inner_text()) == json.loads(receiver.got[0].body)
        await shown.get_by_role("button", name="Copy: Body as posted").click()
        assert await shown.evaluate("navigator.clipboard.readText()") == receiver.got[0].body.decode()
        await shown.get_by_role("button", name="Check the signature").click()
        checker = shown.get_by_role("dialog", name="Check a signature")
        await checker.get_by_label("Signing secret").fill(secret)
        await checker.get_by_role("button", name="Check signature").click()
        await expect(checker.get_by_role("status")).to_contain_text("The signature is correct.")
        await checker.get_by_label("Signing secret").fill(secret.removeprefix("whsec_"))
        await checker.get_by_role("button", name="Check signature").click()
        await expect(checker.get_by_role("status")).to_contain_text("lacks its prefix")
        await checker.get_by_label("Signing secret").fill(secret)
        body = checker.get_by_label("Body, exactly as received")
        await body.fill((await body.input_value()).replace('":', '": '))
        await checker.get_by_role("button", name="Check signature").click()
        await expect(checker.get_by_role("status")).to_contain_text("parsed and written again")
        await checker.get_by_role("button", name="Close").last.click()

        receiver.status = 200
        await shown.get_by_role("button", name="Replay several").click()
        await shown.get_by_role("button", name="Replay deliveries").click()
        await expect(shown.get_by_text("1 queued again. Nothing else in this period is left.")).to_be_visible()
        await shown.get_by_role("dialog").get_by_role("button", name="Close").last.click()
        await expect(shown.get_by_role("figure", name="Request of attempt 2")).to_contain_text("Service-Attempt: 2")
    await shown.get_by_label("State", exact=True).select_option("delivered")
    await expect(shown).to_have_url(re.compile("state=delivered"))
    await expect(shown.get_by_role("list", name="Deliveries").get_by_role("button")).to_have_count(1)


async def test_an_endpoint_is_limited_to_a_stream_and_gets_headers_and_metadata(page: ConsolePage) -> None:
    shown = page.page
    async with Receiver() as receiver:
        await page.go("/webhooks")
        await shown.get_by_role("button", name="Add endpoint").first.click()
        await shown.get_by_role("textbox", name="URL").fill(receiver.url)
        form = shown.get_by_role("dialog")
        await form.get_by_text("Limit it to domains or streams, add headers").click()
        await form.get_by_role("group", name="Streams").get_by_role("checkbox").first.check()
        await form.get_by_label("Headers of every post").fill("Authorization: Bearer canary\nX-Team: mail")
        await form.get_by_label("Include the message's tags and metadata").check()
        await expect(form.get_by_role("checkbox", name="Service-Signature")).to_be_disabled()
        await form.get_by_label("Standard Webhooks").check()
        await form.get_by_label("Honor Retry-After").check()
        await form.get_by_role("button", name="Add endpoint").click()
        await secret_of(page)
        await expect(shown.get_by_text("Authorization, X-Team")).to_be_visible()
        await expect(shown.get_by_text("With tags and metadata")).to_be_visible()
        await expect(shown.get_by_text("Service-Signature and Standard Webhooks")).to_be_visible()
        await expect(shown.get_by_text("Honor Retry-After")).to_be_visible()
        await shown.get_by_role("button", name="Edit").click()
        await expect(form).not_to_contain_text("canary")
        await form.get_by_role("button", name="Remove the header X-Team").click()
        await form.get_by_label("New or changed headers").fill("Host: x")
        await form.get_by_role("button", name="Save").click()
        await expect(form).to_contain_text("`Host` is set by Waybill or HTTP itself")
        await form.get_by_label("New or changed headers").fill("")
        await form.get_by_role("button", name="Save").click()
        await expect(shown.get_by_text("X-Team")).to_have_count(0)
        await shown.get_by_role("button", name="Send a test").first.click()
        await expect(shown.get_by_role("figure", name="Answer to attempt 1")).to_be_visible()
        await expect(shown.get_by_role("figure", name="Request of attempt 1")).to_contain_text("webhook-signature: v1,")
        (got,) = receiver.got
        assert (got.headers["authorization"], got.headers.get("x-team")) == ("Bearer canary", None)
        assert got.headers["webhook-id"] == got.headers["service-delivery-id"]


async def test_an_endpoint_that_fails_says_so_in_the_list_and_on_its_page(page: ConsolePage) -> None:
    shown = page.page
    async with Receiver() as receiver:
        receiver.status = 410
        await page.go("/webhooks")
        await shown.get_by_role("button", name="Add endpoint").first.click()
        await shown.get_by_role("textbox", name="URL").fill(receiver.url)
        await shown.get_by_role("dialog").get_by_role("button", name="Add endpoint").click()
        await secret_of(page)
        await shown.get_by_role("button", name="Send a test").first.click()
        await expect(shown.get_by_text("Posts to this endpoint are failing.")).to_be_visible()
        await expect(shown.get_by_text("of 1 post delivered")).to_be_visible()
        await shown.get_by_role("link", name="Webhooks").first.click()
        row = shown.get_by_role("row").filter(has_text=receiver.url.removeprefix("http://"))
        await expect(row).to_contain_text("failing")
        await expect(row).to_contain_text("since")
        await expect(row).to_contain_text("410")
        assert await page.axe() == []

        await row.get_by_role("link").first.click()
        await expect(shown.get_by_role("figure", name="Answer to attempt 1")).to_contain_text("410")  # preselected
        await shown.get_by_role("button", name="Replay failed").click()
        await expect(shown.get_by_role("dialog").get_by_label("State", exact=True)).to_have_value("failed")
        await shown.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        receiver.status = 200
        await shown.get_by_role("alert").get_by_role("button", name="Send a test").click()
        await expect(shown.get_by_text("Posts to this endpoint are failing.")).to_have_count(0)


async def test_a_delivery_names_recipient_and_subject_beside_event_and_state(
    page: ConsolePage, user: ConsoleUser, served: Api
) -> None:
    shown = page.page
    async with Receiver() as receiver:
        made = await served.post("/v1/webhooks", user.access.key, {"url": receiver.url, "eventTypes": ["accepted"]})
        sent = await served.post(
            "/v1/emails",
            user.access.key,
            {"from": user.access.sender, "to": ["ann@people.test"], "subject": "Receipt <b>4711</b>", "text": "x"},
        )
        assert sent.status == 202
        await page.go(f"/webhooks/{made.json['id']}")
        one = shown.get_by_role("list", name="Deliveries").get_by_role("button")
        await expect(one).to_contain_text("accepted")
        await expect(one).to_contain_text("delivered")
        await expect(one).to_contain_text("ann@people.test · Receipt <b>4711</b>")
        await one.click()
        await shown.get_by_role("link", name="Open its waybill").click()
        await expect(shown.get_by_role("heading", level=1)).to_contain_text("Receipt <b>4711</b>")
