"""Templates: what each tag writes, what is refused and where, and that neither values nor sources do any harm."""

import contextlib
import html as stdlib_html
import re
import time
from collections.abc import Mapping
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail import template
from engine.mail.template import (
    MAX_DEPTH,
    MAX_NAME,
    MAX_RENDERED,
    MAX_TAGS,
    BadTemplate,
    Program,
    TemplatePart,
    TooLong,
)
from tests.mail.drafts import THOROUGH

NASTY = """<b class="x" id='y'> & {{name}} &amp;"""


def written(source: str, values: Mapping[str, str] | None = None, part: TemplatePart = TemplatePart.HTML) -> str:
    return template.render(template.compile_part(source, part), values or {})


@pytest.mark.parametrize(
    ("source", "values", "expected"),
    [
        ("", {}, ""),
        ("Hello", {}, "Hello"),
        ("Hello {{name}}!", {"name": "Ann"}, "Hello Ann!"),
        ("Hello {{ name }}!", {"name": "Ann"}, "Hello Ann!"),
        ("Hello {{\n name\t}}!", {"name": "Ann"}, "Hello Ann!"),
        ("Hello {{name}}!", {}, "Hello !"),
        ("{{a}}{{a}}{{b}}", {"a": "1", "b": "2"}, "112"),
        ("{{order.id}} {{order-no}} {{_x}} {{9}}", {"order.id": "a", "order-no": "b", "_x": "c", "9": "d"}, "a b c d"),
        ("{{prénom}} {{名前}}", {"prénom": "Zoé", "名前": "花"}, "Zoé 花"),
        ("{{{a}}}}", {"a": "1"}, "1}"),
        ("{{a}}}", {"a": "1"}, "1}"),
        ("{ {a} } }} {a}}", {"a": "1"}, "{ {a} } }} {a}}"),
        ("@media x{.a{color:red}}", {}, "@media x{.a{color:red}}"),
        ("a{{! not {{ shown }}b", {}, "ab"),
        ("a{{!}}b", {}, "ab"),
    ],
)
def test_a_tag_writes_its_value(source: str, values: dict[str, str], expected: str) -> None:
    assert written(source, values) == expected


def test_html_escapes_double_braces_only() -> None:
    assert written("{{x}}|{{{x}}}", {"x": NASTY}) == (
        "&lt;b class=&quot;x&quot; id=&#39;y&#39;&gt; &amp; {{name}} &amp;amp;|" + NASTY
    )


@pytest.mark.parametrize("part", [TemplatePart.SUBJECT, TemplatePart.TEXT])
def test_subject_and_text_take_values_as_they_are(part: TemplatePart) -> None:
    assert written("{{x}}|{{{x}}}", {"x": NASTY}, part) == f"{NASTY}|{NASTY}"


def test_a_value_is_never_read_as_a_tag() -> None:
    assert written("{{a}}{{{a}}}", {"a": "{{b}}{{#b}}", "b": "no"}) == "{{b}}{{#b}}" * 2


@pytest.mark.parametrize(
    ("value", "shown"), [(None, False), ("", False), ("x", True), ("0", True), ("false", True), (" ", True)]
)
def test_a_section_shows_for_any_value_but_the_empty_one(value: str | None, *, shown: bool) -> None:
    values = {} if value is None else {"x": value}

    assert written("{{#x}}yes{{/x}}{{^x}}no{{/x}}", values) == ("yes" if shown else "no")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, "[]"),
        ({"b": "2"}, "[]"),
        ({"a": "1"}, "[1(-)]"),
        ({"a": "1", "b": "2"}, "[1(2)]"),
    ],
)
def test_sections_stand_inside_each_other(values: dict[str, str], expected: str) -> None:
    source = "[{{#a}}{{a}}({{#b}}{{b}}{{/b}}{{^b}}-{{/b}}){{/a}}]"

    assert written(source, values) == expected


