"""The manifest, the last file of a backup: its contents and their digests. A backup without it is unfinished."""

import hashlib
import hmac
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from ops.backup.tables import Migration
from ops.host.state import write_private

FILE: Final = "manifest.json"
FORMAT: Final = 1
PEPPER: Final = "pepper"
PREVIOUS_PEPPER: Final = "pepper-previous"
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
    """Pending work at the moment of the snapshot, which a restored copy would send again."""

    deliveries: int  # rows of the queue; `in-flight.tsv` names them
    scheduled: int
    webhook_posts: int
    system_mail: int


class Manifest(Struct, frozen=True):
    """Description of one backup."""

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
    previous_pepper: str | None = None  # fingerprint; while the pepper is being changed
    ahead_s: float = 0.0  # how far the clock had been moved, in local mode

    @property
    def rows(self) -> int:
        """Number of rows in all tables."""
        return sum(part.rows for part in self.parts)


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, which completes the backup."""
    write_private(folder / FILE, msgspec.json.format(msgspec.json.encode(manifest)).decode() + "\n")


def read(folder: Path) -> Manifest:
    """Read the manifest; raises BackupError if the backup is unfinished or of another format."""
    try:
        found = msgspec.json.decode((folder / FILE).read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise BackupError(f"{folder} contains no finished backup: {FILE} is missing") from None
    except (OSError, msgspec.DecodeError) as error:
        raise BackupError(f"{folder / FILE} can't be read: {error}") from error
    if found.format != FORMAT:
        raise BackupError(f"{folder} was written in format {found.format}; this version reads {FORMAT}")
    return found


def check_files(folder: Path, manifest: Manifest) -> None:
    """Raise BackupError for the first file that is missing or whose digest differs from the manifest."""
    wanted = {part.file: part.sha256 for part in manifest.parts} | manifest.files
    for name, digest in wanted.items():
        try:
            found = sha256_of(folder / name)
        except OSError as error:
            raise BackupError(f"{folder / name} can't be read: {error.strerror}") from error
        if found != digest:
            raise BackupError(f"{folder / name} is not what was written: its SHA-256 is {found}, not {digest}")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex, read in pieces of 1 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def fingerprint(pepper: str) -> str:
    """Return a fingerprint of a pepper that does not reveal it."""
    return hmac.new(pepper.encode(), b"waybill backup", "sha256").hexdigest()[:16]
