"""Move stored secrets to the present pepper after a change, and count those that depend on each pepper.

The worker calls `reseal`; `ops pepper` and `ops doctor` call `count`. Every encrypted column of the database that
outlives a delivery is in SEALED: a new one belongs there.
"""

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct

from engine.accounts.delivery_certificates import signing as delivery_certificates
from engine.base.secrets import DerivedKey, Pepper, Unsealable, derived, seal, unseal
from engine.base.settings import Settings
from engine.delivery.sealed_mail import CONTENT_KEYS
from engine.events.webhooks import post_options
from engine.events.webhooks import service as webhooks
from engine.people.second_factor import rules as second_factor
from engine.receiving.certificates import rules as certificates
from engine.sending.agent_sends import rules as agent_sends
from engine.sending.domains import store as domains
from engine.store.jobs import Job
from engine.store.queries import Queries, Source, WideQuery, columns

BATCH: Final = 500  # at 3 µs per value, 1.5 ms

_SQL = Queries.beside(__file__, "reseal.sql")
_log = structlog.get_logger("pepper")


class SealedColumn(Struct, frozen=True):
    """An encrypted column; the key column's value is the associated data of its seals."""

    name: str
    place: str  # table and column
    key_of: Callable[[Pepper], DerivedKey]
    first: UUID | str  # below all keys
    scan: WideQuery
    replace: WideQuery


class PepperCount(Struct, frozen=True):
    """How many secrets of one kind depend on the present pepper, on the previous one, and on neither."""

    what: str
    present: int = 0
    previous: int = 0
    unreadable: int = 0


class PepperRow(Struct, frozen=True):
    """The installation's present pepper, and since when; None if it never changed."""

    pepper_print: bytes
    pepper_changed_at: datetime | None


class Seals(Struct, frozen=True):
    """A batch of one column, as pairs of key and sealed value, by the pepper that opens them."""

    previous: list[tuple[UUID | str, bytes]]
    present: int
    unreadable: int


def _column(
    name: str, key_of: Callable[[Pepper], DerivedKey], table: str, key: str, column: str, kind: str = "uuid"
) -> SealedColumn:
    parts = {"seals": table, "key": key, "seal": column, "kind": kind}
    first = UUID(int=0) if kind == "uuid" else ""
    scan, replace = _SQL.wide("scan_seals", **parts), _SQL.wide("replace_seals", **parts)
    return SealedColumn(name, f"{table}.{column}", key_of, first, scan, replace)


def _of(purpose: str) -> Callable[[Pepper], DerivedKey]:
    return lambda pepper: derived(pepper, purpose)


SEALED: Final = (
    _column("signing keys", _of(domains.SEALING), "domain_keys", "domain_id", "sealed_key"),
    _column("Cloudflare tokens", _of(domains.TOKEN_SEALING), "cloudflare_tokens", "account_id", "sealed_token"),
    _column("webhook secrets", webhooks.secret_key, "webhooks", "id", "sealed_secret"),
    _column("previous webhook secrets", webhooks.secret_key, "webhooks", "id", "sealed_previous"),
    _column("webhook headers", post_options.headers_key, "webhooks", "id", "sealed_headers"),
    _column("second factors", second_factor.key_of, "users", "id", "totp_sealed"),
    _column("content keys", _of(CONTENT_KEYS), "content_keys", "message_id", "sealed_key"),
    _column("emails that wait for approval", _of(agent_sends.SEALING), "agent_sends", "id", "sealed_email"),
    _column("certificates", _of(certificates.SEALING), "tls_certificates", "host", "sealed_key", "text"),
    _column(
        "certificate signing keys", _of(delivery_certificates.SEALING), "certificate_keys", "kid", "sealed_key", "text"
    ),
    _column("ACME accounts", _of(certificates.SEALING), "acme_accounts", "directory", "sealed_key", "text"),
)
_PEPPERS = _SQL.rows("read_peppers", PepperRow)
_DIGESTS = _SQL.rows("count_digests", PepperCount)


async def reseal(pool: asyncpg.Pool, pepper: Pepper) -> int:
    """Encrypt under the present pepper all stored secrets that are under the previous one; return how many.

    Each batch is a statement of its own, and repeating is allowed. Does nothing on a host whose present pepper is not
    the installation's: one that is still to be restarted with the new pepper.
    """
    known = await _PEPPERS.first(pool)
    if pepper.previous is None or (known is not None and known.pepper_print != pepper.fingerprint):
        return 0
    moved = 0
    for column in SEALED:
        key = column.key_of(pepper)
        async for seals in _scan(pool, column, key):
            fresh = [
                (owner, sealed, seal(key, unseal(key, sealed, _bytes(owner)), _bytes(owner)))
                for owner, sealed in seals.previous
            ]
            if fresh:
                ids, stale, made = columns(fresh, 3)
                await column.replace.run(pool, ids=ids, stale=stale, fresh=made)
                moved += len(fresh)
    if moved:
        _log.info("secrets encrypted under the present pepper", secrets=moved)
    return moved


async def _reseal_all(pool: asyncpg.Pool, settings: Settings) -> None:
    if settings.key_pepper is not None:
        await reseal(pool, settings.pepper)


JOB = Job("seals", every_s=3600, run=_reseal_all, share=0.2)


async def count(source: Source, pepper: Pepper) -> list[PepperCount]:
    """Return the stored secrets by kind and pepper. Opens every sealed value, which takes about 3 µs each."""
    previous = None if pepper.previous is None else pepper.previous.fingerprint
    found = await _DIGESTS.fetch(source, pepper.fingerprint, previous)
    for column in SEALED:
        present = old = unreadable = 0
        async for seals in _scan(source, column, column.key_of(pepper)):
            present, old = present + seals.present, old + len(seals.previous)
            unreadable += seals.unreadable
        found.append(PepperCount(column.name, present, old, unreadable))
    return found


async def changed_at(source: Source) -> datetime | None:
    """Return when the present pepper became the installation's; None if it is the first."""
    known = await _PEPPERS.first(source)
    return None if known is None else known.pepper_changed_at


async def _scan(source: Source, column: SealedColumn, key: DerivedKey) -> AsyncIterator[Seals]:
    after = column.first
    while rows := await column.scan.run(source, after=after, most=BATCH):
        yield _sorted([(row["key"], row["sealed"]) for row in rows], key)
        after = rows[-1]["key"]


def _sorted(batch: list[tuple[UUID | str, bytes]], key: DerivedKey) -> Seals:
    alone = DerivedKey(key)  # without the previous key
    closed = [(owner, sealed) for owner, sealed in batch if not _opens(alone, owner, sealed)]
    old = [(owner, sealed) for owner, sealed in closed if _opens(key, owner, sealed)]
    return Seals(old, len(batch) - len(closed), len(closed) - len(old))


def _opens(key: DerivedKey, owner: UUID | str, sealed: bytes) -> bool:
    try:
        unseal(key, sealed, _bytes(owner))
    except Unsealable:
        return False
    return True


def _bytes(owner: UUID | str) -> bytes:
    return owner.encode() if isinstance(owner, str) else owner.bytes
