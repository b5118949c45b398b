"""Read the folder of the local sink: the index of received mail, and the mails.

The sink appends a line to `index.ndjson` per message, in the order of their ids, and sometimes replaces the file by one
without its oldest lines. So an entry is found by binary search, and a position is an id, never an offset. All functions
read files: call them in a thread.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

INDEX: Final = "index.ndjson"
MESSAGES: Final = "messages"
BLOCK_BYTES: Final = 256 * 1024

_ID = re.compile(r"([0-9a-f]{1,16})-([0-9]{1,18})", re.ASCII)
_FILE = re.compile(MESSAGES + r"/[0-9a-f]{2}/[0-9a-f]{1,16}-[0-9]{1,18}\.eml", re.ASCII)

SinkPosition = tuple[int, int]  # start of the sink, number of the message


class SinkEntry(Struct, frozen=True, kw_only=True, rename={"sender": "from", "recipients": "to"}):
    """A line of the index; `file` is relative to the folder, None where the content was not kept."""

    id: str
    at: str  # ISO 8601
    sender: str
    recipients: tuple[str, ...]
    helo: str
    tls: str | None  # protocol version, None in plaintext
    size: int
    test_id: str | None  # of the X-Test-Id header field
    file: str | None
    port: int = 0  # of the client; 0: unknown


_ENTRY = msgspec.json.Decoder(SinkEntry)


def decoded(lines: Iterable[bytes]) -> list[SinkEntry]:
    """Return the entries of these lines; skips a line that a crash cut off, and the text after the last line end."""
    found = []
    for line in lines:
        if line.isspace():  # of a mail that was deleted
            continue
        with suppress(msgspec.DecodeError):
            found.append(_ENTRY.decode(line))
    return found


def position_of(entry_id: str) -> SinkPosition | None:
    """Return the position of an id among all ids; None if it does not have the form of one."""
    found = _ID.fullmatch(entry_id)
    return None if found is None else (int(found[1], 16), int(found[2]))


def newest_before(folder: Path, before: SinkPosition | None, most: int) -> list[SinkEntry]:
    """Return up to `most` entries, newest first, that are older than `before` (None: the newest of all)."""
    found: list[SinkEntry] = []
    with suppress(FileNotFoundError), (folder / INDEX).open("rb") as file:
        end = file.seek(0, 2) if before is None else _first(file, lambda entry: _position(entry) < before)
        for line in _lines_before(file, end):
            found += decoded((line,))
            if len(found) >= most:
                break
    return found


def find(folder: Path, position: SinkPosition) -> SinkEntry | None:
    """Return the entry at a position, None if there is none."""
    with suppress(FileNotFoundError), (folder / INDEX).open("rb") as file:
        size = file.seek(0, 2)
        _, entry = _line_from(file, _first(file, lambda entry: _position(entry) < position), size)
        if entry is not None and _position(entry) == position:
            return entry
    return None


def with_text(folder: Path, text: bytes, *, since: str, most: int) -> list[SinkEntry]:
    """Return up to `most` entries since a time (ISO 8601) whose line contains `text`, oldest first."""
    found: list[SinkEntry] = []
    with suppress(FileNotFoundError), (folder / INDEX).open("rb") as file:
        file.seek(_first(file, lambda entry: entry.at < since))
        while (block := file.read(BLOCK_BYTES)) and len(found) < most:
            block += file.readline()  # ends with a whole line
            if text in block:
                found += decoded(line for line in block.split(b"\n") if text in line)
    return found[:most]


def naming(folder: Path, addresses: Sequence[str]) -> list[SinkEntry]:
    """Return the entries with any of the addresses (lower case) as a recipient, oldest first. Reads the whole index."""
    wanted, found = set(addresses), list[SinkEntry]()
    with suppress(FileNotFoundError), (folder / INDEX).open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            block += file.readline()
            lines = [line for line in block.split(b"\n") if any(one.encode() in line.lower() for one in addresses)]
            found += [entry for entry in decoded(lines) if any(to.lower() in wanted for to in entry.recipients)]
    return found


def forget(folder: Path, entries: Sequence[SinkEntry], addresses: Sequence[str]) -> None:
    """Delete the mails of the entries, and overwrite the addresses in their lines in place, with the same length."""
    chosen = {entry.id for entry in entries}
    for entry in entries:
        if entry.file is not None and _FILE.fullmatch(entry.file) is not None:
            (folder / entry.file).unlink(missing_ok=True)
    if not chosen:
        return
    with (folder / INDEX).open("r+b") as file:
        offset = 0
        while line := file.readline():
            if any(entry.id in chosen for entry in decoded([line.rstrip(b"\n")])):
                file.seek(offset)
                file.write(_masked(line, addresses))
            offset += len(line)
            file.seek(offset)


def empty(folder: Path, ids: Collection[str]) -> None:
    """Delete the mails with these ids, and blank their lines in place, which readers then skip."""
    if not ids:
        return
    with (folder / INDEX).open("r+b") as file:
        offset = 0
        while line := file.readline():
            for entry in decoded([line.rstrip(b"\n")]):
                if entry.id in ids:
                    if entry.file is not None and _FILE.fullmatch(entry.file) is not None:
                        (folder / entry.file).unlink(missing_ok=True)
                    file.seek(offset)
                    file.write(b" " * len(line.rstrip(b"\n")))
            offset += len(line)
            file.seek(offset)


def version_of(folder: Path) -> tuple[int, int]:
    """Return a pair that changes when a mail arrives: the file of the index, and its size."""
    try:
        found = (folder / INDEX).stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_size


def _masked(line: bytes, addresses: Sequence[str]) -> bytes:
    for one in addresses:
        octets = one.encode()
        line = re.sub(re.escape(octets), b"x" * len(octets), line, flags=re.IGNORECASE)
    return line


def content_of(folder: Path, entry: SinkEntry, most: int | None = None) -> bytes | None:
    """Return the mail of an entry, or its first `most` octets; None if it was not kept or has been deleted."""
    if entry.file is None or _FILE.fullmatch(entry.file) is None:
        return None
    with suppress(FileNotFoundError), (folder / entry.file).open("rb") as file:
        return file.read() if most is None else file.read(most)
    return None


def _position(entry: SinkEntry) -> SinkPosition:
    return position_of(entry.id) or (0, 0)


def _first(file: BinaryIO, precedes: Callable[[SinkEntry], bool]) -> int:
    """Return the offset of the first line whose entry does not precede, by binary search; the end if all do."""
    low, high = 0, file.seek(0, 2)
    while low < high:
        middle = (low + high) // 2
        end, entry = _line_from(file, middle, high)
        if entry is not None and precedes(entry):
            low = end
        else:
            high = middle
    return low


def _line_from(file: BinaryIO, offset: int, stop: int) -> tuple[int, SinkEntry | None]:
    """Return end and entry of the first readable line that starts at `offset` or later, before `stop`."""
    file.seek(max(0, offset - 1))
    if offset:
        file.readline()  # the rest of the line before, or only its line end
    start = file.tell()
    while start < stop and (line := file.readline()):
        start += len(line)
        for entry in decoded((line,)):
            return start, entry
    return start, None


def _lines_before(file: BinaryIO, end: int) -> Iterator[bytes]:
    """Yield the lines before offset `end`, last first; never reads more than a block and a line at once."""
    rest = b""
    while end > 0:
        size = min(BLOCK_BYTES, end)
        end -= size
        file.seek(end)
        lines = (file.read(size) + rest).split(b"\n")
        rest = lines[0]
        yield from (line for line in reversed(lines[1:]) if line)
    if rest:
        yield rest
