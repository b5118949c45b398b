"""Checksum of a table that does not depend on row order: the number of rows and the sum of their digests."""

from hashlib import sha256
from typing import Final

_BYTES: Final = 16  # of each digest: by accident no two sets of rows agree in so many
_MODULUS: Final = 1 << (8 * _BYTES)


class RowSum:
    """Takes the text of COPY in pieces of any size and counts its rows; memory does not grow with a row's length.

    The order is left out because a table that has been filled row by row gives its rows back by page.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.size_bytes = 0
        self._sum = 0
        self._row = sha256()  # of the row under way

    def add(self, piece: bytes) -> None:
        """Add the next octets; in COPY's text format a newline always ends a row."""
        self.size_bytes += len(piece)
        first, *others = piece.split(b"\n")
        self._row.update(first)
        if not others:
            return
        self._sum += _number(self._row.digest())
        for row in others[:-1]:
            self._sum += _number(sha256(row).digest())
        self._row = sha256(others[-1])
        self.rows += len(others)

    @property
    def digest(self) -> str:
        """Sum of the digests of all complete rows so far, in hex."""
        return f"{self._sum % _MODULUS:0{2 * _BYTES}x}"


def _number(digest: bytes) -> int:
    return int.from_bytes(digest[:_BYTES], "big")
