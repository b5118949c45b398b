"""Find the account that a key belongs to: what a cell answers to the fronts, with one query for each kind of key.

A key is a value that stands in a request, in the form in which the database stores it: secrets come as digests.
"""

import re
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct

from engine.store.queries import Queries, RowQuery, Source

MAX_KEY: Final = 2_100  # characters: a passkey's credential id has up to 1,023 octets
PATH: Final = "/internal/whose"

_SQL = Queries.beside(__file__, "whose.sql")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_DIGESTS = re.compile(r"[0-9a-f]{64}(?:,[0-9a-f]{64})?")
_TEXT = re.compile(r"[\x21-\x7e]{1,320}")


class KeyKind(StrEnum):
    """The kinds of keys by which requests and mail name an account."""

    API_KEY = "api_key"
    SESSION = "session"
    PERSON_TOKEN = "person_token"  # noqa: S105 - a kind
    INVITE = "invite"
    IDENTITY_STEP = "identity_step"
    PASSKEY = "passkey"
    UNSUBSCRIBE_LINK = "unsubscribe_link"
    CONFIRMATION = "confirmation"
    VERIFICATION = "verification"
    MESSAGE = "message"
    DOMAIN = "domain"
    IMAGE = "image"
    LOGO = "logo"
    POLICY_HOST = "policy_host"
    ACME_CHALLENGE = "acme_challenge"
    PAYMENT = "payment"
    ACCOUNT = "account"
    INVITED = "invited"
    LABEL = "label"
    RECEIVING_DOMAIN = "receiving_domain"


class Key(Struct, frozen=True):
    """A key and its kind."""

    kind: KeyKind
    key: str


class KeyOwner(Struct, frozen=True):
    """The account that a key belongs to; None for a key of this cell that belongs to no account."""

    account_id: UUID | None


_FORMS: Final = {
    KeyKind.API_KEY: _TEXT, KeyKind.SESSION: _DIGESTS, KeyKind.PERSON_TOKEN: _HEX, KeyKind.INVITE: _HEX,
    KeyKind.PASSKEY: _HEX, KeyKind.IMAGE: _HEX, KeyKind.LOGO: _TEXT, KeyKind.POLICY_HOST: _TEXT,
    KeyKind.ACME_CHALLENGE: _TEXT, KeyKind.INVITED: _TEXT,
    KeyKind.LABEL: _TEXT, KeyKind.RECEIVING_DOMAIN: _TEXT,
}  # fmt: skip
_QUERIES: Final[dict[KeyKind, RowQuery[KeyOwner]]] = {kind: _SQL.rows(f"of_{kind.value}", KeyOwner) for kind in KeyKind}


async def owner_of(source: Source, key: Key) -> KeyOwner | None:
    """Return the owner of a key in this cell's database; None if the key is unknown or malformed."""
    form = _FORMS.get(key.kind, _UUID)
    if len(key.key) > MAX_KEY or form.fullmatch(key.key) is None:
        return None
    return await _QUERIES[key.kind].first(source, key.key)
