"""The pages that links in system mail lead to: the console's start page, with its policy, for each link."""

import re

import pytest

from api.console.assets import FILES, POLICY
from engine.accounts.send_system_mail import FORGOT_PATH, PATHS
from engine.base.events import AccountEvent, EventType
from tests.harness.api import Api

LINKS = (*PATHS.values(), FORGOT_PATH)
MAIN = (FILES / "app" / "main.js").read_text("utf-8")


@pytest.mark.parametrize("path", LINKS)
async def test_a_link_of_a_mail_opens_the_console_and_keeps_no_referrer(path: str, api: Api) -> None:
    answer = await api.get(path)

    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert not answer.set_cookies
    assert answer.body == (await api.get("/console/")).body
    head = await api.request("HEAD", path)
    assert (head.status, head.body) == (200, b"")


async def test_a_page_is_the_same_whatever_token_it_is_asked_with(api: Api) -> None:
    assert (await api.get("/reset-password?token=x")).body == (await api.get("/reset-password")).body


def test_the_console_has_a_page_for_strangers_behind_each_link() -> None:
    outside = set(re.findall(r'page\("(/[^"]+)", "outside"', MAIN.partition("const OUTSIDE")[2]))

    assert set(LINKS) <= outside


def test_the_audit_page_offers_each_type_of_event() -> None:
    text = (FILES / "app" / "parts" / "event_types.js").read_text("utf-8")

    assert set(text.split("`")[1].split()) == {*AccountEvent, *EventType}, "list them in parts/event_types.js"
