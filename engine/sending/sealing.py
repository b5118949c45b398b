"""Seal a composed message before it is accepted, so that nobody but its recipient can read it.

Called for one-time codes and for system mail, whose links sign people in.
"""

from msgspec import structs

from engine.delivery.sealed_mail import MailSealer, masked
from engine.mail.address import Mailbox
from engine.sending.emails.types import Prepared


def sealed(message: Prepared, sealer: MailSealer) -> Prepared:
    """Return the message with its content and its only recipient sealed; the canonical address stays, for the check of
    suppressions before it is stored.
    """
    (recipient,) = message.recipients
    address = recipient.mailbox.address
    return structs.replace(
        message,
        recipients=[structs.replace(recipient, mailbox=Mailbox("", masked(address)))],
        mime=sealer.seal_content(message.id, message.mime),
        sealed_recipient=sealer.seal_recipient(message.id, address),
    )
