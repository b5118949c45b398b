"""Every dialog of the console by keyboard: on each page, all that opens a dialog is pressed.

The dialog is filled in and sent by Enter and by Ctrl+Enter; the changes are refused, so that the account stays as it
is. Then Esc closes it, and the focus is where it was. A new dialog needs a line in `DIALOGS`, or in `ELSEWHERE` the
test that opens it.
"""

import re
from contextlib import suppress
from typing import Final

import pytest
from playwright.async_api import Browser, Dialog, Locator, Route, expect
from playwright.async_api import TimeoutError as TookTooLong

from api.console import assets
from loadtests.kit.service import Service
from tests.browser.test_pages import full
from tests.harness.browser import ConsolePage, ConsoleUser, opened
from tests.harness.everything import Ids
from tests.harness.sampling import sampled

__all__ = ["full"]  # a fixture

LOADS_MS: Final = 5000  # some parts of pages show nothing while they load
OPENS_MS: Final = 1500  # a press that has opened no dialog by then opens none
REFUSAL: Final = '{"error": {"type": "conflict", "message": "Refused by the test.", "retryable": false}}'
_READS = re.compile(r"/(preview|count|read)$")  # calls that change nothing
_OTHER = re.compile(r"^(Copy|Export|Save|Download|Show more|Log|Update|Reload|Mark|Discard|Light|Dark)\b")
_BUTTONS = "button:visible:not([disabled], [aria-disabled=true], [role=tab], [role=menuitem], [aria-pressed])"
_FIELDS = ".dialog-body :is(input:not([type=checkbox], [type=radio], [type=file]), select, textarea)"
_VALUES: Final = {
    "email": "ann@people.test",
    "url": "https://people.test/hook",
    "datetime-local": "2030-01-01T10:00",
    "date": "2030-01-01",
    "password": "several uncommon words",
    "number": "1",
}


class Walk:
    """A walk over what opens dialogs on one page: `titles` of the dialogs, and those that could not be sent."""

    def __init__(self, shown: ConsolePage, path: str) -> None:
        self.shown = shown
        self.page = shown.page
        self.path = path
        self.titles: list[str] = []
        self.unready: list[str] = []
        self._sent = 0
        self.main = self.page.get_by_role("main")
        self.dialog = self.page.locator("dialog[open]")

    async def refuse(self, route: Route) -> None:
        """Refuse a change; let reads and dry runs pass."""
        request = route.request
        if request.method == "GET" or _READS.search(request.url) or '"dryRun":true' in (request.post_data or ""):
            await route.continue_()
            return
        self._sent += 1
        await route.fulfill(status=409, content_type="application/json", body=REFUSAL)

    async def run(self, *, selected: bool) -> None:
        """Open the page and press its buttons and the items of its menus, each kind once; `selected`: all rows are."""
        await self.page.route(re.compile(r"/v1/(?!auth/me|instance)"), self.refuse)
        self.page.on("dialog", _accept)
        await self._open(selected)
        for name, place in await self._names():
            button = self.main.get_by_role("button", name=name, exact=True).nth(place)
            if _OTHER.match(name):
                continue
            if await self._moved() or not await button.count():
                await self._open(selected)
            if await button.get_attribute("aria-haspopup") == "menu":
                await self._walk_menu(button, selected=selected)
            else:
                await self._press(button, button)

    async def _open(self, selected: bool) -> None:
        await self.shown.go(self.path)
        if self.path != "/components":  # it shows busy parts on purpose
            await self.shown.settled()
        with suppress(TookTooLong):  # a live list never ends its request
            await self.page.wait_for_load_state("networkidle", timeout=LOADS_MS)
        await expect(self.main.locator(_BUTTONS).first).to_be_visible()
        if selected:
            await self.main.get_by_role("checkbox", name="Select").first.check()

    async def _moved(self) -> bool:
        return not self.page.url.endswith(self.path) or await self.dialog.count() > 0

    async def _names(self) -> list[tuple[str, int]]:
        """Return the buttons as name and place among its like; of names that differ as rows do, the first three."""
        names = await self.main.locator(_BUTTONS).evaluate_all(
            "all => all.map(one => one.getAttribute('aria-label') ?? one.textContent.trim())"
        )
        kinds: dict[str, list[tuple[str, int]]] = {}
        for at, name in enumerate(names):
            kinds.setdefault(re.sub(r"\S*[\d@.]\S*", "", name), []).append((name, names[:at].count(name)))
        return [one for alike in kinds.values() for one in alike[:3]]

    async def _walk_menu(self, button: Locator, *, selected: bool) -> None:
        items = self.page.locator("button[role=menuitem]")  # links lead to other pages
        await button.press("Enter")
        usable = [place for place in range(await items.count()) if await _usable(items.nth(place))]
        await self.page.keyboard.press("Escape")
        for place in usable:
            if await self._moved() or not await button.count():  # what was chosen may have replaced the menu
                await self._open(selected)
            await button.press("Enter")
            if _OTHER.match(await items.nth(place).inner_text()):
                await self.page.keyboard.press("Escape")
            else:
                await self._press(items.nth(place), button)

    async def _press(self, pressed: Locator, opener: Locator) -> None:
        await pressed.press("Enter")
        try:
            await self.dialog.first.wait_for(timeout=OPENS_MS)
        except TookTooLong:
            return
        title = await self.dialog.get_by_role("heading", level=2).first.inner_text()
        self.titles.append(title)
        has_field = await self.dialog.locator(f"{_FIELDS}:visible").count() > 0
        within = "document.activeElement.closest('dialog') !== null"
        first = f"document.activeElement.matches('{_FIELDS}')"
        assert await self.page.evaluate(first if has_field else within), f"the focus is outside of {title}"
        if await self.dialog.locator(".dialog-foot .button.primary").count():
            await self._send(title)
        for _ in range(2):
            if await self.dialog.count():
                await self.page.keyboard.press("Escape")
        await expect(self.dialog).to_have_count(0)
        if not await self._moved() and await opener.count():
            assert await opener.evaluate("one => one === document.activeElement"), f"the focus was lost after {title}"

    async def _send(self, title: str) -> None:
        """Fill the dialog in; send it by Enter where it has a line to type, then by Ctrl+Enter."""
        await self._fill()
        if not await _usable(self.dialog.locator(".dialog-foot .button.primary")):
            self.unready.append(title)
            return
        lines = self.dialog.locator(f"{_FIELDS}:is(input):visible")
        sent = self._sent
        if await lines.count():
            await self._sends(lines.last, "Enter", title)
        if await self.dialog.count() and (self._sent > sent or not await lines.count()):
            await self._fill()  # secrets are forgotten
            await self._sends(self.dialog.locator("button").last, "Control+Enter", title)

    async def _sends(self, target: Locator, key: str, title: str) -> None:
        sent, before = self._sent, await self.page.content()
        await target.press(key)
        for _ in range(50):
            if self._sent > sent or await self.page.content() != before:
                return
            await self.page.wait_for_timeout(100)  # what the dialog does may take a while
        raise AssertionError(f"{key} does not send {title}")

    async def _fill(self) -> None:
        """Fill every field with something valid that differs from what is there; twice, for fields that come later."""
        for _ in range(2):
            fields = self.dialog.locator(f"{_FIELDS}:visible")
            place = 0
            while place < await fields.count():  # a choice may change which fields there are
                field = fields.nth(place)
                place += 1
                kind = await field.evaluate("one => one.localName === 'input' ? one.type : one.localName")
                if kind == "select":
                    await field.evaluate("one => { one.selectedIndex = one.options.length - 1; }")
                    await field.dispatch_event("change")
                else:
                    if kind == "number" and await field.input_value():
                        continue  # the value is within its limits
                    label = await field.evaluate("one => one.labels[0]?.textContent ?? ''")
                    typed = re.match("Type (.*) to confirm", label)
                    await field.fill(typed[1] if typed else _VALUES.get(kind, "changed"))


