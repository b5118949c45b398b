"""Pages of lists, newest first: the query, the page that it asks for, and the reply's `data` and `nextCursor`."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Protocol, TypeVar
from uuid import UUID

from msgspec import Meta, Struct

from api.http.path_ids import cursor_id
from engine.base.ids import Kind
from engine.base.list_filters import LAST_ID

Cursor = Annotated[str, Meta(max_length=100, description="`nextCursor` of the previous page")]


class PageQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of a list: newest first."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    before: Cursor | None = None


class Identified(Protocol):
    """A row with an id, which grows with the time of its creation."""

    @property
    def id(self) -> UUID: ...


class Shown(Protocol):
    """An object of a reply, with its public id."""

    id: str


Row = TypeVar("Row")
OwnRow = TypeVar("OwnRow", bound=Identified)
Item = TypeVar("Item", bound=Shown)


class Page(Struct, frozen=True):
    """The part of a list that a request asks for."""

    limit: int
    before: UUID | None  # the last id of the previous page

    @property
    def probe(self) -> int:
        """Return the number of rows to read: one more than the page has shows whether another page follows."""
        return self.limit + 1

    @property
    def below(self) -> UUID:
        """Return the id that all rows of the page are below: `before`, or on the first page LAST_ID."""
        return self.before or LAST_ID

    def of(self, rows: Sequence[Row], show: Callable[[Row], Item]) -> tuple[list[Item], str | None]:
        """Return the page's objects, made by `show`, and the cursor of the next page; `rows` are up to `probe`."""
        data = [show(row) for row in rows[: self.limit]]
        return data, data[-1].id if len(rows) > self.limit else None

    def among(self, rows: Sequence[OwnRow], show: Callable[[OwnRow], Item]) -> tuple[list[Item], str | None]:
        """Return the page's objects and the next cursor, as `of`, from all rows of a list in any order."""
        below = sorted((row for row in rows if row.id < self.below), key=lambda row: row.id, reverse=True)
        return self.of(below, show)


def page_of(kind: Kind, query: Any) -> Page:
    """Return the page that a query with `limit` and `before` asks for; raises 400 for a cursor of another kind."""
    return Page(query.limit, cursor_id(kind, query.before))
