"""Keeps outcomes in a synced file while they cannot be settled, so that a process killed then sends nothing twice.

While settling commits, nothing is written. As soon as PostgreSQL is away, or a commit lasts for `SLOW_S`, every outcome
that waits is appended to a file and synced, in groups; no delivery begins before the outcomes of those before it are in
the file. The file is removed once all of it is settled. A process that starts, and one that is about to take the shards
of others, first settles what ended processes of its host left. Another host cannot read these files: if its processes
take the shards first, the messages are sent again (ops/decisions/0093).
"""

import asyncio
import errno
from collections.abc import Iterator
from typing import Final
from uuid import UUID

import structlog

from engine.base.secrets import derived
from engine.base.settings import Settings
from engine.sending.settle import DeliveryAttempt, Settler
from engine.store.pace import PACE
from mta.outbound.journal_file import JournalFile, LeftFile, left_files

SLOW_S: Final = 0.5  # of a commit: 0.1 s at full load on a quiet machine
LOOK_EVERY_S: Final = 0.1
GATHER_S: Final = 0.01  # between two groups
RETRY_S: Final = 1.0  # after a disk that took nothing
MAX_BYTES: Final = 32 * 1024 * 1024  # of a file: 10,000 outcomes with long conversations

_log = structlog.get_logger("mta")


class OutcomeJournal:
    """The outcomes of one process that wait for PostgreSQL, in a file of `state/mta`."""

    def __init__(self, settings: Settings, settler: Settler) -> None:
        self._folder = settings.state / "mta"
        self._key = derived(settings.pepper, "outcome journal")
        self._settler = settler
        self._file: JournalFile | None = None
        self._kept: set[tuple[UUID, str, int]] = set()  # message, domain and attempts of what is in the file
        self._covered = 0  # outcomes submitted to the settler when the file last held all that were unsettled
        self._keeping = False

    @property
    def is_behind(self) -> bool:
        """Return True while outcomes wait for the file: then no delivery should begin."""
        return self._keeping and self._covered != self._settler.submitted

    async def run(self) -> None:
        """Keep what cannot be settled, until cancelled."""
        try:
            while True:
                self._keeping = self._settler.is_stalled(SLOW_S)
                if self._keeping:
                    done = self._covered == self._settler.submitted or await self._keep()
                    await asyncio.sleep(GATHER_S if done else RETRY_S)
                else:
                    self.clear()
                    await self._settler.until_unavailable(PACE.interval(LOOK_EVERY_S))
        finally:
            if self._file is not None:
                self._file.close()

    def clear(self) -> None:
        """Remove the file if all that it holds is settled."""
        if self._file is not None and not any(_key(one) in self._kept for one in self._settler.unsettled()):
            self._remove()
            self._kept.clear()

    def left(self) -> Iterator[tuple[LeftFile, list[DeliveryAttempt]]]:
        """Yield the files that ended processes of this host left, open, and their attempts."""
        for left in left_files(self._folder, self._key):
            try:
                with left:
                    yield left, left.read()
            except (BlockingIOError, FileNotFoundError):
                continue  # its process lives, or another one has settled it
            except OSError as error:
                _log.warning("kept outcomes not read", file=str(left.path), error=repr(error))

    async def _keep(self) -> bool:
        """Write what is unsettled and not in the file; return False if it could not be written."""
        submitted, unsettled = self._settler.submitted, self._settler.unsettled()
        fresh = [one for one in unsettled if _key(one) not in self._kept]
        try:
            if fresh and self._is_full:
                await asyncio.to_thread(self._begin_anew, unsettled)
            elif fresh:
                await asyncio.to_thread(self._append, fresh)
        except OSError as error:
            _log.error("outcomes not kept: killed now, this process would send them again", error=repr(error))
            return False
        self._covered = submitted
        return True

    @property
    def _is_full(self) -> bool:
        return self._file is not None and self._file.size >= MAX_BYTES

    def _append(self, attempts: list[DeliveryAttempt]) -> None:
        if self._file is None:
            self._file = JournalFile(self._folder, self._key)
        self._file.append(attempts)
        self._kept.update(map(_key, attempts))

    def _begin_anew(self, unsettled: list[DeliveryAttempt]) -> None:
        """Replace a full file by one with the unsettled outcomes alone."""
        if 2 * len(unsettled) > len(self._kept):
            raise OSError(errno.EFBIG, f"{MAX_BYTES} octets of unsettled outcomes are kept already")
        former, self._file = self._file, None
        try:
            self._append(unsettled)
        except OSError:
            self._remove()
            self._file = former
            raise
        if former is not None:
            former.remove()
        self._kept = set(map(_key, unsettled))

    def _remove(self) -> None:
        if self._file is not None:
            self._file.remove()
            self._file = None


def _key(attempt: DeliveryAttempt) -> tuple[UUID, str, int]:
    return (*attempt.row.key, attempt.row.attempts)