async def _accept(question: Dialog) -> None:
    """Answer the browser's question whether to lose what was typed."""
    await question.accept()


async def _usable(control: Locator) -> bool:
    return await control.get_attribute("aria-disabled") != "true"


# The dialogs by page, by the beginnings of their titles. On a page with "+", rows of its list are selected first.
DIALOGS: Final[dict[str, set[str]]] = {
    "/account/data": {"Delete the account"},
    "/alerts": {"Edit “", "Test “", "Delete the rule “"},
    "/api-keys": {"Create an API key", "Key", "Rename the key", "Rotate the key", "Revoke the key"},
    "/audit?by=all": {"Event"},
    "/billing": {"Pause the subscription?", "Cancel the subscription?", "Starter, ", "Growth, ", "Scale, "},
    "/billing?part=history": {"Event"},
    "/bounces/{suppression}": {"Reactivate"},
    "/broadcasts/{broadcast}": {"Send a test of", "Send", "Delete the broadcast"},
    "/codes?id={verification}": {"Cancel this verification?"},
    "/components": {"A dialog", "Delete the domain hello.test?", "Your new key"},
    "/contacts+": {"New contact", "Add", "Delete"},
    "/contacts/{contact}": {"Delete"},
    "/domains": {"Add a domain"},
    "/domains/{domain}": {
        "Publish the records of", "Rotate the signing keys of", "Return path of", "Delete the domain",
    },
    "/lists": {"New list", "Rename", "Delete the list"},
    "/lists/{list}": {"Add contacts to", "Rename", "Delete the list"},
    "/lists/{list}/opt-outs": {"Import opt-outs", "Add opt-out", "Remove the opt-out of"},
    "/messages+": {"Send"},
    "/messages/{scheduled}": {"Reschedule", "Cancel this scheduled message?"},
    "/profile/sessions": {"End this session?"},
    "/receiving": {"Claim address", "Label of", "Delete the address"},
    "/receiving/mta-sts": {"Policy of"},
    "/receiving/routes": {"New route", "Route of", "Delete the route of"},
    "/segments/{segment}": {"Delete the segment"},
    "/streams": {"New stream", "Content of", "Delete the stream"},
    "/sub-accounts": {"New sub-account", "Work in", "Name and limit of", "Suspend", "Delete the sub-account"},
    "/suppressions": {"Import suppressions", "Suppress address", "Remove the suppression of"},
    "/team": {
        "Transfer ownership", "Invite a person", "Change the role of", "Remove", "Leave", "Withdraw the invitation to",
    },
    "/templates/{template}": {"Send a test of", "Duplicate", "Delete the template"},
    "/webhooks": {
        "Check a signature", "Add an endpoint", "Edit the endpoint", "Rotate the signing secret?",
        "Delete the endpoint?",
    },
    "/webhooks/{webhook}": {
        "Edit the endpoint", "Rotate the signing secret?", "Check a signature", "Delete the endpoint?",
        "Replay several deliveries",
    },
}  # fmt: skip
# They want a file, or rows chosen.
UNREADY: Final = ("Import suppressions", "Import opt-outs", "Add contacts to", "Image", "Logo")
# Dialogs that the pages of a full account don't show: another test opens them, or they need another state.
ELSEWHERE: Final = {
    "API calls of this page": "test_shell",
    "API request": "test_requests",
    "Approve": "test_operator",
    "Cancel the broadcast": "of a broadcast that is sending; the same menu as Delete the broadcast",
    "Check before sending": "test_keyboard",
    "Confirm that it is you": "test_sign_in",
    "Create a passkey": "test_sign_in, at a host name",
    "Delete the layout": "of a layout that no template uses",
    "Delete the passkey": "with a passkey; as its creation in test_sign_in",
    "Delete the stored Cloudflare token?": "from the dialog that publishes the records",
    "Delivery certificate": "test_messages",
    "Edit the HTML instead of the blocks?": "test_composer",
    "End the session": "of another session; the same dialog as End this session?",
    "Erase": "once an address is entered on the page",
    "Fail all deliveries of": "test_operator",
    "File imported": "follows Import suppressions: test_contacts",
    "Image": "test_composer",
    "Keyboard shortcuts": "test_shell",
    "Leave the blocks?": "test_composer_broadcasts",
    "Link": "test_composer",
    "Logo": "test_composer; the same dialog as Image",
    "Manage views": "test_saved_views",
    "New MTA-STS policy": "with a second verified domain; the same dialog as Policy of",
    "Notices": "test_notices",
    "Open this link?": "test_hostile_markup",
    "Remove the operator's limits of": "test_operator",
    "Reply to": "test_inbox",
    "Rerun the route": "of a received message, which the full account loses to an erasure",
    "Resume": "test_operator",
    "Save these filters": "test_saved_views",
    "Send another confirmation link": "of a contact that is not confirmed",
    "Set up an authenticator": "test_sign_in",
    "Sign out on all other devices?": "with a second session",
    "Some messages were not resent": "follows a refusal",
    "The broadcast was not changed": "follows a refusal",
    "The message was not resent": "follows a refusal",
    "The rule was not created": "follows a refusal",
    "Unlink": "with an identity provider",
    "Version": "test_templates",
    "When to send": "of a broadcast that is scheduled; the same dialog as Send",
    "Your recovery codes": "test_sign_in",
    "Your session has ended": "test_shell",
}
_DIALOG = re.compile(
    r"<\$\{(?:Dialog|Confirm|SecretDialog)\}(?: wide)? title=(.*?) (?:wide|onClose|typed|danger|confirm|secret|foot)\b",
    re.DOTALL,
)
_TITLE = re.compile(r'"([A-Z][^"]*)"|`([A-Z][^`$]*)')


