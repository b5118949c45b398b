"""Remove the ways to sign in that a stranger may have made before the owner of the mailbox arrived.

Anybody can sign up with the address of another person, who may open the link in the mail. Until the same person has
shown the mailbox and a password or session, an address counts as verified by the link alone, and the next proof of the
mailbox (a reset, an identity provider, "this wasn't me") removes what was there before.
"""

from uuid import UUID

from engine.base import clock
from engine.people.open_session import end_others
from engine.people.people import store as people
from engine.people.people.store import PersonRow
from engine.people.tokens import store as tokens
from engine.people.tokens.rules import Purpose
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__, "unproven_access.sql")
_DROP_FACTORS = _SQL.command("drop_factors")
_DROP_OTHER_WAYS = _SQL.command("drop_other_ways")


def is_unproven(person: PersonRow) -> bool:
    """Return True if a stranger may have set the person's password and factors."""
    return person.email_verified_at is None or person.verified_by_link


async def drop_factors(connection: Conn, user: UUID) -> int:
    """Delete the person's authenticator, recovery codes, passkeys and identities; return how many ways to sign in."""
    rows = await _DROP_FACTORS.records(connection, user)
    return int(rows[0]["dropped"])


async def drop_other_ways(connection: Conn, user: UUID) -> int:
    """Delete the person's passkeys and identities, with pending sign-ins; return how many."""
    rows = await _DROP_OTHER_WAYS.records(connection, user)
    return int(rows[0]["dropped"])


async def drop_all(connection: Conn, user: UUID) -> int:
    """Delete password, factors, passkeys, identities, links and sessions; return how many factors and identities."""
    dropped = await drop_factors(connection, user)
    await people.SET_PASSWORD.execute(connection, user, None, clock.now())
    await tokens.burn_all(connection, user, Purpose)
    await end_others(connection, user, None)
    return dropped
