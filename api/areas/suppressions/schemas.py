"""Wire shapes of suppressions."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from engine.areas.emails.types import AddressText
from engine.areas.suppressions.types import Reason

MAX_ROWS = 1000  # of one import

ByHand = Literal["manual", "unsubscribe"]  # bounces and complaints are what the service itself saw


class SuppressionsQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """`GET /v1/suppressions`: newest first; every filter given must match."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    before: Annotated[str, Meta(max_length=1000, description="`nextCursor` of the page before")] | None = None
    reason: Reason | None = None
    search: Annotated[str, Meta(min_length=1, max_length=320, description="Anywhere in the address")] | None = None


class SuppressionsExportQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """`GET /v1/suppressions/export`: all of them, or those of one reason."""

    reason: Reason | None = None


class SuppressionIn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An address to suppress. A stronger reason that stands already stays."""

    address: AddressText
    reason: ByHand | None = None


class Suppression(Struct, rename="camel"):
    """A suppressed address in its canonical form, and the message that caused it where one did."""

    address: str
    reason: Reason
    detail: str | None
    message_id: str | None
    created_at: str


class SuppressionPage(Struct, rename="camel"):
    """Suppressions, newest first. `nextCursor` is null on the last page."""

    data: list[Suppression]
    next_cursor: str | None
    has_more: bool


class ImportIn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rows as for a single suppression; `reason` is that of rows which name none. A bad row fails alone."""

    suppressions: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=MAX_ROWS)]
    reason: ByHand | None = None


class RefusedRow(Struct):
    """A row that was not taken; `error` is what a single request would have been answered."""

    index: int
    error: dict[str, Any]


class ImportReply(Struct):
    """How many rows were new, took the place of a weaker reason, or stood already; and those not taken."""

    added: int
    changed: int
    unchanged: int
    refused: list[RefusedRow]
