"""The operator's pages in an installation with several cells, through a front."""

from playwright.async_api import Browser, expect

from engine.base import clock
from engine.people.people import store as people
from engine.people.sessions.rules import COOKIE
from tests.cells.conftest import TestCells, cells, provider
from tests.harness.accounts import make_account
from tests.harness.browser import opened
from tests.harness.operators import ADDRESS
from tests.harness.people import make_person

__all__ = ["cells", "provider"]  # fixtures


async def test_the_operator_chooses_the_cell_of_the_lists(browser: Browser, cells: TestCells) -> None:
    account = await make_account(cells.one.pool)
    operator = await make_person(cells.one.pool, account.id, "member", email=ADDRESS)
    await people.SET_OPERATOR.execute(cells.one.pool, operator.id, clock.now())
    there = await make_account(cells.two.pool)
    base = cells.front.base_url
    async with opened(browser, base) as page:
        await page.page.context.add_cookies([{"name": COOKIE, "value": operator.secret, "url": base}])
        await page.go("/operator/accounts")
        table = page.page.get_by_role("table").first
        await expect(table).to_contain_text(account.domain)
        await page.page.get_by_label("Cell").select_option("two")
        await expect(table).to_contain_text(there.domain)
        await expect(table).not_to_contain_text(account.domain)
