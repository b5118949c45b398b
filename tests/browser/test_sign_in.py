"""Signing up and in: password, authenticator, passkey, links in mails, and the account after a lost session."""

import asyncio
import base64
import re
import time
from contextlib import suppress

from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from playwright.async_api import Browser, expect
from playwright.async_api import TimeoutError as TimedOut

from engine.base import clock
from engine.people.second_factor import rules
from loadtests.kit.service import Service
from ops import admin
from tests.harness.browser import ConsolePage, ConsoleUser, opened
from tests.harness.mailed_links import token_mailed
from tests.harness.patience import PATIENCE_S
from tests.harness.people import PASSWORD
from tests.harness.service import command

CHOSEN = "several uncommon words in a row"
LATER = "other uncommon words, in another row"


async def sign_in(page: ConsolePage, email: str, password: str) -> None:
    await page.page.get_by_label("Address").fill(email)
    await page.page.get_by_label("Password").fill(password)
    await page.page.get_by_role("button", name="Sign in", exact=True).click()


async def sign_in_once_allowed(page: ConsolePage, email: str, password: str) -> None:
    """Sign in, again and again while the API asks to wait after a wrong password."""
    button = page.page.get_by_role("button", name="Sign in", exact=True)
    form = page.page.get_by_label("Password")  # the button has another name while the form is sent
    waits = page.page.get_by_role("alert").filter(has_text="Too many attempts")
    await sign_in(page, email, password)
    async with asyncio.timeout(PATIENCE_S):
        while await form.count():
            if await waits.count():
                with suppress(TimedOut):  # the form is sending, or gone
                    await button.click(timeout=500)
            await asyncio.sleep(0.2)


async def test_a_right_password_soon_after_a_wrong_one_signs_in(
    browser: Browser, service: Service, user: ConsoleUser
) -> None:
    async with opened(browser, service.base_url) as page:
        await page.go("/sign-in")
        await sign_in(page, user.person.email, "not the password of anybody")
        await expect(page.page.get_by_role("alert")).to_contain_text("wrong")
        await sign_in(page, user.person.email, PASSWORD)
        await heading(page, "Home")
        page.forgive("401")
        page.forgive("429")


async def sign_out(page: ConsolePage, user: ConsoleUser) -> None:
    await page.page.get_by_role("button", name=user.person.email).click()
    async with page.page.expect_navigation():  # a new document, so that nothing of the session stays in memory
        await page.page.get_by_role("menuitem", name="Sign out").click()


async def heading(page: ConsolePage, text: str) -> None:
    await expect(page.page.get_by_role("heading", level=1, name=text)).to_be_visible()


async def test_a_person_signs_up_confirms_the_address_and_resets_the_password(
    browser: Browser, service: Service
) -> None:
    address = "newcomer@browser.test"
    async with opened(browser, service.base_url) as page:
        await page.go("/sign-up")
        await page.page.get_by_label("Address").fill(address)
        await page.page.get_by_label("Password").fill("password123")
        await page.page.get_by_role("button", name="Create account").click()
        await expect(page.page.get_by_label("Password")).to_have_attribute("aria-invalid", "true")  # easy to guess
        await page.page.get_by_label("Password").fill(CHOSEN)
        await page.page.get_by_role("button", name="Create account").click()
        await heading(page, "Check your mailbox")

        token = await token_mailed(service, address, "verify-email")
        await page.page.goto(f"{service.base_url}/verify-email#token={token}")
        await heading(page, "Confirm your address")
        assert token not in page.page.url
        await page.page.get_by_label("Password").fill("not the password of the sign-up")
        await page.page.get_by_role("button", name="Confirm my address").click()
        await expect(page.page.get_by_role("alert")).to_contain_text("The password is wrong")
        page.forgive("401")
        await page.page.get_by_label("Password").fill(CHOSEN)
        await page.page.get_by_role("button", name="Confirm my address").click()
        await heading(page, "Your address is confirmed")

        await page.go("/forgot-password")
        await page.page.get_by_label("Address").fill(address)
        await page.page.get_by_role("button", name="Send the link").click()
        await heading(page, "Check your mailbox")
        token = await token_mailed(service, address, "reset-password")
        await page.page.goto(f"{service.base_url}/reset-password#token={token}")
        await page.page.get_by_label("New password").fill(LATER)
        await page.page.get_by_role("button", name="Set the password").click()
        await heading(page, "Your password is set")
        await page.page.get_by_role("link", name="Sign in").click()
        await sign_in(page, address, LATER)
        await expect(page.page.get_by_role("navigation", name="Pages")).to_be_visible()


