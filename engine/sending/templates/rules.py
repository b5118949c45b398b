"""Check template content, list warnings about it, and render versions. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from engine.base import ids
from engine.base.errors import ErrorType, Refusal, invalid
from engine.mail import template, template_data, unsubscribe_links
from engine.mail.template import BadTemplate, CompiledTemplate, Program, TemplatePart, TooLong
from engine.mail.template_data import TooManySteps, Unprintable, WrongData
from engine.sending.templates.types import (
    MAX_LAYOUT,
    MAX_SLUG,
    MAX_SUBJECT,
    MAX_VARIABLES,
    CheckedContent,
    LayoutContent,
    Notice,
    Rendered,
    TemplateContent,
    TemplateWithContent,
    Variable,
    Version,
    VersionRow,
)

RESERVED = frozenset({"preview"})  # taken by the path `/v1/templates/preview`
LARGE_CHARS = 50_000  # compiling more takes over 1 ms and runs outside the event loop
_RANDOM_CHARS = 8  # random characters of a generated id
_FRAME_BYTES, _STEP_BYTES = 2_000, 150  # memory of a compiled version, and of each step, without their text
_MAX_PLACE = 200  # characters of a place in nested data, in errors
_BREAKERS = ("\r", "\n", "\0")
_NEVER_DECLARED: AbstractSet[str] = frozenset({template.ITEM, unsubscribe_links.NAME})
_VARIABLES = msgspec.json.Decoder(tuple[Variable, ...])
_ENCODER = msgspec.json.Encoder()


def checked(content: TemplateContent, layout: LayoutContent | None = None) -> CheckedContent:
    """Return the compiled content with its warnings; raise the 400 with field, line and column of an error.

    `layout` was checked when it was stored, or by `layout_rules.checked`.
    """
    check_variables(content.variables)
    if content.blocks is not None and content.layout is not None:
        raise invalid("layout", "An email made of `blocks` is a whole page and can't have a `layout`. Set it to null.")
    check_parts({"subject": content.subject, "html": content.html, "text": content.text})
    if content.subject is not None and _breaks(content.subject):
        raise invalid("subject", "`subject` contains a line break (CR or LF). Remove it.")
    return inspected(content, layout)


def inspected(content: TemplateContent, layout: LayoutContent | None = None) -> CheckedContent:
    """Compile content that was checked before, in its layout, and add its warnings."""
    own = compile_alone(content)
    frame = None if layout is None else template.compile_template(None, layout.html, layout.text)
    return CheckedContent(content, layout, own.in_layout(frame), tuple(_notices(content, own, layout, frame)))


def is_large(content: TemplateContent | VersionRow | TemplateWithContent) -> bool:
    """Return True if compiling would block the event loop too long."""
    size = sum(len(part or "") for part in (content.subject, content.html, content.text))
    if not isinstance(content, TemplateContent):
        size += len(content.layout_html or "") + len(content.layout_text or "")
    elif content.layout is not None:
        size += MAX_LAYOUT  # not read yet
    return size > LARGE_CHARS


def content_of(row: VersionRow | TemplateWithContent) -> TemplateContent:
    """Return the content of a stored version."""
    return TemplateContent(row.subject, row.html, row.text, variables_of(row.variables), row.layout, row.blocks)


def layout_of(row: VersionRow | TemplateWithContent) -> LayoutContent | None:
    """Return the layout of a stored version, as it was when the version was published."""
    if row.layout is None or row.layout_version is None or row.layout_html is None:
        return None
    variables = variables_of(row.layout_variables or "[]")
    return LayoutContent(row.layout_html, row.layout_text, variables, row.layout, row.layout_version)


def version_of(row: VersionRow) -> Version:
    """Compile a stored version in its layout."""
    layout = layout_of(row)
    frame = None if layout is None else template.compile_template(None, layout.html, layout.text)
    compiled = template.compile_template(row.subject, row.html, row.text).in_layout(frame)
    return prepared(compiled, with_layout(variables_of(row.variables), layout), slug=row.slug, version=row.version)


def version_with(checked: CheckedContent, *, slug: str = "", version: int = 0) -> Version:
    """Return checked content as a version; unsaved content has no slug or version."""
    variables = with_layout(checked.content.variables, checked.layout)
    return prepared(checked.template, variables, slug=slug, version=version)


def with_layout(variables: Sequence[Variable], layout: LayoutContent | None) -> tuple[Variable, ...]:
    """Return the variables of a template and of its layout; the template's declaration of a name wins."""
    if layout is None:
        return tuple(variables)
    own = {one.name for one in variables}
    return (*variables, *(one for one in layout.variables if one.name not in own))


