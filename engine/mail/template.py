"""Compile and render customers' templates: a small, logic-less subset of Mustache.

`{{name}}` inserts a value, escaped in HTML and unchanged in text and subject; `{{{name}}}` always unchanged.
`{{#name}}…{{/name}}` shows its content if the value is a non-empty string, `{{^name}}…{{/name}}` if it is not; `{{! …
}}` is a comment. A section tag or comment alone on a line removes the line, as in Mustache. Values are inserted once:
tags in a value are not interpreted. Partials, lambdas and other delimiters are not supported. `render` takes flat
strings; `engine.mail.template_data` renders the same programs with lists and objects, where `{{.}}` is the item of a
section. A layout has one `{{{content}}}`, outside of sections, where `in_layout` puts the steps of a template.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum, StrEnum

from msgspec import Struct

MAX_TAGS = 5_000  # of one part
MAX_DEPTH = 32  # sections inside each other
MAX_RENDERED = 5_000_000  # characters of one part, as many as a send without template may have
MAX_NAME = 64
ITEM = "."  # the name of the item of the innermost section
CONTENT = "content"  # the name of the tag of a layout that stands for the template

_OPEN, _CLOSE = "{{", "}}"
_name = re.compile(rf"\w[\w.-]{{0,{MAX_NAME - 1}}}").fullmatch
_rest_of_line = re.compile(r"[ \t]*(?:\r?\n|\Z)").match
_ALONE = frozenset("#^/!")  # tags without output: alone on a line they remove the line
_HINTS = {
    ">": "Partials are not supported",
    "=": "Other delimiters are not supported",
    "&": "Write {{{name}}} for a value without escaping; {{&name}} is not supported",
}
_MAX_SHOWN = 40  # characters of a faulty tag in its error


class TemplatePart(StrEnum):
    """The parts of a template."""

    SUBJECT = "subject"
    HTML = "html"
    TEXT = "text"


class BadTemplate(ValueError):  # noqa: N818 - named for what the customer gave
    """A part can't be parsed; line and column of the fault count from 1, the column in characters."""

    def __init__(self, part: TemplatePart, line: int, column: int, problem: str) -> None:
        super().__init__(f"{part.value}, line {line}, column {column}: {problem}")
        self.part = part
        self.line = line
        self.column = column
        self.problem = problem


class TooLong(ValueError):  # noqa: N818 - named for what it has become
    """The values make a part longer than MAX_RENDERED characters."""

    def __init__(self, part: TemplatePart) -> None:
        super().__init__(f"the {part.value} comes to more than {MAX_RENDERED} characters")
        self.part = part


class Op(IntEnum):
    """The operation of a step: print its text, or look it up as a name."""

    LITERAL = 0
    ESCAPED = 1
    RAW = 2
    SECTION = 3
    INVERTED = 4


# (op, literal or name, index of the next step if a section is not shown)
Step = tuple[int, str, int]


class Program(Struct, frozen=True):
    """A compiled part: its steps in order, and the names in it in order of first use."""

    part: TemplatePart
    steps: tuple[Step, ...]
    names: tuple[str, ...]


class CompiledTemplate(Struct, frozen=True):
    """A compiled template; a missing part is None."""

    subject: Program | None
    html: Program | None
    text: Program | None

    @property
    def names(self) -> tuple[str, ...]:
        """Return every name in the template, in order of first use."""
        programs = (self.subject, self.html, self.text)
        return tuple(dict.fromkeys(name for one in programs if one is not None for name in one.names))

    def in_layout(self, layout: "CompiledTemplate | None") -> "CompiledTemplate":
        """Return the template with each part in that of the layout, where both have it."""
        if layout is None:
            return self
        html, text = _framed(self.html, layout.html), _framed(self.text, layout.text)
        return CompiledTemplate(self.subject, html, text)


def is_name(text: str) -> bool:
    """Return True for a valid name: a letter, digit or `_` of any script, then also `.` and `-`; at most 64 of them."""
    return _name(text) is not None


