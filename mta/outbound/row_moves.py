"""Rows that are moving to another shard: they must not be taken into memory from where they were. No I/O.

A row is moved by the process that owns its shard, while that same process may be reading it to deliver it. A reader
announces itself (`reading`); a row that began to move is refused to every read that began before the move was
committed.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from uuid import UUID

from engine.delivery.queue import Row
from engine.store.postgres import STATEMENT_TIMEOUT_S

DOUBT_S = STATEMENT_TIMEOUT_S + 10.0  # a statement whose answer was lost may still be running for so long

Key = tuple[UUID, str]
_There = tuple[UUID, str, int]  # a row where it was


class RowMoves:
    """The moves of one process."""

    def __init__(self) -> None:
        self._turn = 0
        self._reads: list[int] = []  # the turns in which the running reads began
        self._leaving: dict[_There, int] = {}  # in which turn the row began to move
        self._moved: dict[int, list[_There]] = {}  # by the turn in which their move was known to be committed
        self._doubtful: dict[_There, float] = {}

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Announce a read, for as long as rows are read and taken into memory."""
        began = self._turn
        self._reads.append(began)
        try:
            yield
        finally:
            self._reads.remove(began)
            if self._leaving:
                self._forget()

    def begin(self, keys: Iterable[Key], shard: int) -> None:
        """Note that rows begin to leave `shard`; none of them may be in memory."""
        self._leaving |= {(message, domain, shard): self._turn for message, domain in keys}

    def moved(self, keys: Iterable[Key], shard: int) -> None:
        """Note that the move of these rows is committed."""
        self._moved[self._turn] = [(message, domain, shard) for message, domain in keys]
        self._turn += 1
        self._forget()

    def doubt(self, keys: Iterable[Key], shard: int) -> None:
        """Note that the answer to the move was lost: for a while it is unknown whether they have moved."""
        until = time.monotonic() + DOUBT_S
        self._doubtful |= {(message, domain, shard): until for message, domain in keys}

    def refuses(self, row: Row) -> bool:
        """Return True for a row that was read where it may be no more."""
        return bool(self._leaving) and (row.message_id, row.domain, row.shard) in self._leaving

    def _forget(self) -> None:
        oldest = min(self._reads, default=self._turn)
        for turn in [turn for turn in self._moved if turn < oldest]:
            for there in self._moved.pop(turn):
                if self._leaving.get(there, turn + 1) <= turn and there not in self._doubtful:
                    del self._leaving[there]
        now = time.monotonic()
        for there in [there for there, until in self._doubtful.items() if until < now]:
            del self._doubtful[there]
            self._leaving.pop(there, None)
