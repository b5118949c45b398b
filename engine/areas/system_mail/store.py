"""Rows of system mail; one is written in the transaction of what it tells of."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

import orjson

from engine.areas.system_mail.types import Kind
from engine.base import ids
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__)
_INSERT = _SQL.command("insert_system_mail")


async def enqueue(
    connection: Conn, kind: Kind, address: str, *, at: datetime, mail: UUID | None = None, **detail: object
) -> UUID:
    """Have a mail sent, once this transaction has committed; returns its id.

    Give `mail` where the mail carries a token: `engine.areas.tokens.rules.token_of(pepper, mail)` is that token. A
    secret never goes into `detail`.
    """
    return await _insert(connection, mail or ids.uuid7(), kind, address, detail, at)


async def _insert(
    connection: Conn, mail: UUID, kind: Kind, address: str, detail: Mapping[str, object], at: datetime
) -> UUID:
    await _INSERT.execute(connection, mail, kind.value, address, orjson.dumps(detail).decode(), at)
    return mail
