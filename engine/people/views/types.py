"""Define saved views and their limits."""

from datetime import datetime
from typing import Final, Literal
from uuid import UUID

from msgspec import Struct

ViewPage = Literal["messages", "suppressions", "requests", "contacts", "inbox"]
MAX_NAME: Final = 60
MAX_QUERY: Final = 2_000  # characters
MAX_VIEWS: Final = 50  # of a person in an account


class ViewRow(Struct, frozen=True):
    """A saved view; `owner_name` is the name or address of the person who saved it."""

    id: UUID
    user_id: UUID
    owner_name: str
    page: str
    name: str
    query: str
    shared: bool
    created_at: datetime
    updated_at: datetime
