"""Add and remove sending domains, in one transaction with the event.

Keys are generated before the transaction, so that the account head is not locked meanwhile.
"""

import asyncio
from collections.abc import Hashable, Mapping
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, existing, not_found
from engine.base.events import AccountEvent
from engine.base.plans import Caps
from engine.base.secrets import derived
from engine.base.settings import Settings
from engine.ledger import heads
from engine.ledger.events import record_event
from engine.ledger.plan_limits import limit_reached, locked_caps
from engine.sending.domains import rules, store
from engine.sending.domains.store import FreshKey
from engine.sending.domains.types import DEFAULT_RETURN_PATH_LABEL, MailHostIdentity
from engine.store import caches
from engine.store.concurrency_limiter import ConcurrencyLimiter
from engine.store.database_clock import new_id
from engine.store.database_errors import UniqueViolation
from engine.store.queries import Conn, Source

_REPORTS: Final = "report addresses"  # the purpose of the derived key
# 0.1 s of CPU each, so that small hosts stay responsive. Parallel requests of an account wait for one another, as
# long as clients wait for a response: the published ones for 30 s.
_MAKING_KEYS = ConcurrencyLimiter("requests for new signing keys", at_once=2, each=1)
_KEYS_WAIT_S = 20.0
KEYS_DEADLINE_S: Final = 29.0  # of a request that makes keys, and then looks up records


class AddedDomain(Struct, frozen=True):
    """A domain just added."""

    id: UUID
    public_id: str
    name: str


def identity(settings: Settings) -> MailHostIdentity:
    """Return the mail host and report key to which the records of every domain refer."""
    if settings.key_pepper is None:
        raise RuntimeError("WAYBILL_KEY_PEPPER is not set; sending domains need it to seal their keys")
    return MailHostIdentity(settings.mail_host.lower(), derived(settings.pepper, _REPORTS))


async def add_domain(
    pool: asyncpg.Pool,
    settings: Settings,
    account: UUID,
    name: str,
    *,
    return_path_label: str = DEFAULT_RETURN_PATH_LABEL,
    vouched: bool = False,
    actor: str | None = None,
) -> AddedDomain:
    """Add a domain with its keys: pending, or verified without a check if the operator vouches for it.

    Raises the 400 for an unsuitable name, the 409 if the account has it already, the 409 for a vouched one that is
    verified in another account, the 403 above the plan's limit.
    """
    normal = rules.checked_name(name, settings.mail_host)
    label = rules.checked_label(return_path_label)
    await _refuse_held(pool, account, normal)  # before generating keys; checked again under the lock
    keys, standby = await _make_keys(pool, account, normal)
    async with caches.change(pool, "domains", account) as connection:
        caps = await locked_caps(connection, account)
        domain = await new_id(connection)
        public_id = ids.format_id(ids.Kind.DOMAIN, domain)
        detail = {"id": public_id, "name": normal}
        await _refuse_held(connection, account, normal)
        await _check_room(connection, account, caps)
        await store.insert(
            connection, domain, account, normal,
            pepper=settings.pepper, keys=keys, standby=standby, return_path_label=label,
        )  # fmt: skip
        await record_event(connection, account, AccountEvent.DOMAIN_ADDED, detail, actor=actor)
        if vouched:
            try:
                async with connection.transaction():
                    await store.VOUCH.execute(connection, domain)
            except UniqueViolation:
                raise Refusal(
                    ErrorType.CONFLICT, f"{normal} is verified in another account. Remove it there first."
                ) from None
            await record_event(
                connection, account, AccountEvent.DOMAIN_VERIFIED, detail | {"by": "operator"}, actor=actor
            )
    return AddedDomain(domain, public_id, normal)


async def change_domain(
    pool: asyncpg.Pool, account: UUID, domain: UUID, *, return_path_label: str | None, actor: str | None = None
) -> None:
    """Change the label of the domain's return-path host; None and the present label change nothing.

    Mail uses the service's bounce domain until a check finds the new record. Raises the 404 for an unknown domain, the
    400 for an unsuitable label.
    """
    async with caches.change(pool, "domains", account) as connection:
        await locked_caps(connection, account)
        row = existing(await store.FIND.first(connection, account, domain), "domain")
        label = row.return_path_label if return_path_label is None else rules.checked_label(return_path_label)
        if label == row.return_path_label:
            return
        await store.SET_RETURN_PATH_LABEL.execute(connection, account, domain, label)
        detail = {"id": ids.format_id(ids.Kind.DOMAIN, domain), "name": row.name, "return_path_label": label}
        await record_event(connection, account, AccountEvent.DOMAIN_UPDATED, detail, actor=actor)


async def remove_domain(
    connection: Conn, account: UUID, domain: UUID, *, taken_along: Mapping[str, int], actor: str | None = None
) -> None:
    """Remove a domain within the caller's transaction, which has locked the account's head.

    `taken_along` counts for the event what is removed with it. Raises the 404 for an unknown domain.
    """
    rows = await store.REMOVE.records(connection, account, domain, clock.now())
    if not rows:
        raise not_found("domain")
    detail = {"id": ids.format_id(ids.Kind.DOMAIN, domain), "name": rows[0]["name"], **taken_along}
    await record_event(connection, account, AccountEvent.DOMAIN_REMOVED, detail, actor=actor)


async def make_pair(owner: Hashable, pair: str) -> list[FreshKey]:
    """Generate keys for `wb1` or `wb2` in a thread; raise the 429 if `owner` generates too many at once."""
    async with _MAKING_KEYS.of(owner, wait_s=_KEYS_WAIT_S):
        return await asyncio.to_thread(store.fresh_pair, pair)


async def make_key(owner: Hashable, selector: str, algorithm: str) -> FreshKey:
    """Generate one key in a thread; raise as `make_pair`."""
    async with _MAKING_KEYS.of(owner, wait_s=_KEYS_WAIT_S):
        return await asyncio.to_thread(store.fresh_key, selector, algorithm)


async def _make_keys(pool: asyncpg.Pool, account: UUID, name: str) -> tuple[list[FreshKey], list[FreshKey]]:
    """Generate the keys of a new domain, and those of the other pair if it was removed with both; raise as `make_pair`.

    Raises the 403 instead if the limit was reached while the call waited for its turn: keys are too costly to discard.
    """
    pair, both = await store.pair_for(pool, account, name)
    async with _MAKING_KEYS.of(account, wait_s=_KEYS_WAIT_S):
        head = await heads.read(pool, account)
        if head is not None:
            await _check_room(pool, account, head.caps)
        keys = await asyncio.to_thread(store.fresh_pair, pair)
        standby = await asyncio.to_thread(store.fresh_pair, rules.other(pair)) if both else []
    return keys, standby


async def _check_room(source: Source, account: UUID, caps: Caps) -> None:
    limit = caps.sending_domains
    used = len(await store.NAMES.fetch(source, account))
    if limit is not None and used >= limit:
        raise limit_reached("domains", "sending domains", limit, used)


async def _refuse_held(source: Source, account: UUID, name: str) -> None:
    row = await store.READ.first(source, account, name)
    if row is not None:
        raise Refusal(
            ErrorType.CONFLICT,
            f"Your account already has the domain {name}.",
            id=ids.format_id(ids.Kind.DOMAIN, row.id),
        )
