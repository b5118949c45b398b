"""The messages of load processes, in two parts: before and after the recipient, in which alone they differ."""

import base64
import json
import os
from datetime import UTC, datetime
from typing import Final

from engine.mail.address import Mailbox
from engine.mail.compose import Draft, compose
from engine.mail.parts import MailAttachment
from loadtests.kit.message import HTML, SUBJECT, TEXT

_TO: Final = "@@to@@"
_NAME: Final = "Waybill Bench"
_FILE: Final = "order-4711.bin"
_TYPE: Final = "application/octet-stream"


def request_around(sender: str, attached: int) -> tuple[bytes, bytes]:
    """Return the JSON of a message with a random attachment of `attached` octets (0: none)."""
    body: dict[str, object] = {
        "from": f"{_NAME} <{sender}>", "to": [_TO], "subject": SUBJECT, "text": TEXT, "html": HTML,
    }  # fmt: skip
    if attached:
        content = base64.b64encode(os.urandom(attached)).decode()
        body["attachments"] = [{"filename": _FILE, "contentType": _TYPE, "content": content}]
    return _around(json.dumps(body).encode())


def mime_around(sender: str, attached: int) -> tuple[bytes, bytes]:
    """Return the MIME of a message with a random attachment of `attached` octets (0: none)."""
    files = (MailAttachment(filename=_FILE, content_type=_TYPE, content=os.urandom(attached)),) if attached else ()
    draft = Draft(
        message_id="bench@client.test", date=datetime.now(UTC), sender=Mailbox(_NAME, sender), to=(Mailbox("", _TO),),
        subject=SUBJECT, text=TEXT, html=HTML, attachments=files,
    )  # fmt: skip
    return _around(compose(draft).mime)


def _around(message: bytes) -> tuple[bytes, bytes]:
    before, _, after = message.partition(_TO.encode())
    return before, after
