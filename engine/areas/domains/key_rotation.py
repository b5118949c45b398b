"""Changing the keys that a domain signs with: `wb1` and `wb2` take turns.

The other pair's RSA key is asked for; as soon as a check finds its record published, signing moves to that pair. The
former pair's records stay wanted for seven days, for messages on their way; then fresh keys take its place.
"""

from collections.abc import Sequence
from uuid import UUID

import asyncpg

from engine.areas.domains import rules, store
from engine.areas.domains.service import make_pair
from engine.areas.domains.store import FreshKey
from engine.areas.domains.types import DomainKeyRow
from engine.areas.domains.verification import Verified, verify_now
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import AccountEvent
from engine.base.settings import Settings
from engine.ledger.events import record_event
from engine.ledger.plan_limits import locked_plan
from engine.store.queries import Conn


async def rotate_keys(
    pool: asyncpg.Pool, settings: Settings, account: UUID, domain: UUID, *, actor: str | None = None
) -> Verified:
    """Ask for the other pair and look at once whether it is published; asked again, it only looks.

    Raises 404 for a domain that the account does not have, 409 for one that was never verified or whose last change
    is less than seven days old.
    """
    assert settings.key_pepper is not None
    row = await store.FIND.first(pool, account, domain)
    if row is None:
        raise not_found("domain")
    if row.verified_at is None:
        raise Refusal(
            ErrorType.INVALID_STATE,
            f"{row.name} has not been verified yet: publish the key that it has, and verify it first.",
            status=row.status,
        )
    spare = await _spare_pair(account, await store.PUBLISHED.fetch(pool, domain))
    async with pool.acquire() as connection, connection.transaction():
        await locked_plan(connection, account)
        keys = await store.PUBLISHED.fetch(connection, domain)
        if rules.next_pair(keys) is None:
            then = await _ask(connection, domain, keys, spare, settings.key_pepper)
            detail = {"id": ids.format_id(ids.Kind.DOMAIN, domain), "name": row.name, "to": then}
            await record_event(connection, account, AccountEvent.DOMAIN_KEY_ROTATION_REQUESTED, detail, actor=actor)
    return await verify_now(pool, settings, account, domain)


async def _spare_pair(account: UUID, keys: Sequence[DomainKeyRow]) -> list[FreshKey]:
    """Keys for the other pair where the domain has none yet, made before anything is locked."""
    pair = rules.signing_pair(keys)
    if pair is None or any(key.pair == rules.other(pair) for key in keys):
        return []
    return await make_pair(account, rules.other(pair))


async def _ask(
    connection: Conn, domain: UUID, keys: Sequence[DomainKeyRow], spare: Sequence[FreshKey], pepper: str
) -> str:
    """The pair that was asked for."""
    pair = rules.signing_pair(keys)
    retiring = next((key.retire_at for key in keys if key.status == "retiring" and key.retire_at), None)
    if pair is None or retiring is not None:
        until = "its last change is over" if retiring is None else clock.iso(retiring)
        raise Refusal(
            ErrorType.INVALID_STATE,
            f"The former keys are still needed for messages on their way. Change keys again after {until}.",
            status="retiring",
        )
    then = rules.other(pair)
    if any(key.pair == then for key in keys):
        await store.ASK_FOR_PAIR.execute(connection, domain, then)
        return then
    for key in spare:
        await store.insert_key(connection, domain, key, "pending" if key.selector == then else "standby", pepper=pepper)
    return then
