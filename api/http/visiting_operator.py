"""Operators act in a cell where they have no session: their own cell vouches for them.

The front asks the operator's cell, which checks session, second factor and CSRF token as for its own operations, and
returns a sealed statement for one method, path and cell, valid for seconds. The other cell takes it instead of a
session. The key is derived from the pepper, which all cells share.
"""

import base64
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from engine.base.secrets import DerivedKey, Pepper, Unsealable, derived, seal, unseal
from engine.people.sessions.session_auth import Person

HEADER: Final = "X-Waybill-Operator"
CELL_HEADER: Final = "X-Waybill-Cell"  # of a client: the cell whose operations it wants
VOUCH_PATH: Final = "/internal/operator"
PATHS: Final = "/v1/operator/"
LIFETIME: Final = timedelta(seconds=30)  # with the difference of the hosts' clocks


class Errand(Struct, frozen=True):
    """The one request that a statement is for."""

    method: str
    path: str
    cell: str

    @property
    def octets(self) -> bytes:
        """Return what the statement is bound to."""
        return f"{self.method} {self.path} {self.cell}".encode()


class _Statement(Struct, frozen=True):
    person: Person
    until: datetime


def vouch(pepper: Pepper, person: Person, errand: Errand, at: datetime) -> str:
    """Return the statement that the person is a confirmed operator."""
    plain = msgspec.json.encode(_Statement(person, at + LIFETIME))
    return base64.urlsafe_b64encode(seal(_key(pepper), plain, errand.octets)).decode()


def person_of(pepper: Pepper, statement: str, errand: Errand, at: datetime) -> Person | None:
    """Return the operator of a statement; None if it is forged, expired, or for another request."""
    try:
        plain = unseal(_key(pepper), base64.urlsafe_b64decode(statement), errand.octets)
        made = msgspec.json.decode(plain, type=_Statement)
    except (ValueError, Unsealable, msgspec.DecodeError):  # the last one: of a cell of another version
        return None
    return made.person if at < made.until else None


def _key(pepper: Pepper) -> DerivedKey:
    return derived(pepper, "visiting operators")