def test_a_section_may_stand_in_one_of_its_own_name() -> None:
    assert written("{{#a}}1{{#a}}2{{^a}}3{{/a}}{{/a}}4{{/a}}5", {"a": "x"}) == "1245"
    assert written("{{#a}}1{{#a}}2{{/a}}{{/a}}5") == "5"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a\n{{#x}}\nb\n{{/x}}\nc\n", "a\nb\nc\n"),
        ("a\r\n{{#x}}\r\nb\r\n{{/x}}\r\nc", "a\r\nb\r\nc"),
        ("a\n  {{#x}}  \nb\n\t{{/x}}\t\nc", "a\nb\nc"),
        ("{{#x}}\nb\n{{/x}}", "b\n"),
        ("a\n{{! a\n long note }}\nb", "a\nb"),
        ("a\n  {{! note }}", "a\n"),
        ("a\n{{#x}}\n{{/x}}\nb", "a\nb"),
        ("a\n{{#x}}\n\n{{/x}}\nb", "a\n\nb"),
        ("a\n{{^y}}\nb\n{{/y}}\nc", "a\nb\nc"),
        ("a {{#x}}\nb{{/x}}\nc", "a \nb\nc"),  # not alone on their lines
        ("a\n{{#x}}{{/x}}\nb", "a\n\nb"),
        ("a\n{{x}}\nb", "a\n1\nb"),  # a value keeps its line
        ("a\n{{y}}\nb", "a\n\nb"),
    ],
)
def test_a_section_tag_alone_on_its_line_leaves_no_empty_line(source: str, expected: str) -> None:
    assert written(source, {"x": "1"}, TemplatePart.TEXT) == expected


@pytest.mark.parametrize(
    ("source", "line", "column", "word"),
    [
        ("Hello {{name", 1, 7, "never closed"),
        ("Hello {{{name}}", 1, 7, "never closed"),
        ("{{{{name}}}}", 1, 1, "not a name"),
        ("a\nb\n  {{#x}} c", 3, 3, "{{/x}}"),
        ("a\r\n{{/x}}", 2, 1, "closes no section"),
        ("{{#a}}\n{{#b}}{{/a}}{{/b}}", 2, 7, "'b' of line 2, column 1"),
        ("{{}}", 1, 1, "no name"),
        ("x{{ }}", 1, 2, "no name"),
        ("{{#}}{{/}}", 1, 1, "no name"),
        ("{{a b}}", 1, 1, "not a name"),
        ("{{a(b)}}", 1, 1, "not a name"),
        ("{{.}}", 1, 1, "outside of one"),
        ("{{-a}}", 1, 1, "not a name"),
        ("{{a\0}}", 1, 1, "not a name"),
        ("{{> header}}", 1, 1, "Partials"),
        ("{{=<% %>=}}", 1, 1, "delimiters"),
        ("{{& name}}", 1, 1, "{{{name}}}"),
        ("ä😀{{" + "n" * (MAX_NAME + 1) + "}}", 1, 3, "64"),
    ],
)
def test_a_fault_is_named_with_its_place(source: str, line: int, column: int, word: str) -> None:
    with pytest.raises(BadTemplate) as caught:
        template.compile_part(source, TemplatePart.TEXT)

    assert (caught.value.part, caught.value.line, caught.value.column) == (TemplatePart.TEXT, line, column)
    assert word in caught.value.problem


def test_the_first_faulty_part_is_named() -> None:
    with pytest.raises(BadTemplate) as caught:
        template.compile_template("fine", "{{#a}}", "{{")

    assert caught.value.part is TemplatePart.HTML


def test_names_come_in_the_order_of_their_first_use() -> None:
    compiled = template.compile_template("{{b}}", "{{#a}}{{{c}}}{{/a}}{{b}}", "{{^d}}{{/d}}{{a}}")

    assert compiled.names == ("b", "a", "c", "d")


