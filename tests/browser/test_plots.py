"""Plots: labels of days and hours in the person's zone, patterns, the table, and the pages that have them."""

from datetime import timedelta
from typing import Any

import pytest
from playwright.async_api import expect

from api.console import assets
from engine.base import clock
from tests.harness.api import Api
from tests.harness.browser import ConsolePage, ConsoleUser

APP = f"/console-files/{assets.files().version}/app"
WEEK = [f"2026-11-{day}" for day in range(23, 30)]
_TICKS = """async ([app, zone, times, width]) => {
  (await import(`${app}/core/view.js`)).setZone(zone);
  const { everyNth, ticks } = await import(`${app}/parts/plot_times.js`);
  return ticks(times, everyNth(times, width));
}"""


async def ticks(page: ConsolePage, times: list[str], width: int, zone: str = "UTC") -> list[str]:
    """Return the labels of the time axis of a plot that is `width` pixels wide."""
    await page.go("/streams")
    found: list[str] = await page.page.evaluate(_TICKS, [APP, zone, times, width])
    return found


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Pacific/Kiritimati"])
async def test_a_day_is_labelled_with_date_and_weekday_in_every_zone(page: ConsolePage, zone: str) -> None:
    assert await ticks(page, WEEK, 700, zone) == [
        "23 Nov\nMon", "24 Nov\nTue", "25 Nov\nWed", "26 Nov\nThu", "27 Nov\nFri", "28 Nov\nSat", "29 Nov\nSun",
    ]  # fmt: skip


async def test_labels_that_do_not_fit_are_left_out_and_the_newest_day_keeps_its_own(page: ConsolePage) -> None:
    assert await ticks(page, WEEK, 200) == ["23 Nov\nMon", "25 Nov\nWed", "27 Nov\nFri", "29 Nov\nSun"]


async def test_an_hour_is_labelled_in_the_zone_with_the_date_where_the_day_changes(page: ConsolePage) -> None:
    hours = [f"2026-11-{28 + hour // 24}T{hour % 24:02}:00:00.000Z" for hour in range(20, 30)]
    assert await ticks(page, hours, 300, "Europe/Berlin") == [
        "22:00\nSat, 28 Nov", "00:00\nSun, 29 Nov", "02:00", "04:00", "06:00",
    ]  # fmt: skip


async def test_both_hours_of_a_change_from_summer_time_have_their_place(page: ConsolePage) -> None:
    hours = [f"2026-10-25T{hour:02}:00:00.000Z" for hour in range(4)]
    assert await ticks(page, hours, 700, "Europe/Berlin") == ["02:00\nSun, 25 Oct", "02:00", "03:00", "04:00"]


async def test_series_differ_by_pattern_too(page: ConsolePage) -> None:
    await page.go("/streams")
    names = await page.page.evaluate(
        "async (path) => { const { fillOf } = await import(path); return [0, 1, 2, 3].map((at) => fillOf(at)); }",
        f"{APP}/parts/plot_fills.js",
    )
    assert len(set(names)) == 4


@pytest.mark.parametrize(
    ("now", "before", "words"),
    [
        (100, 100, "7 days: no change on the week before"),
        (1000, 1001, "7 days: no change on the week before"),
        (104, 100, "7 days: +4% on the week before"),
        (50, 100, "7 days: −50% on the week before"),
        (3, 0, "all in the last 7 days"),
        (0, 0, None),
    ],
)
async def test_a_change_that_rounds_to_nothing_is_no_change(
    page: ConsolePage, now: int, before: int, words: str | None
) -> None:
    await page.go("/streams")
    found = await page.page.evaluate(
        "async ([app, now, before]) => (await import(`${app}/parts/message_numbers.js`)).compared(now, before)",
        [APP, now, before],
    )
    assert found == words


@pytest.mark.parametrize(
    ("finished", "now", "query"),
    [
        ("2026-11-01T10:20:00.000Z", 0, ("hour", "2026-11-01T10:00:00Z", "2026-11-01T16:15:00Z")),
        ("2026-11-02T10:20:00.000Z", 0, ("hour", "2026-11-01T10:00:00Z", "2026-11-02T11:30:00Z")),
        ("2026-12-24T10:20:00.000Z", 0, ("day", "2026-11-01T10:00:00Z", "2026-12-24T11:30:00Z")),
        (None, 1793570000000, ("hour", "2026-11-01T10:00:00Z", "2026-11-01T22:00:00Z")),
    ],
)
async def test_a_broadcast_is_plotted_over_its_time(
    page: ConsolePage, finished: str | None, now: int, query: tuple[str, str, str]
) -> None:
    sent = {"startedAt": "2026-11-01T10:07:00.000Z", "finishedAt": finished, "stream": "news", "from": "A <a@X.test>"}
    await page.go("/streams")
    found = await page.page.evaluate(
        "async ([app, sent, now]) => (await import(`${app}/parts/message_numbers.js`)).timeOf(sent, now)",
        [APP, sent, now],
    )
    assert (found["bucket"], found["from"], found["until"]) == query
    assert (found["stream"], found["domain"]) == ("news", "x.test")


async def send(served: Api, user: ConsoleUser) -> None:
    """Send one message to the simulator."""
    body: dict[str, Any] = {"from": user.access.sender, "to": "delivered@simulator.test", "subject": "Hi", "text": "x"}
    assert (await served.post("/v1/emails", user.access.key, json=body)).status == 202


async def test_the_table_has_every_day_of_the_period_and_the_rates(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    await send(served, user)
    await page.go("/")
    await page.page.get_by_role("button", name="Table").click()
    rows = page.page.get_by_role("region", name="Messages by day: table").get_by_role("row")
    await expect(rows).to_have_count(31)
    await expect(rows.first).to_contain_text("Complaint rate")
    first = clock.now() - timedelta(days=29)
    await expect(rows.nth(1)).to_contain_text(f"{first.day} {first:%b %Y}")
    assert not await page.axe()


async def test_domains_and_deliverability_show_the_same_plot(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    await send(served, user)
    await page.go("/deliverability/messages?days=1")
    await expect(page.page.get_by_role("img", name="Messages by hour")).to_be_visible()
    await page.go("/domains")
    await page.page.get_by_role("link", name=user.domain).click()
    await expect(page.page.get_by_role("img", name="Messages by day")).to_be_visible()
    await expect(page.page.get_by_role("img", name="Bounce rate, Complaint rate")).to_be_visible()
