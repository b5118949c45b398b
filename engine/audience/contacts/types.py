"""Define contacts, lists and imports as stored, listed and asked for."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Struct, UnsetType

FieldValue = str | int | float | bool
Fields = Mapping[str, FieldValue]


class Consent(StrEnum):
    """State why the account may send broadcasts to a contact."""

    SIGNED_UP = "signed_up"
    CUSTOMER = "customer"
    IMPORTED_WITH_CONSENT = "imported_with_consent"


class ContactRow(Struct, frozen=True):
    """A contact with its lists, the reason of its suppression, None if it is not suppressed, and the lists whose
    broadcasts the person opted out of.
    """

    id: UUID
    address: str
    email: str
    name: str | None
    fields: str  # JSON text
    consent: str
    consent_at: datetime
    consent_by: str
    confirmed: bool
    created_at: datetime
    updated_at: datetime
    lists: list[UUID]
    suppression_reason: str | None
    opted_out_of: list[UUID]


class StoredContactRow(Struct, frozen=True):
    """The fields of a stored contact that an import or a change compares with its own."""

    id: UUID
    address: str
    name: str | None
    fields: str
    consent: str


class NewContact(Struct, frozen=True, kw_only=True):
    """A checked contact to be created."""

    email: str
    address: str
    name: str | None
    fields: dict[str, FieldValue]


class ContactFilters(Struct, frozen=True, kw_only=True):
    """The filters of a list of contacts; None means no filter."""

    before: UUID | None = None
    list_id: UUID | None = None
    search: str | None = None
    address: str | None = None  # canonical


class ContactRows(Struct, frozen=True):
    """A page of contacts, newest first; `has_more` is True if older ones match."""

    rows: list[ContactRow]
    has_more: bool


class ImportRow(Struct, frozen=True):
    """A checked row of an import, or several of one address: an absent name or field leaves the stored one
    unchanged, None removes a field.
    """

    index: int  # of the first row
    email: str
    address: str
    name: str | UnsetType | None
    fields: dict[str, FieldValue | None]


class InvalidRow(Struct, frozen=True):
    """A refused row of an import: its index, and the error that a single request would get."""

    index: int
    error: dict[str, Any]


class ImportResult(Struct, frozen=True, kw_only=True):
    """Count the contacts of an import by what became of them; `suppressed` ones are among the others."""

    created: int
    updated: int
    unchanged: int
    suppressed: int
    over_limit: int
    invalid: list[InvalidRow]


class ContactTotals(Struct, frozen=True):
    """The kept counts of an account, and its plan."""

    contacts: int
    lists: int
    segments: int
    plan: str


class ContactListRow(Struct, frozen=True):
    """A contact list with its number of members."""

    id: UUID
    name: str
    description: str | None
    contacts: int
    created_at: datetime
    updated_at: datetime


class SegmentRow(Struct, frozen=True):
    """A segment; `filter` is JSON text."""

    id: UUID
    name: str
    description: str | None
    filter: str
    created_at: datetime
    updated_at: datetime