def test_a_part_that_is_absent_stays_absent() -> None:
    compiled = template.compile_template(None, None, "Hi")

    assert (compiled.subject, compiled.html) == (None, None)
    assert compiled.text is not None


def test_tags_and_depth_are_bounded() -> None:
    template.compile_part("{{a}}" * MAX_TAGS, TemplatePart.TEXT)
    template.compile_part("{{#a}}" * MAX_DEPTH + "{{/a}}" * MAX_DEPTH, TemplatePart.TEXT)
    with pytest.raises(BadTemplate, match=str(MAX_TAGS)):
        template.compile_part("{{!}}" * (MAX_TAGS + 1), TemplatePart.TEXT)
    with pytest.raises(BadTemplate, match=str(MAX_DEPTH)):
        template.compile_part("{{#a}}" * (MAX_DEPTH + 1) + "{{/a}}" * (MAX_DEPTH + 1), TemplatePart.TEXT)


def test_what_a_part_comes_to_is_bounded() -> None:
    program = template.compile_part("{{x}}" * 1000, TemplatePart.HTML)

    assert len(template.render(program, {"x": "'" * 1000})) == MAX_RENDERED
    with pytest.raises(TooLong) as caught:
        template.render(program, {"x": "'" * 1001})
    assert caught.value.part is TemplatePart.HTML


