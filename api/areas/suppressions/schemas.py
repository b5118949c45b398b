"""Requests and replies of suppressions."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from engine.sending.emails.types import AddressText
from engine.sending.suppressions.files import SuppressionFileFormat
from engine.sending.suppressions.types import Reason

MAX_ROWS = 1000  # of one import
MAX_FILE_CHARACTERS = 4_000_000  # of one file

ByHand = Literal["manual", "unsubscribe"]  # the service itself records bounces and complaints


class SuppressionsQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of `GET /v1/suppressions`: newest first; every given filter must match."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    before: Annotated[str, Meta(max_length=1000, description="`nextCursor` of the previous page")] | None = None
    reason: Reason | None = None
    search: Annotated[str, Meta(min_length=1, max_length=320, description="Anywhere in the address")] | None = None


class SuppressionsExportQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of `GET /v1/suppressions/export`: all suppressions, or those of one reason."""

    reason: Reason | None = None
    format: SuppressionFileFormat = SuppressionFileFormat.NDJSON


class SuppressionIn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An address to suppress. An existing stronger reason stays."""

    address: AddressText
    reason: ByHand | None = None


class Suppression(Struct, rename="camel"):
    """A suppressed address in its canonical form, and the message that caused it, if any."""

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
    """Rows as for a single suppression; `reason` is the default of rows without one.

    An invalid row does not affect others.
    """

    suppressions: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=MAX_ROWS)]
    reason: ByHand | None = None


class SuppressionFileIn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file as text, for `POST /v1/suppressions/import/file`. `reason` is for rows without one of the two."""

    format: SuppressionFileFormat
    content: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_FILE_CHARACTERS,
            description="CSV with a header line and the columns `address` or `email` and, if wanted, `reason`; or one "
            "object a line. Other columns are left out",
        ),
    ]
    reason: ByHand = "unsubscribe"


class RefusedRow(Struct):
    """A row that was refused; `error` is what a single request would return."""

    index: int
    error: dict[str, Any]


class ImportReply(Struct):
    """The number of rows that were added, replaced a weaker reason, or existed already; and the refused rows."""

    added: int
    changed: int
    unchanged: int
    refused: list[RefusedRow]
