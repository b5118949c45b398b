"""Check template content, list warnings about it, and render versions. Pure."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from engine.areas.templates.types import (
    MAX_SLUG,
    MAX_SUBJECT,
    MAX_VARIABLES,
    CheckedContent,
    Notice,
    Rendered,
    TemplateContent,
    TemplateWithContent,
    Variable,
    Version,
    VersionRow,
)
from engine.base import ids
from engine.base.errors import ErrorType, Refusal, invalid
from engine.mail import template, unsubscribe_links
from engine.mail.template import BadTemplate, CompiledTemplate, Program, TooLong

RESERVED = frozenset({"preview"})  # taken by the path `/v1/templates/preview`
LARGE_CHARS = 50_000  # compiling more takes over 1 ms and runs outside the event loop
_RANDOM_CHARS = 8  # random characters of a generated id
_FRAME_BYTES, _STEP_BYTES = 2_000, 150  # memory of a compiled version, and of each step, without their text
_BREAKERS = ("\r", "\n", "\0")
_VARIABLES = msgspec.json.Decoder(tuple[Variable, ...])
_ENCODER = msgspec.json.Encoder()


def checked(content: TemplateContent) -> CheckedContent:
    """Return the compiled content with its warnings; raise the 400 with field, line and column of an error."""
    _check_variables(content.variables)
    for field, value in (("subject", content.subject), ("html", content.html), ("text", content.text)):
        if value is not None and "\0" in value:
            raise invalid(field, f"`{field}` contains NUL (U+0000). Remove it.")
    if content.subject is not None and _breaks(content.subject):
        raise invalid("subject", "`subject` contains a line break (CR or LF). Remove it.")
    return inspected(content)


def inspected(content: TemplateContent) -> CheckedContent:
    """Compile content that was checked before, and add its warnings."""
    compiled = _compiled(content)
    return CheckedContent(content, compiled, tuple(_notices(content, compiled)))


def is_large(content: TemplateContent | VersionRow | TemplateWithContent) -> bool:
    """Return True if compiling would block the event loop too long."""
    return sum(len(part or "") for part in (content.subject, content.html, content.text)) > LARGE_CHARS


def content_of(row: VersionRow | TemplateWithContent) -> TemplateContent:
    """Return the content of a stored version."""
    return TemplateContent(row.subject, row.html, row.text, variables_of(row.variables))


def version_of(row: VersionRow) -> Version:
    """Compile a stored version."""
    variables = variables_of(row.variables)
    compiled = template.compile_template(row.subject, row.html, row.text)
    return prepared(compiled, variables, slug=row.slug, version=row.version)


def prepared(compiled: CompiledTemplate, variables: Sequence[Variable], *, slug: str = "", version: int = 0) -> Version:
    """Return a compiled version with its defaults and required names; unsaved content has no slug or version."""
    return Version(
        slug,
        version,
        compiled,
        {one.name: one.default for one in variables if one.default is not None},
        tuple(one.name for one in variables if one.required and one.default is None),
    )


def render(
    version: Version, values: Mapping[str, str], *, field: str = "variables", subject: str | None = None
) -> Rendered:
    """Render the version with `values`; `field` names them in a 400, `subject` replaces the version's subject.

    Values override defaults; a name with neither renders as an empty string, and unused names are ignored.

    Raises `template_error` if required names are missing (it lists all) or the result is too long, and the 400 for a
    value with NUL or with a line break in the subject.
    """
    missing = [name for name in version.required if name not in values]
    if missing:
        raise refusal(version, f"The template needs values for: {', '.join(missing)}. Add them to `{field}`.", missing)
    given = {**version.defaults, **values} if version.defaults else values
    compiled = version.template
    try:
        line = (_rendered(compiled.subject, given) or "") if subject is None else subject
        text, html = _rendered(compiled.text, given), _rendered(compiled.html, given)
    except TooLong as error:
        raise refusal(version, f"The template can't be rendered with these values: {error}.") from None
    if any(part is not None and "\0" in part for part in (line, text, html)):
        name = next(name for name in compiled.names if "\0" in given.get(name, ""))  # templates themselves hold none
        raise invalid(f"{field}.{name}", f"The value of {name!r} contains NUL (U+0000). Remove it.")
    if subject is None:
        _check_subject(line, compiled.subject, given, field)
        if len(line) > MAX_SUBJECT:
            raise refusal(
                version, f"With these values the subject has {len(line)} characters; at most {MAX_SUBJECT} are allowed."
            )
    return Rendered(line, text, html)


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
    return size


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
    subject = f"template {slug!r}" if version is None else f"version {version} of a template {slug!r}"
    return Refusal(
        ErrorType.TEMPLATE_ERROR,
        f"This account has no {subject}. Check `template` and `templateVersion`.",
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


def _check_variables(variables: Sequence[Variable]) -> None:
    if len(variables) > MAX_VARIABLES:
        raise invalid(
            "variables", f"The template declares {len(variables)} variables; at most {MAX_VARIABLES} are allowed."
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


def _compiled(content: TemplateContent) -> CompiledTemplate:
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


def _notices(content: TemplateContent, compiled: CompiledTemplate) -> Iterator[Notice]:
    """Yield the warnings in a stable order."""
    used = compiled.names
    declared = {one.name for one in content.variables}
    for name in used:
        if name not in declared and name != unsubscribe_links.NAME:
            yield Notice(
                "undeclared_variable", f"{name!r} is used but not declared; without a value it is empty.", name
            )
    for one in content.variables:
        if one.name not in used:
            yield Notice("unused_variable", f"{one.name!r} is declared but not used.", one.name)
        if one.required and one.default is not None:
            yield Notice(
                "required_with_default",
                f"{one.name!r} is required but has a default, so it is never missing.",
                one.name,
            )
    if not content.subject:
        yield Notice(
            "no_subject", "The template has no subject; without a `subject` in the send, the message has none."
        )
    if not _has_content(compiled):
        yield Notice("no_content", "The template has neither HTML nor text and can't be sent yet.")
    if content.html and not content.text:
        yield Notice(
            "no_text", "The template has HTML but no text alternative, which some mail clients and spam filters expect."
        )
    yield from _raw_values(compiled.html)


def _has_content(compiled: CompiledTemplate) -> bool:
    return any(part is not None and part.steps for part in (compiled.html, compiled.text))


def _raw_values(html: Program | None) -> Iterator[Notice]:
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


def _rendered(program: Program | None, values: Mapping[str, str]) -> str | None:
    return None if program is None else template.render(program, values)


def _breaks(text: str) -> bool:
    return any(letter in text for letter in _BREAKERS)