async def test_a_person_ends_the_sign_up_of_a_stranger(browser: Browser, service: Service) -> None:
    address = "victim@browser.test"
    async with opened(browser, service.base_url) as page:
        await page.go("/sign-up")
        await page.page.get_by_label("Address").fill(address)
        await page.page.get_by_label("Password").fill(CHOSEN)
        await page.page.get_by_role("button", name="Create account").click()
        await heading(page, "Check your mailbox")
        token = await token_mailed(service, address, "end-sign-up")
        await page.page.goto(f"{service.base_url}/end-sign-up#token={token}")
        await page.page.get_by_role("button", name="End the sign-up").click()
        await heading(page, "The sign-up has ended")


async def test_a_link_without_its_token_says_so(browser: Browser, service: Service) -> None:
    async with opened(browser, service.base_url) as page:
        await page.page.goto(f"{service.base_url}/accept-invite")
        await expect(page.page.get_by_text("This link is incomplete.")).to_be_visible()
        await expect(page.page.get_by_role("button", name="Accept")).to_have_count(0)


async def test_an_authenticator_is_set_up_and_asked_for_at_the_next_sign_in(
    page: ConsolePage, user: ConsoleUser
) -> None:
    await page.go("/profile/security")
    await page.page.get_by_role("button", name="Set up an authenticator").click()
    dialog = page.page.get_by_role("dialog", name="Set up an authenticator")
    await expect(dialog.get_by_role("img", name=re.compile("QR code"))).to_be_visible()
    secret = (await dialog.get_by_text(re.compile(r"^(?:[A-Z2-7]{4} ?){8}$")).inner_text()).replace(" ", "")
    app = TOTP(base64.b32decode(secret), 6, SHA1(), 30, enforce_key_length=False)
    await dialog.get_by_label("Code").fill("000000")
    await dialog.get_by_role("button", name="Turn on").click()
    await expect(dialog.get_by_label("Code")).to_have_attribute("aria-invalid", "true")
    await dialog.get_by_label("Code").fill(app.generate(int(clock.now().timestamp())).decode())
    await dialog.get_by_role("button", name="Turn on").click()
    shown = page.page.get_by_role("dialog", name="Your recovery codes")
    recovery = (await shown.get_by_role("figure", name="Recovery codes").inner_text()).split()[0]
    await page.page.keyboard.press("Escape")
    await expect(shown.get_by_text("Have you stored the codes?")).to_be_visible()
    await shown.get_by_role("button", name="I have stored them").click()

    await sign_out(page, user)
    await sign_in(page, user.person.email, PASSWORD)
    await page.page.get_by_label("Code").fill(recovery)
    await page.page.get_by_role("button", name="Sign in", exact=True).click()
    await expect(page.page.get_by_role("navigation", name="Pages")).to_be_visible()


