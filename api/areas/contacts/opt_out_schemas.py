"""Requests and replies of opt-outs of contact lists."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from engine.audience.contacts.files import FileFormat
from engine.sending.emails.types import AddressText
from engine.sending.unsubscribes.types import OptOutSource

MAX_ADDRESSES = 1_000  # of one request
MAX_FILE_CHARACTERS = 4_000_000


class OptOutsQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of a page, newest first."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    before: Annotated[str, Meta(max_length=1000, description="`nextCursor` of the previous page")] | None = None


class OptOutsExportQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of `GET /v1/lists/{id}/opt-outs/export`."""

    format: FileFormat = FileFormat.NDJSON


class ListOptOut(Struct, rename="camel", kw_only=True):
    """A person who opted out of the broadcasts to a list, whether on the list or not."""

    address: Annotated[str, Meta(description="The email address in its canonical form")]
    source: OptOutSource
    created_at: str


class ListOptOutPage(Struct, rename="camel"):
    """Opt-outs, newest first. `nextCursor` is null on the last page."""

    data: list[ListOptOut]
    next_cursor: str | None


class NewOptOuts(Struct, forbid_unknown_fields=True, kw_only=True):
    """Addresses of people who opted out of a list, for `POST /v1/lists/{id}/opt-outs`."""

    addresses: Annotated[list[AddressText], Meta(min_length=1, max_length=MAX_ADDRESSES)]


class OptOutFileIn(Struct, forbid_unknown_fields=True, kw_only=True):
    """A file as text, for `POST /v1/lists/{id}/opt-outs/import/file`."""

    format: FileFormat
    content: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_FILE_CHARACTERS,
            description="CSV with a header line and the column `address` or `email`; or one object a line. Other "
            "columns are left out",
        ),
    ]


class RefusedOptOut(Struct):
    """An address that was refused; `error` says why."""

    index: int
    error: dict[str, Any]


class OptOutsReply(Struct):
    """The number of addresses that were added and of those that had opted out before; and the refused ones."""

    added: int
    already: int
    refused: list[RefusedOptOut]
