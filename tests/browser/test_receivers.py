"""How mailbox providers treat mail now: a page, a line on the first page, and the forecast of a waiting message."""

import re
from typing import Any

import pytest
from playwright.async_api import expect

from api.console import assets
from tests.harness.browser import ConsolePage

STATES = f"/console-files/{assets.files().version}/app/parts/receiver_states.js"


def receiver(name: str, state: str, **fields: Any) -> dict[str, Any]:
    """Return a receiver as the API shows it."""
    return {
        "provider": name.lower(), "name": name, "site": None, "state": state, "since": "2026-11-29T14:05:00.000Z",
        "basis": "recent", "firstAttemptShare": 0.71, "p50S": 1.4, "p90S": 1320, "p95S": None, "p99S": None,
        "sample": 400, "text": f"{name} is {state}.", "updatedAt": "2026-11-29T14:20:00.000Z",
    } | fields  # fmt: skip


UNKNOWN = receiver("Apple", "unknown", since=None, sample=None, p50S=None, p90S=None, firstAttemptShare=None)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], None),
        ([UNKNOWN], None),
        ([receiver("Gmail", "normal"), UNKNOWN], "Receivers accept mail as usual."),
        ([receiver("Gmail", "normal"), receiver("Microsoft", "deferring")], "Microsoft is deferring."),
        ([receiver("Microsoft", "deferring"), receiver("Yahoo", "slow")],
         "Microsoft is deferring. Also Yahoo (slow)."),
    ],
)  # fmt: skip
async def test_a_sentence_tells_what_is_unusual(
    page: ConsolePage, rows: list[dict[str, Any]], sentence: str | None
) -> None:
    await page.go("/streams")
    found = await page.page.evaluate("async ([path, rows]) => (await import(path)).summary(rows)", [STATES, rows])
    assert found == sentence


async def test_the_page_lists_receivers_and_finds_one_by_domain(page: ConsolePage) -> None:
    asked: list[str] = []

    async def answer(route: Any) -> None:
        asked.append(route.request.url)
        await route.fulfill(json={"data": [receiver("Microsoft", "deferring"), UNKNOWN]})

    await page.page.route("**/v1/receivers*", answer)
    await page.go("/receivers")
    row = page.page.get_by_role("row").filter(has_text="Microsoft")
    await expect(row).to_contain_text("deferring")
    await expect(row).to_contain_text("71.0%")
    await expect(row).to_contain_text("22 min")
    await expect(page.page.get_by_role("row").filter(has_text="Apple")).to_contain_text("unknown")
    await page.page.get_by_label("Recipient domain").fill("contoso.com")
    await expect(page.page).to_have_url(re.compile("domain=contoso.com"))
    assert any(url.endswith("domain=contoso.com") for url in asked)
    assert await page.axe() == []
