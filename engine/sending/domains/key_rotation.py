"""Rotate the DKIM keys of a domain between the pairs `wb1` and `wb2`.

A rotation requests the other pair; as soon as a check finds its RSA record published, signing moves to that pair. The
records of the old pair must stay for seven days, for mail in transit; new keys replace it then.
"""

from collections.abc import Sequence
from uuid import UUID

import asyncpg

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, existing
from engine.base.events import AccountEvent
from engine.base.secrets import Pepper
from engine.base.settings import Settings
from engine.ledger.events import record_event
from engine.ledger.plan_limits import locked_caps
from engine.sending.domains import rules, store
from engine.sending.domains.service import make_pair
from engine.sending.domains.store import FreshKey
from engine.sending.domains.types import DomainKeyRow
from engine.sending.domains.verification import Verified, verify_now
from engine.store.queries import Conn


async def rotate_keys(
    pool: asyncpg.Pool, settings: Settings, account: UUID, domain: UUID, *, actor: str | None = None
) -> Verified:
    """Request the other key pair and check at once whether it is published; repeated calls only check.

    Raises the 404 for an unknown domain, the 409 for one that was never verified or was rotated less than seven days
    ago.
    """
    row = existing(await store.FIND.first(pool, account, domain), "domain")
    if row.verified_at is None:
        raise Refusal(
            ErrorType.INVALID_STATE,
            f"{row.name} was never verified. Publish its current DKIM record and verify the domain first.",
            state=row.status,
        )
    spare = await _spare_pair(account, await store.PUBLISHED.fetch(pool, domain))
    async with pool.acquire() as connection, connection.transaction():
        await locked_caps(connection, account)
        keys = await store.PUBLISHED.fetch(connection, domain)
        if rules.next_pair(keys) is None:
            then = await _request_pair(connection, domain, keys, spare, settings.pepper)
            detail = {"id": ids.format_id(ids.Kind.DOMAIN, domain), "name": row.name, "to": then}
            await record_event(connection, account, AccountEvent.DOMAIN_KEY_ROTATION_REQUESTED, detail, actor=actor)
    return await verify_now(pool, settings, account, domain)


async def _spare_pair(account: UUID, keys: Sequence[DomainKeyRow]) -> list[FreshKey]:
    """Create keys for the other pair if the domain has none, before anything is locked."""
    pair = rules.signing_pair(keys)
    if pair is None or any(key.pair == rules.other(pair) for key in keys):
        return []
    return await make_pair(account, rules.other(pair))


async def _request_pair(
    connection: Conn, domain: UUID, keys: Sequence[DomainKeyRow], spare: Sequence[FreshKey], pepper: Pepper
) -> str:
    """Request the other pair and return its name; raise the 409 while old keys are retiring."""
    pair = rules.signing_pair(keys)
    retiring = next((key.retire_at for key in keys if key.status == "retiring" and key.retire_at), None)
    if pair is None or retiring is not None:
        until = "the last rotation ends" if retiring is None else clock.iso(retiring)
        raise Refusal(
            ErrorType.INVALID_STATE,
            f"The previous keys are still needed for mail in transit. Rotate keys again after {until}.",
            state="retiring",
        )
    then = rules.other(pair)
    if any(key.pair == then for key in keys):
        await store.ASK_FOR_PAIR.execute(connection, domain, then)
        return then
    for key in spare:
        await store.insert_key(connection, domain, key, "pending" if key.selector == then else "standby", pepper=pepper)
    return then
