"""The messages that scenarios send: about 2 KB of text and HTML, and files to attach."""

import base64
import random
from typing import Any, Final

SUBJECT: Final = "Your order 4711 is on its way"
_PROSE: Final = (
    "Thank you for your order. It left our warehouse this morning and reaches you within two working days. You can "
    "follow the parcel on your account's page."
)
TEXT: Final = (
    f"Hello,\n\n{_PROSE}\n\n"
    + "".join(f"{number} x Article number {4000 + number}, packed separately\n" for number in range(1, 9))
    + "\nIf anything is missing or damaged, reply to this message and we send it again.\n\nThe shop\n"
)
HTML: Final = (
    f"<!doctype html><html><body><p>Hello,</p><p>{_PROSE}</p><table>"
    + "".join(
        f'<tr><td align="right">{number}</td><td>Article number {4000 + number}, packed separately</td></tr>\n'
        for number in range(1, 13)
    )
    + "</table><p>If anything is missing or damaged, reply to this message and we send it again.</p>"
    '<p><a href="https://shop.test/orders/4711">Your order</a></p><p>The shop</p></body></html>\n'
)
FILE_SIZES: Final = (10_000, 100_000, 1_000_000)  # octets
FILE_SHARES: Final = (6, 3, 1)  # of ten messages with a file


def message(sender: str, recipient: str, **more: Any) -> dict[str, Any]:
    """Return the body of `POST /v1/emails` for one recipient."""
    return {
        "from": f"The Shop <{sender}>", "to": [recipient], "subject": SUBJECT, "text": TEXT, "html": HTML, **more
    }  # fmt: skip


def attachments(seed: int = 4711) -> list[dict[str, str]]:
    """Return one attachment of each size with incompressible content; call once, since encoding takes time."""
    source = random.Random(seed)
    return [
        {
            "filename": f"invoice-{size}.pdf",
            "contentType": "application/pdf",
            "content": base64.b64encode(b"%PDF-1.7\n" + source.randbytes(size)).decode(),
        }
        for size in FILE_SIZES
    ]
