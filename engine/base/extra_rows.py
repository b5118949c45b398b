"""Define rows of other areas that acceptance stores in the transaction of their message.

A message carries them in `Prepared.extras` (engine.sending.emails.types). A refused message and a repeated idempotency
key store none.
"""

from collections.abc import Sequence
from typing import Any, Self

from msgspec import Struct


class ExtraRow(Struct, frozen=True):
    """A row, or a change of rows, that must become visible together with its message.

    An area subclasses it with the fields of its row. A batch with extra rows always takes the heads' locks; batches
    without any cost nothing more.
    """

    @classmethod
    async def write(cls, connection: Any, rows: Sequence[Self]) -> None:
        """Write the rows of a whole batch in one statement, under the locks of the accounts' heads.

        `connection` is the asyncpg connection of the transaction. Raise BadData, or a subclass, to store nothing of the
        batch: acceptance then tries its callers one by one, so that only the caller of the bad row fails.
        """
        raise NotImplementedError  # a subclass without `write` must fail: a message without its rows would be accepted
