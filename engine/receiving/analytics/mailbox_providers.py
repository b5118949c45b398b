"""Tell the provider of a recipient's mailbox by the mail server that answered for it. Pure.

Domains of companies at Google or Microsoft have the mail servers of these, so the server decides. The domain of the
address decides where no server is known, or one that belongs to none of these, such as a relay.
"""

from enum import StrEnum
from functools import lru_cache
from typing import Final

from engine.delivery.sites import PROVIDERS


class MailboxProvider(StrEnum):
    """A provider of mailboxes, as analytics group deliveries."""

    GOOGLE = "google"
    MICROSOFT = "microsoft"
    YAHOO = "yahoo"
    APPLE = "apple"
    OTHER = "other"


# As people know them.
NAMES: Final = {
    MailboxProvider.GOOGLE: "Gmail",
    MailboxProvider.MICROSOFT: "Microsoft",
    MailboxProvider.YAHOO: "Yahoo",
    MailboxProvider.APPLE: "Apple",
    MailboxProvider.OTHER: "Other providers",
}
# Domains in which everybody can have a mailbox, as the providers' sign-up pages offer or offered them.
_DOMAINS: Final = {
    MailboxProvider.GOOGLE: "gmail.com googlemail.com",
    MailboxProvider.MICROSOFT: (
        "outlook.com outlook.de outlook.es outlook.fr outlook.it outlook.jp hotmail.com hotmail.co.uk hotmail.de"
        " hotmail.es hotmail.fr hotmail.it live.com live.co.uk live.de live.fr live.nl msn.com"
    ),
    MailboxProvider.YAHOO: (
        "yahoo.com yahoo.ca yahoo.co.in yahoo.co.uk yahoo.com.br yahoo.de yahoo.es yahoo.fr yahoo.it ymail.com"
        " rocketmail.com aol.com"
    ),
    MailboxProvider.APPLE: "icloud.com me.com mac.com",
}
_BY_DOMAIN: Final = {domain: provider for provider, names in _DOMAINS.items() for domain in names.split()}
_BY_SERVER: Final = {name: MailboxProvider(one.mailbox) for one in PROVIDERS if one.mailbox for name in one.names}


@lru_cache(maxsize=10_000)  # asked for each counted outcome: 2 µs without
def provider_of(server: str | None, domain: str) -> MailboxProvider:
    """Return the provider of the mailboxes at `domain` (lower case), whose mail host `server` is; None: unknown."""
    by_domain = _BY_DOMAIN.get(domain, MailboxProvider.OTHER)
    if server is None:
        return by_domain
    labels = server.lower().rstrip(".").split(".")
    names = (".".join(labels[start:]) for start in range(len(labels)))
    return next((_BY_SERVER[name] for name in names if name in _BY_SERVER), by_domain)
