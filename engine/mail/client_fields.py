"""Decide which header fields a client may write, for every way to send.

Composed messages (SMTP submission, `POST /v1/emails/raw`) lose the fields that a client may not write; the JSON API
refuses them in `headers`, and also those that it writes from other fields of the request.
"""

from typing import Final

from engine.mail.address import BadAddress, check_sender, same_organisation
from engine.mail.address_list import author
from engine.mail.encoded_words import unfolded
from engine.mail.fields import Field
from engine.mail.tag_list import BadTagList, parse_tags

# Recipients take these for the word of a mail server, or of a person who passed the message on.
_TRACE: Final = frozenset({
    "authentication-results", "dkim-signature", "domainkey-signature", "received-spf", "return-path", "sender",
})  # fmt: skip
_TRACE_FAMILIES: Final = ("arc-", "resent-")
# Mailbox providers send complaints where these say, and count them for the sender that they name.
_COMPLAINTS: Final = frozenset({"cfbl-address", "cfbl-feedback-id", "feedback-id"})
_COMPOSED: Final = frozenset({
    "bcc", "cc", "date", "from", "message-id", "mime-version", "received", "subject", "to",
})  # fmt: skip

OWNED: Final = _TRACE | _COMPLAINTS | _COMPOSED  # by the service, in messages that it composes
OWNED_FAMILIES: Final = (*_TRACE_FAMILIES, "content-")


def is_owned(name: str) -> bool:
    """Return True if `headers` of the JSON API may not set the field; `name` is in lower case."""
    return name in OWNED or name.startswith(OWNED_FAMILIES)


def is_foreign(field: Field, from_domain: str) -> bool:
    """Return True for a field that is removed from a message that the client composed.

    A Sender and a signature of the From domain stay. `Received` stays, too: it counts the hops of a mail loop.
    """
    name = field.name.decode("ascii")
    if name not in _TRACE:
        return name in _COMPLAINTS or name.startswith(_TRACE_FAMILIES)
    if name == "sender":
        return not _is_sender(field.value, from_domain)
    return name != "dkim-signature" or not _is_signed_by(field.value, from_domain)


def _is_sender(value: bytes, domain: str) -> bool:
    """Return True for one mailbox at `domain`: programs show `Sender on behalf of From`."""
    try:
        found = author(unfolded(value))
        check_sender(found)
    except BadAddress:
        return False
    return found.domain == domain


def _is_signed_by(value: bytes, domain: str) -> bool:
    """Return True for a signature that DMARC may take as aligned with `domain` (RFC 7489 3.1.1)."""
    try:
        signer = parse_tags(value.replace(b"\r\n", b"")).get("d", "").lower()
    except BadTagList:
        return False
    return "." in signer and same_organisation(signer, domain)
