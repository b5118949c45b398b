"""Requests and replies of segments."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from api.areas.contacts.list_schemas import Description, ListName

Filter = Annotated[
    dict[str, Any],
    Meta(
        description="A condition, or `all`, `any` or `not` of conditions. A condition has `field` (a contact field) or "
        "`property` (`email`, `domain`, `name`, `consent`, `confirmed`, `createdAt`, `list`), `op` (default `eq`) and "
        "`value`. Operators: `eq`, `ne`, `in`, `lt`, `le`, `gt`, `ge`, `contains`, `starts_with`, `exists`, `missing`",
        examples=[
            {
                "all": [
                    {"field": "plan", "op": "in", "value": ["pro", "team"]},
                    {"property": "consent", "value": "signed_up"},
                    {"property": "createdAt", "op": "ge", "value": "2026-01-01T00:00:00Z"},
                ]
            }
        ],
    ),
]


class NewSegment(Struct, forbid_unknown_fields=True, kw_only=True):
    """A segment to create, for `POST /v1/segments`."""

    name: ListName
    filter: Filter
    description: Description | None = None


class SegmentChange(Struct, forbid_unknown_fields=True, kw_only=True):
    """The values to change, for `PATCH /v1/segments/{id}`: an omitted value stays, a null description is removed."""

    name: ListName | UnsetType = UNSET
    filter: Filter | UnsetType = UNSET
    description: Description | UnsetType | None = UNSET


class MatchingIn(Struct, forbid_unknown_fields=True, kw_only=True):
    """A filter to try, for `POST /v1/segments/count`."""

    filter: Filter


class MatchingReply(Struct):
    """The number of contacts that match a filter now; null if counting takes too long."""

    contacts: int | None


class Segment(Struct, rename="camel", kw_only=True):
    """A stored filter of contacts, evaluated when it is used.

    `deletedLists`: lists of the filter that no longer exist; a condition on one matches nobody, negated or not.
    """

    id: str
    name: str
    description: str | None
    filter: dict[str, Any]
    deleted_lists: list[str]
    created_at: str
    updated_at: str


class CountedSegment(Segment, kw_only=True):
    """A segment with the number of contacts that match now; null if counting takes too long."""

    contacts: int | None


class SegmentPage(Struct, rename="camel"):
    """Segments, newest first. `nextCursor` is null on the last page."""

    data: list[Segment]
    next_cursor: str | None
