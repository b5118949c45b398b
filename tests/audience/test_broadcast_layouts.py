"""Broadcasts of templates with a layout: the layout of the pinned version, and one unsubscribe link in each body."""

import pytest

from engine.sending.templates import layout_service, service
from engine.sending.templates.layout_service import LayoutEdit
from engine.sending.templates.types import LayoutContent, TemplateContent
from tests.audience.test_broadcast_run import account, mail_of
from tests.harness.accounts import TestAccount
from tests.harness.broadcasts import BroadcastWorld, make_list

__all__ = ["account"]  # the fixture

PAGE = "<html lang='de'><body><main>{{{content}}}</main></body></html>"
LINK = "<a href='{{unsubscribe_url}}'>Leave</a>"


async def make_template(
    here: BroadcastWorld, account: TestAccount, layout: LayoutContent, html: str, text: str
) -> None:
    await layout_service.create(here.pool, account.id, slug="brand", name=None, content=layout)
    content = TemplateContent("News", html, text, (), "brand")
    await service.create(here.pool, account.id, slug="news", name=None, content=content)


async def bodies_of(here: BroadcastWorld, account: TestAccount) -> tuple[str, str, str]:
    """HTML, text and link of the message to Ann."""
    mail = await mail_of(here, account, "ann@x.test")
    html, text = mail.get_body(("html",)), mail.get_body(("plain",))
    assert html is not None
    assert text is not None
    link = mail["List-Unsubscribe"].partition("<")[2].partition(">")[0]
    return html.get_content(), text.get_content(), link


@pytest.mark.parametrize(
    ("layout", "html", "text"),
    [
        (LayoutContent(PAGE, "{{{content}}}\n-- Shop", ()), "<p>Hi</p>", "Hi"),
        (LayoutContent(PAGE, None, ()), "<p>Hi</p>", "Hi"),
        (LayoutContent(PAGE + LINK, "{{{content}}} {{unsubscribe_url}}", ()), "<p>Hi</p>", "Hi"),
        (LayoutContent(PAGE, "{{{content}}}\n-- Shop", ()), f"<p>Hi</p>{LINK}", "Hi {{unsubscribe_url}}"),
    ],
)
async def test_each_body_has_one_link_wherever_it_stands(
    here: BroadcastWorld, account: TestAccount, layout: LayoutContent, html: str, text: str
) -> None:
    await make_template(here, account, layout, html, text)
    people = await make_list(here.pool, account, {"ann@x.test": {}})
    await here.sent(account, people, template="news", subject=None, text=None)
    await here.runner.run_due()
    shown, plain, link = await bodies_of(here, account)
    assert "<main><p>Hi</p>" in shown
    assert (shown.count(link), plain.count(link)) == (1, 1)
    assert shown.rstrip().endswith("</html>") or "</html><a" in shown
    assert ("Abmelden" in shown) is ("unsubscribe_url" not in layout.html + html)


async def test_a_broadcast_sent_before_a_change_keeps_the_layout_of_its_version(
    here: BroadcastWorld, account: TestAccount
) -> None:
    await make_template(here, account, LayoutContent(PAGE, None, ()), "<p>Hi</p>", "Hi")
    people = await make_list(here.pool, account, {"ann@x.test": {}})
    await here.sent(account, people, template="news", subject=None, text=None)
    await layout_service.change(here.pool, account.id, "brand", LayoutEdit(html="<div>{{{content}}}</div>"))
    await here.runner.run_due()
    shown, _, _ = await bodies_of(here, account)
    assert "<main><p>Hi</p></main>" in shown
