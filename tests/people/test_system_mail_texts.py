"""Texts of system mail: every kind in text and HTML, with values from users escaped."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from engine.people.system_mail import rules
from engine.people.system_mail.rules import TEMPLATES, content_of, shown
from engine.people.system_mail.types import SystemMailKind

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
ALWAYS = {"service": "Waybill", "url": "https://a.test", "forgot_link": "https://a.test/forgot-password"}
LINKS = {"link": "https://a.test/x#token=abc", "end_link": "https://a.test/y#token=def"}


def names_of(kind: SystemMailKind) -> set[str]:
    """The names in the text of a kind."""
    return set(
        re.findall(r"\{\{\{?#?(?:if |unless )?\s*([a-z_]+)", (TEMPLATES / f"{kind.value}.txt").read_text("utf-8"))
    )


@pytest.mark.parametrize("kind", SystemMailKind)
def test_every_kind_says_the_same_in_text_and_html(kind: SystemMailKind) -> None:
    named = names_of(kind)
    values = {name: f"value-of-{name}" for name in named} | ALWAYS | LINKS
    found = content_of(kind, values)

    assert 0 < len(found.subject) <= 120
    assert "{{" not in found.subject + found.text + found.html
    for name in named - set(ALWAYS):
        assert values[name] in found.text + found.subject, name
        assert values[name].replace("&", "&amp;") in found.html, name
    assert max(map(len, found.text.splitlines())) <= 76
    assert found.html.count("<a ") == found.text.count("https://")


@pytest.mark.parametrize("kind", SystemMailKind)
def test_a_value_that_is_missing_leaves_no_hole_in_the_layout(kind: SystemMailKind) -> None:
    found = content_of(kind, ALWAYS | LINKS)

    assert "None" not in found.text
    assert "\n\n\n" not in found.text
    assert found.html.count("<p") == found.html.count("</p>")


def test_an_enquiry_without_a_name_says_whom_it_comes_from() -> None:
    found = content_of(SystemMailKind.LEAD, ALWAYS | {"name": None, "email": "ann@shop.test", "message": "How much?"})

    assert found.subject == "Enquiry from ann@shop.test"
    assert found.text.startswith("Somebody wrote through the contact form. Answer to ann@shop.test.")


def test_every_template_belongs_to_a_kind() -> None:
    assert {path.stem for path in TEMPLATES.glob("*.txt")} == set(SystemMailKind)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Shop", "Shop"),
        ("A\r\nBcc: x\x00\u2028\u202e", "A Bcc: x"),
        ("a.b http://c", "a.\u2060b http:\u2060//c"),
        ("Dr. Who", "Dr. Who"),
        ("n" * 100, "n" * 79 + "…"),
        ("\ud800x", "x"),
    ],
)
def test_a_name_is_one_short_line_and_no_link(given: str, expected: str) -> None:
    assert shown("account_name", given) == expected


def test_values_are_cut_and_times_are_said_plainly() -> None:
    assert len(shown("message", "m" * 10_000)) == rules.MAX_VALUE
    assert shown("message", "one\n\ntwo\x07") == "one\n\ntwo "
    assert shown("scheduled_for", "2026-12-05T09:08:07.000Z") == "5 December 2026, 09:08 UTC"
    assert shown("left", 3) == "3"


def test_tries_come_soon_at_first_and_end_with_the_day_or_the_token() -> None:
    waits = [rules.next_try(attempts, NOW) - NOW for attempts in range(1, 12)]

    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (timedelta(seconds=30), timedelta(hours=2))
    assert rules.worth_until(NOW, None) == NOW + timedelta(hours=24)
    assert rules.worth_until(NOW, timedelta(hours=1)) == NOW + timedelta(hours=1)
    assert rules.worth_until(NOW, timedelta(hours=48)) == NOW + timedelta(hours=24)
