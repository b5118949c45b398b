"""Encrypt the content and the recipient of mail that nobody may read, until it is settled.

The database, its backups and its write-ahead log hold only ciphertext of such a message. Acceptance seals the content
and the recipient; the mta process opens both in memory. Both are deleted when the message settles. Such a message has
one recipient, which its other rows show as `*@domain`. Pure.
"""

import re
from base64 import b64decode, b64encode
from typing import Final
from uuid import UUID

import orjson

from engine.base.secrets import Pepper, Unsealable, derived, seal, unseal
from engine.delivery.queue import SEALED, Row

UNREADABLE: Final = "unreadable"  # why a row that can't be opened ends
MIN_LOCAL: Final = 3  # characters of a local part that is cut out where it stands alone; shorter ones are common words


class MailSealer:
    """Seals and opens with a key derived from the pepper; one instance per process."""

    def __init__(self, pepper: Pepper) -> None:
        self._key = derived(pepper, "sealed mail")

    def seal_content(self, message: UUID, mime: bytes) -> bytes:
        """Return the encrypted content of a message."""
        return seal(self._key, mime, b"content" + message.bytes)

    def seal_recipient(self, message: UUID, address: str) -> str:
        """Return the encrypted recipient as a queue row holds it."""
        sealed = seal(self._key, address.encode(), b"recipient" + message.bytes)
        return f'{SEALED}"sealed": "{b64encode(sealed).decode()}"}}]]'

    def open(self, row: Row) -> list[tuple[int, str]]:
        """Decrypt the content of a sealed row in place and return its recipient with its place. Raises Unsealable."""
        if row.mime is None:
            raise Unsealable("the content of a sealed message was deleted")
        place, held = orjson.loads(row.recipients)[0]
        address = unseal(self._key, b64decode(held["sealed"]), b"recipient" + row.message_id.bytes).decode()
        row.mime = unseal(self._key, row.mime, b"content" + row.message_id.bytes)
        return [(place, address)]


def masked(address: str) -> str:
    """Return an address without its local part: `*@domain`."""
    return f"*@{address.rpartition('@')[2]}"


def is_masked(address: str) -> bool:
    """Return True if `masked` made the address."""
    return address.startswith("*@")


def cut_out(value: object, address: str) -> object:
    """Return a value of JSON with an address cut out of all its texts, whatever its case.

    Its local part is also cut out where it stands alone, as in `550 ann: no such user`; and so is the mailbox of an
    address with a tag, `ann@x.test` for `ann+news@x.test`.
    """
    return _without(value, _pattern(address), masked(address))


def _pattern(address: str) -> re.Pattern[str]:
    local, _, domain = address.rpartition("@")
    names = [name for name in dict.fromkeys((local, local.partition("+")[0])) if name]  # the longer first
    found = [re.escape(f"{name}@{domain}") for name in names]
    found += [rf"(?<![\w.@-]){re.escape(name)}(?![\w@-])" for name in names if len(name) >= MIN_LOCAL]
    return re.compile("|".join(found), re.IGNORECASE)


def _without(value: object, pattern: re.Pattern[str], mask: str) -> object:
    if isinstance(value, str):
        return pattern.sub(lambda _: mask, value)
    if isinstance(value, dict):
        return {key: _without(one, pattern, mask) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without(one, pattern, mask) for one in value]
    return value
