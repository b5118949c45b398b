"""Rows of single-use tokens; whoever changes one holds a transaction with what the token stands for."""

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from engine.areas.tokens import rules
from engine.areas.tokens.rules import LIFETIME, Purpose
from engine.store.queries import Conn, Queries, Source

_SQL = Queries.beside(__file__)


class Burnt(Struct, frozen=True):
    """A token that was just used up: whose it was, and what it confirms."""

    user_id: UUID
    detail: str | None


_ISSUE = _SQL.command("issue_token")
_HOLDER = _SQL.command("holder_of_token")
_BURN = _SQL.rows("burn_token", Burnt)
_BURN_OF = _SQL.command("burn_tokens_of")
FORGET = _SQL.command("forget_tokens")


async def issue(
    connection: Conn, token: str, purpose: Purpose, user: UUID, *, at: datetime, detail: str | None = None
) -> None:
    """Make the token good from `at` on for its purpose's lifetime; an earlier one of the same purpose burns."""
    await _ISSUE.execute(connection, rules.digest_of(token), purpose.value, user, detail, at, at + LIFETIME[purpose])


async def holder(source: Source, token: str, purpose: Purpose, at: datetime) -> UUID:
    """Whose token it is, which stays good; raises the 400 of `rules.spent`."""
    if rules.well_formed(token):
        for row in await _HOLDER.records(source, rules.digest_of(token), purpose.value, at):
            user: UUID = row["user_id"]
            return user
    raise rules.spent()


async def burn(connection: Conn, token: str, purpose: Purpose, at: datetime) -> Burnt:
    """Use the token up; raises the 400 of `rules.spent`. Of two at once one gets it."""
    row = await _BURN.first(connection, rules.digest_of(token), purpose.value, at)
    if row is None:
        raise rules.spent()
    return row


async def burn_all(connection: Conn, user: UUID, purposes: Iterable[Purpose]) -> None:
    """Burn what is left of these purposes, as after a change that makes them moot."""
    await _BURN_OF.execute(connection, user, [purpose.value for purpose in purposes])
