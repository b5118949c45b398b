"""Emails made of blocks: the HTML that mail clients get, its text part, and what is refused with which field."""

from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base.errors import Refusal
from engine.mail import template, template_data, unsubscribe_links
from engine.mail.blocks import colors
from engine.mail.blocks.html import PlacedImage
from engine.mail.blocks.inline import markup
from engine.mail.blocks.look import look_of
from engine.mail.blocks.render import RenderedBlocks, rendered
from engine.mail.blocks.starters import Starter, starters
from engine.mail.blocks.types import MAX_BLOCKS, BlockDocument, BlockTheme, document_of, text_of
from engine.mail.template import TemplatePart
from tests.mail.drafts import THOROUGH

LAMP = "img_00000000000000000000000001"
IMAGES = {LAMP: PlacedImage("https://mail.test/images/aa.png", 1200, 600)}
GMAIL_CLIPS_AT = 102 * 1024
VOID = {"br", "img", "meta"}
PARENTS = {"tr": {"table"}, "td": {"tr"}, "li": {"ul", "ol"}}
ATTRIBUTES = {
    "align", "alt", "bgcolor", "border", "cellpadding", "cellspacing", "charset", "class", "content", "dir", "height",
    "href", "lang", "name", "role", "src", "style", "width", "xmlns:o",
}  # fmt: skip
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'--></style></title></textarea><svg/onload=alert(1)>",
    "<!--[if mso]><b>",
    "]]><![CDATA[",
    "&lt;script&gt; &#x3c;script&#x3e;",
    "[a](https://x.test/\"onmouseover='alert(1)')",
    "[<b>](https://x.test/<script>)",
    "**<i>** *</p>*",
)
KINDS: dict[str, dict[str, Any]] = {
    "heading": {"text": "Hello **{{name}}**", "level": 2, "align": "center"},
    "text": {"text": "One *two* [three](https://x.test/?a=1&b=2)\nfour"},
    "button": {"text": "Open {{name}}", "url": "https://x.test/{{id}}", "align": "right", "color": "#fff000"},
    "image": {"image": LAMP, "alt": "A lamp", "url": "https://x.test", "width": 200, "align": "center"},
    "columns": {
        "columns": [
            {"blocks": [{"id": "l", "type": "text", "text": "left"}], "weight": 2},
            {"blocks": [{"id": "r", "type": "image", "image": LAMP, "alt": ""}]},
            {"blocks": []},
        ]
    },
    "divider": {},
    "spacer": {"height": 40},
    "list": {"items": ["one **two**", "three"], "style": "number"},
    "footer": {"text": "Shop · [Unsubscribe]({{unsubscribe_url}})", "align": "center"},
}


