"""Read and write single-use tokens, in the transaction of the action that they confirm."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from engine.base.secrets import Pepper
from engine.people.tokens import rules
from engine.people.tokens.rules import LIFETIME, Purpose
from engine.store.queries import Conn, Queries, Source

_SQL = Queries.beside(__file__)


class PresentedToken(Struct, frozen=True):
    """A token: its person and what it confirms."""

    user_id: UUID
    detail: str | None


_IS_STORED = _SQL.command("is_token_stored")
_ISSUE = _SQL.command("issue_token")
_HOLDER = _SQL.rows("holder_of_token", PresentedToken)
_BURN = _SQL.rows("burn_token", PresentedToken)
_BURN_OF = _SQL.command("burn_tokens_of")
FORGET = _SQL.command("forget_tokens")


async def pepper_of(source: Source, pepper: Pepper, mail: UUID) -> Pepper:
    """Return the pepper under which the stored token of a system mail was made; the present one without a token.

    A mail that was queued before a change of the pepper is composed after it with the token that was stored.
    """
    before = pepper.previous
    if before is not None:
        (row,) = await _IS_STORED.records(source, rules.digest_of(rules.token_of(before, mail)))
        if row["stored"]:
            return before
    return pepper


async def issue(
    connection: Conn,
    token: str,
    purpose: Purpose,
    user: UUID,
    *,
    at: datetime,
    detail: str | None = None,
    lifetime: timedelta | None = None,
) -> None:
    """Store a token from `at` on, by default for the lifetime of its purpose; earlier ones of that purpose become
    invalid.
    """
    until = at + (lifetime or LIFETIME[purpose])
    await _ISSUE.execute(connection, rules.digest_of(token), purpose.value, user, detail, at, until)


async def holder(source: Source, token: str, purpose: Purpose, at: datetime) -> UUID:
    """Return the person of a token without consuming it; raise the 400 of `rules.spent`."""
    return (await presented(source, token, purpose, at)).user_id


async def presented(source: Source, token: str, purpose: Purpose, at: datetime) -> PresentedToken:
    """Return a token without consuming it; raise the 400 of `rules.spent`."""
    row = await _HOLDER.first(source, rules.digest_of(token), purpose.value, at) if rules.well_formed(token) else None
    if row is None:
        raise rules.spent()
    return row


async def burn(connection: Conn, token: str, purpose: Purpose, at: datetime) -> PresentedToken:
    """Consume the token; raise the 400 of `rules.spent`. Only one of concurrent requests succeeds."""
    row = await _BURN.first(connection, rules.digest_of(token), purpose.value, at)
    if row is None:
        raise rules.spent()
    return row


async def burn_all(connection: Conn, user: UUID, purposes: Iterable[Purpose]) -> None:
    """Invalidate the person's tokens of these purposes."""
    await _BURN_OF.execute(connection, user, [purpose.value for purpose in purposes])
