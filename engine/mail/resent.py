"""Make a new message of a stored one: the same content under a new date and identity."""

from datetime import datetime
from typing import Final

from engine.mail.fields import divided, fields
from engine.mail.headers import date_field

_REPLACED: Final = frozenset({b"date", b"message-id"})
_CFBL: Final = frozenset({b"cfbl-address", b"cfbl-feedback-id"})


def renewed(mime: bytes, *, message_id: str, at: datetime, cfbl: str) -> bytes:
    """Return the message with another Date and Message-ID, and with `cfbl` in place of its CFBL fields unless it is "".

    All else stays as it was sent: Feedback-ID names the kind of mail, and List-Unsubscribe the person. `message_id` has
    no angle brackets. Raises BadHeader for bytes that are no message; stored ones were checked at acceptance.
    """
    replaced = _REPLACED | _CFBL if cfbl else _REPLACED
    pieces = [f"{date_field(at)}Message-ID: <{message_id}>\r\n{cfbl}".encode()]
    start = 0
    for field in fields(mime, divided(mime)[0]):
        if field.name in replaced:
            pieces.append(mime[start : field.start])
            start = field.end
    return b"".join((*pieces, mime[start:]))
