"""Short forms in the console: web addresses, repeated deferrals, sections of a text, percentages."""

from typing import Any

import pytest

from api.console import assets
from tests.harness.browser import ConsolePage

APP = f"/console-files/{assets.files().version}/app"


async def called(page: ConsolePage, module: str, name: str, *arguments: Any) -> Any:
    """Return what the exported function `name` of a module of the console returns."""
    await page.go("/streams")
    return await page.page.evaluate(
        "async ([module, name, given]) => { const found = (await import(module))[name](...given);"
        " return found instanceof Map ? [...found] : found; }",
        [f"{APP}/{module}", name, list(arguments)],
    )


@pytest.mark.parametrize(
    ("url", "short"),
    [
        ("https://hooks.test/in?key=1", "hooks.test/in"),
        ("https://warehouse.example-coffee.test/api/mail-events", "warehouse.example-coffee.test/…/mail-events"),
        (f"https://a.test/{'x' * 80}/{'y' * 60}", f"a.test/…{'y' * 12}"),
        (f"https://{'h' * 60}.test/in", f"{'h' * 43}…"),
    ],
)
async def test_a_long_web_address_keeps_its_host_and_its_end(page: ConsolePage, url: str, short: str) -> None:
    found = await called(page, "core/view.js", "shortUrl", url)
    assert found == short
    assert len(found) <= 44


@pytest.mark.parametrize(("fraction", "text"), [(0.01, "1%"), (0.0625, "6.25%"), (0.001, "0.1%"), (0, "0%")])
async def test_a_percentage_has_no_trailing_zeros(page: ConsolePage, fraction: float, text: str) -> None:
    assert await called(page, "core/view.js", "shortPercent", fraction) == text


def event(kind: str, code: int = 0, recipient: str = "ann@x.test") -> dict[str, Any]:
    detail = {"smtp_code": code} | ({"recipient": recipient} if kind != "attempted" else {})
    return {"type": kind, "detail": detail, "createdAt": "2026-11-20T10:00:00.000Z"}


ATTEMPT = event("attempted")


@pytest.mark.parametrize(
    ("events", "folds"),
    [
        ([event("accepted"), *(ATTEMPT, event("deferred", 451)) * 2, ATTEMPT, event("delivered")], []),
        ([event("accepted"), *(ATTEMPT, event("deferred", 451)) * 4, ATTEMPT, event("delivered")], [[3, [3, 4, 5, 6]]]),
        ([*(ATTEMPT, event("deferred", 451), ATTEMPT, event("deferred", 450)) * 3], []),
        ([*(ATTEMPT, event("deferred", 451), event("deferred", 451, "bob@x.test")) * 3], []),
    ],
)
async def test_deferrals_in_a_row_with_the_same_reply_are_folded(
    page: ConsolePage, events: list[dict[str, Any]], folds: list[list[Any]]
) -> None:
    assert await called(page, "parts/waybill.js", "repeats", events) == folds


async def test_the_sentence_of_a_delivery_counts_the_attempts(page: ConsolePage) -> None:
    late = event("delivered") | {"createdAt": "2026-11-20T10:02:05.000Z"}
    attempts = [ATTEMPT, event("deferred", 451), ATTEMPT, late]
    assert await called(page, "parts/waybill.js", "deliveredIn", [event("accepted"), ATTEMPT, late]) == (
        "Delivered at the first attempt, after 2 min 5 s."
    )
    assert await called(page, "parts/waybill.js", "deliveredIn", [event("accepted"), *attempts]) == (
        "Delivered at the 2nd attempt, after 2 min 5 s."
    )
    two = [event("accepted"), *attempts, event("bounced", 550, "bob@x.test")]
    assert await called(page, "parts/waybill.js", "deliveredIn", two) is None


@pytest.mark.parametrize(
    ("tags", "labels"),
    [
        (["{{#name}}", "{{name}}", "{{/name}}", "{{^name}}", "{{/name}}"], ["if name", "{{name}}", "else", "end"]),
        (["{{^name}}", "{{/name}}"], ["if no name", "end"]),
        (["{{#items}}", "{{title}}", "{{/items}}"], ["repeat items", "{{title}}", "end"]),
        (["{{#has_items}}", "{{/has_items}}"], ["if has_items", "end"]),
        (["{{#status}}", "{{/status}}"], ["if status", "end"]),
    ],
)
async def test_the_canvas_shows_sections_as_words(page: ConsolePage, tags: list[str], labels: list[str]) -> None:
    pieces = [{"kind": "field", "text": one} for one in tags]
    found = await called(page, "parts/composer_markup.js", "withSections", pieces)
    assert [one.get("label", one["text"]) for one in found] == labels
