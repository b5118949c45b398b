"""The inbox in the console: mail arrives, is read, walked through by keys, answered; addresses are claimed."""

import asyncio
import smtplib
from email.message import EmailMessage

from playwright.async_api import Browser, Page, expect

from loadtests.kit.service import Service
from tests.harness.api import Api
from tests.harness.browser import PHONE, ConsolePage, ConsoleUser, opened
from tests.harness.patience import PATIENCE_S

PIXEL = b"GIF89a\x01\0\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;"
HOSTILE = "<img src=x onerror=alert(1)>"


async def receive(service: Service, address: str, *subjects: str) -> None:
    """Deliver a mail with each subject to `address` over SMTP, as another server does."""

    def deliver() -> None:
        with smtplib.SMTP("127.0.0.1", service.settings.mx_port, timeout=PATIENCE_S) as client:
            for subject in subjects:
                client.send_message(mail(address, subject), "bob@sender.test", [address])

    await asyncio.to_thread(deliver)


def mail(address: str, subject: str) -> EmailMessage:
    """Return a mail with both bodies, a hostile name, and an attachment."""
    message = EmailMessage()
    message["From"] = f'"{HOSTILE}" <bob@sender.test>'
    message["To"] = address
    message["Subject"] = subject
    message.set_content(f"Text of {subject}\n\nOn Monday Ann wrote:\n> quoted")
    message.add_alternative(f"<p>Page of {subject}</p><script>alert(1)</script>", subtype="html")
    message.add_attachment(b"total 20.00", maintype="text", subtype="plain", filename="invoice.txt")
    return message


async def claim(served: Api, user: ConsoleUser, local: str = "support") -> str:
    """Claim an address of the user's domain."""
    address = f"{local}@{user.domain}"
    assert (await served.post("/v1/inbound/addresses", user.access.key, json={"address": address})).status == 201
    return address


async def focused(page: Page) -> str:
    """Return the subject of the row that has the focus."""
    return str(await page.evaluate("document.activeElement.querySelector('.mail-subject')?.textContent ?? ''"))


async def test_mail_arrives_is_walked_through_and_read(
    page: ConsolePage, service: Service, served: Api, user: ConsoleUser
) -> None:
    address = await claim(served, user)
    await receive(service, address, "first", "second", "third")
    await page.go("/inbox")
    shown = page.page
    await expect(shown.get_by_text("3 unread")).to_be_visible()
    listed = shown.get_by_role("list", name="Received messages").get_by_role("link")
    await expect(listed).to_have_count(3)
    await expect(listed.first).to_contain_text(HOSTILE)
    for key, subject in (("j", "third"), ("j", "second"), ("j", "first"), ("k", "second")):
        await shown.keyboard.press(key)
        assert await focused(shown) == subject
    await expect(shown.get_by_role("heading", name="No message selected")).to_be_visible()  # the keys opened nothing
    await shown.keyboard.press("Enter")
    await expect(shown.get_by_role("heading", name="second")).to_be_visible()
    await expect(shown.get_by_text("2 unread")).to_be_visible()
    frame = shown.frame_locator("iframe[title='HTML of second']")
    await expect(frame.get_by_text("Page of second")).to_be_visible()
    await shown.get_by_role("tab", name="Reply only").click()
    await expect(shown.get_by_label("Reply only").last).to_have_text("Text of second")
    async with shown.expect_download() as download:
        await shown.get_by_role("button", name="Download invoice.txt").click()
    assert (await download.value).suggested_filename == "invoice.txt"


async def test_pictures_of_a_mail_are_shown_however_their_address_is_written(
    page: ConsolePage, service: Service, served: Api, user: ConsoleUser
) -> None:
    address = await claim(served, user)
    sources = ("cid:a@b", "CID:a%40b", "cid:a%26b", "cid:a&amp;b")
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "bob@sender.test", address, "pictures"
    message.set_content("".join(f'<img src="{source}" alt="{source}">' for source in sources), subtype="html")
    for cid in ("<a@b>", "<a&b>"):
        message.add_related(PIXEL, "image", "gif", cid=cid)
    with smtplib.SMTP("127.0.0.1", service.settings.mx_port, timeout=PATIENCE_S) as client:
        await asyncio.to_thread(client.send_message, message, "bob@sender.test", [address])
    await page.go("/inbox")
    await page.page.get_by_role("list", name="Received messages").get_by_role("link").first.click()
    frame = page.page.frame_locator("iframe[title='HTML of pictures']")

    await expect(frame.locator("img[src^='data:image/gif']")).to_have_count(len(sources))


async def test_a_mail_is_answered_marked_as_spam_and_deleted(
    page: ConsolePage, service: Service, served: Api, user: ConsoleUser
) -> None:
    address = await claim(served, user)
    await receive(service, address, "question")
    await page.go("/inbox")
    shown = page.page
    await shown.get_by_role("list", name="Received messages").get_by_role("link").click()
    await shown.get_by_role("button", name="Reply", exact=True).click()
    await shown.get_by_label("Text", exact=True).last.fill("Thank you")
    await shown.get_by_role("button", name="Send reply").click()
    await expect(shown.get_by_text("Reply sent")).to_be_visible()
    await expect(shown.get_by_role("link", name="You: Re: question")).to_be_visible()
    await shown.get_by_role("button", name="Spam", exact=True).click()
    await expect(shown.get_by_role("button", name="Not spam")).to_be_visible()
    await shown.get_by_role("button", name="More actions").click()
    await shown.get_by_role("menuitem", name="Delete").click()
    await shown.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    await expect(shown.get_by_text("Message deleted")).to_be_visible()
    assert (await served.get("/v1/inbound/messages", user.access.key)).json["data"] == []


async def test_a_phone_shows_the_list_alone(browser: Browser, service: Service, served: Api, user: ConsoleUser) -> None:
    address = await claim(served, user)
    await receive(service, address, "hello")
    async with opened(browser, service.base_url, user, size=PHONE) as shown:
        await shown.go("/inbox")
        await shown.page.get_by_role("list", name="Received messages").get_by_role("link").click()
        await expect(shown.page.get_by_role("heading", level=1, name="hello")).to_be_visible()
        assert await shown.axe() == []


async def test_an_address_is_claimed_and_routed(page: ConsolePage, user: ConsoleUser) -> None:
    await page.go("/receiving")
    shown = page.page
    await shown.get_by_role("button", name="Claim address").first.click()
    await shown.get_by_label("Name before the @").fill("billing")
    await shown.get_by_role("button", name="Claim", exact=True).click()
    await expect(shown.get_by_role("row").filter(has_text=f"billing@{user.domain}")).to_be_visible()
    await shown.get_by_role("tab", name="Routes").click()
    await shown.get_by_role("button", name="New route").first.click()
    await shown.get_by_role("button", name="Create route").click()
    row = shown.get_by_role("row").filter(has_text=f"billing@{user.domain}")
    await expect(row).to_contain_text("No active webhook endpoint is subscribed")
    await shown.get_by_role("tab", name="MTA-STS").click()
    await shown.get_by_role("button", name="New policy").click()
    await shown.get_by_role("button", name="Save policy").click()
    await expect(shown.get_by_text(f"_mta-sts.{user.domain}", exact=True)).to_be_visible()
