"""Packed reports: gzip, zip of one file, plain; limits while unpacking."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.unpack import MAX_PACKED, MAX_UNPACKED, PIECE, UnpackError, unpacked

XML = b"<feedback>" + bytes(range(32, 127)) * 3_000 + b"</feedback>"


def zipped(*names: str, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for name in names:
            archive.writestr(name, b"" if name.endswith("/") else XML)
    return target.getvalue()


class _Pipe(io.RawIOBase):
    """A target without positions: zipfile writes sizes behind the content."""

    def __init__(self) -> None:
        self.octets = b""

    def writable(self) -> bool:
        return True

    def write(self, octets: object) -> int:
        self.octets += bytes(octets)  # type: ignore[call-overload]
        return len(octets)  # type: ignore[arg-type]


def streamed(method: int) -> bytes:
    pipe = _Pipe()
    with zipfile.ZipFile(pipe, "w", method) as archive:
        archive.writestr("a.xml", XML)
    return pipe.octets


@pytest.mark.parametrize(
    "content",
    [
        XML, gzip.compress(XML, mtime=0), gzip.compress(XML, mtime=0)[:-8] + b"\0" * 8,
        gzip.compress(XML, mtime=0) + b"\0" * 512,
        gzip.compress(XML[:500]) + gzip.compress(XML[500:]), zlib.compress(XML), zipped("a.xml"),
        zipped("folder/", "folder/a.xml", "__MACOSX/a.xml"), zipped("a.xml", method=zipfile.ZIP_STORED),
        streamed(zipfile.ZIP_DEFLATED), streamed(zipfile.ZIP_STORED), zipped("a.xml")[:-30],
    ],
    ids=["plain", "gzip", "wrong checksum", "padded", "members", "zlib", "zip", "zip with folders", "stored",
         "streamed", "streamed and stored", "no directory"],
)  # fmt: skip
def test_every_form_unpacks_in_bounded_pieces(content: bytes) -> None:
    pieces = list(unpacked(content))
    assert b"".join(pieces) == XML
    assert max(map(len, pieces)) <= PIECE


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (zipped("a.xml", "b.xml"), "several files"), (zipped(), ""), (zipped("folder/"), "no file"),
        (b"PK\x03\x04", "cut off"), (b"\x1f\x8b\x08\x00", "incomplete"), (b"\x1f\x8b\x07" + b"\0" * 20, "method"),
        (gzip.compress(XML, mtime=0)[:10] + b"\xff" * 50, "damaged"), (b"\x1f\x8b\x08\x08" + b"a" * 50, "no end"),
        (b"PK\x03\x04\x14\0\1\0" + b"\0" * 40, "encrypted"), (b"PK\x03\x04\x14\0\0\0\x63\0" + b"\0" * 40, "method 99"),
        (b"x" * (MAX_PACKED + 1), "limit is"),
    ],
    ids=["files", "empty", "folder", "zip cut off", "gzip cut off", "method 7", "damaged", "no end", "encrypted",
         "method 99", "too large"],
)  # fmt: skip
def test_what_cannot_be_unpacked_is_refused_with_the_reason(content: bytes, reason: str) -> None:
    if not reason:  # an empty archive is no local header: it is passed on as it is
        assert b"".join(unpacked(content)) == content
        return
    with pytest.raises(UnpackError, match=reason):
        list(unpacked(content))


def zip_of(octets: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.xml", octets)
    return target.getvalue()


@pytest.mark.parametrize("pack", [gzip.compress, zip_of], ids=["gzip", "zip"])
def test_a_bomb_ends_at_the_limit(pack: Callable[[bytes], bytes]) -> None:
    pieces: list[int] = []
    with pytest.raises(UnpackError, match="unpacks to more"):
        pieces.extend(len(piece) for piece in unpacked(pack(b"\0" * (MAX_UNPACKED + 1))))
    assert sum(pieces) <= MAX_UNPACKED


def test_no_ratio_is_too_high_below_the_limit() -> None:
    assert sum(map(len, unpacked(gzip.compress(b" " * (20 * 1024 * 1024))))) == 20 * 1024 * 1024


@given(st.sampled_from([b"", b"\x1f\x8b\x08\0", b"PK\x03\x04", b"\x78\x9c"]), st.binary(max_size=200))
def test_arbitrary_octets_raise_nothing_else(start: bytes, octets: bytes) -> None:
    with suppress(UnpackError):
        list(unpacked(start + octets))
