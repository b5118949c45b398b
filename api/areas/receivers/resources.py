"""`GET /v1/receivers`: how receivers treat mail, and how long it takes to arrive."""

from typing import Annotated

from msgspec import Meta, Struct

from api.http.operation import Area, Call, LimitedKeys, Operation
from engine.base.errors import invalid
from engine.mail.address import BadAddress, domain_name
from engine.receiving.receivers.types import ReceiverReport


class ReceiversQuery(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The query of `GET /v1/receivers`."""

    domain: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=253,
            description="Only the receiver of this recipient domain, whose MX records are looked up if need be",
            examples=["gmail.com"],
        ),
    ] | None = None  # fmt: skip


class ReceiverList(Struct):
    """The providers of mailboxes, then the busy sites of others."""

    data: list[ReceiverReport]


async def list_receivers(call: Call, query: ReceiversQuery) -> ReceiverList:
    """Return how receivers treat mail."""
    account = call.account_id if call.reach is None else None  # a limited key sees nothing of the whole account
    if query.domain is None:
        return ReceiverList(await call.services.receivers.reports(account))
    try:
        domain = domain_name(query.domain)
    except BadAddress as error:
        raise invalid("domain", f"`domain` is not a domain name: {error}") from None
    return ReceiverList([await call.services.receivers.report(account, domain)])


OPERATIONS = (
    Operation(
        "GET",
        "/v1/receivers",
        list_receivers,
        "List how mail providers treat mail at present",
        Area("Deliverability", reads=("analytics:read",), limited_keys=LimitedKeys.FREE),
        note="The figures are of the last hour or less, of all accounts of this installation together. They follow a "
        "change within minutes.",
    ),
)
