"""The journal of the local sink: first tries of recipients and reports that are due, so that a restart keeps them.

A file of JSON lines that only grows while the sink runs; the next start writes it anew. A line that a crash cut off is
skipped. Times are service time.
"""

import os
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import msgspec
from msgspec import Struct

from engine.mail.outgoing_reports import ReportedMail

FILE: Final = "journal.ndjson"
MAX_TRIES: Final = 100_000  # the oldest are dropped


class Try(Struct, frozen=True, tag="try"):
    """The first try for a key, in Unix milliseconds, and the number of tries since."""

    key: str
    at_ms: int
    count: int


class FollowUp(Struct, frozen=True, tag="report"):
    """A report to send. `mail.content` is the header of the mail; `said` the reply that a bounce quotes."""

    id: str
    due_ms: int
    kind: str
    mail: ReportedMail
    said: str | None = None


class Sent(Struct, frozen=True, tag="sent"):
    """The end of a report: it was sent, or given up."""

    id: str


_DECODER = msgspec.json.Decoder(Try | FollowUp | Sent)


class SinkJournal:
    """The tries and due reports of a sink; in memory alone without a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.reports: dict[str, FollowUp] = {}
        self._tries: OrderedDict[str, Try] = OrderedDict()
        self._encoder = msgspec.json.Encoder()
        self._file: int | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._open(folder / FILE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def find(self, key: str) -> Try | None:
        """Return the tries for a key."""
        return self._tries.get(key)

    def record(self, entry: Try | FollowUp | Sent) -> None:
        """Apply an entry and write it, without fsync."""
        self._apply(entry)
        if self._file is not None:
            os.write(self._file, self._encoder.encode(entry) + b"\n")

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _apply(self, entry: Try | FollowUp | Sent) -> None:
        match entry:
            case Try():
                self._tries[entry.key] = entry
                self._tries.move_to_end(entry.key)
                if len(self._tries) > MAX_TRIES:
                    self._tries.popitem(last=False)
            case FollowUp():
                self.reports[entry.id] = entry
            case Sent():
                self.reports.pop(entry.id, None)

    def _open(self, path: Path) -> None:
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        for line in lines:
            with suppress(msgspec.DecodeError):
                self._apply(_DECODER.decode(line))
        fresh = path.with_suffix(".new")
        self._file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        kept = [*self._tries.values(), *self.reports.values()]
        with os.fdopen(os.dup(self._file), "wb") as file:
            file.writelines(self._encoder.encode(entry) + b"\n" for entry in kept)
        fresh.replace(path)
