"""Render a delivery certificate as PDF for people: what it says, proves and does not prove, with the JWS attached.

Takes about 10 ms; call it in a thread. The page shows the addresses that the signed statement holds as digests.
"""

from typing import Final

import msgspec

from engine.accounts.delivery_certificates.types import (
    KEYS_PATH,
    CertifiedRecipient,
    CertifiedServer,
    SignedStatement,
)
from engine.accounts.pdf_page import MARGIN, WIDTH, PdfPage

TITLE: Final = "Delivery certificate"
_LABEL: Final = 110.0  # points from the margin to the values
_OUTCOMES: Final = {
    "delivered": "accepted by the recipient's mail server",
    "bounced": "bounced: permanently refused",
    "complained": "accepted by the mail server; the recipient then reported it as spam",
    "failed": "not delivered within the time allowed",
    "rejected": "not sent: the service refused it",
    "canceled": "not sent: canceled",
}
PROVES: Final = (
    "The holder of the signing key stated, and can't deny, that it handled this message, with this content.",
    "It also stated that the named mail servers replied as shown, at the time shown.",
    "Accepted means that the recipient's mail server took responsibility for the message (RFC 5321, 4.2.5).",
)
PROVES_NOT: Final = (
    "That the message was read, opened, or shown in an inbox: the server may have filed it as spam or dropped it.",
    "That the address belongs to a certain person, or who wrote the message.",
    "What happened after the time of issue: a complaint or a late bounce may follow.",
)


def render(issued: SignedStatement) -> bytes:
    """Return the PDF of a certificate, with the certificate itself as an attached file."""
    said = issued.statement
    page = PdfPage(f"{TITLE} {said.message}", said.installation, said.message)
    page.text(MARGIN, TITLE, size=20, bold=True)
    page.down(2, 20)
    _fact(page, "Message", said.message)
    _fact(page, "Account", said.account)
    _fact(page, "Service", said.installation)
    _fact(page, "Accepted", said.accepted_at)
    _fact(page, "Issued", said.issued_at)
    if said.content is not None:
        _fact(page, "Size", f"{said.content.size_bytes:,} bytes")
        _fact(page, "SHA-256", said.content.sha256)
    if said.missing:
        _fact(page, "No longer stored", ", ".join(said.missing))
    for place, (recipient, address) in enumerate(zip(said.recipients, issued.addresses, strict=True), 1):
        _recipient(page, place, recipient, address)
    _list(page, "What this proves", PROVES)
    _list(page, "What this does not prove", PROVES_NOT)
    _verification(page, issued)
    return page.finish()


def _recipient(page: PdfPage, place: int, recipient: CertifiedRecipient, address: str | None) -> None:
    page.down()
    page.text(MARGIN, f"Recipient {place}", bold=True)
    page.down()
    _fact(page, "Address", address or "not stored")
    outcome = _OUTCOMES.get(recipient.outcome, recipient.outcome)
    _fact(page, "Outcome", f"{outcome} (simulated: no mail left the service)" if recipient.simulated else outcome)
    if recipient.delivered_at or recipient.at:
        _fact(page, "Time", recipient.delivered_at or recipient.at or "")
    if recipient.server is not None:
        _server(page, recipient.server)


def _server(page: PdfPage, server: CertifiedServer) -> None:
    if server.host:
        _fact(page, "Mail server", f"{server.host} [{server.ip}]" if server.ip else server.host)
    tls = server.tls
    if tls is not None:
        policy = f", policy {tls.policy}" if tls.policy else ""
        _fact(page, "Encryption", f"{tls.version or 'TLS'}, certificate {tls.certificate or 'unknown'}{policy}")
    elif server.host:
        _fact(page, "Encryption", "none")
    if server.reply:
        _fact(page, "Reply", server.reply)


def _verification(page: PdfPage, issued: SignedStatement) -> None:
    content = msgspec.json.format(msgspec.json.encode(issued.certificate), indent=2)
    name = f"{issued.statement.message}-certificate.json"
    page.attach(name, content, "application/json")
    steps = (
        f"Save the signed certificate, which is attached to this file as {name}. The text on this page is not signed.",
        f"Run `waybill certificate verify {name}`, or use any JOSE library with the algorithm Ed25519.",
        f"The public keys are at {issued.statement.installation}{KEYS_PATH}",
    )
    _list(page, "How to verify", steps)


def _fact(page: PdfPage, name: str, value: str) -> None:
    page.text(MARGIN, name)
    for line in page.wrapped(value, WIDTH - 2 * MARGIN - _LABEL) or [""]:
        page.text(MARGIN + _LABEL, line)
        page.down()


def _list(page: PdfPage, title: str, sentences: tuple[str, ...]) -> None:
    page.down()
    page.text(MARGIN, title, bold=True)
    page.down()
    for sentence in sentences:
        for place, line in enumerate(page.wrapped(sentence, WIDTH - 2 * MARGIN - 12)):
            if place == 0:
                page.text(MARGIN, "•")
            page.text(MARGIN + 12, line)
            page.down()
