"""Rows of system mail; one is written in the transaction of what it tells of."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

import orjson
from msgspec import Struct

from engine.areas.system_mail.types import SystemMailKind
from engine.base import ids
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__)
_INSERT = _SQL.command("insert_system_mail")


class DueMail(Struct, frozen=True):
    """A mail taken to be sent; `detail` is JSON text, `attempts` counts this one."""

    id: UUID
    kind: str
    address: str
    detail: str
    attempts: int
    created_at: datetime


class PendingMail(Struct, frozen=True):
    """What is still to be sent."""

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
    """Have a mail sent, once this transaction has committed; returns its id.

    Give `mail` where the mail carries a token: `engine.areas.tokens.rules.token_of(pepper, mail)` is that token. A
    secret never goes into `detail`.
    """
    return await _insert(connection, mail or ids.uuid7(), kind, address, detail, at)


async def _insert(
    connection: Conn, mail: UUID, kind: SystemMailKind, address: str, detail: Mapping[str, object], at: datetime
) -> UUID:
    await _INSERT.execute(connection, mail, kind.value, address, orjson.dumps(detail).decode(), at)
    return mail