def prepared(compiled: CompiledTemplate, variables: Sequence[Variable], *, slug: str = "", version: int = 0) -> Version:
    """Return a compiled version with its defaults and required names; unsaved content has no slug or version."""
    return Version(
        slug,
        version,
        compiled,
        {one.name: one.default for one in variables if one.default is not None},
        tuple(one.name for one in variables if one.required and one.default is None),
    )


def check_data(data: Mapping[str, Any], values: Mapping[str, str], *, field: str = "variables") -> None:
    """Raise the 400 for nested data that breaks a limit, or that gives a name of `values` (the request's `field`).

    Data within the limits takes up to 10 ms.
    """
    try:
        template_data.check_data(data)
    except WrongData as error:
        place = f"data.{error.path}" if error.path else "data"
        shown = place if len(place) <= _MAX_PLACE else place[:_MAX_PLACE] + "…"
        raise invalid(shown, f"`{shown}` {error.problem}.") from None
    for name in values:
        if name in data or template_data.look_up(name, (), {}, data) is not None:
            raise invalid(f"data.{name}", f"{name!r} is in `{field}` and in `data`. Give it in one of the two.")


def render(
    version: Version,
    values: Mapping[str, str],
    *,
    field: str = "variables",
    subject: str | None = None,
    data: Mapping[str, Any] | None = None,
) -> Rendered:
    """Render the version with `values`; `field` names them in a 400, `subject` replaces the version's subject.

    Values and checked nested `data` override defaults; a name with none of them renders as an empty string, and unused
    names are ignored.

    Raises `template_error` if required names are missing (it lists all) or the result is too long, and the 400 for a
    value with NUL or with a line break in the subject.
    """
    missing = [name for name in version.required if name not in values and not _has(data, name)]
    if missing:
        raise refusal(version, f"The template needs values for: {', '.join(missing)}. Add them to `{field}`.", missing)
    given = {**version.defaults, **values} if version.defaults else values
    compiled = version.template
    if data and version.defaults:
        given = {name: value for name, value in given.items() if name in values or not _has(data, name)}
    try:
        line = (_rendered(compiled.subject, given, data) or "") if subject is None else subject
        text = _rendered(compiled.text, given, data)
        html = _rendered(compiled.html, given, data)
    except (TooLong, TooManySteps) as error:
        raise refusal(version, f"The template can't be rendered with these values: {error}.") from None
    except Unprintable as error:
        if error.part is TemplatePart.SUBJECT and error.name in given:
            _check_subject(given[error.name], compiled.subject, given, field)
        raise refusal(version, f"The template can't be rendered with these values: {error}.") from None
    if any(part is not None and "\0" in part for part in (line, text, html)):
        name = next(name for name in compiled.names if "\0" in given.get(name, ""))  # templates themselves hold none
        raise invalid(f"{field}.{name}", f"The value of {name!r} contains NUL (U+0000). Remove it.")
    if subject is None:
        _check_subject(line, compiled.subject, given, field)
        if len(line) > MAX_SUBJECT:
            raise refusal(
                version,
                f"With these values the subject has {len(line)} characters; the limit is {MAX_SUBJECT}. Shorten it.",
            )
    return Rendered(line, text, html)


def render_checked(
    version: Version,
    values: Mapping[str, str],
    data: Mapping[str, Any] | None,
    *,
    field: str = "variables",
    subject: str | None = None,
) -> Rendered:
    """Check nested data from a request and render the version with it; call it outside the event loop."""
    if data:
        check_data(data, values, field=field)
    return render(version, values, field=field, subject=subject, data=data)


