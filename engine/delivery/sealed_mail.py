"""Encrypt content in the database: of mail that nobody may read, and of mail whose content is not kept.

The first kind, codes and system mail, is encrypted with a key derived from the pepper, its recipient too; the other
rows of such a message show `*@domain`. Acceptance seals both, the mta process opens both in memory, and both are
deleted when the message settles. The second kind has a key of its own per message, which is stored encrypted beside it
and deleted when the message is final (engine.sending.forget_content). Pure.
"""

import os
import re
from base64 import b64decode, b64encode
from typing import Final
from uuid import UUID

import orjson
from msgspec import structs

from engine.base.secrets import DerivedKey, Pepper, Unsealable, derived, seal, unseal
from engine.delivery.queue import SEALED, Row

UNREADABLE: Final = "unreadable"  # why a row that can't be opened ends
CONTENT_KEYS: Final = "content keys"  # the purpose of the key that encrypts those of single messages
SEAL_BYTES: Final = 28  # by which encrypted content is longer: nonce and tag
_KEY_BYTES: Final = 32
MIN_LOCAL: Final = 3  # characters of a local part that is cut out where it stands alone; shorter ones are common words


class MailSealer:
    """Seals and opens with a key derived from the pepper; one instance per process."""

    def __init__(self, pepper: Pepper) -> None:
        self._key = derived(pepper, "sealed mail")
        self._wrapping = derived(pepper, CONTENT_KEYS)

    def seal_content(self, message: UUID, mime: bytes) -> bytes:
        """Return the encrypted content of a message."""
        return seal(self._key, mime, b"content" + message.bytes)

    def seal_recipient(self, message: UUID, address: str) -> str:
        """Return the encrypted recipient as a queue row holds it."""
        sealed = seal(self._key, address.encode(), b"recipient" + message.bytes)
        return f'{SEALED}"sealed": "{b64encode(sealed).decode()}"}}]]'

    def seal_apart(self, message: UUID, mime: bytes) -> tuple[bytes, bytes]:
        """Return the content of a message encrypted with a new key, and that key encrypted."""
        key = os.urandom(_KEY_BYTES)
        return seal(key, mime, b"content" + message.bytes), seal(self._wrapping, key, message.bytes)

    def open_apart(self, message: UUID, sealed: bytes, sealed_key: bytes | None) -> bytes:
        """Decrypt what `seal_apart` returned. Raises Unsealable, also if the key is gone."""
        return unseal(self._own_key(message, sealed_key), sealed, b"content" + message.bytes)

    def opened(self, row: Row) -> Row:
        """Return a row with its content decrypted by the message's own key. Raises Unsealable.

        Of content that is loaded later, only the key is checked; it is left to `open_apart`.
        """
        if row.mime is None:
            self._own_key(row.message_id, row.content_key)
            return row
        mime = self.open_apart(row.message_id, row.mime, row.content_key)
        return structs.replace(row, mime=mime, content_key=None)

    def _own_key(self, message: UUID, sealed_key: bytes | None) -> DerivedKey:
        if sealed_key is None:
            raise Unsealable("the key of the message was deleted")
        return DerivedKey(unseal(self._wrapping, sealed_key, message.bytes))

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
