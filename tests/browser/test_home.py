"""The first page: first steps before any mail, then whether mail arrives at each provider, in words."""

from typing import Any

import pytest
from playwright.async_api import Browser, expect

from api.console import assets
from loadtests.kit.service import Service
from ops import admin
from tests.harness.api import Api
from tests.harness.browser import DESKTOP, PHONE, ConsolePage, ConsoleUser, opened

ARRIVAL = f"/console-files/{assets.files().version}/app/parts/arrival.js"
NOTHING: dict[str, Any] = {"settled": 0, "delivered": 0, "complained": 0, "deliveryRate": None, "p50Ms": None}
DEFERRED = {
    "messages": 12, "since": "2020-11-29T10:20:00.000Z", "domain": "contoso.com", "class": "rate", "smtpCode": 451,
    "enhancedCode": "4.7.500",
}  # fmt: skip


def figures(delivered: int, settled: int, p50_ms: int | None) -> dict[str, Any]:
    """Return the figures of one provider as the API tells them."""
    return {
        "settled": settled, "delivered": delivered, "complained": 0, "deliveryRate": delivered / settled,
        "p50Ms": p50_ms,
    }  # fmt: skip


GOOD = figures(992, 1000, 1400)


async def told(page: ConsolePage, function: str, *values: object) -> Any:
    """Return what a function of the part makes of the values."""
    await page.go("/streams")
    return await page.page.evaluate(
        "async ([path, name, values]) => (await import(path))[name](...values)", [ARRIVAL, function, list(values)]
    )


@pytest.mark.parametrize(
    ("today", "before", "deferred", "sentence", "tone"),
    [
        (GOOD, GOOD, None, "99.2% delivered, median 1.4 s, as in the 7 days before.", "good"),
        (GOOD, NOTHING, None, "99.2% delivered, median 1.4 s.", "good"),
        (figures(900, 1000, 1400), GOOD, None,
         "90.0% delivered, down from 99.2% in the 7 days before, median 1.4 s.", "warn"),
        (figures(800, 1000, 1400), GOOD, None,
         "80.0% delivered, down from 99.2% in the 7 days before, median 1.4 s.", "bad"),
        (figures(1000, 1000, 1400), figures(980, 1000, 1400), None,
         "All 1,000 delivered, up from 98.0% in the 7 days before, median 1.4 s.", "good"),
        (figures(992, 1000, 9400), GOOD, None,
         "99.2% delivered, median 9.4 s, slower than 1.4 s in the 7 days before.", "good"),
        (figures(1, 2, 40), GOOD, None, "1 of 2 delivered, median 40 ms.", "good"),
        (NOTHING, GOOD, None, "Nothing delivered yet today; 99.2% delivered in the 7 days before.", "good"),
        (NOTHING, NOTHING, DEFERRED,
         "12 emails deferred since 29 Nov 2020, 10:20: rate limited (451 4.7.500).", "warn"),
        (NOTHING, NOTHING, DEFERRED | {"class": None, "smtpCode": None, "enhancedCode": None, "messages": 1},
         "1 email deferred since 29 Nov 2020, 10:20.", "warn"),
    ],
)  # fmt: skip
async def test_a_provider_is_told_in_words(
    browser: Browser,
    service: Service,
    user: ConsoleUser,
    today: dict[str, Any],
    before: dict[str, Any],
    deferred: dict[str, Any] | None,
    sentence: str,
    tone: str,
) -> None:
    async with admin.opened(service.settings) as pool:
        await pool.execute("UPDATE users SET timezone = 'UTC' WHERE id = $1", user.person.id)
    row = {"name": "Gmail", "today": today, "before": before, "deferred": deferred}
    async with opened(browser, service.base_url, user) as page:
        assert " ".join(await told(page, "sentences", row, 7)) == sentence
        assert await told(page, "toneOf", row) == tone


async def test_the_answer_names_the_providers_to_look_at(page: ConsolePage) -> None:
    good = {"name": "Gmail", "today": GOOD, "before": GOOD, "deferred": None}
    late = good | {"name": "Microsoft", "deferred": DEFERRED}
    assert await told(page, "answer", [good]) == "Yes."
    assert await told(page, "answer", [good, late]) == "Mostly. Look at Microsoft."
    other = late | {"name": "Other providers", "provider": "other"}
    assert await told(page, "answer", [good, late, other]) == "Mostly. Look at Microsoft and the other providers."
    assert await told(page, "answer", [late]) == "Not all of it."
    assert await told(page, "answer", []) == "Nothing was delivered in the last days."


async def test_before_any_mail_the_page_shows_the_first_steps_alone(page: ConsolePage) -> None:
    await page.go("/")
    await expect(page.page.get_by_role("heading", name="First steps")).to_be_visible()
    await expect(page.page.get_by_role("heading", name="Is my mail arriving?")).to_have_count(0)


async def test_delivered_mail_is_told_by_provider_on_every_width(
    browser: Browser, service: Service, user: ConsoleUser, served: Api
) -> None:
    body = {"from": user.access.sender, "to": "delivered@simulator.test", "subject": "Hi", "text": "x"}
    assert (await served.post("/v1/emails", user.access.key, json=body)).status == 202
    for size in (DESKTOP, PHONE):
        async with opened(browser, service.base_url, user, size=size) as page:
            await page.go("/")
            line = page.page.get_by_role("listitem").filter(has_text="Other providers")
            await expect(line).to_contain_text("1 of 1 delivered, median")
            assert not await page.axe()


async def test_attention_stands_beside_arrival_and_above_it_on_a_phone(
    browser: Browser, service: Service, user: ConsoleUser, served: Api
) -> None:
    body = {"from": user.access.sender, "to": "delivered@simulator.test", "subject": "Hi", "text": "x"}
    assert (await served.post("/v1/emails", user.access.key, json=body)).status == 202
    made = await served.post("/v1/webhooks", user.access.key, {"url": "https://hooks.test/"})
    await served.patch(f"/v1/webhooks/{made.json['id']}", user.access.key, {"status": "disabled"})
    for size in (DESKTOP, PHONE):
        async with opened(browser, service.base_url, user, size=size) as page:
            await page.go("/")
            cards = [
                await page.page.get_by_role("region", name=name).bounding_box()
                for name in ("Needs attention", "Is my mail arriving?")
            ]
            assert cards[0] is not None
            assert cards[1] is not None
            if size == PHONE:
                assert cards[0]["y"] < cards[1]["y"]
            else:
                assert cards[0]["y"] == cards[1]["y"]
                assert cards[0]["x"] > cards[1]["x"]
