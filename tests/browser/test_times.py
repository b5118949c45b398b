"""Times in the console: shown and entered in the zone of the profile, whatever the zone of the device."""

from datetime import timedelta

import pytest
from playwright.async_api import Browser, expect

from api.console import assets
from engine.base import clock
from loadtests.kit.service import Service
from ops import admin
from tests.harness.api import Api
from tests.harness.browser import ConsolePage, ConsoleUser, opened

VIEW = f"/console-files/{assets.files().version}/app/core/view.js"
_IN_ZONE = """async ([path, zone, name, values]) => {
  const view = await import(path);
  view.setZone(zone);
  return values.map((value) => view[name](value));
}"""


async def in_zone(page: ConsolePage, zone: str | None, name: str, *values: str) -> list[str | None]:
    """Return what the function `name` of the console's view module makes of each value in a zone."""
    found: list[str | None] = await page.page.evaluate(_IN_ZONE, [VIEW, zone, name, list(values)])
    return found


@pytest.mark.parametrize(
    ("zone", "local", "utc"),
    [
        ("Europe/Berlin", "2026-07-01T14:05", "2026-07-01T12:05:00.000Z"),
        ("Europe/Berlin", "2026-03-29T02:30", "2026-03-29T01:30:00.000Z"),  # skipped: as much later
        ("Europe/Berlin", "2026-10-25T02:30", "2026-10-25T00:30:00.000Z"),  # occurs twice: the first
        ("Europe/Berlin", "2026-10-25T03:00", "2026-10-25T02:00:00.000Z"),
        ("America/Santiago", "2026-09-06", "2026-09-06T04:00:00.000Z"),  # a midnight that is skipped
        ("Pacific/Auckland", "2026-11-29T00:00:09", "2026-11-28T11:00:09.000Z"),
        ("Asia/Kathmandu", "2026-11-29T05:45", "2026-11-29T00:00:00.000Z"),
        ("UTC", "soon", None),
        ("UTC", "", None),
    ],
)
async def test_a_local_time_means_one_instant(page: ConsolePage, zone: str, local: str, utc: str | None) -> None:
    await page.go("/streams")
    assert await in_zone(page, zone, "instant", local) == [utc]


async def test_times_are_shown_in_the_zone_and_an_unknown_zone_is_that_of_the_device(page: ConsolePage) -> None:
    await page.go("/streams")
    at = "2026-12-31T23:30:00.000Z"
    assert await in_zone(page, "Europe/Berlin", "localTime", at) == ["2027-01-01T00:30:00"]
    assert await in_zone(page, "America/New_York", "timeOfDay", at) == ["18:30"]
    assert await in_zone(page, "Asia/Tokyo", "weekday", at) == ["Fri"]
    device = await in_zone(page, None, "localTime", at)
    assert await in_zone(page, "Europe/Nowhere", "localTime", at) == device


async def test_the_console_shows_and_takes_times_in_the_zone_of_the_profile(
    browser: Browser, service: Service, user: ConsoleUser, served: Api
) -> None:
    tomorrow = (clock.now() + timedelta(days=1)).date().isoformat()
    body = {
        "from": user.access.sender, "to": ["delivered@simulator.test"], "subject": "Later", "text": "x",
        "scheduledAt": f"{tomorrow}T06:00:00Z",
    }  # fmt: skip
    message = (await served.post("/v1/emails", user.access.key, json=body)).json["id"]
    async with admin.opened(service.settings) as pool:
        await pool.execute("UPDATE users SET timezone = 'Asia/Kathmandu' WHERE id = $1", user.person.id)
    async with opened(browser, service.base_url, user) as page:
        await page.go(f"/messages/{message}")
        await page.page.get_by_role("button", name="Reschedule").click()
        dialog = page.page.get_by_role("dialog", name="Reschedule")
        await expect(dialog).to_contain_text("Asia/Kathmandu")
        await expect(dialog.get_by_label("Send at")).to_have_value(f"{tomorrow}T11:45")
        await dialog.get_by_label("Send at").fill(f"{tomorrow}T12:45")
        await dialog.get_by_role("button", name="Reschedule").click()
        await expect(dialog).to_have_count(0)
    moved = await served.get(f"/v1/messages/{message}", user.access.key)
    assert moved.json["scheduledAt"].startswith(f"{tomorrow}T07:00")
