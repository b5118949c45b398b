"""Find the account that an operator names by id or by name."""

from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import ids
from engine.store.queries import Queries

MAX_NAMED = 5  # accounts of one name that an error lists


class AccountIdRow(Struct, frozen=True):
    """The id of an account found by name."""

    id: UUID


_ACCOUNTS_NAMED = Queries.beside(__file__, "find_account.sql").rows("accounts_named", AccountIdRow)


async def find_account(pool: asyncpg.Pool, text: str) -> UUID:
    """Return the account with this id (acc_…) or name; raises ValueError unless exactly one matches."""
    try:
        return ids.parse_id(ids.Kind.ACCOUNT, text)
    except ids.WrongId:
        found = await _ACCOUNTS_NAMED.fetch(pool, text, MAX_NAMED)
    if len(found) == 1:
        return found[0].id
    if not found:
        raise ValueError(f"No account is named {text!r}. `ops account list` shows names and ids.")
    named = ", ".join(ids.format_id(ids.Kind.ACCOUNT, one.id) for one in found)
    raise ValueError(f"Several accounts are named {text!r}. Give the id of one: {named}.")
