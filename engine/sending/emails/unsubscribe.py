"""`listUnsubscribe` of a send request: links of the sender's, or `auto` for the service's own. Pure."""

import re
from typing import Final

from engine.base.errors import invalid
from engine.sending.emails.defaults import DEFAULT_STREAM, stream_of
from engine.sending.emails.headers import forbid_line_breaks
from engine.sending.emails.recipients import recipients_of
from engine.sending.emails.types import PreparedRecipient, SendRequest

AUTO_UNSUBSCRIBE: Final = "auto"  # the service's own page and address
_LINK_ENDS = re.compile(r",\s*(?=<?(?:https:|mailto:)|$)")  # a comma inside a URL is part of it
_UNSUBSCRIBE = re.compile(r"(?:https://|mailto:)[!-;=?-~]+")  # RFC 2369: a URI, so printable ASCII; no space, < or >


def sole_recipient(request: SendRequest) -> PreparedRecipient:
    """Return the recipient of a message with `listUnsubscribe` `auto`; raise the 400 if it can't have such a link."""
    if stream_of(request) == DEFAULT_STREAM:
        raise invalid(
            "listUnsubscribe",
            f"`listUnsubscribe` can't be `auto` on the stream {DEFAULT_STREAM!r}, whose mail people can't unsubscribe "
            "from. Send on another stream or remove it.",
        )
    recipients = recipients_of(request)
    if len(recipients) > 1:
        raise invalid(
            "listUnsubscribe",
            f"`listUnsubscribe` can't be `auto` for {len(recipients)} recipients, because each link belongs to one "
            "person. Send each of them a separate message.",
        )
    return recipients[0]


def list_unsubscribe_of(request: SendRequest, header: tuple[str, str] | None) -> tuple[str | None, bool]:
    """Return the List-Unsubscribe value, and True if RFC 8058 one-click applies.

    One-click needs an https URL that takes the POST. A List-Unsubscribe in `headers` is kept as written. The caller
    then writes List-Unsubscribe-Post in `headers`, too, or the message has none.
    """
    if header is not None:
        return header[1].strip(" "), False
    if not request.list_unsubscribe:
        return None, False
    forbid_line_breaks("listUnsubscribe", request.list_unsubscribe)
    links = [part.strip().removeprefix("<").removesuffix(">") for part in _LINK_ENDS.split(request.list_unsubscribe)]
    for link in links:
        if not _UNSUBSCRIBE.fullmatch(link):
            raise invalid(
                "listUnsubscribe",
                "`listUnsubscribe` must be `auto`, or an https URL, a mailto link, or both, separated by a comma.",
            )
    return ", ".join(f"<{link}>" for link in links), any(link.startswith("https:") for link in links)
