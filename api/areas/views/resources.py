"""`/v1/views`: filters of the console's lists under a name."""

from typing import cast

from msgspec import UNSET

from api.areas.views.schemas import NewView, SavedView, SavedViewList, ViewChange, ViewsQuery
from api.http.operation import Access, Area, Call, Operation
from engine.base import clock, ids
from engine.base.errors import ErrorType
from engine.people.views import service, store
from engine.people.views.types import MAX_VIEWS, ViewPage, ViewRow


async def list_views(call: Call, query: ViewsQuery) -> SavedViewList:
    """Return the views that the person may use."""
    rows = await store.LIST.fetch(call.services.pool, call.account_id, call.person.user_id, query.page)
    return SavedViewList([_view(call, row) for row in rows])


async def save(call: Call, body: NewView) -> SavedView:
    """Save a view."""
    row = await service.save(
        call.services.pool, call.account_id, call.person.user_id, body.page, body.name, body.query, clock.now(),
        shared=body.shared,
    )  # fmt: skip
    return _view(call, row)


async def change(call: Call, body: ViewChange) -> SavedView:
    """Change the given fields of a view."""
    row = await service.change(
        call.services.pool,
        call.account_id,
        call.person.user_id,
        call.person.role,
        call.id,
        clock.now(),
        name=None if body.name is UNSET else body.name,
        query=None if body.query is UNSET else body.query,
        shared=None if body.shared is UNSET else body.shared,
    )
    return _view(call, row)


async def delete(call: Call) -> None:
    """Delete a view."""
    person = call.person
    await service.delete(call.services.pool, call.account_id, person.user_id, person.role, call.id)


def _view(call: Call, row: ViewRow) -> SavedView:
    return SavedView(
        id=ids.format_id(ids.Kind.VIEW, row.id),
        page=cast("ViewPage", row.page),
        name=row.name,
        query=row.query,
        shared=row.shared,
        own=row.user_id == call.person.user_id,
        owner_name=row.owner_name,
        created_at=clock.iso(row.created_at),
        updated_at=clock.iso(row.updated_at),
    )


_PEOPLE = Area("Account", access=Access.SESSION, id_of=ids.Kind.VIEW)
OPERATIONS = (
    Operation(
        "GET", "/v1/views", list_views, "List saved views", _PEOPLE, note="An extra beyond the contract.", lagging=True
    ),
    Operation(
        "POST",
        "/v1/views",
        save,
        "Save the filters of a list under a name",
        _PEOPLE,
        note=f"An extra beyond the contract. A person saves up to {MAX_VIEWS} views in an account.",
        success=201,
        refusals=(ErrorType.CONFLICT,),
    ),
    Operation(
        "PATCH",
        "/v1/views/{id}",
        change,
        "Change a saved view",
        _PEOPLE,
        note="An extra beyond the contract. Admins and the owner can change what others share.",
    ),
    Operation("DELETE", "/v1/views/{id}", delete, "Delete a saved view", _PEOPLE, note="An extra beyond the contract."),
)
