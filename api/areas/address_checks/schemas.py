"""Requests and replies of address checks."""

from typing import Annotated

from msgspec import Meta, Struct

from engine.codes.address_checks.rules import MAX_ADDRESSES
from engine.codes.address_checks.types import AddressCheck

MAX_TEXT = 1_000
CheckedText = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]


class AddressesToCheck(Struct, forbid_unknown_fields=True, kw_only=True):
    """Addresses to check. Give exactly one of `address` and `addresses` (up to 100)."""

    address: CheckedText | None = None
    addresses: Annotated[list[CheckedText], Meta(min_length=1, max_length=MAX_ADDRESSES)] | None = None


class AddressChecks(Struct, kw_only=True):
    """The results in the order of the request.

    `charged`: how many count against the month; `unknown` and repeated addresses do not.
    """

    data: list[AddressCheck]
    charged: int
