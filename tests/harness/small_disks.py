"""A small file system of its own for a test: full at once, or read-only. Needs root on Linux."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(size_mb: int) -> Iterator[Path]:
    """Mount a tmpfs of so many MiB in a new folder; skips the test where that is not allowed."""
    folder = Path(tempfile.mkdtemp(prefix="waybill-disk-"))
    folder.chmod(0o711)
    inside = folder / "disk"
    inside.mkdir()
    try:
        if os.geteuid() != 0 or _mount("-t", "tmpfs", "-o", f"size={size_mb}m,mode=0711", "tmpfs", str(inside)):
            pytest.skip("mounting a file system needs root, and the right to mount")
        try:
            yield inside
        finally:
            subprocess.run(["umount", "-l", str(inside)], check=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fill(folder: Path) -> None:
    """Fill a small disk to the last page."""
    with contextlib.suppress(OSError), (folder / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4_096))


def make_read_only(folder: Path, *, wanted: bool = True) -> None:
    """Make a small disk read-only, or writable again."""
    assert not _mount("-o", f"remount,{'ro' if wanted else 'rw'}", str(folder))


def _mount(*words: str) -> int:
    return subprocess.run(["mount", *words], check=False, capture_output=True).returncode
