"""Give single messages the service's own unsubscribe link (`listUnsubscribe` `auto`)."""

from typing import Any
from uuid import UUID

from engine.base.errors import unavailable
from engine.mail.unsubscribe_links import UnsubscribeLinks
from engine.mail.unsubscribe_token import link_of_person
from engine.sending.emails import rules
from engine.sending.emails.types import SendRequest
from engine.sending.unsubscribes.store import StoredLink


def facts(request: SendRequest, account: UUID, links: UnsubscribeLinks | None) -> dict[str, Any]:
    """Return the arguments of `rules.prepare` for a message with a link of ours, none for other mail.

    All such messages of an account to one person share a link, so that its rows don't grow with the mail. Raises the
    400 unless the message has one recipient and isn't transactional.
    """
    if request.list_unsubscribe != rules.AUTO_UNSUBSCRIBE:
        return {}
    recipient = rules.sole_recipient(request)
    if links is None:  # the process runs without WAYBILL_KEY_PEPPER
        raise unavailable()
    link = link_of_person(links.key, account, recipient.canonical)
    return {"unsubscribe": links.of(link), "extras": (StoredLink(link, account, recipient.canonical),)}