def warnings_with(warnings: Sequence[Notice], data: Mapping[str, Any] | None) -> list[Notice]:
    """Return the warnings without those of undeclared names that `data` gives somewhere."""
    if not data:
        return list(warnings)
    known = template_data.names_in(data)
    return [one for one in warnings if one.code != "undeclared_variable" or one.variable not in known]


def check_sendable(version: Version) -> None:
    """Raise the `template_error` of a version without html and text, which may be stored but not sent."""
    if not _has_content(version.template):
        raise refusal(version, "The template has neither `html` nor `text`. Publish a version with content.")


def bytes_of(version: Version) -> int:
    """Return about how many bytes of memory a compiled version takes."""
    size = _FRAME_BYTES + 2 * sum(map(len, version.defaults.values()))
    for program in (version.template.subject, version.template.html, version.template.text):
        for _, text, _ in program.steps if program is not None else ():
            size += _STEP_BYTES + (len(text) if text.isascii() else 4 * len(text))
    return size + sum(len(file.content) for file in version.files)


def refusal(version: Version, message: str, missing: Sequence[str] = ()) -> Refusal:
    """Return a `template_error` with its details; unsaved content has no slug or version."""
    return Refusal(
        ErrorType.TEMPLATE_ERROR,
        message,
        missing=list(missing),
        template=version.slug or None,
        version=version.version or None,
    )


def unknown(slug: str, version: int | None) -> Refusal:
    """Return the `template_error` for a template or version that does not exist."""
    subject = (
        f"template {slug!r}" if version is None else f"version {version} of the template {slug!r}, or no such template"
    )
    return Refusal(
        ErrorType.TEMPLATE_ERROR,
        f"Your account has no {subject}. Check `template` and `templateVersion`.",
        missing=[],
        template=slug,
        version=version,
    )


def check_slug(slug: str) -> None:
    """Raise the 400 for an id that collides with a path of the API."""
    if slug in RESERVED:
        raise invalid("id", f"`id` can't be {slug!r}, which is a path of the API. Choose another.")


def generated_slug(suggested: str | None) -> str:
    """Return a new id for a template without one, based on `suggested` if given."""
    ending = ids.encode(ids.uuid7())[-_RANDOM_CHARS:]
    return f"{(suggested or 'template')[: MAX_SLUG - _RANDOM_CHARS - 1].rstrip('-')}-{ending}"


def variables_of(text: str) -> tuple[Variable, ...]:
    """Decode declared variables from JSON."""
    return _VARIABLES.decode(text)


def variables_text(variables: Sequence[Variable]) -> str:
    """Encode declared variables as JSON."""
    return _ENCODER.encode(variables).decode()


def check_parts(parts: Mapping[str, str | None]) -> None:
    """Raise the 400 for a part with NUL."""
    for field, value in parts.items():
        if value is not None and "\0" in value:
            raise invalid(field, f"`{field}` contains NUL (U+0000). Remove it.")


def check_variables(variables: Sequence[Variable], of: str = "template") -> None:
    """Raise the 400 for too many variables, or for one that can't be declared."""
    if len(variables) > MAX_VARIABLES:
        raise invalid(
            "variables", f"The {of} declares {len(variables)} variables; the limit is {MAX_VARIABLES}. Remove some."
        )
    seen: set[str] = set()
    for index, one in enumerate(variables):
        field = f"variables[{index}]"
        if not template.is_name(one.name):
            raise invalid(
                f"{field}.name", f"{one.name!r} can't be used in a tag. Use letters, digits, '_', '-' and '.'."
            )
        if one.name in seen:
            raise invalid(f"{field}.name", f"{one.name!r} is declared twice. Remove one of the declarations.")
        seen.add(one.name)
        for name, value in (("default", one.default), ("description", one.description)):
            if value is not None and "\0" in value:
                raise invalid(f"{field}.{name}", f"`{name}` contains NUL (U+0000). Remove it.")


