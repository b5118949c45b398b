"""The message store of the sink: `.eml` files and an index with one JSON line per message."""

import os
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
from msgspec import Struct

from engine.store.sink_folder import INDEX, MESSAGES, SinkEntry, decoded, newest_before, position_of

_FOLDERS: Final = 256


class StoreMode(StrEnum):
    """The amount of data that is stored for each message."""

    FILES = "files"  # content and index
    INDEX = "index"  # one line per message
    COUNT = "count"  # nothing


class SinkMessage(Struct, frozen=True, kw_only=True):
    """An accepted message. `content` is as received, with dot-stuffing removed, and is not written to the index."""

    id: str
    at: str  # ISO 8601
    sender: str
    recipients: tuple[str, ...]
    helo: str
    tls: str | None  # protocol version, None in plaintext
    size: int
    test_id: str | None  # of the X-Test-Id header field
    content: bytes
    port: int = 0  # of the client; 0: unknown


class MailStore:
    """An open store; `keep` writes a message to disk without fsync."""

    def __init__(self, folder: Path, mode: StoreMode) -> None:
        self.folder = folder
        self.mode = mode
        self._encoder = msgspec.json.Encoder()
        self._made: set[str] = set()
        folder.mkdir(parents=True, exist_ok=True)
        self._index = _open_index(folder / INDEX) if mode is not StoreMode.COUNT else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def keep(self, received: SinkMessage, place: int) -> None:
        """Write the content, then its index line; `place` spreads the files over 256 folders. Raises OSError."""
        if self._index is None:
            return
        file = None
        if self.mode is StoreMode.FILES:
            file = self._write(received, f"{MESSAGES}/{place % _FOLDERS:02x}")
        entry = SinkEntry(
            id=received.id, at=received.at, sender=received.sender, recipients=received.recipients,
            helo=received.helo, tls=received.tls, size=received.size, test_id=received.test_id, file=file,
            port=received.port,
        )  # fmt: skip
        os.write(self._index, self._encoder.encode(entry) + b"\n")

    def next_run(self, at_ms: int) -> int:
        """Return the number of a new run of the sink: the time, or more if the clock went back since the last run."""
        newest = newest_before(self.folder, None, 1)
        last = position_of(newest[0].id) if newest else None
        return at_ms if last is None else max(at_ms, last[0] + 1)

    def forget(self, *, before: str, most: int) -> list[str]:
        """Remove messages older than `before` (ISO 8601), and all but the last `most`, from the index.

        Returns their files, relative to the folder, for the caller to delete. The new index replaces the old one
        atomically, so that a reader sees either of them complete.
        """
        if self._index is None:
            return []
        lines = (self.folder / INDEX).read_bytes().splitlines(keepends=True)
        gone = max(0, len(lines) - most)
        while gone < len(lines) and _is_older(lines[gone], before):
            gone += 1
        if not gone:
            return []
        fresh = self.folder / f"{INDEX}.new"
        fresh.write_bytes(b"".join(lines[gone:]))
        fresh.chmod(0o600)
        fresh.replace(self.folder / INDEX)
        os.close(self._index)
        self._index = _open_index(self.folder / INDEX)
        return [entry.file for entry in decoded(lines[:gone]) if entry.file is not None]

    def remove(self, files: Iterable[str]) -> None:
        """Delete the files that `forget` returned; ignores missing ones."""
        for file in files:
            (self.folder / file).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the index; idempotent."""
        if self._index is not None:
            os.close(self._index)
            self._index = None

    def _write(self, received: SinkMessage, folder: str) -> str:
        if folder not in self._made:
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
            self._made.add(folder)
        file = f"{folder}/{received.id}.eml"
        descriptor = os.open(f"{self.folder}/{file}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            view = memoryview(received.content)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)
        return file


def entries(folder: Path) -> list[SinkEntry]:
    """Return all index entries of a store, oldest first; skips a line that a crash cut off."""
    try:
        lines = (folder / INDEX).read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    return decoded(lines)


def _is_older(line: bytes, before: str) -> bool:
    """Return True if the entry is older than `before`, or the line was cut off by a crash."""
    return all(entry.at < before for entry in decoded([line]))


def _open_index(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        os.write(descriptor, b"\n")  # end a line that a crash cut off
    return descriptor
