"""Remembers which message a process worked on when it died, in a small file that outlives the process.

A fault that raises costs its message an attempt. One that kills the process (a crash below Python, too much memory, an
endless loop) would come back with the message again and again. So a message is marked in a memory-mapped file while its
content is worked on: a mark that the next process of the same name finds counts as a failed attempt. A mark costs two
writes to memory, and the kernel keeps them whatever happens to the process. Marks are lost with the machine only.
"""

import contextlib
import faulthandler
import mmap
import os
import signal
import struct
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog

MAX_DEATHS: Final = 3  # processes that may die of a message before it fails
STUCK_S: Final = 20.0  # of CPU without a turn of the event loop; the longest regular step takes well under a second
ARM_EVERY_S: Final = 1.0

_MAGIC: Final = b"waybill hand v1\n"
_NOBODY: Final = bytes(16)
_SLOTS: Final = 16  # the first for the message that the CPU works on, the others for large bodies being loaded
_KNOWN: Final = 64  # messages whose deaths are remembered
_DEATH: Final = struct.Struct("16sII")  # message, deaths, whether `tell` still has to return them
_AT_DEATHS: Final = len(_MAGIC) + 16 * _SLOTS
_SIZE: Final = _AT_DEATHS + _KNOWN * _DEATH.size

_log = structlog.get_logger("mta")


class PoisonGuard:
    """The marks of one process. Without a file they do not outlive it."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._map = _mapped(file)
        if self._map[: len(_MAGIC)] != _MAGIC:
            self._map[:] = _MAGIC.ljust(_SIZE, b"\0")
        self._deaths, self._untold = _read(self._map)
        for place in range(_SLOTS):
            message = self._slot(place)
            if message != _NOBODY:
                self._count(UUID(bytes=message))
                self._mark(place, _NOBODY)
        self._write()

    # -- marks ---------------------------------------------------------------------------------

    def begin(self, message: UUID) -> None:
        """Mark the message that the CPU works on; nothing else can run before `end`."""
        self._map[_FIRST] = message.bytes

    def end(self) -> None:
        """Remove the mark of `begin`."""
        self._map[_FIRST] = _NOBODY

    @contextlib.contextmanager
    def holding(self, message: UUID) -> Iterator[None]:
        """Mark a message whose body is being loaded, while other messages are worked on."""
        free = (place for place in range(1, _SLOTS) if self._slot(place) == _NOBODY)
        place = next(free, None)
        if place is not None:
            self._mark(place, message.bytes)
        try:
            yield
        finally:
            if place is not None:
                self._mark(place, _NOBODY)

    # -- what became of former lives -------------------------------------------------------------

    @property
    def untold(self) -> frozenset[UUID]:
        """Return the messages that earlier processes died of and that `tell` has not returned yet."""
        return frozenset(self._untold)

    def tell(self, message: UUID) -> int:
        """Return how many processes died of the message, once; 0 if there is nothing new to tell.

        Deaths of the other processes of this host count too: after each death another process may own the shard.
        """
        if message not in self._untold:
            return 0
        self._untold.discard(message)
        self._write()
        return self._deaths[message] + self._deaths_beside(message)

    def _deaths_beside(self, message: UUID) -> int:
        """Return the deaths in the files of this folder's other processes; a file that cannot be read counts none."""
        count = 0
        for file in () if self._file is None else self._file.parent.glob(f"*{self._file.suffix}"):
            with contextlib.suppress(OSError):
                if file != self._file:
                    deaths, _ = _read(file.read_bytes())
                    count += deaths.get(message, 0)
        return count

    def _count(self, message: UUID) -> None:
        deaths = self._deaths.pop(message, 0) + 1
        self._deaths[message] = deaths
        self._untold.add(message)
        while len(self._deaths) > _KNOWN:
            oldest, _ = self._deaths.popitem(last=False)
            self._untold.discard(oldest)
        _log.error("the previous process died while it worked on a message", message=str(message), deaths=deaths)

    # -- the file ------------------------------------------------------------------------------

    def _slot(self, place: int) -> bytes:
        at = len(_MAGIC) + 16 * place
        return self._map[at : at + 16]

    def _mark(self, place: int, message: bytes) -> None:
        at = len(_MAGIC) + 16 * place
        self._map[at : at + 16] = message

    def _write(self) -> None:
        known = b"".join(
            _DEATH.pack(message.bytes, count, message in self._untold) for message, count in self._deaths.items()
        )
        self._map[_AT_DEATHS:_SIZE] = known.ljust(_KNOWN * _DEATH.size, b"\0")


_FIRST: Final = slice(len(_MAGIC), len(_MAGIC) + 16)


def _read(content: bytes | mmap.mmap) -> tuple["OrderedDict[UUID, int]", set[UUID]]:
    """Return deaths by message, oldest first, and the messages not yet reported; anything but such a file is empty."""
    deaths: OrderedDict[UUID, int] = OrderedDict()
    untold: set[UUID] = set()
    if len(content) < _SIZE or content[: len(_MAGIC)] != _MAGIC:
        return deaths, untold
    for message, count, telling in _DEATH.iter_unpack(content[_AT_DEATHS:_SIZE]):
        if message != _NOBODY:
            deaths[UUID(bytes=message)] = count
            if telling:
                untold.add(UUID(bytes=message))
    return deaths, untold


def _mapped(file: Path | None) -> mmap.mmap:
    """Map the file into memory, or anonymous memory where that fails: a full disk must not stop delivery."""
    if file is not None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, _SIZE)  # writing to a hole on a full disk would raise SIGBUS
                return mmap.mmap(descriptor, _SIZE)
            finally:
                os.close(descriptor)
        except OSError as error:
            _log.warning(
                "poison marks not stored: a message that kills this process stays unknown to the next",
                error=repr(error),
            )
    return mmap.mmap(-1, _SIZE)


def watch() -> None:
    """End the process, with a traceback on standard error, if it uses `STUCK_S` of CPU without a call of `rearm`. Time
    in which it is stopped or waits does not count, and no Python needs to run."""
    faulthandler.register(signal.SIGPROF, all_threads=False, chain=True)  # the default handler ends the process
    rearm()


def rearm() -> None:
    """Restart the time of `watch`: the event loop turns."""
    signal.setitimer(signal.ITIMER_PROF, STUCK_S)


def rest() -> None:
    """Stop watching: the event loop is about to end."""
    signal.setitimer(signal.ITIMER_PROF, 0)
