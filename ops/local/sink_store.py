"""Where the sink keeps what arrived: `.eml` files and one JSON line per message."""

import os
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
from msgspec import Struct

INDEX: Final = "index.ndjson"
MESSAGES: Final = "messages"
_FOLDERS: Final = 256


class StoreMode(StrEnum):
    """How much is kept on disk."""

    FILES = "files"  # content and index
    INDEX = "index"  # one line per message
    COUNT = "count"  # nothing


class Received(Struct, frozen=True, kw_only=True):
    """One message that was accepted. `content` is what came, dot-stuffing undone; it never reaches the index."""

    id: str
    at: str  # ISO 8601
    sender: str
    recipients: tuple[str, ...]
    helo: str
    tls: str | None  # protocol version, None in plaintext
    size: int
    test_id: str | None  # of the X-Test-Id header field
    content: bytes


class Entry(Struct, frozen=True, kw_only=True, rename={"sender": "from", "recipients": "to"}):
    """A line of `index.ndjson`; `file` is relative to the store."""

    id: str
    at: str
    sender: str
    recipients: tuple[str, ...]
    helo: str
    tls: str | None
    size: int
    test_id: str | None
    file: str | None


class MailStore:
    """An open store; a message is on disk (not synced) when `keep` returns."""

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

    def keep(self, received: Received, place: int) -> None:
        """Write content, then the index line that points to it. `place` spreads files over 256 folders."""
        if self._index is None:
            return
        file = None
        if self.mode is StoreMode.FILES:
            file = self._write(received, f"{MESSAGES}/{place % _FOLDERS:02x}")
        entry = Entry(
            id=received.id, at=received.at, sender=received.sender, recipients=received.recipients,
            helo=received.helo, tls=received.tls, size=received.size, test_id=received.test_id, file=file,
        )  # fmt: skip
        os.write(self._index, self._encoder.encode(entry) + b"\n")

    def close(self) -> None:
        """No more messages."""
        if self._index is not None:
            os.close(self._index)
            self._index = None

    def _write(self, received: Received, folder: str) -> str:
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


def entries(folder: Path) -> list[Entry]:
    """All index lines of a store, oldest first; a line cut off by a crash is left out."""
    try:
        lines = (folder / INDEX).read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    decoder = msgspec.json.Decoder(Entry)
    found = []
    for line in lines:
        with suppress(msgspec.DecodeError):  # the cut-off one, and the empty one after the last line end
            found.append(decoder.decode(line))
    return found


def _open_index(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        os.write(descriptor, b"\n")  # what a crash cut off stays a line of its own
    return descriptor
