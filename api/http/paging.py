"""Pages of lists that are short enough to be read as a whole: passkeys and identities of a person."""

from collections.abc import Sequence
from typing import Annotated, Protocol, TypeVar
from uuid import UUID

from msgspec import Meta, Struct

from api.http.dispatch import cursor_id
from engine.base import ids


class PageQuery(Struct, forbid_unknown_fields=True):
    """The query of a list: newest first."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    before: Annotated[str, Meta(max_length=100, description="`nextCursor` of the previous page")] | None = None


class Identified(Protocol):
    """A row with an id, which grows with the time of its creation."""

    @property
    def id(self) -> UUID: ...


Row = TypeVar("Row", bound=Identified)


def page_of(rows: Sequence[Row], query: PageQuery, kind: ids.Kind) -> tuple[list[Row], str | None]:
    """Return the rows of a page, newest first, and its `nextCursor`; raise the 400 for a cursor of another kind."""
    before = cursor_id(kind, query.before)
    left = sorted((row for row in rows if before is None or row.id < before), key=lambda row: row.id, reverse=True)
    page = left[: query.limit]
    return page, ids.format_id(kind, page[-1].id) if len(left) > len(page) else None
