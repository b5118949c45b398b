"""What a template may hold, what is odd about it, and how a published version renders."""

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
from engine.mail import template
from engine.mail.template import BadTemplate, CompiledTemplate, Program, TooLong

RESERVED = frozenset({"preview"})  # `/v1/templates/preview` is a path of its own
LARGE_CHARS = 50_000  # compiling more than this takes over a millisecond: off the event loop
_MADE_UP = 8  # random characters of a made-up id
_FRAME_BYTES, _STEP_BYTES = 2_000, 150  # of one compiled version, and of each of its steps, beside their text
_BREAKERS = ("\r", "\n", "\0")
_VARIABLES = msgspec.json.Decoder(tuple[Variable, ...])
_ENCODER = msgspec.json.Encoder()


def checked(content: TemplateContent) -> CheckedContent:
    """The content compiled and looked over; raises the 400 that names the field, and where in it the fault is."""
    _check_variables(content.variables)
    for field, value in (("subject", content.subject), ("html", content.html), ("text", content.text)):
        if value is not None and "\0" in value:
            raise invalid(field, f"`{field}` must not hold NUL.")
    if content.subject is not None and _breaks(content.subject):
        raise invalid("subject", "`subject` must not hold CR or LF.")
    return inspected(content)


def inspected(content: TemplateContent) -> CheckedContent:
    """Content that was checked before, compiled, with what is odd about it."""
    compiled = _compiled(content)
    return CheckedContent(content, compiled, tuple(_notices(content, compiled)))


def is_large(content: TemplateContent | VersionRow | TemplateWithContent) -> bool:
    """Whether compiling would hold up the event loop."""
    return sum(len(part or "") for part in (content.subject, content.html, content.text)) > LARGE_CHARS


def content_of(row: VersionRow | TemplateWithContent) -> TemplateContent:
    """What a stored version says."""
    return TemplateContent(row.subject, row.html, row.text, variables_of(row.variables))


def version_of(row: VersionRow) -> Version:
    """A stored version, compiled."""
    variables = variables_of(row.variables)
    compiled = template.compile_template(row.subject, row.html, row.text)
    return prepared(compiled, variables, slug=row.slug, version=row.version)


def prepared(compiled: CompiledTemplate, variables: Sequence[Variable], *, slug: str = "", version: int = 0) -> Version:
    """A compiled template with what its variables ask for; without slug and version for unsaved content."""
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
    """The version with these values; `field` names them in a 400. A `subject` stands in place of the version's own.

    Values win over defaults, and a name with neither is the empty string. Names that no tag uses are ignored.
    Raises Refusal: `template_error` with every required name that is missing, or for a result that can't be sent; the
    400 for a value that would break its header or could not be stored.
    """
    missing = [name for name in version.required if name not in values]
    if missing:
        raise refusal(version, f"The template needs a value for: {', '.join(missing)}.", missing)
    given = {**version.defaults, **values} if version.defaults else values
    compiled = version.template
    try:
        line = (_rendered(compiled.subject, given) or "") if subject is None else subject
        text, html = _rendered(compiled.text, given), _rendered(compiled.html, given)
    except TooLong as error:
        raise refusal(version, f"With these values {error}.") from None
    if any(part is not None and "\0" in part for part in (line, text, html)):
        name = next(name for name in compiled.names if "\0" in given.get(name, ""))  # templates themselves hold none
        raise invalid(f"{field}.{name}", f"The value of {name!r} must not hold NUL.")
    if subject is None:
        _check_subject(line, compiled.subject, given, field)
        if len(line) > MAX_SUBJECT:
            raise refusal(version, f"With these values the subject is longer than {MAX_SUBJECT} characters.")
    return Rendered(line, text, html)


def check_sendable(version: Version) -> None:
    """Raises the `template_error` of a version that says nothing: one may be stored, to be finished later."""
    if not _says_something(version.template):
        raise refusal(version, "The template has neither `html` nor `text` yet: publish a version that has.")


def bytes_of(version: Version) -> int:
    """About how much memory a compiled version takes."""
    size = _FRAME_BYTES + 2 * sum(map(len, version.defaults.values()))
    for program in (version.template.subject, version.template.html, version.template.text):
        for _, text, _ in program.steps if program is not None else ():
            size += _STEP_BYTES + (len(text) if text.isascii() else 4 * len(text))
    return size


