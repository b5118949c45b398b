"""Check layouts: frames with one `{{{content}}}`, where the content of a template goes. Pure."""

from collections.abc import Iterator, Sequence

from engine.base.errors import ErrorType, Refusal, invalid
from engine.mail import template, unsubscribe_links
from engine.mail.template import CompiledTemplate, Program
from engine.sending.templates import rules
from engine.sending.templates.types import (
    MAX_LAYOUT_USES,
    CheckedLayout,
    LayoutContent,
    LayoutRow,
    Notice,
    TemplateContent,
)

_MAX_NAMED = 10  # templates named in a sentence; the field of the error holds all
_KNOWN = frozenset({template.ITEM, template.CONTENT, unsubscribe_links.NAME})
# What a preview of a layout alone shows in place of a template.
SAMPLE = TemplateContent(
    "", "<h1>Heading</h1>\n<p>The content of a template goes here.</p>\n", "The content of a template goes here.\n", ()
)


def checked(content: LayoutContent) -> CheckedLayout:
    """Return the content with its warnings; raise the 400 with the field of an error, and its place for a wrong tag."""
    rules.check_variables(content.variables, "layout")
    for index, one in enumerate(content.variables):
        if one.name == template.CONTENT:
            raise invalid(
                f"variables[{index}].name",
                "'content' is the place of the template, so it can't be a variable of a layout. Rename the variable.",
            )
    rules.check_parts({"html": content.html, "text": content.text})
    found = _compiled(content)
    _check_content(found.html)
    _check_content(found.text)
    return CheckedLayout(content, tuple(_notices(content, found)))


def inspected(content: LayoutContent) -> CheckedLayout:
    """Add the warnings to content that was checked before."""
    return CheckedLayout(content, tuple(_notices(content, _compiled(content))))


def is_large(html: str, text: str | None) -> bool:
    """Return True if compiling would block the event loop too long."""
    return len(html) + len(text or "") > rules.LARGE_CHARS


def content_of(row: LayoutRow) -> LayoutContent:
    """Return the content of a stored layout."""
    return LayoutContent(row.html, row.text, rules.variables_of(row.variables), row.slug, row.version)


def unknown(slug: str) -> Refusal:
    """Return the 400 for a template that names a layout which does not exist."""
    return invalid("layout", f"Your account has no layout {slug!r}. Create it first, or set `layout` to null.")


def too_many_uses(slug: str, uses: int) -> Refusal:
    """Return the 400 for one more template with a layout that may have no more."""
    return invalid(
        "layout",
        f"{uses} templates use the layout {slug!r}; the limit is {MAX_LAYOUT_USES}. Create another layout for the "
        "rest.",
    )


def in_use(slug: str, templates: Sequence[str]) -> Refusal:
    """Return the 409 for a layout that templates use; `templates` are their ids."""
    named = ", ".join(templates[:_MAX_NAMED])
    more = f" and {len(templates) - _MAX_NAMED} more" if len(templates) > _MAX_NAMED else ""
    return Refusal(
        ErrorType.CONFLICT,
        f"Templates use the layout {slug!r}: {named}{more}. Set another `layout`, or null, on them first.",
        id=slug,
        templates=list(templates),
    )


def _compiled(content: LayoutContent) -> CompiledTemplate:
    return rules.compile_alone(TemplateContent(None, content.html, content.text, ()))


def _check_content(part: Program | None) -> None:
    if part is None:
        return
    try:
        template.content_step(part)
    except ValueError as error:
        raise invalid(part.part.value, f"`{part.part.value}` {error}.") from None


def _notices(content: LayoutContent, compiled: CompiledTemplate) -> Iterator[Notice]:
    used = compiled.names
    yield from rules.undeclared(used, {one.name for one in content.variables}, _KNOWN)
    yield from rules.odd_variables(content.variables, used)
    for one in rules.raw_values(compiled.html):
        if one.variable != template.CONTENT:
            yield one
