"""Define contacts, lists and imports as stored, listed and asked for."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType

FieldValue = str | int | float | bool
Fields = Mapping[str, FieldValue]


class Consent(StrEnum):
    """State why the account may send broadcasts to a contact."""

    SIGNED_UP = "signed_up"
    CUSTOMER = "customer"
    IMPORTED_WITH_CONSENT = "imported_with_consent"


class ContactRow(Struct, frozen=True):
    """Hold a contact with its lists and the reason of its suppression, None if it is not suppressed."""

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


class StoredContactRow(Struct, frozen=True):
    """Hold what an import or a change compares with what it brings."""

    id: UUID
    address: str
    name: str | None
    fields: str
    consent: str


class NewContact(Struct, frozen=True, kw_only=True):
    """Hold a checked contact to be created."""

    email: str
    address: str
    name: str | None
    fields: dict[str, FieldValue]


class ContactFilters(Struct, frozen=True, kw_only=True):
    """Hold the filters of a list of contacts; None means no filter."""

    before: UUID | None = None
    list_id: UUID | None = None
    search: str | None = None


class ContactRows(Struct, frozen=True):
    """Hold a page of contacts, newest first; `has_more` is True if older ones match."""

    rows: list[ContactRow]
    has_more: bool


class ImportRow(Struct, frozen=True):
    """Hold a checked row of an import: an absent name or field leaves the stored one unchanged."""

    email: str
    address: str
    name: str | UnsetType | None = UNSET
    fields: dict[str, FieldValue] = {}


class InvalidRow(Struct, frozen=True):
    """Hold a refused row of an import: its index, and the error that a single request would get."""

    index: int
    error: dict[str, Any]


class ParsedImport(Struct, frozen=True):
    """Hold the rows of an import, one for each address in the order of first appearance, and the refused ones."""

    rows: list[ImportRow]
    invalid: list[InvalidRow]


class ImportResult(Struct, frozen=True):
    """Count the contacts of an import by what became of them."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    suppressed: int = 0
    over_limit: int = 0


class ContactTotals(Struct, frozen=True):
    """Hold the kept counts of an account, and its plan."""

    contacts: int
    lists: int
    segments: int
    plan: str


class ContactListRow(Struct, frozen=True):
    """Hold a contact list with its number of members."""

    id: UUID
    name: str
    description: str | None
    contacts: int
    created_at: datetime
    updated_at: datetime


class SegmentRow(Struct, frozen=True):
    """Hold a segment; `filter` is JSON text."""

    id: UUID
    name: str
    description: str | None
    filter: str
    created_at: datetime
    updated_at: datetime
