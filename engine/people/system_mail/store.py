"""Read and write queued system mail; mail is inserted in the transaction of the change that it reports."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import orjson
from msgspec import Struct

from engine.base import ids
from engine.people.system_mail.types import SystemMailKind
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__)
_INSERT = _SQL.command("insert_system_mail")
_INSERT_MANY = _SQL.command("insert_system_mails")


class DueMail(Struct, frozen=True):
    """A mail claimed for sending; `detail` is JSON text, `attempts` includes this one."""

    id: UUID
    kind: str
    address: str
    detail: str
    attempts: int
    created_at: datetime


class PendingMail(Struct, frozen=True):
    """Count the queued mail."""

    waiting: int
    oldest: datetime | None


TAKE_DUE = _SQL.rows("take_due_mail", DueMail)
PUT_OFF = _SQL.command("put_off_mail")
NOTE = _SQL.command("note_in_mail")
DROP = _SQL.command("drop_mail")
DROP_OLD = _SQL.command("drop_old_mail")
WAITING = _SQL.rows("waiting_mail", PendingMail)


async def enqueue(
    connection: Conn, kind: SystemMailKind, address: str, *, at: datetime, mail: UUID | None = None, **detail: object
) -> UUID:
    """Queue a mail, sent once this transaction has committed; return its id.

    Give `mail` if the mail carries a token, which is `engine.people.tokens.rules.token_of(pepper, mail)`. Never put a
    secret into `detail`.
    """
    return await _insert(connection, mail or ids.uuid7(), kind, address, detail, at)


async def enqueue_many(
    connection: Conn, kind: SystemMailKind, mails: Sequence[tuple[str, Mapping[str, object]]], *, at: datetime
) -> None:
    """Queue mails of one kind, each an address with its detail, by one statement; as `enqueue` does."""
    if mails:
        made = list(ids.uuid7s(len(mails)))
        addresses = [address for address, _ in mails]
        details = [orjson.dumps(detail).decode() for _, detail in mails]
        await _INSERT_MANY.execute(connection, made, kind.value, addresses, details, at)


async def _insert(
    connection: Conn, mail: UUID, kind: SystemMailKind, address: str, detail: Mapping[str, object], at: datetime
) -> UUID:
    await _INSERT.execute(connection, mail, kind.value, address, orjson.dumps(detail).decode(), at)
    return mail
