"""Give single messages the service's own unsubscribe link (`listUnsubscribe` `auto`)."""

from msgspec import structs

from engine.base.errors import unavailable
from engine.mail.unsubscribe_links import UnsubscribeLinks
from engine.mail.unsubscribe_token import link_of_person
from engine.sending.emails.types import MessageFacts, SendRequest
from engine.sending.emails.unsubscribe import AUTO_UNSUBSCRIBE, sole_recipient
from engine.sending.unsubscribes.store import StoredLink


def with_own_link(facts: MessageFacts, request: SendRequest, links: UnsubscribeLinks | None) -> MessageFacts:
    """Return the facts with a link of ours and its row; unchanged for a request that asks for none.

    All such messages of an account to one person share a link, so that its rows don't grow with the mail. Raises the
    400 unless the message has one recipient and isn't transactional.
    """
    if request.list_unsubscribe != AUTO_UNSUBSCRIBE:
        return facts
    recipient = sole_recipient(request)
    if links is None:  # the process runs without WAYBILL_KEY_PEPPER
        raise unavailable()
    link = link_of_person(links.key, facts.account_id, recipient.canonical)
    row = StoredLink(link, facts.account_id, recipient.canonical)
    return structs.replace(facts, unsubscribe=links.of(link), extras=(row,))
