"""Journeys through the console and the documentation in Debian's Firefox; forced colours, less motion, 200% zoom."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loadtests.kit.service import Service
from tests.harness import firefox
from tests.harness.api import Api
from tests.harness.browser import ConsoleUser
from tests.harness.firefox import Firefox, FirefoxTab
from tests.harness.people import PASSWORD
from tests.harness.receiver import Receiver

FORCED_COLOURS = {
    "browser.display.document_color_use": "2",  # 2: never the colours of the page
    "ui.prefersReducedMotion": "1",
}
PAGES = ("/", "/messages", "/messages/new", "/templates/new", "/domains", "/webhooks", "/deliverability", "/alerts")


def program() -> str:
    """Return the path of Firefox, or skip the test."""
    found = firefox.find()
    if found is None:
        pytest.skip(firefox.MISSING)
    return found


@pytest.fixture(scope="session")
async def fox() -> AsyncIterator[Firefox]:
    """Run the Firefox of this worker."""
    async with firefox.running(program()) as started:
        yield started


@pytest.fixture
async def tab(fox: Firefox, service: Service, user: ConsoleUser) -> AsyncIterator[FirefoxTab]:
    """Yield a tab that `user` is signed in to."""
    async with firefox.opened(fox, service.base_url, user) as shown:
        yield shown


async def test_a_person_signs_in_with_a_password(fox: Firefox, service: Service, user: ConsoleUser) -> None:
    async with firefox.opened(fox, service.base_url) as tab:
        await tab.go("/console/sign-in")
        await tab.fill("Address", user.person.email)
        await tab.fill("Password", PASSWORD)
        await tab.press("Enter")
        await tab.find("heading", "Home")


async def test_a_message_is_sent_and_its_waybill_appears(tab: FirefoxTab) -> None:
    await tab.go("/console/messages/new")
    await tab.fill("To", "ann@people.test")
    await tab.fill("Subject", "By Firefox")
    await tab.fill("Text", "Sent from another browser.")
    await tab.click("button", "Check and preview")
    await tab.click("button", "Send to 1 recipient")
    await tab.find("heading", "By Firefox")
    await tab.shows("250 2.0.0 ok")


async def test_a_live_list_shows_a_message_that_was_just_sent(tab: FirefoxTab, served: Api, user: ConsoleUser) -> None:
    await tab.go("/console/messages")
    body = {"from": user.access.sender, "to": ["ann@people.test"], "subject": "Live in Firefox", "text": "Hi"}
    assert (await served.post("/v1/emails", user.access.key, body)).status == 202
    await tab.shows("Live in Firefox")


async def test_a_domain_is_added_by_enter(tab: FirefoxTab) -> None:
    await tab.go("/console/domains?new=1")
    await tab.fill("Domain", "firefox.test")
    await tab.press("Enter")
    await tab.find("heading", "firefox.test")
    await tab.shows("_domainkey")


async def test_a_template_is_previewed_while_it_is_written(tab: FirefoxTab, served: Api, user: ConsoleUser) -> None:
    template = {"id": "welcome", "subject": "Hi {{first}}", "html": "<h1>Dear {{first}}</h1>"}
    assert (await served.post("/v1/templates", user.access.key, template)).status == 201
    await tab.go("/console/templates/welcome")
    await tab.fill("Subject", "Hello {{first}}, from Firefox")
    await tab.until("document.querySelector('iframe')")
    await tab.shows("from Firefox")


async def test_contacts_are_imported_from_a_file(
    tab: FirefoxTab, served: Api, user: ConsoleUser, tmp_path: Path
) -> None:
    file = tmp_path / "people.csv"
    file.write_text("email,name\nann@x.test,Ann\nbob@x.test,Bob\n", "utf-8")
    await tab.go("/console/contacts/import")
    await tab.attach("CSV file", file)
    await tab.choose("Consent of these contacts", "customer")
    await tab.click("button", "Check the file")
    await tab.click("button", "Import 2 contacts")
    await tab.find("heading", "Import finished")
    assert len((await served.get("/v1/contacts", user.access.key)).json["data"]) == 2


async def test_a_key_is_created_and_its_secret_shown_once(tab: FirefoxTab) -> None:
    await tab.go("/console/api-keys?new=1")
    await tab.fill("Name", "Shop")
    await tab.press("Enter")
    await tab.find("dialog", "Key Shop")
    assert re.search(r"svc_live_[0-9A-Za-z]{44}", await tab.text())
    await tab.click("button", "I have stored it")
    await tab.until("!document.querySelector('dialog')")
    assert not re.search(r"svc_live_[0-9A-Za-z]{44}", await tab.text())


async def test_an_endpoint_is_created_and_tested(tab: FirefoxTab) -> None:
    async with Receiver() as receiver:
        await tab.go("/console/webhooks?new=1")
        await tab.fill("URL", receiver.url)
        await tab.press("Enter")
        await tab.click("button", "I have stored it")
        await tab.click("button", "Send a test")
        await tab.find("figure", "Request of attempt 1")
        assert len(receiver.got) == 1


async def test_a_suppression_is_added(tab: FirefoxTab, served: Api, user: ConsoleUser) -> None:
    await served.post("/v1/suppressions", user.access.key, {"address": "never@x.test"})
    await tab.go("/console/suppressions")
    await tab.shows("never@x.test")


async def test_the_palette_opens_a_page_by_keys(tab: FirefoxTab) -> None:
    await tab.go("/console/")
    await tab.press("Control+k")
    await tab.until("document.activeElement.getAttribute('role') === 'combobox'")
    await tab.type("suppr")
    await tab.until("document.querySelector('[role=option]')?.textContent.includes('Suppressions')")
    await tab.press("Enter")
    await tab.find("heading", "Suppressions")


async def test_esc_closes_a_dialog_and_returns_the_focus(tab: FirefoxTab) -> None:
    await tab.go("/console/streams")
    await tab.click("button", "New stream")
    await tab.find("dialog", "New stream")
    await tab.press("Escape")
    await tab.until("!document.querySelector('dialog') && document.activeElement.textContent.includes('New stream')")


async def test_a_search_of_the_documentation_leads_to_the_section(tab: FirefoxTab) -> None:
    await tab.go("/docs")
    await tab.press("/")
    await tab.type("rate_limited")
    await tab.until("document.querySelector('[role=option]')?.textContent.includes('rate_limited')")
    await tab.press("Enter")
    await tab.until("location.hash === '#rate_limited'")


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_fits_at_200_percent_without_findings(tab: FirefoxTab, path: str) -> None:
    await tab.resize(640, 450, ratio=2)
    await tab.go(f"/console{path}")
    assert await tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert await tab.axe() == []


async def test_forced_colours_and_less_motion_keep_controls_visible(service: Service, user: ConsoleUser) -> None:
    async with (
        firefox.running(program(), FORCED_COLOURS) as forced,
        firefox.opened(forced, service.base_url, user) as tab,
    ):
        await tab.go("/console/messages/new")
        assert await tab.evaluate("matchMedia('(forced-colors: active)').matches")
        assert await tab.evaluate("matchMedia('(prefers-reduced-motion: reduce)').matches")
        edges = "[...document.querySelectorAll('main .button, main .input')].filter(one => one.checkVisibility())"
        assert await tab.evaluate(f"{edges}.length") > 0
        unseen = f"{edges}.filter(one => getComputedStyle(one).borderTopStyle === 'none').length"
        assert await tab.evaluate(unseen) == 0
        moving = "document.getAnimations().filter(one => one.playState === 'running').length"
        assert await tab.evaluate(moving) == 0
