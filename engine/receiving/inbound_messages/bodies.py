"""Read the bodies of a received message from its bytes, as the single fetch and webhook posts show them. Pure.

Everything is read anew at each request, so that a later version of a reader covers old mail too. Run it in a thread:
10 ms for each 100 KB of HTML.
"""

from typing import Final

from msgspec import Struct

from engine.mail.html import sanitise
from engine.mail.received import read_received
from engine.mail.received_header import ReceivedField
from engine.mail.received_warnings import MailWarning
from engine.mail.reply_text import reply_text


class ReceivedBodies(Struct, frozen=True):
    """The readable bodies of a message.

    `html` is sanitised; where it is None, `html_omitted` names the limit that the HTML of the message exceeds.
    `auto_submitted` and `bulk` follow from the header: mail with the null sender in its envelope is automatic, too.
    """

    text: str | None
    html: str | None
    html_omitted: str | None
    reply_text: str | None
    headers: list[ReceivedField]
    auto_submitted: bool
    bulk: bool
    warnings: list[MailWarning]


NO_BODIES: Final = ReceivedBodies(None, None, None, None, [], auto_submitted=False, bulk=False, warnings=[])


def bodies_of(mime: bytes) -> ReceivedBodies:
    """Return the bodies of a message; never raises."""
    mail = read_received(mime)
    shown = None if mail.html is None else sanitise(mail.html)
    return ReceivedBodies(
        text=mail.text,
        html=None if shown is None else shown.html,
        html_omitted=None if shown is None else shown.omitted,
        reply_text=None if mail.text is None and mail.html is None else reply_text(mail.author_text, mail.author_html),
        headers=mail.headers,
        auto_submitted=mail.auto_submitted,
        bulk=mail.bulk,
        warnings=mail.warnings,
    )
