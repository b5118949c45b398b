"""What the console offers each role: no page asks for what the role may not read, and no change is offered in vain."""

import pytest
from playwright.async_api import Browser, Response, expect

from engine.base import ids
from loadtests.kit.service import Service
from ops import admin
from tests.browser.test_pages import SIGNED_IN
from tests.harness.accounts import set_status
from tests.harness.browser import new_user, opened

# Pages whose entry in the navigation the role does not see; their address still answers.
NOT_FOR = {"member": {"/sub-accounts"}, "admin": set(), "owner": set()}


@pytest.mark.exhaustive
@pytest.mark.parametrize("role", ["member", "admin", "owner"])
async def test_no_page_asks_for_what_the_role_may_not_read(browser: Browser, service: Service, role: str) -> None:
    user = await new_user(service, role)
    async with opened(browser, service.base_url, user) as shown:
        refused: list[str] = []

        def note(response: Response) -> None:
            if response.status in {401, 403}:
                refused.append(f"{shown.page.url}: {response.status} {response.request.method} {response.url}")

        shown.page.on("response", note)
        for path in SIGNED_IN:
            if path in NOT_FOR[role] or path == "/components":
                continue
            await shown.go(path)
            await shown.settled()
        assert refused == []


@pytest.mark.exhaustive
async def test_a_suspended_account_is_offered_no_change(browser: Browser, service: Service) -> None:
    user = await new_user(service)
    async with admin.opened(service.settings) as pool:
        await set_status(pool, ids.parse_id(ids.Kind.ACCOUNT, user.access.account), "suspended")
    async with opened(browser, service.base_url, user) as shown:
        for path, name in (
            ("/streams", "New stream"), ("/templates", "New template"), ("/domains", "Add domain"),
            ("/api-keys", "Create key"), ("/contacts", "New contact"), ("/broadcasts", "New broadcast"),
        ):  # fmt: skip
            await shown.go(path)
            await shown.settled()
            button = shown.page.get_by_role("button", name=name).first
            await expect(button).to_have_attribute("aria-disabled", "true")
            await expect(button).to_have_attribute("title", "The account is suspended and read-only. Ask the operator.")
