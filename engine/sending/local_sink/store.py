"""Find out which messages are an account's own."""

from collections.abc import Collection
from uuid import UUID

from engine.store.queries import Queries, Source

_SQL = Queries.beside(__file__)
_OWN = _SQL.command("own_messages")


async def own(source: Source, account: UUID, messages: Collection[UUID]) -> set[UUID]:
    """Return those of the messages that the account has."""
    if not messages:
        return set()
    rows = await _OWN.records(source, account, list(messages), min(messages), max(messages))
    return {row["id"] for row in rows}
