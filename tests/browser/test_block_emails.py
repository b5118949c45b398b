"""Emails made of blocks as a browser shows them: they fit a phone, columns stack there, and axe finds nothing."""

from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page

from engine.mail import template, template_data
from engine.mail.blocks.render import rendered
from engine.mail.blocks.starters import starters
from engine.mail.template import TemplatePart
from tests.mail.test_blocks import IMAGES, KINDS, document

WIDE, PHONE = 900, 360
# An email has no title and no landmarks of its own: its title is the subject, around it is the page of a mail client.
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"], "rules": {"document-title": {"enabled": False}}}


def emails() -> dict[str, str]:
    """The starting templates with their values, and an email with each kind of block."""
    found: dict[str, str] = {}
    for one in starters():
        program = template.compile_part(rendered(one.blocks, {}).html, TemplatePart.HTML)
        found[one.name] = template_data.render_data(program, {}, one.data | {"unsubscribe_url": "https://x.test/u"})
    every = document(*({"type": kind, **fields} for kind, fields in KINDS.items()), language="en")
    program = template.compile_part(rendered(every, IMAGES).html, TemplatePart.HTML)
    found["every kind"] = template.render(program, {"name": "Ann", "unsubscribe_url": "https://x.test/u"})
    return found


EMAILS = emails()


async def page_of(browser: Browser, html: str, width: int, *, dark: bool) -> Page:
    context = await browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light", offline=True
    )
    page = await context.new_page()
    await page.set_content(html, wait_until="domcontentloaded")
    return page


@pytest.mark.parametrize("name", EMAILS)
@pytest.mark.parametrize(("width", "dark"), [(WIDE, False), (PHONE, True)], ids=["wide-light", "phone-dark"])
async def test_an_email_fits_and_axe_finds_nothing(browser: Browser, name: str, width: int, *, dark: bool) -> None:
    page = await page_of(browser, EMAILS[name], width, dark=dark)
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    await page.evaluate(Axe().axe_script)
    found: list[dict[str, Any]] = await page.evaluate(
        "rules => axe.run(document, rules).then(results => results.violations)", RULES
    )
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found] == []
    await page.context.close()


@pytest.mark.parametrize(("width", "rows"), [(WIDE, 1), (PHONE, 2)])
async def test_columns_stand_side_by_side_and_stack_on_a_phone(browser: Browser, width: int, rows: int) -> None:
    page = await page_of(browser, EMAILS["news"], width, dark=False)
    tops = await page.evaluate("[...document.querySelectorAll('.wb-col')].map(one => one.getBoundingClientRect().top)")
    assert len(set(tops)) == rows
    await page.context.close()
