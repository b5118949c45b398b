"""Render a broadcast for each contact: the content is compiled once, the contact's values are filled in. Pure.

Merge fields are `email`, `name`, the contact's own fields and `unsubscribe_url`. Values are escaped in HTML; numbers
print as in JSON, `true` as `true`, and `false` as nothing, so that sections work.
"""

from html import escape
from typing import Any, Final

import msgspec
import orjson
from msgspec import Struct, structs

from engine.audience.broadcasts.types import Broadcast
from engine.base import ids
from engine.mail.parts import MailAttachment
from engine.mail.unsubscribe_links import (
    DEFAULT_LANGUAGE,
    NAME,
    UnsubscribeLink,
    filled_html,
    filled_text,
    footed_html,
    footed_text,
    language_of,
)
from engine.people.team.recipients import TEST_PREFIX
from engine.sending.emails.types import AttachmentIn, Content, SendRequest
from engine.sending.templates import rules as template_rules
from engine.sending.templates.types import LayoutContent, TemplateContent, Version, VersionRow

_ATTACHMENTS = msgspec.json.Decoder(list[AttachmentIn])
_VALUES: Final = {True: "true", False: "", None: ""}


class MergeContact(Struct, frozen=True):
    """The values of a contact that a broadcast can use; `fields` is JSON text."""

    email: str
    name: str | None = None
    fields: str = "{}"


class CompiledBroadcast(Struct, frozen=True):
    """A broadcast ready to be rendered for many contacts."""

    sender: str
    reply_to: str | None
    stream: str
    list_id: str  # the value of List-Id
    version: Version
    template: str | None
    template_version: int | None
    attachments: list[AttachmentIn]
    files: tuple[MailAttachment, ...]  # the images of its blocks that each message carries
    size_bytes: int  # about how large one message is


def compiled(row: Broadcast, template: VersionRow | None, files: tuple[MailAttachment, ...]) -> CompiledBroadcast:
    """Compile the content of a broadcast, with a footer where it lacks an unsubscribe link.

    `template` is the version to use if the broadcast names a template; `files` are the images of its blocks. Raises the
    400 that names line and column.
    """
    content = _content(row, template)
    layout = None if template is None else template_rules.layout_of(template)
    template_rules.checked(structs.replace(content, variables=()))  # places of errors are those of the author's text
    version = template_rules.version_with(template_rules.inspected(*_footed(content, layout)))
    attachments = [] if row.attachments is None else _ATTACHMENTS.decode(row.attachments)
    parts = (content.html, content.text) if layout is None else (content.html, content.text, layout.html, layout.text)
    size_bytes = sum(len(part or "") for part in parts)
    size_bytes += sum(len(one.content) for one in attachments) + sum(len(one.content) for one in files)
    slug, number = (None, None) if template is None else (template.slug, template.version)
    return CompiledBroadcast(
        row.sender,
        row.reply_to,
        row.stream,
        _list_id(row),
        version,
        slug,
        number,
        attachments,
        files,
        size_bytes,
    )


def _list_id(row: Broadcast) -> str:
    """Return the identifier of the broadcast's list or segment, in the namespace of its sending domain (RFC 2919 2).

    The name of the list is left out: its author writes it for the team, and may change it.
    """
    chosen = row.audience
    if chosen.list_id is not None:
        label = ids.format_id(ids.Kind.LIST, chosen.list_id)
    else:
        assert chosen.segment_id is not None
        label = ids.format_id(ids.Kind.SEGMENT, chosen.segment_id)
    return f"<{label}.{row.from_domain}>"


def _footed(content: TemplateContent, layout: LayoutContent | None) -> tuple[TemplateContent, LayoutContent | None]:
    """Return the content with its layout, and a footer in each body where neither has an unsubscribe link.

    The footer goes into the layout, which has the end of the document.
    """
    page = content.html if layout is None else layout.html
    language = language_of(page) if page else DEFAULT_LANGUAGE
    html = None if content.html is None else footed_html(content.html)
    text = None if content.text is None else footed_text(content.text, language)
    if layout is not None and html != content.html:
        html, layout = content.html, structs.replace(layout, html=footed_html(layout.html))
    if layout is not None and layout.text is not None and text != content.text:
        text, layout = content.text, structs.replace(layout, text=footed_text(layout.text, language))
    return structs.replace(content, html=html, text=text), layout


def rendered(broadcast: CompiledBroadcast, contact: MergeContact, link: UnsubscribeLink) -> Content:
    """Render the content for a contact; raise the refusal for values that the content can't take."""
    values = merge_values(contact)
    values[NAME] = link.url
    made = template_rules.render(broadcast.version, values, field="fields")
    html, text = _linked(made.html, made.text, link)
    return Content(made.subject, text, html, broadcast.template, broadcast.template_version, broadcast.files)


def _linked(html: str | None, text: str | None, link: UnsubscribeLink) -> tuple[str | None, str | None]:
    """Return the bodies with a footer where the link stands in a section that the contact's values leave out."""
    if html is not None and escape(link.url) not in html:
        html = filled_html(footed_html(html), link.url)
    if text is not None and link.url not in text:
        language = DEFAULT_LANGUAGE if html is None else language_of(html)
        text = filled_text(footed_text(text, language), link.url)
    return html, text


def request_to(
    broadcast: CompiledBroadcast, contact: MergeContact, content: Content, link: UnsubscribeLink
) -> SendRequest:
    """Return the send request of a contact's message."""
    headers = {"List-Id": broadcast.list_id, "List-Unsubscribe": link.header}
    if link.one_click:
        headers["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    return SendRequest(
        from_=broadcast.sender,
        to=contact.email,
        subject=content.subject,
        text=content.text,
        html=content.html,
        reply_to=broadcast.reply_to,
        stream=broadcast.stream,
        headers=headers,
        attachments=broadcast.attachments or None,
    )


def merge_values(contact: MergeContact) -> dict[str, str]:
    """Return the values of a contact's merge fields as they are printed."""
    values = {name: _printed(value) for name, value in orjson.loads(contact.fields).items()}
    values["email"] = contact.email
    values["name"] = contact.name or ""
    return values


def without_required(broadcast: CompiledBroadcast) -> CompiledBroadcast:
    """Return the broadcast with all values optional, to check content that no contact fills yet."""
    return structs.replace(broadcast, version=structs.replace(broadcast.version, required=()))


def for_test(content: Content) -> Content:
    """Mark the content of a test."""
    return structs.replace(content, subject=f"{TEST_PREFIX}{content.subject}")


def attachments_text(items: list[AttachmentIn] | None) -> str | None:
    """Return attachments as they are stored."""
    if not items:
        return None
    return msgspec.json.encode(items).decode()


def _printed(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return _VALUES[value]
    return orjson.dumps(value).decode()


def _content(row: Broadcast, template: VersionRow | None) -> TemplateContent:
    if template is None:
        return TemplateContent(row.subject, row.html, row.text, ())
    stored = template_rules.content_of(template)
    return stored if row.subject is None else structs.replace(stored, subject=row.subject)
