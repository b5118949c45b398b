"""Requests and replies of inbound addresses."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from api.http.if_exists import IfExists
from engine.mail.address import MAX_TEXT
from engine.receiving.inbound_addresses.rules import MAX_LABEL

Label = Annotated[str, Meta(max_length=MAX_LABEL, description="A name for people; empty for none")]


class NewInboundAddress(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """An address to claim, for `POST /v1/inbound/addresses`."""

    address: Annotated[
        str,
        Meta(
            min_length=3,
            max_length=MAX_TEXT,
            description=(
                "Under a verified or the managed receiving domain; `*@domain` catches every address you haven't claimed"
            ),
            examples=["support@example.com"],
        ),
    ]
    label: Label | None = None
    if_exists: IfExists = None


class InboundAddressChange(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The fields to change, for `PATCH /v1/inbound/addresses/{id}`: an omitted field stays, a null label is removed."""

    label: Label | UnsetType | None = UNSET
    enabled: bool | UnsetType = UNSET


class InboundAddress(Struct, rename="camel", kw_only=True):
    """A claimed address. While it is not `enabled`, mail to it is refused; received mail stays."""

    id: str
    address: str
    label: str | None
    enabled: bool
    created_at: str
    last_received_at: str | None


class InboundAddressWithUnread(InboundAddress, kw_only=True):
    """A claimed address with the number of unread messages in its mailbox, without spam."""

    unread: int


class InboundAddressPage(Struct, rename="camel"):
    """Claimed addresses, newest first. `nextCursor` is null on the last page."""

    data: list[InboundAddress]
    next_cursor: str | None