def test_every_dialog_of_the_sources_is_opened_by_a_test() -> None:
    known = {one for titles in DIALOGS.values() for one in titles} | set(ELSEWHERE)
    unknown = []
    for source in sorted((assets.FILES / "app").rglob("*.js")):
        for title in _DIALOG.findall(source.read_text("utf-8")):
            for plain, template in _TITLE.findall(title):
                begins = (plain or template).strip()
                if not any(one.startswith(begins) or begins.startswith(one) for one in known):
                    unknown.append(f"{source.name}: {begins}")
    assert unknown == []


@pytest.mark.parametrize("path", sampled(DIALOGS, 8))
async def test_the_dialogs_of_a_page_are_used_by_keyboard(
    browser: Browser, service: Service, full: tuple[ConsoleUser, Ids], path: str
) -> None:
    user, things = full
    async with opened(browser, service.base_url, user) as shown:
        walk = Walk(shown, path.rstrip("+").format(**things))
        await walk.run(selected=path.endswith("+"))
    assert {one for one in DIALOGS[path] if not any(title.startswith(one) for title in walk.titles)} == set()
    assert [title for title in walk.titles if not title.startswith((*DIALOGS[path], *ELSEWHERE))] == []
    assert [title for title in walk.unready if not title.startswith(UNREADY)] == []
