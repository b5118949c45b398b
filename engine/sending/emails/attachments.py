"""The attachments of a send request. Pure."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TypeVar

from engine.base import ids
from engine.base.errors import ErrorType, Refusal, invalid
from engine.mail import attachments as files
from engine.mail.parts import MailAttachment
from engine.sending.emails.headers import forbid_line_breaks
from engine.sending.emails.types import AttachmentIn, StoredAttachment

Value = TypeVar("Value")


def attachments_of(items: Sequence[AttachmentIn]) -> list[MailAttachment]:
    """Return the decoded attachments; raise the refusal of the first that can't be sent, or of a `cid` given twice."""
    found = [_attachment(item, index) for index, item in enumerate(items)]
    known: set[str] = set()
    for index, one in enumerate(found):
        if one.cid is None:
            continue
        if one.cid in known:
            raise invalid(f"attachments[{index}].cid", f"Two attachments have the cid {one.cid!r}. Make it unique.")
        known.add(one.cid)
    return found


def described(filename: str, content_type: str, content: bytes) -> StoredAttachment:
    """Return what is stored of an attachment beside the message."""
    identity = ids.format_id(ids.Kind.ATTACHMENT, ids.uuid7())
    return StoredAttachment(identity, filename, content_type, len(content), sha256(content).hexdigest())


def _attachment(item: AttachmentIn, index: int) -> MailAttachment:
    field = f"attachments[{index}]"
    for name, value in (("filename", item.filename), ("contentType", item.content_type), ("cid", item.cid or "")):
        forbid_line_breaks(f"{field}.{name}", value)
    content_type = _readable(f"{field}.contentType", files.media_type, item.content_type)
    cid = _readable(f"{field}.cid", files.content_id, item.cid) if item.cid else None
    extension = files.blocked_extension(item.filename)
    if extension is not None:
        raise Refusal(
            ErrorType.ATTACHMENT_BLOCKED,
            f"Mailbox providers reject {extension} files. Send a link instead.",
            filename=item.filename,
        )
    content = _readable(f"{field}.content", files.decode_content, item.content)
    return MailAttachment(
        filename=item.filename, content_type=content_type, content=content,
        disposition=item.disposition or "attachment", cid=cid,
    )  # fmt: skip


def _readable(field: str, read: Callable[[str], Value], text: str) -> Value:
    try:
        return read(text)
    except files.BadContent as error:
        raise invalid(field, f"`{field}`: {error}") from error
