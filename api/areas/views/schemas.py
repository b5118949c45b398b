"""Requests and replies of saved views."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from engine.people.views.types import MAX_NAME, MAX_QUERY, ViewPage

ViewName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
ViewQuery = Annotated[str, Meta(max_length=MAX_QUERY)]


class ViewsQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The list of the console whose views are wanted; without it, those of all lists."""

    page: ViewPage | None = None


class NewView(Struct, forbid_unknown_fields=True, kw_only=True):
    """A view to save, for `POST /v1/views`."""

    page: ViewPage
    name: ViewName
    query: ViewQuery
    shared: bool = False


class ViewChange(Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields to change, for `PATCH /v1/views/{id}`: an omitted field stays."""

    name: ViewName | UnsetType = UNSET
    query: ViewQuery | UnsetType = UNSET
    shared: bool | UnsetType = UNSET


class SavedView(Struct, rename="camel", kw_only=True):
    """Filters of a list of the console under a name; a shared view is shown to all people of the account."""

    id: str
    page: ViewPage
    name: str
    query: str
    shared: bool
    own: bool
    owner_name: str
    created_at: str
    updated_at: str


class SavedViewList(Struct):
    """Your own views first, then those that others share, each by name."""

    data: list[SavedView]
