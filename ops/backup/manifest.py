"""The last file of a backup: what is in it, and what tells whether it still is. Without it a backup is unfinished."""

import hashlib
import hmac
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from ops.backup.tables import Migration
from ops.state import write_private

FILE: Final = "manifest.json"
FORMAT: Final = 1
PEPPER: Final = "pepper"
FIRST_RUN: Final = "first-run.json"
HEADS: Final = "heads.tsv"
IN_FLIGHT: Final = "in-flight.tsv"
_READ_BYTES: Final = 1 << 20


class BackupError(RuntimeError):
    """A backup can't be made, read or restored; the text says why and what to do."""


class BackupPart(Struct, frozen=True):
    """The rows of one table: `rows` and `digest` are those of `ops.backup.rows`, `sha256` is the file's."""

    file: str
    table: str
    parent: str | None
    columns: list[str]
    rows: int
    digest: str
    size_bytes: int  # of the text
    sha256: str


class InFlight(Struct, frozen=True):
    """What was on its way at the moment of the snapshot: a restored copy would send it again."""

    deliveries: int  # rows of the queue; `in-flight.tsv` names them
    scheduled: int
    webhook_posts: int
    system_mail: int


class Manifest(Struct, frozen=True):
    """Everything about one backup."""

    format: int
    version: str  # of Waybill
    postgres: str
    made_at: str  # of the snapshot, UTC
    took_s: float
    migrations: list[Migration]
    pepper: str  # fingerprint
    parts: list[BackupPart]
    files: dict[str, str]  # SHA-256 of the other files
    accounts: int  # those with a log; `heads.tsv` holds where each ended
    events: int
    in_flight: InFlight

    @property
    def rows(self) -> int:
        """Of all tables."""
        return sum(part.rows for part in self.parts)


def write(folder: Path, manifest: Manifest) -> None:
    """Finish the backup: from here on it counts."""
    write_private(folder / FILE, msgspec.json.format(msgspec.json.encode(manifest)).decode() + "\n")


def read(folder: Path) -> Manifest:
    """Raises BackupError where there is no finished backup that this version can read."""
    try:
        found = msgspec.json.decode((folder / FILE).read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise BackupError(f"{folder} holds no finished backup: there is no {FILE}") from None
    except (OSError, msgspec.DecodeError) as error:
        raise BackupError(f"{folder / FILE} can't be read: {error}") from error
    if found.format != FORMAT:
        raise BackupError(f"{folder} was written in format {found.format}; this version reads {FORMAT}")
    return found


def check_files(folder: Path, manifest: Manifest) -> None:
    """Raises BackupError, naming it, for the first file that is missing or is not what was written."""
    wanted = {part.file: part.sha256 for part in manifest.parts} | manifest.files
    for name, digest in wanted.items():
        try:
            found = sha256_of(folder / name)
        except OSError as error:
            raise BackupError(f"{folder / name} can't be read: {error.strerror}") from error
        if found != digest:
            raise BackupError(f"{folder / name} is not what was written: its SHA-256 is {found}, not {digest}")


def sha256_of(path: Path) -> str:
    """Of a whole file, in hex; memory holds a mebibyte of it."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def fingerprint(pepper: str) -> str:
    """What tells two peppers apart and nothing about either."""
    return hmac.new(pepper.encode(), b"waybill backup", "sha256").hexdigest()[:16]
