"""Check the filters of lists of failed deliveries. Pure."""

from collections.abc import Set as AbstractSet
from datetime import datetime

from engine.base import clock
from engine.base.errors import invalid
from engine.base.list_filters import narrowed
from engine.mail.address import BadAddress, bare_address, domain_name
from engine.sending.bounces.types import BounceFilters

_LARGEST = 2**63 - 1


def filters(
    *,
    type: str | None,  # noqa: A002 - the parameter's name
    category: str | None,
    scope: str | None,
    recipient_domain: str | None,
    domain: str | None,
    stream: str | None,
    since: str | None,
    until: str | None,
    visible_domains: AbstractSet[str] | None,
    visible_streams: AbstractSet[str] | None,
) -> BounceFilters:
    """Return the filters in the form of the database; raise the 400 that names the invalid parameter.

    `visible_domains`, `visible_streams`: those that the caller may see, None for all.
    """
    return BounceFilters(
        type=type,
        category=category,
        scope=scope,
        recipient_domain=None if recipient_domain is None else _domain("recipientDomain", recipient_domain),
        domains=narrowed(None if domain is None else _domain("domain", domain), visible_domains),
        streams=narrowed(stream, visible_streams),
        since=None if since is None else _moment("from", since),
        until=None if until is None else _moment("until", until),
    )


def cursor(text: str | None) -> int | None:
    """Return the number of the event that a cursor names; raise the 400 for any other text."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) > _LARGEST:
        raise invalid("before", "`before` must be the `nextCursor` of an earlier page.")
    return int(text)


def address_of(text: str) -> str:
    """Return an address in the form in which recipients are looked up. Raises BadAddress."""
    return bare_address(text.strip()).lower()


def _domain(name: str, text: str) -> str:
    try:
        return domain_name(text)
    except BadAddress as error:
        raise invalid(name, f"`{name}` is not a domain name: {error}") from None


def _moment(name: str, text: str) -> datetime:
    try:
        found = clock.parse_iso(text)
    except ValueError:
        found = None
    if found is None or not text.endswith("Z"):
        raise invalid(name, f"`{name}` must be a time such as 2026-11-20T08:15:00Z.")
    return found
