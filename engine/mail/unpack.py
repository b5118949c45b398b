"""Unpack the attachments of reports: gzip, a zip of one file, or plain, told apart by their first octets.

DMARC and TLS reports come from strangers. Honest ones shrink to a sixtieth and below, so a limit on the ratio would
refuse them: absolute limits on both sizes apply while the content streams through.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

MAX_PACKED: Final = 10 * 1024 * 1024  # octets
MAX_UNPACKED: Final = 50 * 1024 * 1024  # octets
PIECE: Final = 64 * 1024  # octets yielded at once
_MAX_MEMBERS: Final = 16  # folders and concatenated gzip members that are skipped or joined

_GZIP: Final = b"\x1f\x8b"
_ZIP: Final = b"PK\x03\x04"
_ZLIB: Final = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_LOCAL_HEADER: Final = struct.Struct("<4sHHHHHIIIHH")  # APPNOTE.TXT 4.3.7
_DESCRIPTOR: Final = b"PK\x07\x08"  # APPNOTE.TXT 4.3.9
_STORED, _DEFLATED = 0, 8
_ENCRYPTED, _SIZES_FOLLOW = 0x1, 0x8


class UnpackError(ValueError):
    """The content can't be unpacked, or exceeds a limit; the message says why."""


class UnpackBudget:
    """The octets that the attachments of one mail may still unpack to, together."""

    def __init__(self, octets: int = MAX_UNPACKED) -> None:
        self._left = octets

    def take(self, octets: int) -> None:
        """Subtract unpacked octets. Raises UnpackError when too few are left."""
        self._left -= octets
        if self._left < 0:
            raise UnpackError(f"The report unpacks to more than {MAX_UNPACKED} octets.")


class _Member(NamedTuple):
    """A file in a zip archive, with the offset of its packed content; `size` is None if the header lacks it."""

    name: bytes
    method: int
    start: int
    size: int | None


def unpacked(content: bytes, budget: UnpackBudget | None = None) -> Iterator[bytes]:
    """Yield the unpacked content in pieces of at most PIECE octets. Raises UnpackError, perhaps after some pieces.

    Contents of one mail share a `budget`; without it, the content has one of its own.
    """
    if len(content) > MAX_PACKED:
        raise UnpackError(f"The report has {len(content)} octets; the limit is {MAX_PACKED}.")
    budget = budget or UnpackBudget()
    for piece in _pieces(content):
        budget.take(len(piece))
        yield piece


def _pieces(content: bytes) -> Iterator[bytes]:
    if content.startswith(_GZIP):
        return _gunzipped(content)
    if content.startswith(_ZIP):
        return _unzipped(content)
    if content.startswith(_ZLIB):
        return iter(_Inflated(content, 2))
    return (content[at : at + PIECE] for at in range(0, len(content), PIECE))


class _Inflated:
    """An iterator over one deflate stream; `end` is the offset after it, once it has ended."""

    def __init__(self, content: bytes, start: int) -> None:
        self._engine = zlib.decompressobj(-zlib.MAX_WBITS)  # checksums are ignored: some reporters' are wrong
        self._content = memoryview(content)
        self._at = start
        self.end = start

    def __iter__(self) -> Iterator[bytes]:
        """Yield pieces; content that is cut off ends without an error, for the parser of the content to find."""
        engine = self._engine
        while not engine.eof:
            packed = engine.unconsumed_tail or self._next()
            try:
                piece = engine.decompress(packed, PIECE)
            except zlib.error as error:
                raise UnpackError(f"The packed content is damaged: {error}.") from error
            if piece:
                yield piece
            elif not packed:
                break
        self.end = self._at - len(engine.unused_data)

    def _next(self) -> bytes:
        packed = bytes(self._content[self._at : self._at + PIECE])
        self._at += len(packed)
        return packed


def _gunzipped(content: bytes) -> Iterator[bytes]:
    """Yield the content of all gzip members (RFC 1952 2.2); ignore what follows the last."""
    at = 0
    for _ in range(_MAX_MEMBERS):
        stream = _Inflated(content, _after_gzip_header(content, at))
        yield from stream
        at = stream.end + 8  # CRC-32 and size
        if not content.startswith(_GZIP, at):
            return
    raise UnpackError(f"The gzip file has more than {_MAX_MEMBERS} members.")


def _after_gzip_header(content: bytes, start: int) -> int:
    """Return the offset of the deflate stream of the gzip member at `start` (RFC 1952 2.3)."""
    if len(content) < start + 10 or content[start + 2] != _DEFLATED:
        raise UnpackError("The gzip header is incomplete or names an unknown method.")
    flags, at = content[start + 3], start + 10
    if flags & 0x4:
        at += 2 + int.from_bytes(content[at : at + 2], "little")
    for flag in (0x8, 0x10):  # file name, comment: each ends with a NUL
        if flags & flag:
            end = content.find(b"\0", at)
            if end < 0:
                raise UnpackError("The gzip header has no end.")
            at = end + 1
    return at + 2 if flags & 0x2 else at


def _unzipped(content: bytes) -> Iterator[bytes]:
    """Yield the only file of a zip archive, skipping folders; the local headers alone are read."""
    at = 0
    found = False
    for _ in range(_MAX_MEMBERS):
        if not content.startswith(_ZIP, at):
            break
        member = _member(content, at)
        if _is_noise(member.name):
            at = _end_of(content, member)
            continue
        if found:
            raise UnpackError("The zip archive contains several files; send one report per archive.")
        found = True
        if member.method == _STORED:
            end = _end_of(content, member)
            yield from (content[start : min(start + PIECE, end)] for start in range(member.start, end, PIECE))
        else:
            stream = _Inflated(content, member.start)
            yield from stream
            end = stream.end
        at = _after_descriptor(content, end)
    if not found:
        raise UnpackError("The zip archive contains no file.")


def _member(content: bytes, at: int) -> _Member:
    if len(content) < at + _LOCAL_HEADER.size:
        raise UnpackError("The zip archive is cut off.")
    _, _, flags, method, _, _, _, size, _, name_length, extra_length = _LOCAL_HEADER.unpack_from(content, at)
    if flags & _ENCRYPTED:
        raise UnpackError("The zip archive is encrypted.")
    if method not in {_STORED, _DEFLATED}:
        raise UnpackError(f"The zip archive uses compression method {method}; use deflate (8).")
    start = at + _LOCAL_HEADER.size
    name = content[start : start + name_length]
    return _Member(name, method, start + name_length + extra_length, None if flags & _SIZES_FOLLOW else size)


def _is_noise(name: bytes) -> bool:
    """Return True for folders and for the resource forks that macOS adds."""
    return name.endswith((b"/", b"\\")) or name.startswith(b"__MACOSX")


def _end_of(content: bytes, member: _Member) -> int:
    """Return the offset after the packed content of a member that is stored or skipped."""
    if member.size is not None:
        return min(member.start + member.size, len(content))
    found = content.find(_DESCRIPTOR, member.start)
    return len(content) if found < 0 else found


def _after_descriptor(content: bytes, at: int) -> int:
    return at + 16 if content.startswith(_DESCRIPTOR, at) else at
