"""Sentences for disks that are full, too small or read-only, for commands and `ops doctor`. Standard library only."""

import errno
import os
from pathlib import Path
from typing import Final

_ELSEWHERE: Final = "set WAYBILL_STATE to a folder on"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def why_unusable(folder: Path) -> str | None:
    """Return why files can't be written in a folder (or where it will be created), or None if they can."""
    place = existing(folder)
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return read_only(folder)
    return full(folder) if _free(place) == 0 else None


def too_small(folder: Path, needed: int) -> str | None:
    """Return what to do about a disk on which fewer than `needed` octets are free, or None."""
    place = existing(folder)
    room = os.statvfs(place)
    free = _free(place)
    if free >= needed:
        return None
    size = room.f_blocks * room.f_frsize
    kind = "too small" if size < needed else "almost full"
    return (
        f"The disk of {folder} is {kind}: {_mebibytes(free)} of {_mebibytes(size)} are free, and Waybill accepts no"
        f" mail with less than {_mebibytes(needed)}. Free some space, or {_ELSEWHERE} a larger"
        " disk."
    )


def of_error(error: OSError, folder: Path | None = None) -> str | None:
    """Return a sentence about the disk for an error that is due to it, else None; `folder` is used if the error names
    no file."""
    named = None if error.filename is None else Path(os.fsdecode(error.filename))
    place = folder or named
    if error.errno == errno.EROFS:
        return read_only(place)
    return full(place) if error.errno in _FULL else None


def of_output(text: str, folder: Path) -> str | None:
    """Return a sentence about the disk if a program's output names a full or read-only one, else None."""
    if os.strerror(errno.EROFS) in text:
        return read_only(folder)
    return full(folder) if any(os.strerror(number) in text for number in _FULL) else None


def read_only(folder: Path | None) -> str:
    """Return the sentence for a read-only file system."""
    where = "A file system" if folder is None else f"The file system of {folder}"
    point = "" if folder is None else f" (`mount -o remount,rw {_mount_point(existing(folder))}`)"
    return (
        f"{where} is read-only. Make it writable{point}, or {_ELSEWHERE} another one. If it became read-only "
        "without your doing, `dmesg` shows the disk's fault."
    )


def full(folder: Path | None) -> str:
    """Return the sentence for a full disk."""
    if folder is None:
        return f"A disk is full. Free some space, or {_ELSEWHERE} a larger one."
    return (
        f"The disk of {folder} is full: {_mebibytes(_free(existing(folder)))} are free. Free at least 1 GiB, or"
        f" {_ELSEWHERE} a larger disk."
    )


def existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists."""
    return next(one for one in (path, *path.parents) if one.exists())


def _free(place: Path) -> int:
    room = os.statvfs(place)
    return room.f_bavail * room.f_frsize


def _mount_point(place: Path) -> Path:
    return next(one for one in (place, *place.parents) if one.is_mount())


def _mebibytes(count: int) -> str:
    return f"{count // 1024**2} MiB"