@pytest.mark.parametrize(
    "source",
    [
        "{{" * 500_000,
        "{{{" * 333_333,
        "{" * 1_000_000,
        "}}" * 500_000,
        "\n" * 1_000_000 + "{{#a}}",
        "{{!" + " " * 1_000_000 + "}}",
        "{{" + " " * 1_000_000 + "}}",
        "{{#a}}" + " " * 1_000_000 + "{{/a}}",
        ("{{!}}" + " " * 195) * MAX_TAGS,
        ("\n{{#a}} " + "x" * 385 + "{{/a}}") * (MAX_TAGS // 2),
        "{{a}}" * 200_000,
    ],
    ids=lambda source: source[:12].strip() or "blank",
)
def test_reading_a_million_characters_takes_no_time(source: str) -> None:
    """Quadratic work on any of these would take minutes."""
    before = time.thread_time()
    with contextlib.suppress(BadTemplate):
        template.compile_part(source, TemplatePart.HTML)

    assert time.thread_time() - before < 6


# properties ------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c.d", "e-f", "é"])
VALUES = st.dictionaries(NAMES, st.text(max_size=8) | st.sampled_from(["{{a}}", "<i>", "'\"&", "{{/a}}"]))
LITERALS = st.text(st.characters(exclude_characters="{}\n\r", exclude_categories=["Cs"]), max_size=8)

Piece = tuple[str, str, list["Piece"]]  # kind, name or literal, what is inside


def pieces() -> st.SearchStrategy[list[Piece]]:
    leaf: st.SearchStrategy[Piece] = st.one_of(
        st.tuples(st.just("text"), LITERALS, st.just([])),
        st.tuples(st.sampled_from(["escaped", "raw", "note"]), NAMES, st.just([])),
    )
    tree: st.SearchStrategy[Piece] = st.recursive(
        leaf,
        lambda inside: st.tuples(st.sampled_from(["#", "^"]), NAMES, st.lists(inside, max_size=4)),
        max_leaves=20,
    )
    return st.lists(tree, max_size=8)


def source_of(found: list[Piece]) -> str:
    forms = {"escaped": "{{%s}}", "raw": "{{{ %s }}}", "note": "{{! %s }}", "text": "%s"}
    return "".join(
        forms[kind] % name if kind in forms else f"{{{{{kind}{name}}}}}{source_of(inside)}{{{{/ {name} }}}}"
        for kind, name, inside in found
    )


def meaning_of(found: list[Piece], values: Mapping[str, str]) -> str:
    """What the tree says, by plain recursion."""
    out = ""
    for kind, name, inside in found:
        value = values.get(name, "")
        if kind == "text":
            out += name
        elif kind == "escaped":
            out += stdlib_html.escape(value).replace("&#x27;", "&#39;")
        elif kind == "raw":
            out += value
        elif (kind == "#" and value) or (kind == "^" and not value):
            out += meaning_of(inside, values)
    return out


@THOROUGH
@given(pieces(), VALUES)
def test_any_tree_of_tags_means_what_it_says(found: list[Piece], values: dict[str, str]) -> None:
    # The marks at both ends keep every tag from being alone on its line.
    assert written(f"<{source_of(found)}>", values) == f"<{meaning_of(found, values)}>"


TORN = st.sampled_from(["{", "{{", "{{{", "}", "}}", "#", "/", "^", "!", ">", "a", "b", " ", "\n", "é"])


@THOROUGH
@given(st.lists(TORN), VALUES)
def test_no_source_raises_anything_but_its_own_error(parts: list[str], values: dict[str, str]) -> None:
    source = "".join(parts)
    fault: BadTemplate | None = None
    try:
        program = template.compile_part(source, TemplatePart.HTML)
    except BadTemplate as error:
        fault = error
    else:
        assert isinstance(template.render(program, values), str)

    if fault is not None:  # its place is that of a tag
        assert source.split("\n")[fault.line - 1][fault.column - 1 :].startswith("{{")


@THOROUGH
@given(st.text())
def test_no_text_raises_anything_but_its_own_error(source: str) -> None:
    try:
        program = template.compile_part(source, TemplatePart.SUBJECT)
    except BadTemplate:
        return
    assert isinstance(template.render(program, {}), str)


@THOROUGH
@given(st.text() | st.text(st.sampled_from("&<>\"';ampltgqu#39x")))
def test_an_escaped_value_holds_no_markup_and_reads_back(value: str) -> None:
    escaped = template.escape(value)

    assert not set("<>\"'") & set(escaped)
    assert re.fullmatch(r"(?:[^&]|&(?:amp|lt|gt|quot|#39);)*", escaped, re.DOTALL)
    assert stdlib_html.unescape(escaped) == value


class Seen(HTMLParser):
    """Tags, attributes and text as a reader of HTML takes them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


@THOROUGH
@given(st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"])))
def test_a_value_stays_inside_its_element_and_its_attributes(value: str) -> None:
    seen = Seen()
    seen.feed(written("<p title=\"{{x}}\" lang='{{x}}'>{{x}}</p>", {"x": value}))
    seen.close()

    assert seen.tags == [("p", [("title", value), ("lang", value)])]
    assert seen.text == value


# layouts ----------------------------------------------------------------------------------------


def framed(html: str, layout: str) -> Program:
    return template.in_layout(
        template.compile_part(html, TemplatePart.HTML), template.compile_part(layout, TemplatePart.HTML)
    )


@given(st.lists(st.sampled_from(["{{#a}}x{{b}}{{/a}}", "{{^b}}y{{/b}}", "{{b}}", "text", "{", "}"]), max_size=6))
def test_a_layout_renders_as_its_sides_around_the_template(pieces: list[str]) -> None:
    before, content, behind = "".join(pieces[:2]), "".join(pieces[2:4]) or "-", "".join(pieces[4:])
    values = {"a": "1", "b": "<2>"}
    try:
        parts = [template.compile_part(one, TemplatePart.HTML) for one in (before, content, behind)]
        whole = framed(content, before + "{{{content}}}" + behind)
    except BadTemplate:
        return  # braces of two pieces met
    assert template.render(whole, values) == "".join(template.render(one, values) for one in parts)
    assert template.render(whole, {}) == "".join(template.render(one, {}) for one in parts)


def test_an_empty_part_in_a_layout_stays_empty() -> None:
    assert framed("", "<p>{{{content}}}</p>").steps == ()
