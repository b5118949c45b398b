"""Double opt-in: store the link that a contact is mailed, and confirm the contact when the link is used."""

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.audience.contacts import store
from engine.base import ids
from engine.base.errors import ErrorType, Refusal
from engine.base.events import AccountEvent
from engine.base.secrets import DerivedKey, Pepper, derived
from engine.ledger.events import record_event
from engine.mail import unsubscribe_token
from engine.store.database_clock import new_time
from engine.store.queries import Conn, Queries, Source

LIFETIME: Final = timedelta(days=14)
MAX_MAILS: Final = 5  # to one contact
PAUSE: Final = timedelta(minutes=1)  # between two of them
BY_CONTACT: Final = "contact"  # the actor of a confirmation


class ConfirmationRow(Struct, frozen=True):
    """The state of a link: who asks whom, and whether it was used."""

    account_id: UUID
    contact_id: UUID
    sender: str
    email: str
    confirmed: bool
    expires_at: datetime


_SQL = Queries.beside(__file__, "confirmations.sql")
_ASK = _SQL.command("ask_confirmation")
_ASKED = _SQL.command("asked")
_READ = _SQL.rows("read_confirmation", ConfirmationRow)
_CONFIRM = _SQL.command("confirm_contact")


def key_of(pepper: Pepper) -> DerivedKey:
    """Derive the key of all confirmation links of an installation."""
    return derived(pepper, "contact confirmation")


def link_url(pepper: Pepper, public_url: str, link: UUID) -> str:
    """Return the URL of a confirmation link."""
    return f"{public_url.rstrip('/')}/c/{unsubscribe_token.token(key_of(pepper), link)}"


async def ask(connection: Conn, account: UUID, contact: UUID, sender: str) -> UUID:
    """Store a new link for an unconfirmed contact and return its id; raise the 429 for too many.

    The caller's transaction holds the lock of the account's totals.
    """
    at = await new_time(connection)
    for row in await _ASKED.records(connection, account, contact):
        _check_pace(row["mails"], row["mailed_at"], at)
    link = ids.uuid7_at(at)
    await _ASK.execute(connection, link, account, contact, sender, at, at + LIFETIME)
    return link


async def read(source: Source, link: UUID) -> ConfirmationRow | None:
    """Return the state of a link; None if its contact is gone, or another mail replaced it."""
    return await _READ.first(source, link)


async def confirm(pool: asyncpg.Pool, link: UUID) -> ConfirmationRow | None:
    """Confirm the contact of a link, once, and return the state after it; None as for `read`.

    It works for accounts that are suspended, and lifts no suppression.
    """
    row = await read(pool, link)
    if row is None or row.confirmed:
        return row
    async with pool.acquire() as connection, connection.transaction():
        await store.lock_totals(connection, row.account_id)
        at = await new_time(connection)
        if await _CONFIRM.records(connection, row.account_id, row.contact_id, link, at):
            detail = {"id": ids.format_id(ids.Kind.CONTACT, row.contact_id), "consent": "signed_up"}
            await record_event(connection, row.account_id, AccountEvent.CONTACT_CONFIRMED, detail, actor=BY_CONTACT)
        return await read(connection, link)


def _check_pace(mails: int, mailed_at: datetime, at: datetime) -> None:
    if mails >= MAX_MAILS:
        raise Refusal(
            ErrorType.RATE_LIMITED,
            f"You've sent this contact {mails} confirmation emails, the maximum. Contact the person another way.",
            retry_after_s=int(LIFETIME.total_seconds()),
        )
    wait = (mailed_at + PAUSE - at).total_seconds()
    if wait > 0:
        raise Refusal(
            ErrorType.RATE_LIMITED,
            f"You sent this contact a confirmation email less than a minute ago. Wait {int(wait) + 1} s.",
            retry_after_s=int(wait) + 1,
        )