def refusal(version: Version, message: str, missing: Sequence[str] = ()) -> Refusal:
    """A `template_error` with its evidence; unsaved content has neither name nor version."""
    return Refusal(
        ErrorType.TEMPLATE_ERROR,
        message,
        missing=list(missing),
        template=version.slug or None,
        version=version.version or None,
    )


def unknown(slug: str, version: int | None) -> Refusal:
    """The `template_error` of a template or a version that does not exist."""
    what = f"template {slug!r}" if version is None else f"version {version} of a template {slug!r}"
    return Refusal(
        ErrorType.TEMPLATE_ERROR,
        f"There is no {what} on this account.",
        missing=[],
        template=slug,
        version=version,
    )


def check_slug(slug: str) -> None:
    """Raises the 400 for an id that a path of the API has taken."""
    if slug in RESERVED:
        raise invalid("id", f"`id` can't be {slug!r}: the API has a path of that name.")


def made_up_slug(suggested: str | None) -> str:
    """An id for a template that came without one, other than the suggested one when that can't be had."""
    ending = ids.encode(ids.uuid7())[-_MADE_UP:]
    return f"{(suggested or 'template')[: MAX_SLUG - _MADE_UP - 1].rstrip('-')}-{ending}"


def variables_of(text: str) -> tuple[Variable, ...]:
    """Declared variables from their JSON."""
    return _VARIABLES.decode(text)


def variables_text(variables: Sequence[Variable]) -> str:
    """Declared variables as JSON."""
    return _ENCODER.encode(variables).decode()


def _check_variables(variables: Sequence[Variable]) -> None:
    if len(variables) > MAX_VARIABLES:
        raise invalid("variables", f"A template declares {MAX_VARIABLES} variables at the most.")
    seen: set[str] = set()
    for index, one in enumerate(variables):
        field = f"variables[{index}]"
        if not template.is_name(one.name):
            raise invalid(f"{field}.name", f"{one.name!r} can't be used in a tag: use letters, digits, '_', '-', '.'.")
        if one.name in seen:
            raise invalid(f"{field}.name", f"{one.name!r} is declared twice.")
        seen.add(one.name)
        for name, value in (("default", one.default), ("description", one.description)):
            if value is not None and "\0" in value:
                raise invalid(f"{field}.{name}", f"`{name}` must not hold NUL.")


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
    """What is odd, in a stable order."""
    used = compiled.names
    declared = {one.name for one in content.variables}
    for name in used:
        if name not in declared:
            yield Notice(
                "undeclared_variable", f"{name!r} is used and not declared; without a value it is empty.", name
            )
    for one in content.variables:
        if one.name not in used:
            yield Notice("unused_variable", f"{one.name!r} is declared and not used.", one.name)
        if one.required and one.default is not None:
            yield Notice(
                "required_with_default", f"{one.name!r} is required and has a default: it is never missing.", one.name
            )
    if not content.subject:
        yield Notice("no_subject", "There is no subject; a send has to bring one or goes out without.")
    if not _says_something(compiled):
        yield Notice("no_content", "There is neither HTML nor text; it can't be sent before there is.")
    if content.html and not content.text:
        yield Notice("no_text", "There is HTML and no text alternative; some readers and filters look for one.")
    yield from _raw_values(compiled.html)


def _says_something(compiled: CompiledTemplate) -> bool:
    return any(part is not None and part.steps for part in (compiled.html, compiled.text))


def _raw_values(html: Program | None) -> Iterator[Notice]:
    if html is None:
        return
    for name in dict.fromkeys(text for op, text, _ in html.steps if op == template.Op.RAW):
        yield Notice("raw_value", f"{name!r} goes into the HTML as it is; be sure it is not written by others.", name)


def _check_subject(line: str, program: Program | None, given: Mapping[str, str], field: str) -> None:
    """Raises the 400 that names the value which would end the header: templates themselves hold no line break."""
    if program is None or not _breaks(line):
        return
    printed = [name for op, name, _ in program.steps if op == template.Op.RAW]
    name = next(name for name in printed if _breaks(given.get(name, "")))
    raise invalid(f"{field}.{name}", f"The value of {name!r} stands in the subject, so it must not hold CR or LF.")


def _rendered(program: Program | None, values: Mapping[str, str]) -> str | None:
    return None if program is None else template.render(program, values)


def _breaks(text: str) -> bool:
    return any(letter in text for letter in _BREAKERS)
