"""The pages that links in system mail lead to: uniform, secure and self-contained."""

import re
from html.parser import HTMLParser

import pytest

from api.app import all_operations
from api.console.pages import FILES, PAGES, POLICY
from engine.flows.accounts.system_mail import FORGOT_PATH, PATHS
from tests.harness.api import Api

OPERATIONS = {operation.path: operation for operation in all_operations() if operation.method == "POST"}


class Reader(HTMLParser):
    """What a page loads, asks for and labels."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.seen.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of each element of that name."""
        return [attributes for name, attributes in self.seen if name == tag]


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_is_served_with_a_strict_policy_and_keeps_no_referrer(path: str, api: Api) -> None:
    answer = await api.get(path)

    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert not answer.set_cookies
    head = await api.request("HEAD", path)
    assert (head.status, head.body) == (200, b"")


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_holds_no_script_no_style_and_nothing_from_elsewhere(path: str, api: Api) -> None:
    text = (await api.get(path)).body.decode()
    page = Reader(text)

    assert [one["src"] for one in page.all("script")] == ["assets/mailbox.js"]
    assert re.search(r"<script[^>]*>\s*</script>", text)
    assert [one["href"] for one in page.all("link")] == ["assets/mailbox.css"]
    assert not page.all("style")
    assert not page.all("img")
    assert not [one for _, one in page.seen if any(name == "style" or name.startswith("on") for name in one)]
    assert "://" not in text
    for name in ("mailbox.js", "mailbox.css"):
        assert (await api.get(f"/assets/{name}")).status == 200
    assert "://" not in (FILES / "mailbox.js").read_text("utf-8") + (FILES / "mailbox.css").read_text("utf-8")


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_can_be_used_with_keyboard_and_screen_reader(path: str, api: Api) -> None:
    page = Reader((await api.get(path)).body.decode())

    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("h1")) == len(page.all("main")) == len(page.all("button")) == 1
    labelled = {one.get("for") for one in page.all("label")}
    for field in page.all("input"):
        assert field["type"] == "checkbox" or field["id"] in labelled
    assert any(one.get("role") == "status" for one in page.all("div"))


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_calls_an_operation_with_the_fields_that_it_takes(path: str, api: Api) -> None:
    page = Reader((await api.get(path)).body.decode())
    [form] = page.all("form")
    operation = OPERATIONS[f"/{form['data-call']}"]
    sent = {field["name"] for field in page.all("input") if field.get("name")} | (
        {"token"} if "data-token" in form else set()
    )

    assert sent == set(operation.request.__struct_encode_fields__)


async def test_every_link_of_a_mail_has_its_page() -> None:
    assert {*PATHS.values(), FORGOT_PATH} == set(PAGES)


async def test_a_page_is_the_same_whatever_token_it_is_asked_with(api: Api) -> None:
    assert (await api.get("/reset-password?token=x")).body == (await api.get("/reset-password")).body
