"""Compose system mail from templates, and compute its retries. Pure.

Each kind has a file `templates/<kind>.txt`: a `Subject:` line, then paragraphs with tags of engine.mail.template;
`[label]({{link}})` on its own line becomes a button. Text and HTML are both made from it, so their contents are the
same.
"""

import re
import textwrap
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from msgspec import Struct

from engine.base import clock
from engine.mail.template import Program, TemplatePart, compile_part, escape, render
from engine.people.system_mail.types import SystemMailKind

TEMPLATES = Path(__file__).parent / "templates"
RETRY_WAITS = tuple(timedelta(minutes=minutes) for minutes in (0.5, 2, 5, 15, 30, 60, 120))  # then every two hours
MAX_AGE = timedelta(hours=24)  # mail not sent within a day is dropped
MAX_VALUE = 5_000  # characters of one value
MAX_NAME = 80  # characters of a user-defined name, which may appear in subjects
NAMES = frozenset({"account_name", "inviter", "key_name", "name", "company", "former", "owner"})
MOMENTS = frozenset({"scheduled_for", "signed_up_at"})
_WIDTH = 76
_LINK = re.compile(r"\[([^\]]+)\]\((\{\{\w+\}\})\)")
_TAG = re.compile(r"^\{\{[#^/]\w+\}\}$", re.MULTILINE)
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]|[\ud800-\udfff]")
_LOOKS_LIKE_A_LINK = re.compile(r"://|(?<=\w)\.(?=\w)")
_JOINER = "\u2060"  # WORD JOINER: invisible, and prevents mail clients from making a link of the text
_PARAGRAPH = '<p style="margin:0 0 16px;white-space:pre-line;overflow-wrap:anywhere">'
_BUTTON = (
    '<p style="margin:24px 0"><a href="{href}" style="display:inline-block;padding:12px 20px;border-radius:6px;'
    'background:#1d4ed8;color:#ffffff;text-decoration:none;font-weight:600">{label}</a></p>'
)


class SystemMailContent(Struct, frozen=True):
    """Subject, text and HTML of one mail."""

    subject: str
    text: str
    html: str


class _Template(Struct, frozen=True):
    subject: Program
    text: Program
    html: Program


def next_try(attempts: int, at: datetime) -> datetime:
    """Return the time of the next try after `attempts` tries."""
    return at + RETRY_WAITS[min(attempts, len(RETRY_WAITS)) - 1]


def worth_until(created_at: datetime, lifetime: timedelta | None) -> datetime:
    """Return the time until which a mail may be sent; `lifetime` is that of its token, if it has one."""
    return created_at + (MAX_AGE if lifetime is None else min(MAX_AGE, lifetime))


def content_of(kind: SystemMailKind, values: Mapping[str, object]) -> SystemMailContent:
    """Return subject, text and HTML of a mail. `values` needs `service`, `url` and the names used by the template.

    Values are untrusted: they are shortened, stripped of control characters and escaped, and names can't become links.
    """
    known = {name: shown(name, value) for name, value in values.items() if value is not None}
    template = _template(kind)
    subject = " ".join(render(template.subject, known).split())
    body = render(template.html, known)
    text = "\n\n".join(_wrapped(part) for part in re.split(r"\n{2,}", render(template.text, known).strip()))
    return SystemMailContent(
        subject,
        f"{text}\n\n-- \nSent by {known['service']}, {known['url']}\n",
        render(_layout(), known | {"subject": subject, "body": body}),
    )


def shown(name: str, value: object) -> str:
    """Return a value in the form shown in mail."""
    text = _CONTROLS.sub(" ", str(value)).replace("\r", "\n")[:MAX_VALUE]
    if name in MOMENTS:
        return _moment(text)
    if name not in NAMES:
        return text
    text = " ".join(text.split())
    text = text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 1]}…"
    return _LOOKS_LIKE_A_LINK.sub(lambda found: found[0][:1] + _JOINER + found[0][1:], text)


@cache
def _template(kind: SystemMailKind) -> _Template:
    head, _, body = (TEMPLATES / f"{kind.value}.txt").read_text("utf-8").partition("\n\n")
    if not head.startswith("Subject: ") or "\n" in head:
        raise ValueError(f"{kind.value}.txt must begin with one line `Subject: …` followed by an empty line")
    subject = compile_part(head.removeprefix("Subject: "), TemplatePart.SUBJECT)
    text = compile_part(_LINK.sub(r"\1:\n\2", body), TemplatePart.TEXT)
    blocks = re.split(r"\n{2,}", _TAG.sub(r"\n\n\g<0>\n\n", body).strip())
    html = compile_part("\n".join(_block(block) for block in blocks), TemplatePart.HTML)
    return _Template(subject, text, html)


@cache
def _layout() -> Program:
    return compile_part((TEMPLATES / "layout.html").read_text("utf-8"), TemplatePart.HTML)


def _block(block: str) -> str:
    """Return a paragraph of the template as HTML."""
    if _TAG.fullmatch(block):
        return block
    link = _LINK.fullmatch(block)
    if link is not None:
        return _BUTTON.format(href=link[2], label=escape(link[1]))
    return f"{_PARAGRAPH}{escape(block)}</p>"


def _wrapped(paragraph: str) -> str:
    """Wrap lines at 76 characters; words and links are never broken."""
    return "\n".join(
        textwrap.fill(line, _WIDTH, break_long_words=False, break_on_hyphens=False) for line in paragraph.split("\n")
    )


def _moment(text: str) -> str:
    try:
        at = clock.parse_iso(text)
    except ValueError:
        return text
    return f"{at.day} {at:%B %Y, %H:%M} UTC"
