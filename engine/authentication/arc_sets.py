"""Find the ARC sets in a header (RFC 8617 4.2). Pure; used to verify a chain and to extend it."""

import re
from typing import Final

from msgspec import Struct

from engine.authentication.canonicalization import CanonicalHeader

MAX_SETS: Final = 50  # RFC 8617 4.2.1

_KINDS: Final = (b"arc-authentication-results", b"arc-message-signature", b"arc-seal")
_instance = re.compile(rb"(?:\A|;)[ \t\r\n]*i[ \t\r\n]*=[ \t\r\n]*0*([0-9]{1,3})[ \t\r\n]*(?=;|\Z)").search
_first_instance = re.compile(rb"[ \t\r\n]*i[ \t\r\n]*=[ \t\r\n]*0*([0-9]{1,3})[ \t\r\n]*(?=;)").match


class BadArcChain(ValueError):  # noqa: N818 - named for what was given
    """The ARC fields do not form a chain; the message says why."""


class ArcSet(Struct, frozen=True):
    """The indexes of the three fields of one instance in the header."""

    instance: int
    results: int
    signature: int
    seal: int


def arc_sets(header: CanonicalHeader) -> tuple[ArcSet, ...]:
    """Return the sets from instance 1 on; () without ARC fields. Raises BadArcChain unless each instance has all three
    fields once and none is missing.
    """
    found = [_by_instance(header, kind) for kind in _KINDS]
    count = len(found[0])
    if any(set(places) != set(range(1, count + 1)) for places in found):
        raise BadArcChain("the ARC sets are incomplete")
    results, signatures, seals = found
    return tuple(ArcSet(number, results[number], signatures[number], seals[number]) for number in range(1, count + 1))


def _by_instance(header: CanonicalHeader, kind: bytes) -> dict[int, int]:
    places = header.places(kind)
    if len(places) > MAX_SETS:
        raise BadArcChain(f"more than {MAX_SETS} ARC sets")
    found: dict[int, int] = {}
    for place in places:
        match = (_first_instance if kind == _KINDS[0] else _instance)(header.value(place))
        if match is None or int(match[1]) in found:
            raise BadArcChain("an ARC field has no instance, or one that another field has too")
        found[int(match[1])] = place
    return found
