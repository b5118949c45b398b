"""The message that benches and load tests send: about 2 KB of text and HTML. Imports nothing of the service."""

from typing import Final

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
