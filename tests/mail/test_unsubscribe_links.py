"""Unsubscribe links in messages: placed where the content asks for them, else in a footer that readers see."""

import time

import pytest

from engine.base import ids
from engine.base.secrets import Pepper
from engine.mail.unsubscribe_links import (
    LABELS,
    UnsubscribeLink,
    UnsubscribeLinks,
    footed_html,
    footed_text,
    language_of,
    with_link,
)
from engine.mail.unsubscribe_token import key_of
from tests.harness.patience import PATIENCE_S

LINK = UnsubscribeLink("https://mail.test/u/token", "mailto:u+token@mail.test")
FOOTER = "<FOOTER>"


def footed(html: str) -> str:
    """The HTML with its footer abbreviated."""
    made = footed_html(html)
    begin = made.find('<p style="margin:24px')
    if begin < 0:
        return made
    end = made.index("</a></p>", begin) + len("</a></p>")
    assert made[:begin] + made[end:] == html
    return made[:begin] + FOOTER + made[end:]


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("", FOOTER),
        ("Hello", f"Hello{FOOTER}"),
        ("<html><body><p>Hi</p></body></html>", f"<html><body><p>Hi</p>{FOOTER}</body></html>"),
        ("<p>Hi</BODY >\n</html>\n", f"<p>Hi{FOOTER}</BODY >\n</html>\n"),
        ("<p>a</body>b</body>c", f"<p>a</body>b{FOOTER}</body>c"),
        ("<p>a</html>", f"<p>a</html>{FOOTER}"),
        ("a<!-- </body> -->b", f"a<!-- </body> -->b{FOOTER}"),
        ("a<!-- open </body>", f"a{FOOTER}<!-- open </body>"),
        ("a</body><!-- open", f"a{FOOTER}</body><!-- open"),
        ("a<!--[if mso]></body><![endif]-->", f"a{FOOTER}<!--[if mso]></body><![endif]-->"),
        ("a<style>p { }</body>", f"a{FOOTER}<style>p {{ }}</body>"),
        ("<title>a</body></title>b", f"<title>a</body></title>b{FOOTER}"),
        ('a<a href="https://shop.test', f'a{FOOTER}<a href="https://shop.test'),
        ("a<p title='</body>'>b", f"a<p title='</body>'>b{FOOTER}"),
        ("a<template></body>b", f"a{FOOTER}<template></body>b"),
        ("a<template>b</template></body>", f"a<template>b</template>{FOOTER}</body>"),
        ("a<svg><path/></svg><svg/>b", f"a<svg><path/></svg><svg/>b{FOOTER}"),
        ("a<plaintext></body>", f"a{FOOTER}<plaintext></body>"),
        ("1 < 2 & 3 > 2", f"1 < 2 & 3 > 2{FOOTER}"),
    ],
)
def test_a_footer_stands_where_readers_see_it(html: str, expected: str) -> None:
    assert footed(html) == expected


@pytest.mark.parametrize(
    ("html", "placed"),
    [
        ('<a href="{{unsubscribe_url}}">out</a>', True),
        ("<a href={{ unsubscribe_url }}>out</a>", True),
        ("<p>{{{unsubscribe_url}}}</p>", True),
        ("<!-- {{unsubscribe_url}} -->", False),
        ("<!--[if mso]><a href='{{unsubscribe_url}}'>out</a><![endif]-->", False),
        ("<title>{{unsubscribe_url}}</title>", False),
        ("<style>/* {{unsubscribe_url}} */</style>", False),
        ('<img src="{{unsubscribe_url}}">', False),
        ("<template><a href='{{unsubscribe_url}}'>out</a></template>", False),
        ("{{unsubscribe_urls}} {unsubscribe_url}", False),
    ],
)
def test_a_placeholder_counts_only_where_readers_can_use_it(html: str, placed: bool) -> None:
    assert (footed(html) == html) is placed


def test_every_placeholder_is_filled_in_and_escaped_for_html() -> None:
    link = UnsubscribeLink("https://mail.test/u/token?a=1&b=2", LINK.mailto)

    html, text = with_link(
        "<!-- {{unsubscribe_url}} --><a href='{{unsubscribe_url}}'>out</a>", "{{unsubscribe_url}}", link
    )

    assert (
        html == "<!-- https://mail.test/u/token?a=1&amp;b=2 --><a href='https://mail.test/u/token?a=1&amp;b=2'>out</a>"
    )
    assert text == link.url


def test_both_bodies_get_the_link_and_a_missing_one_stays_missing() -> None:
    html, text = with_link("<p>Hi", "Hi\r\n", LINK)

    assert html is not None
    assert f'<a href="{LINK.url}"' in html
    assert text == f"Hi\n\nUnsubscribe: {LINK.url}\n"
    assert with_link(None, "Hi", LINK)[0] is None
    assert with_link("Hi", None, LINK)[1] is None


@pytest.mark.parametrize(
    ("html", "language"),
    [
        ("<html lang=de><p>Hallo", "de"),
        ('<!DOCTYPE html><html lang="pt-BR"><body>', "pt"),
        ('<html><body lang="FR">', "fr"),
        ('<html lang="deu">', "en"),
        ('<html lang="xx">', "en"),
        ("<p lang=de>Hallo", "en"),
        ("Hello", "en"),
    ],
)
def test_the_footer_speaks_the_language_of_the_document(html: str, language: str) -> None:
    assert language_of(html) == language
    assert LABELS[language] in footed_html(html)
    assert LABELS[language] in footed_text("Hello", language)


def test_the_header_names_page_and_address_and_one_click_needs_https() -> None:
    links = UnsubscribeLinks(key_of(Pepper("pepper")), "https://mail.test/", "mx.mail.test")
    link = links.of(ids.uuid7())
    url, mailto = link.header.removeprefix("<").removesuffix(">").split(">, <")

    assert url.startswith("https://mail.test/u/")
    token = url.rpartition("/")[2]
    assert mailto == f"mailto:u+{token}@mx.mail.test"
    assert link.one_click
    assert not UnsubscribeLinks(key_of(Pepper("pepper")), "http://mail.test", "mail.test").of(ids.uuid7()).one_click


@pytest.mark.parametrize(
    "piece", ["<", "<!--", "{{", "{{unsubscribe_url", "<a ", "<svg>", "</body>", "<style>", "<a b='"]
)
def test_the_time_grows_with_the_length_only(piece: str) -> None:
    began = time.monotonic()
    footed_html(piece * (500_000 // len(piece)))

    assert time.monotonic() - began < PATIENCE_S