class Page(HTMLParser):
    """The elements of a page, which must be closed in order and stand where they may."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.comments: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in PARENTS:
            assert self.open[-1] in PARENTS[tag], f"{tag} in {self.open[-1]}"
        assert {name for name, _ in attrs} <= ATTRIBUTES
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


def document(*blocks: dict[str, Any], **fields: object) -> BlockDocument:
    numbered = [{"id": f"b{number}", **block} for number, block in enumerate(blocks)]
    return msgspec.convert({"version": 1, "blocks": numbered, **fields}, BlockDocument)


def made(*blocks: dict[str, Any], **fields: object) -> RenderedBlocks:
    return rendered(document(*blocks, **fields), IMAGES)


def refused(*blocks: dict[str, Any], **fields: object) -> str:
    with pytest.raises(Refusal) as error:
        made(*blocks, **fields)
    return str(error.value.fields["field"])


def text(source: str) -> dict[str, Any]:
    return {"type": "text", "text": source}


def filled(source: str, part: TemplatePart, **values: str) -> str:
    return template.render(template.compile_part(source, part), values)


# the HTML ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_html_of_each_kind_is_well_formed_and_can_be_stored_again(kind: str) -> None:
    given = document({"type": kind, **KINDS[kind]}, preheader="Hi {{name}}", language="en", theme={"logo": LAMP})
    made = rendered(given, IMAGES)

    page = Page(filled(made.html, TemplatePart.HTML))
    assert page.all("html")[0]["lang"] == "en"
    template.compile_part(made.text, TemplatePart.TEXT)
    assert document_of(text_of(given)) == given


def test_the_layout_needs_no_style_sheet() -> None:
    made_ = made(*({"type": kind, **fields} for kind, fields in KINDS.items()))
    page = Page(made_.html)

    for tag, attributes in page.tags:
        if tag in {"p", "h1", "h2", "h3", "ul", "ol", "a", "img"}:
            assert "font-family:" in attributes["style"] or tag == "a", (tag, attributes)
    for image in page.all("img"):
        assert image["width"].isdigit()
        assert image["height"].isdigit()
        assert "alt" in image
        assert f"max-width:{image['width']}px" in image["style"]
    for table in page.all("table"):
        assert table["role"] == "presentation"


def test_outlook_gets_cells_for_columns_and_a_fixed_width() -> None:
    page = Page(made({"type": "columns", **KINDS["columns"]}).html)
    cells = [one for one in page.comments if "<td" in one]

    assert 'width="600"' in cells[0]
    assert [part.split('"')[1] for one in cells[1:] for part in one.split("<td width=")[1:]] == ["276", "138", "138"]
    assert "Arial" in next(one for one in page.comments if "<style" in one)
    shown = "".join(one.removeprefix("[if mso]>").removesuffix("<![endif]") for one in page.comments if "td" in one)
    assert shown.count("<table") == shown.count("</table")
    assert shown.count("<td") == shown.count("</td")
    widths = [one["style"].split("max-width:")[1].split("px")[0] for one in page.all("div")]
    assert widths == ["276", "138", "138"]


def test_an_image_is_at_most_as_wide_as_its_column() -> None:
    wide, own, small = (
        Page(made({"type": "image", "image": LAMP, "alt": "", **fields}).html).all("img")[0]
        for fields in ({"width": 700}, {}, {"width": 100})
    )

    assert [(one["width"], one["height"]) for one in (wide, own, small)] == [("536", "268")] * 2 + [("100", "50")]


@pytest.mark.parametrize("theme", [{}, {"surface": "#101010", "text": "#222222"}, {"accent": "#ffff00"}])
def test_text_can_be_read_in_light_and_dark(theme: dict[str, str]) -> None:
    look = look_of(msgspec.convert(theme, BlockTheme))

    for palette in (look.light, look.dark):
        if palette is not None:
            for shade in (palette.text, palette.muted, palette.link):
                assert colors.contrast(shade, palette.surface) >= colors.READABLE
    assert (look.dark is None) is ("surface" in theme)
    assert colors.contrast(colors.text_on(look.accent), look.accent) >= colors.READABLE
    assert ("prefers-color-scheme:dark" in made(text("x"), theme=theme).html) is (look.dark is not None)


# hostile text -----------------------------------------------------------------------------------


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_stays_text_in_every_field(hostile: str) -> None:
    plain = hostile[:100]
    made_ = made(
        {"type": "heading", "text": hostile}, text(hostile), {"type": "footer", "text": hostile},
        {"type": "list", "items": [hostile]}, {"type": "button", "text": plain, "url": "https://x.test/\"'<>&"},
        {"type": "image", "image": LAMP, "alt": plain, "url": "mailto:\"'<>&"}, preheader=plain,
    )  # fmt: skip

    page = Page(filled(made_.html, TemplatePart.HTML))
    assert {tag for tag, _ in page.tags} <= {
        "html", "head", "meta", "style", "body", "div", "table", "tr", "td", "h1", "p", "a", "img", "ul", "li",
        "strong", "em", "br",
    }  # fmt: skip
    assert all(one["href"].startswith(("https://x.test", "mailto:")) for one in page.all("a"))
    assert page.all("img")[0]["alt"] == plain
    assert plain in page.text
    assert all(one.startswith(("[if mso]>", "[if mso]><")) for one in page.comments)


@THOROUGH
@given(st.text(alphabet="ab *[]()\\{}#/^\n<>\"'&-!:h.", max_size=60))
def test_any_markup_gives_well_formed_html_or_a_refusal(source: str) -> None:
    try:
        found = markup(source, "blocks.blocks[0].text", 'class="wb-link"')
    except Refusal:
        return
    for values in ({}, dict.fromkeys(template.compile_part(found.html, TemplatePart.HTML).names, "x")):
        Page(filled(found.html, TemplatePart.HTML, **values))
        filled(found.text, TemplatePart.TEXT, **values)


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)", "JaVaScRiPt:alert(1)", " https://x.test", "//x.test", "data:text/html,x", "https://a b",
        "https://x.test/\n", "{{{link}}}", "{{#a}}https://x.test{{/a}}", "{{a}}javascript:alert(1)", "https://{{#a}}",
        "https://{{a", "https:///x", "/path", "{{! x }}javascript:alert(1)", "https://x.test/{{a b}}",
    ],
)  # fmt: skip
def test_an_address_that_is_no_web_or_mail_address_is_refused(url: str) -> None:
    assert refused({"type": "button", "text": "Open", "url": url}) == "blocks.blocks[0].url"
    assert refused({"type": "image", "image": LAMP, "alt": "", "url": url}) == "blocks.blocks[0].url"


def test_a_link_in_a_text_takes_no_other_scheme() -> None:
    assert refused(text("[x](javascript:alert)")) == "blocks.blocks[0].text"
    assert refused({"type": "list", "items": ["a", "[x](data:x)"]}) == "blocks.blocks[0].items[1]"


@pytest.mark.parametrize(
    "source", ["*" * 10_000, "[" * 10_000, "**a" * 3_333, "](" * 5_000, "[a](" * 2_500, "\\" * 10_000]
)
def test_a_long_text_of_marks_is_plain_text(source: str) -> None:
    Page(made(text(source)).html)


# merge fields -----------------------------------------------------------------------------------


def test_merge_fields_are_filled_in_everywhere() -> None:
    made_ = made(
        {"type": "heading", "text": "Hi {{name}}"}, text("[{{name}}]({{link}}) {{#name}}**{{name}}**{{/name}}"),
        {"type": "button", "text": "For {{name}}", "url": "{{link}}/go?id={{ id }}"},
        {"type": "image", "image": LAMP, "alt": "Of {{name}}"}, preheader="Dear {{name}}",
    )  # fmt: skip
    values = {"name": "<Ann>", "link": "https://x.test/?a=1&b=2", "id": "7"}

    page = Page(filled(made_.html, TemplatePart.HTML, **values))
    assert page.text.count("<Ann>") == 5
    assert [one["href"] for one in page.all("a")] == [values["link"], f"{values['link']}/go?id=7"]
    assert page.all("img")[0]["alt"] == "Of <Ann>"
    plain = filled(made_.text, TemplatePart.TEXT, **values)
    assert "Hi <Ann>" in plain
    assert f"For <Ann>: {values['link']}/go?id=7" in plain


def test_a_section_repeats_the_blocks_and_the_items_between_its_tags() -> None:
    row = {"type": "columns", "columns": [{"blocks": [{"id": f"c{n}", **text("{{title}}")}]} for n in range(2)]}
    made_ = made(
        text("{{#items}}"), row, text("{{/items}}"),
        {"type": "list", "items": ["{{#items}}", "Item {{title}}", "{{/items}}"], "style": "number"},
    )  # fmt: skip
    data = {"items": [{"title": "Lamp"}, {"title": "Bulb"}]}

    def shown(part: TemplatePart, source: str, data: dict[str, Any]) -> str:
        return template_data.render_data(template.compile_part(source, part), {}, data)

    page = Page(shown(TemplatePart.HTML, made_.html, data))
    assert page.text.count("Lamp") == page.text.count("Bulb") == 3
    assert len(page.all("li")) == 2
    assert shown(TemplatePart.TEXT, made_.text, data).split("\n\n")[-1] == "- Item Lamp\n- Item Bulb\n"
    assert not Page(shown(TemplatePart.HTML, made_.html, {})).all("li")


@pytest.mark.parametrize(
    ("blocks", "field"),
    [
        ([text("{{#a}}")], "blocks.blocks[0].text"),
        ([text("{{/a}}")], "blocks.blocks[0].text"),
        ([text("{{#a}}"), text("{{/b}}")], "blocks.blocks[1].text"),
        ([text("x {{#a}}"), text("{{/a}}")], "blocks.blocks[1].text"),
        ([text("{{#a}}"), text("{{/a}} x")], "blocks.blocks[0].text"),
        ([text("x {{#a}}")], "blocks.blocks[0].text"),
        ([text("{{a")], "blocks.blocks[0].text"),
        ([text("{{a b}}")], "blocks.blocks[0].text"),
        ([text("{{> a}}")], "blocks.blocks[0].text"),
        ([text("a\0b")], "blocks.blocks[0].text"),
        ([{"type": "list", "items": ["{{#a}}", "x"]}], "blocks.blocks[0].items[0]"),
        ([{"type": "button", "text": "{{{a}}}", "url": "https://x.test"}], "blocks.blocks[0].text"),
        ([{"type": "image", "image": "img_unknown", "alt": ""}], "blocks.blocks[0].image"),
        ([{"id": "a b", **text("x")}], "blocks.blocks[0].id"),
        ([{"id": "a\n", **text("x")}], "blocks.blocks[0].id"),
        ([{"id": "a", **text("x")}, {"id": "a", **text("x")}], "blocks.blocks[1].id"),
        ([{"type": "columns", "columns": [{"blocks": []}, {"blocks": [{"id": "x", **text("{{#a}}")}]}]}],
         "blocks.blocks[0].columns[1].blocks[0].text"),
    ],
)  # fmt: skip
def test_a_fault_names_its_block(blocks: list[dict[str, Any]], field: str) -> None:
    assert refused(*blocks) == field


def test_a_document_has_a_bounded_length() -> None:
    assert refused(*[text("x" * 10_000)] * 15) == "blocks"
    made(*[text("x" * 10_000)] * 14)


def test_blocks_in_columns_count_toward_the_limit() -> None:
    halves = [
        {"blocks": [{"id": f"c{side}-{n}", "type": "divider"} for n in range(MAX_BLOCKS // 2)]} for side in range(2)
    ]
    assert refused({"type": "columns", "columns": halves}) == "blocks"


def test_the_unsubscribe_link_of_a_footer_is_the_only_one() -> None:
    made_ = made({"type": "footer", "text": "[Unsubscribe]({{unsubscribe_url}})"})

    assert unsubscribe_links.footed_html(made_.html) == made_.html
    assert unsubscribe_links.footed_text(made_.text) == made_.text
    assert unsubscribe_links.footed_html(made(text("x")).html).count("{{unsubscribe_url}}") == 1


# markup and the text part -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "html", "plain"),
    [
        ("**a** *b* ***c***", "<strong>a</strong> <em>b</em> <strong><em>c</em></strong>", "a b c"),
        ("**a *b* c**", "<strong>a <em>b</em> c</strong>", "a b c"),
        ("5 * 3 * 2 ** 1", "5 * 3 * 2 ** 1", "5 * 3 * 2 ** 1"),
        ("**a *b** c*", "<strong>a *b</strong> c*", "a *b c*"),
        ("**", "**", "**"),
        ("\\*a\\* \\[x](y) c:\\d", "*a* [x](y) c:\\d", "*a* [x](y) c:\\d"),
        ("a\r\nb", "a<br>\nb", "a\nb"),
        ("[a](https://x.test)", '<a href="https://x.test" L>a</a>', "a (https://x.test)"),
        ("[https://x.test](https://x.test)", '<a href="https://x.test" L>https://x.test</a>', "https://x.test"),
        ("[a](https://x.test/(1))", '<a href="https://x.test/(1)" L>a</a>', "a (https://x.test/(1))"),
        ("[a]", "[a]", "[a]"),
        ("[[a](https://x.test)", '[<a href="https://x.test" L>a</a>', "[a (https://x.test)"),
        ("{{#a}}**x{{/a}}**", "{{#a}}**x{{/a}}**", "{{#a}}**x{{/a}}**"),
        ("\\{{a}}", "&#123;{a}}", "{\u2060{a}}"),
    ],
)
def test_markup(source: str, html: str, plain: str) -> None:
    found = markup(source, "blocks.blocks[0].text", "L")

    assert (found.html, found.text) == (html, plain)


def test_the_text_part_reads_like_the_email() -> None:
    blocks = [{"type": kind, **fields} for kind, fields in KINDS.items()]

    assert made(*blocks, preheader="not repeated").text == (
        "Hello {{name}}\n\n"
        "One two three (https://x.test/?a=1&b=2)\nfour\n\n"
        "Open {{name}}: https://x.test/{{id}}\n\n"
        "A lamp: https://x.test\n\n"
        "left\n\n"
        "--------------------------------\n\n"
        "1. one two\n2. three\n\n"
        "Shop · Unsubscribe ({{unsubscribe_url}})\n"
    )


# starting templates -------------------------------------------------------------------------------


@pytest.mark.parametrize("starter", starters(), ids=lambda one: one.name)
def test_a_starting_template_is_complete(starter: Starter) -> None:
    made_ = rendered(starter.blocks, {})
    compiled = template.compile_template(starter.subject, made_.html, made_.text)
    declared = {one.name for one in starter.variables}

    assert len(made_.html.encode()) < GMAIL_CLIPS_AT
    inner = {"title", "price"} if "items" in declared else set()
    assert set(compiled.names) - {unsubscribe_links.NAME} == declared | inner
    assert declared == set(starter.data)
    assert compiled.html is not None
    page = Page(template_data.render_data(compiled.html, {}, starter.data))
    assert "{{" not in page.text
    assert starter.blocks.language == "en"
    assert len(page.all("h1")) == 1


def test_there_are_six_starting_templates() -> None:
    names = [one.name for one in starters()]

    assert names == ["signIn", "receipt", "shipping", "invitation", "password", "news"]