async def test_a_passkey_is_created_and_signs_in(browser: Browser, service: Service, user: ConsoleUser) -> None:
    name = service.base_url.replace("127.0.0.1", "localhost")  # passkeys belong to names
    async with opened(browser, name, user) as page:
        session = await page.page.context.new_cdp_session(page.page)
        await session.send("WebAuthn.enable")
        device = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
        ready = {"isUserVerified": True, "automaticPresenceSimulation": True}
        await session.send("WebAuthn.addVirtualAuthenticator", {"options": device | ready})
        await page.go("/profile/security")
        await page.page.get_by_role("button", name="Create a passkey").click()
        dialog = page.page.get_by_role("dialog", name="Create a passkey")
        await dialog.get_by_label("Name").fill("Laptop")
        await dialog.get_by_role("button", name="Create", exact=True).click()
        await expect(page.page.get_by_role("row").filter(has_text="Laptop")).to_be_visible()
        await sign_out(page, user)
        # The device answers the offer in the address field by itself, as a person who chooses the passkey there.
        await expect(page.page.get_by_role("navigation", name="Pages")).to_be_visible()
        await page.go("/profile/sessions")
        await expect(page.page.get_by_role("row").filter(has_text="this one")).to_contain_text("passkey")


async def test_a_page_opened_by_its_ip_address_leads_to_localhost_for_passkeys(
    browser: Browser, service: Service, page: ConsolePage
) -> None:
    await page.go("/profile/security")
    link = page.page.get_by_role("link", name="Open at localhost")
    await expect(link).to_have_attribute("href", page.page.url.replace("127.0.0.1", "localhost"))
    async with opened(browser, service.base_url) as stranger:
        await stranger.go("/sign-in")
        await stranger.page.get_by_role("link", name="Sign in at localhost").click()
        await expect(stranger.page.get_by_role("button", name="Use a passkey")).to_be_visible()


async def test_a_new_passkey_asks_for_a_code_where_an_authenticator_is_set_up(
    browser: Browser, service: Service, user: ConsoleUser
) -> None:
    secret, pepper = rules.new_secret(), service.settings.pepper
    async with admin.opened(service.settings) as pool:
        await pool.execute(
            "UPDATE users SET totp_sealed = $2, totp_enabled_at = now() WHERE id = $1",
            user.person.id, rules.sealed(pepper, user.person.id, secret),
        )  # fmt: skip
    name = service.base_url.replace("127.0.0.1", "localhost")
    async with opened(browser, name, user) as page:
        session = await page.page.context.new_cdp_session(page.page)
        await session.send("WebAuthn.enable")
        device = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
        ready = {"isUserVerified": True, "automaticPresenceSimulation": True}
        await session.send("WebAuthn.addVirtualAuthenticator", {"options": device | ready})
        await page.go("/profile/security")
        await page.page.get_by_role("button", name="Create a passkey").click()
        await page.page.get_by_role("button", name="Create", exact=True).click()
        asking = page.page.get_by_role("dialog", name="Confirm that it is you")
        code = asking.get_by_label("Code")
        await code.fill("000000")
        await asking.get_by_role("button", name="Confirm").click()
        await expect(code).to_have_attribute("aria-invalid", "true")
        await code.fill(TOTP(secret, 6, SHA1(), 30, enforce_key_length=False).generate(int(time.time())).decode())
        await asking.get_by_role("button", name="Confirm").click()
        await expect(page.page.get_by_role("button", name=re.compile("Actions of"))).to_be_visible()
        page.forgive("400")
        page.forgive("401")


async def test_a_wrong_password_is_told_and_the_next_page_is_kept(
    browser: Browser, service: Service, user: ConsoleUser
) -> None:
    async with opened(browser, service.base_url) as page:
        await page.go("/streams?x=1")
        await heading(page, "Sign in")
        await sign_in(page, user.person.email, "not the password")
        await expect(page.page.get_by_role("alert")).to_be_visible()
        await sign_in_once_allowed(page, user.person.email, PASSWORD)
        await heading(page, "Streams")
        assert page.page.url.endswith("/console/streams?x=1")


async def test_a_link_of_the_operator_signs_in_once(browser: Browser, service: Service, user: ConsoleUser) -> None:
    link = command(service, "person", "sign-in-link", user.person.email, "--json").json["link"]
    async with opened(browser, service.base_url) as page:
        await page.page.goto(link)
        await expect(page.page.get_by_role("navigation", name="Pages")).to_be_visible()
        assert "token" not in page.page.url
    async with opened(browser, service.base_url) as page:
        await page.page.goto(link)
        await heading(page, "This link doesn't work")
