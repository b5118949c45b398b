"""The file in which a process keeps outcomes that PostgreSQL cannot take yet, and the files of processes that ended.

A file begins with a line that names its format; records follow, each a length and a DeliveryAttempt in MessagePack
without the message's content and its key, encrypted under the pepper (AES-GCM, whose tag is the checksum). The first
record that is incomplete or damaged ends the file: it was being written when its process ended. The process that writes
a file holds an exclusive lock on it as long as it lives; so a file without that lock belongs to a process that has
ended.
"""

import fcntl
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
import structlog

from engine.base import ids
from engine.base.secrets import DerivedKey, Unsealable, seal, unseal
from engine.sending.settle import DeliveryAttempt

SUFFIX: Final = ".outcomes"
_MAGIC: Final = b"waybill outcomes v1\n"
_LENGTH: Final = struct.Struct(">I")
_PURPOSE: Final = b"outcome"
_TRIES: Final = 10  # to create a file: another process may take an empty one for that of an ended process
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(DeliveryAttempt)

_log = structlog.get_logger("mta")


class JournalFile:
    """A file of this process, open for appending and locked. All methods block."""

    def __init__(self, folder: Path, key: DerivedKey) -> None:
        """Create the file. Raises OSError."""
        self._key = key
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self._descriptor = _created(folder)
        self.size = 0
        try:
            self._write(_MAGIC)
            _sync_folder(folder)  # else the file's name may be lost in a power cut
        except OSError:
            self.remove()
            raise

    def append(self, attempts: Iterable[DeliveryAttempt]) -> None:
        """Append attempts and sync them. Raises OSError; then the file is as before."""
        self._write(b"".join(_record(self._key, attempt) for attempt in attempts))

    def remove(self) -> None:
        """Delete and close the file."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Close the file; it stays for the next process to read."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, octets: bytes) -> None:
        try:
            left = memoryview(octets)
            while left:
                left = left[os.write(self._descriptor, left) :]
            os.fsync(self._descriptor)
        except OSError:
            with suppress(OSError):  # else the reader stops at the damaged record
                os.ftruncate(self._descriptor, self.size)
            raise
        self.size += len(octets)


class LeftFile:
    """The file of a process that has ended. A context manager: entering it locks the file, together with other readers,
    and raises BlockingIOError while its process lives."""

    def __init__(self, path: Path, key: DerivedKey) -> None:
        self.path = path
        self._key = key

    def __enter__(self) -> Self:
        self._file = self.path.open("rb")
        try:
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def read(self) -> list[DeliveryAttempt]:
        """Return the last attempt at each row, as far as the file is intact."""
        content = self._file.read()
        if not content.startswith(_MAGIC):
            if content:
                _log.warning("kept outcomes not readable: not a file of this version", file=str(self.path))
            return []
        found = {attempt.row.key: attempt for attempt in self._records(content)}
        return list(found.values())

    def remove(self) -> None:
        """Delete the file: everything in it is settled."""
        self.path.unlink(missing_ok=True)

    def _records(self, content: bytes) -> Iterator[DeliveryAttempt]:
        at = len(_MAGIC)
        while at < len(content):
            start = at + _LENGTH.size
            size = _LENGTH.unpack(content[at:start])[0] if start <= len(content) else 0
            at = start + size
            try:
                plain = unseal(self._key, content[start:at], _PURPOSE)
            except Unsealable as error:
                _log.warning("kept outcomes end early", file=str(self.path), octet=start, error=repr(error))
                return
            try:
                yield _decoder.decode(plain)
            except msgspec.DecodeError as error:
                _log.error("a kept outcome of another version was left out", file=str(self.path), error=repr(error))


def left_files(folder: Path, key: DerivedKey) -> list[LeftFile]:
    """Return the files of all processes of this folder, the oldest first."""
    return [LeftFile(path, key) for path in sorted(folder.glob(f"*{SUFFIX}"))]


def _created(folder: Path) -> tuple[Path, int]:
    """Create and lock a file whose name no other process uses."""
    for _ in range(_TRIES):
        path = folder / f"{ids.uuid7()}{SUFFIX}"
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists():
                return path, descriptor
        os.close(descriptor)
    raise BlockingIOError(f"no file could be locked in {folder}")


def _record(key: DerivedKey, attempt: DeliveryAttempt) -> bytes:
    bare = msgspec.structs.replace(attempt, row=msgspec.structs.replace(attempt.row, mime=None, content_key=None))
    sealed = seal(key, _encoder.encode(bare), _PURPOSE)
    return _LENGTH.pack(len(sealed)) + sealed


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