def compile_template(subject: str | None, html: str | None, text: str | None) -> CompiledTemplate:
    """Compile all parts. Raises BadTemplate for the first fault."""
    return CompiledTemplate(
        None if subject is None else compile_part(subject, TemplatePart.SUBJECT),
        None if html is None else compile_part(html, TemplatePart.HTML),
        None if text is None else compile_part(text, TemplatePart.TEXT),
    )


def compile_part(source: str, part: TemplatePart) -> Program:
    """Compile one part in time linear in its length. Raises BadTemplate."""
    return _Compiler(source, part).program()


def content_step(layout: Program) -> int:
    """Return the index of the step `{{{content}}}`. Raises ValueError, with what is wrong, unless there is just one.

    The content stands outside of sections: it is shown once, and its names never mean a member of a section's object.
    """
    found = [at for at, (op, text, _) in enumerate(layout.steps) if op != Op.LITERAL and text == CONTENT]
    if len(found) != 1:
        raise ValueError(f"has {len(found)} tags {{{{{{content}}}}}}; write it once, where the template goes")
    at = found[0]
    op, _, _ = layout.steps[at]
    if op != Op.RAW:
        raise ValueError("must have {{{content}}} with three braces, as the template is inserted without escaping")
    if any(op in {Op.SECTION, Op.INVERTED} and first < at < after for first, (op, _, after) in enumerate(layout.steps)):
        raise ValueError("has {{{content}}} inside a section; move it out")
    return at


def in_layout(part: Program, layout: Program) -> Program:
    """Return the program of a part that stands in a layout, checked by `content_step`; an empty part stays empty."""
    if not part.steps:
        return part
    at = content_step(layout)
    before, behind = layout.steps[:at], layout.steps[at + 1 :]
    steps = (*before, *_moved(part.steps, at), *_moved(behind, len(part.steps) - 1))
    names = dict.fromkeys((*(name for name in layout.names if name != CONTENT), *part.names))
    return Program(part.part, steps, tuple(names))


def render(program: Program, values: Mapping[str, str]) -> str:
    """Render a part with its values; a name without a value becomes "". Raises TooLong."""
    steps = program.steps
    out: list[str] = []
    escaped: dict[str, str] = {}
    at, end = 0, len(steps)
    while at < end:
        op, text, after = steps[at]
        at += 1
        if op == 0:  # plain numbers instead of members of Op halve the time of this loop
            out.append(text)
        elif op == 1:
            ready = escaped.get(text)
            if ready is None:
                ready = escaped[text] = escape(values.get(text, ""))
            out.append(ready)
        elif op == 2:
            out.append(values.get(text, ""))
        elif (op == 3) is not bool(values.get(text)):
            at = after
    if sum(map(len, out)) > MAX_RENDERED:  # before joining, so that no oversized string is built
        raise TooLong(program.part)
    return "".join(out)


def escape(value: str) -> str:
    """Escape a value for HTML content and for attributes with either kind of quotes."""
    if "&" in value:
        value = value.replace("&", "&amp;")
    if "<" in value:
        value = value.replace("<", "&lt;")
    if ">" in value:
        value = value.replace(">", "&gt;")
    if '"' in value:
        value = value.replace('"', "&quot;")
    if "'" in value:
        value = value.replace("'", "&#39;")
    return value


class _Open(Struct, frozen=True):
    """A section that has not been closed yet."""

    name: str
    step: int
    place: int


