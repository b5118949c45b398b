"""The message that every measurement sends: about 2 KB of text and HTML."""

from datetime import UTC, datetime
from typing import Final

from engine.mail.address import Mailbox
from engine.mail.compose import Draft, compose

TO: Final = "@@to@@"
SUBJECT: Final = "Your order 4711 is on its way"

_LINES: Final = (
    "Thank you for your order. It left our warehouse this morning and reaches you",
    "within two working days. You can follow the parcel on your account's page.",
)

TEXT: Final = (
    "Hello,\n\n"
    + "\n".join(_LINES)
    + "\n\n"
    + "".join(f"{number} x Article number {4000 + number}, packed separately\n" for number in range(1, 9))
    + "\nIf anything is missing or damaged, reply to this message and we send it again.\n\nThe shop\n"
)

HTML: Final = (
    "<!doctype html><html><body><p>Hello,</p><p>"
    + " ".join(_LINES)
    + "</p><table>"
    + "".join(
        f'<tr><td align="right">{number}</td><td>Article number {4000 + number}, packed separately</td></tr>\n'
        for number in range(1, 13)
    )
    + "</table><p>If anything is missing or damaged, reply to this message and we send it again.</p>"
    + '<p><a href="https://shop.test/orders/4711">Your order</a></p><p>The shop</p></body></html>\n'
)


def around_recipient(sender: str) -> tuple[bytes, bytes]:
    """Return the message for SMTP, dot-stuffed (RFC 5321 4.5.2) and without the final dot, in two parts.

    The parts are the octets before and after the recipient's address.
    """
    draft = Draft(
        message_id="bench@client.test",
        date=datetime.now(UTC),
        sender=Mailbox("Waybill Bench", sender),
        to=(Mailbox("", TO),),
        subject=SUBJECT,
        text=TEXT,
        html=HTML,
    )
    before, _, after = compose(draft).mime.replace(b"\r\n.", b"\r\n..").partition(TO.encode())
    return before, after
