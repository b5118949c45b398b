"""Templates with nested data: what sections repeat, where names are looked up, and the limits of hostile input."""

from typing import Any

import pytest

from engine.mail import template, template_data
from engine.mail.template import BadTemplate, TemplatePart, TooLong
from engine.mail.template_data import TooManySteps, Unprintable, WrongData

ITEMS = {"items": [{"name": "Lamp", "price": 19.5}, {"name": "<Sofa>", "price": 400}]}


def written(
    source: str, data: dict[str, Any], values: dict[str, str] | None = None, part: TemplatePart = TemplatePart.HTML
) -> str:
    return template_data.render_data(template.compile_part(source, part), values or {}, data)


@pytest.mark.parametrize(
    ("source", "data", "expected"),
    [
        ("{{#items}}{{name}} {{price}};{{/items}}", ITEMS, "Lamp 19.5;&lt;Sofa&gt; 400;"),
        ("{{#items}}{{{name}}}{{/items}}", ITEMS, "Lamp<Sofa>"),
        ("<ul>\n{{#l}}\n<li>{{.}}\n{{/l}}\n</ul>", {"l": ["a", 2, True]}, "<ul>\n<li>a\n<li>2\n<li>true\n</ul>"),
        ("{{#l}}x{{/l}}{{^l}}none{{/l}}", {"l": []}, "none"),
        ("{{#l}}[{{#.}}{{/.}}]{{/l}}", {}, None),
        ("{{a.b.c}}|{{a.x}}|{{a.b.c.d}}", {"a": {"b": {"c": 1}}}, "1||"),
        ("{{#a}}{{b}}{{top}}{{/a}}", {"a": {"b": "in"}, "top": "out"}, "inout"),
        ("{{#rows}}{{#cells}}{{.}}{{sep}}{{/cells}}/{{/rows}}", {"rows": [{"cells": [1]}, {}], "sep": "-"}, "1-//"),
        ("{{#on}}yes{{/on}}{{^off}}no{{/off}}{{^null}}-{{/null}}", {"on": True, "off": False, "null": None}, "yesno-"),
        ("{{#n}}[{{.}}]{{/n}}{{#s}}({{.}}){{/s}}{{#e}}!{{/e}}", {"n": 0, "s": "t", "e": ""}, "[0](t)"),
        ("{{big}}", {"big": 10**19}, "1" + "0" * 19),
        ("{{off}}{{null}}{{missing}}", {"off": False, "null": None}, ""),
        ("{{#o}}a{{#o}}b{{/o}}{{/o}}{{#o}}{{/o}}c", {"o": {}}, "abc"),
        ("{{#p}}{{#tags}}{{name}}{{/tags}}{{/p}}", {"p": [{"name": "x", "tags": [1, {"name": "y"}]}]}, "xy"),
    ],
)  # fmt: skip
def test_sections_repeat_for_items_and_enter_objects(source: str, data: dict[str, Any], expected: str | None) -> None:
    if expected is None:
        with pytest.raises(BadTemplate):
            written(source, data)
    else:
        assert written(source, data) == expected


def test_an_item_wins_over_values_which_win_over_data() -> None:
    assert written("{{#l}}{{n}}{{m}}{{/l}}{{n}}", {"l": [{"n": "item"}]}, {"n": "flat", "m": "!"}) == "item!flat"
    assert written("{{a.b}}", {"a": {"b": "nested"}}, {"a.b": "flat"}) == "flat"


def test_the_item_has_no_meaning_outside_of_a_section() -> None:
    with pytest.raises(BadTemplate, match="outside of one"):
        template.compile_part("{{.}}", TemplatePart.HTML)


def test_flat_values_render_the_same_with_and_without_data() -> None:
    program = template.compile_part("{{a}}{{#b}}{{{a}}}{{^c}}x{{/c}}{{/b}}{{^a}}none{{/a}}", TemplatePart.HTML)
    for values in ({}, {"a": "<"}, {"a": "<", "b": "1"}, {"b": "1", "c": "1"}):
        assert template_data.render_data(program, values, {}) == template.render(program, values)


@pytest.mark.parametrize(("value", "words"), [([1], "is a list"), ({"b": 1}, "is an object")])
def test_lists_and_objects_are_not_printed(value: object, words: str) -> None:
    with pytest.raises(Unprintable, match=f"html: {{{{a}}}} {words}"):
        written("{{a}}", {"a": value})


def test_a_line_break_in_the_subject_is_refused() -> None:
    with pytest.raises(Unprintable, match=r"subject: \{\{a.b\}\} contains a line break"):
        written("{{a.b}}", {"a": {"b": "x\nBcc: y"}}, part=TemplatePart.SUBJECT)


def test_nested_loops_end_at_the_limit_of_steps() -> None:
    source = "{{#l}}" * 31 + "{{^l}}{{/l}}" + "{{/l}}" * 31
    with pytest.raises(TooManySteps, match="loops of the html"):
        written(source, {"l": [1] * 1000})
    assert len(written("{{#l}}{{#l}}.{{/l}}{{/l}}", {"l": [1] * 300})) == 90_000


def test_loops_end_at_the_limit_of_characters() -> None:
    with pytest.raises(TooLong):
        written("{{#l}}{{big}}{{/l}}", {"l": [1] * 1000, "big": "<" * 60_000})


@pytest.mark.parametrize(
    ("data", "path", "words"),
    [
        ({"a": {"b": ["fine", "\0"]}}, "a.b[1]", "NUL"),
        ({"a": [{"x\0": 1}]}, "a[0]", "NUL"),
        ({"a": [0] * 1001}, "a", "has 1001 items"),
        ({"a": "x" * 65_536}, "", "65544 bytes"),
        ({"a": [[[[[[[[1]]]]]]]]}, "a" + "[0]" * 7, "nested more than 8 deep"),
    ],
)
def test_data_beyond_a_limit_is_refused_by_place(data: dict[str, Any], path: str, words: str) -> None:
    with pytest.raises(WrongData, match=words) as caught:
        template_data.check_data(data)
    assert caught.value.path == path


def test_data_at_its_limits_is_taken() -> None:
    template_data.check_data({"a": [[[[[[[1]]]]]]], "b": [0] * 1000})
    assert template_data.check_data({"a": "x" * 65_528}) == 65_536