class _Compiler:
    """The state of one pass over the source of a part; it reads every character a bounded number of times."""

    def __init__(self, source: str, part: TemplatePart) -> None:
        self._source = source
        self._part = part
        self._steps: list[Step] = []
        self._names: dict[str, None] = {}
        self._sections: list[_Open] = []
        self._literals: list[str] = []
        self._tags = 0

    def program(self) -> Program:
        source, at, at_line_start = self._source, 0, True
        while (start := source.find(_OPEN, at)) >= 0:
            before = source[at:start]
            sigil, inside, end = self._tag(start)
            line_start = before.rfind("\n") + 1
            if sigil in _ALONE and (line_start or at_line_start) and not before[line_start:].strip(" \t"):
                rest = _rest_of_line(source, end)
            else:
                rest = None
            self._literals.append(before if rest is None else before[:line_start])
            self._step(sigil, inside, start)
            at = end if rest is None else rest.end()
            at_line_start = rest is not None
        self._literals.append(source[at:])
        self._flush()
        if self._sections:
            left = self._sections[-1]
            raise self._fault(left.place, f"this section is never closed; write {{{{/{left.name}}}}}")
        return Program(self._part, tuple(self._steps), tuple(self._names))

    def _tag(self, start: int) -> tuple[str, str, int]:
        """Return the sigil ("" for a plain tag, "{" for a raw one), the content and the end offset of the tag at
        `start`.
        """
        self._tags += 1
        if self._tags > MAX_TAGS:
            raise self._fault(start, f"a part may have at most {MAX_TAGS} tags")
        source = self._source
        sigil = source[start + 2 : start + 3]
        opened = start + 2
        if sigil in _ALONE or sigil in _HINTS or sigil == "{":
            opened += 1
        else:
            sigil = ""
        closing = "}}}" if sigil == "{" else _CLOSE
        closed = source.find(_CLOSE, opened)
        if closed < 0 or not source.startswith(closing, closed):
            raise self._fault(start, f"this tag is never closed; it ends with {closing}")
        if sigil in _HINTS:
            raise self._fault(start, _HINTS[sigil])
        return sigil, source[opened:closed], closed + len(closing)

    def _step(self, sigil: str, inside: str, place: int) -> None:
        if sigil == "!":
            return
        name = inside.strip()
        if name == ITEM and sigil in {"", "{"}:
            if not self._sections:
                raise self._fault(place, "{{.}} is the item of a section and can't be used outside of one")
        elif not is_name(name):
            raise self._fault(place, _bad_name(name))
        self._flush()
        if sigil == "/":
            self._close(name, place)
            return
        self._names[name] = None
        if sigil in {"#", "^"}:
            if len(self._sections) >= MAX_DEPTH:
                raise self._fault(place, f"sections may be nested at most {MAX_DEPTH} deep")
            self._sections.append(_Open(name, len(self._steps), place))
            self._steps.append((Op.SECTION if sigil == "#" else Op.INVERTED, name, 0))
            return
        raw = sigil == "{" or self._part is not TemplatePart.HTML
        self._steps.append((Op.RAW if raw else Op.ESCAPED, name, 0))

    def _close(self, name: str, place: int) -> None:
        if not self._sections:
            raise self._fault(place, f"{{{{/{name}}}}} closes no section")
        opened = self._sections.pop()
        if opened.name != name:
            line, column = _position(self._source, opened.place)
            raise self._fault(
                place, f"{{{{/{name}}}}} appears where the section {opened.name!r} of line {line}, column {column} ends"
            )
        op, text, _ = self._steps[opened.step]
        self._steps[opened.step] = (op, text, len(self._steps))

    def _flush(self) -> None:
        literal = "".join(self._literals)
        self._literals.clear()
        if literal:
            self._steps.append((Op.LITERAL, literal, 0))

    def _fault(self, place: int, problem: str) -> BadTemplate:
        line, column = _position(self._source, place)
        return BadTemplate(self._part, line, column, problem)


def _framed(part: Program | None, layout: Program | None) -> Program | None:
    return part if part is None or layout is None else in_layout(part, layout)


def _moved(steps: Sequence[Step], by: int) -> Iterator[Step]:
    """Yield the steps with their jumps moved by this number of steps."""
    for op, text, after in steps:
        yield op, text, after + by if op in {Op.SECTION, Op.INVERTED} else after


def _bad_name(name: str) -> str:
    if not name:
        return "this tag has no name"
    shown = name if len(name) <= _MAX_SHOWN else name[:_MAX_SHOWN] + "…"
    return (
        f"{shown!r} is not a name: use letters, digits, and inside also '_', '-' and '.', {MAX_NAME} characters at most"
    )


def _position(source: str, place: int) -> tuple[int, int]:
    return source.count("\n", 0, place) + 1, place - source.rfind("\n", 0, place)
