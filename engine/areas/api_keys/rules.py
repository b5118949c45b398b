"""The form of an API key, and which scopes it may carry."""

import re
from collections.abc import Iterable

from msgspec import Struct

from engine.base.errors import Refusal, invalid
from engine.base.scopes import SCOPES
from engine.base.secrets import random_base62

PREFIX = "svc_live_"
ID_LENGTH, SECRET_LENGTH = 12, 32
_FORM = re.compile(rf"{PREFIX}([0-9A-Za-z]{{{ID_LENGTH}}})([0-9A-Za-z]{{{SECRET_LENGTH}}})", re.ASCII)


class NewKey(Struct, frozen=True):
    """A key at its making: the only moment its secret exists in clear."""

    key_id: str
    secret: str

    @property
    def token(self) -> str:
        """What the caller sends as bearer token."""
        return PREFIX + self.key_id + self.secret


def new_key() -> NewKey:
    """A fresh random key."""
    return NewKey(random_base62(ID_LENGTH), random_base62(SECRET_LENGTH))


def parse(token: str) -> NewKey | None:
    """Key id and secret of a bearer token, or None when it does not have the form of one."""
    match = _FORM.fullmatch(token)
    return NewKey(match[1], match[2]) if match else None


def hint(key_id: str) -> str:
    """Enough to recognise a key in a list, useless as a credential."""
    return PREFIX + key_id[:4]


def checked_scopes(scopes: Iterable[str]) -> list[str]:
    """The scopes in order without repetition; refuses an unknown one by name."""
    wanted = sorted(set(scopes))
    for scope in wanted:
        if scope not in SCOPES:
            raise _unknown(scope)
    if not wanted:
        raise invalid("scopes", "Name at least one scope.")
    return wanted


def _unknown(scope: str) -> Refusal:
    if scope == "billing:read":
        return invalid("scopes", "billing:read can't be granted to a key; billing reads accept account:read.")
    return invalid("scopes", f"There is no scope named {scope!r}.")