def compile_alone(content: TemplateContent) -> CompiledTemplate:
    """Compile the content alone; raise the 400 with field, line and column of an error."""
    try:
        return template.compile_template(content.subject, content.html, content.text)
    except BadTemplate as error:
        raise Refusal(
            ErrorType.INVALID_REQUEST,
            f"`{error.part.value}`, line {error.line}, column {error.column}: {error.problem}.",
            field=error.part.value,
            line=error.line,
            column=error.column,
        ) from None


def _notices(
    content: TemplateContent,
    own: CompiledTemplate,
    layout: LayoutContent | None = None,
    frame: CompiledTemplate | None = None,
) -> Iterator[Notice]:
    """Yield the warnings in a stable order; what is wrong with the layout alone is not repeated for its templates."""
    used = own.names
    declared = {one.name for one in with_layout(content.variables, layout)}
    yield from undeclared(used, declared)
    everywhere = used if frame is None else (*used, *frame.names)
    yield from odd_variables(content.variables, everywhere)
    if not content.subject:
        yield Notice(
            "no_subject", "The template has no subject; without a `subject` in the send, the message has none."
        )
    if not _has_content(own):
        yield Notice("no_content", "The template has neither HTML nor text and can't be sent yet.")
    if content.html and not content.text:
        yield Notice(
            "no_text", "The template has HTML but no text alternative, which some mail clients and spam filters expect."
        )
    yield from raw_values(own.html)


def undeclared(
    used: Sequence[str], declared: AbstractSet[str], known: AbstractSet[str] = _NEVER_DECLARED
) -> Iterator[Notice]:
    """Yield a warning for each used name that is neither declared nor `known`."""
    for name in used:
        covered = name in declared or name.partition(".")[0] in declared
        if not covered and name not in known:
            yield Notice(
                "undeclared_variable", f"{name!r} is used but not declared; without a value it is empty.", name
            )


def odd_variables(variables: Sequence[Variable], used: Sequence[str]) -> Iterator[Notice]:
    """Yield the warnings about declared variables, given the names that are used."""
    for one in variables:
        if one.name not in used and not any(name.startswith(f"{one.name}.") for name in used):
            yield Notice("unused_variable", f"{one.name!r} is declared but not used.", one.name)
        if one.required and one.default is not None:
            yield Notice(
                "required_with_default",
                f"{one.name!r} is required but has a default, so it is never missing.",
                one.name,
            )


def _has_content(compiled: CompiledTemplate) -> bool:
    return any(part is not None and part.steps for part in (compiled.html, compiled.text))


def raw_values(html: Program | None) -> Iterator[Notice]:
    """Yield a warning for each value that is inserted into the HTML without escaping."""
    if html is None:
        return
    for name in dict.fromkeys(text for op, text, _ in html.steps if op == template.Op.RAW):
        yield Notice(
            "raw_value",
            f"{name!r} is inserted into the HTML without escaping; never fill it with input of other people.",
            name,
        )


def _check_subject(line: str, program: Program | None, given: Mapping[str, str], field: str) -> None:
    """Raise the 400 that names the value with a line break; the template's own text has none."""
    if program is None or not _breaks(line):
        return
    printed = [name for op, name, _ in program.steps if op == template.Op.RAW]
    name = next(name for name in printed if _breaks(given.get(name, "")))
    raise invalid(
        f"{field}.{name}", f"The value of {name!r} is used in the subject and contains a line break. Remove it."
    )


def _rendered(program: Program | None, values: Mapping[str, str], data: Mapping[str, Any] | None) -> str | None:
    if program is None:
        return None
    if data or template.ITEM in program.names:
        return template_data.render_data(program, values, data or {})
    return template.render(program, values)


def _has(data: Mapping[str, Any] | None, name: str) -> bool:
    """Return True if the nested data gives this name, which may be a path; null counts as not given."""
    return data is not None and template_data.look_up(name, (), {}, data) is not None


def _breaks(text: str) -> bool:
    return any(letter in text for letter in _BREAKERS)
