"""Publish a domain's records in the owner's Cloudflare zone, with the owner's API token.

Records of other origin are never changed. The token is stored sealed, so that the next key rotation needs no new one,
until the owner deletes it.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, existing, invalid
from engine.base.events import AccountEvent
from engine.base.secrets import Pepper
from engine.base.settings import Settings
from engine.ledger.events import record_event
from engine.ledger.plan_limits import locked_caps
from engine.sending.domains import cloudflare, publishing, records, store
from engine.sending.domains.cloudflare import Cloudflare, CloudflareDeclined, CloudflareUnavailable, TokenRefused, Zone
from engine.sending.domains.publishing import Outcome
from engine.sending.domains.service import identity
from engine.sending.domains.types import DomainRow, MailHostIdentity, WantedRecord

PUBLISH_S: Final = 15.0  # in all, below the time limit of a request
SPREAD: Final = timedelta(seconds=20)  # until all of Cloudflare's servers have a change

NO_TIME: Final = "Cloudflare responded too slowly. Records written so far are kept. Publish again."


class Written(Struct, frozen=True):
    """The result for one record; `reason` explains it unless the record is simply published."""

    wanted: WantedRecord
    outcome: Outcome
    reason: str | None = None


class DnsPublication(Struct, frozen=True):
    """The results for a domain's records and the name of their zone."""

    zone: str
    records: list[Written]


async def publish_dns(
    pool: asyncpg.Pool,
    settings: Settings,
    account: UUID,
    domain: UUID,
    token: str | None,
    *,
    keeps_token: bool = True,
    actor: str | None = None,
) -> DnsPublication:
    """Publish the domain's records; with `keeps_token`, store a token that works for all domains. Idempotent.

    Raises the 404 for an unknown domain, the 400 for a missing token or one that Cloudflare refuses, the 503 while
    Cloudflare is unavailable.
    """
    row = existing(await store.FIND.first(pool, account, domain), "domain")
    used = token or await store.read_token(pool, account, pepper=settings.pepper)
    if used is None:
        raise invalid(
            "token", "Your account has no stored token. Send a Cloudflare token that may edit the zone's DNS records."
        )
    keys = await store.PUBLISHED.fetch(pool, row.id)
    place_of = identity(settings)
    wanted = records.wanted_of(row, keys, place_of)
    try:
        done = await _publish(settings.cloudflare_url, used, row, wanted, place_of)
    except TokenRefused as refused:
        raise invalid("token", f"Cloudflare refuses the token: {refused}.") from None
    except CloudflareDeclined as declined:
        raise invalid(
            "token", f"Cloudflare refused to look up the zone: {declined}. Check the permissions of the token."
        ) from None
    except CloudflareUnavailable as away:
        raise Refusal(
            ErrorType.UNAVAILABLE, f"{away} Nothing was published; try again shortly.", retry_after_s=away.retry_after_s
        ) from None
    await _remember(pool, settings.pepper, row, used if keeps_token else None, done, actor)
    return done


async def forget_token(pool: asyncpg.Pool, account: UUID, *, actor: str | None = None) -> None:
    """Delete the account's token, if there is one. Published records stay."""
    async with pool.acquire() as connection, connection.transaction():
        await locked_caps(connection, account)
        if await store.FORGET_TOKEN.records(connection, account):
            await record_event(connection, account, AccountEvent.CLOUDFLARE_DISCONNECTED, {}, actor=actor)


async def _publish(
    url: str, token: str, row: DomainRow, wanted: Sequence[WantedRecord], place_of: MailHostIdentity
) -> DnsPublication:
    """Write the records; raise TokenRefused, CloudflareDeclined or CloudflareUnavailable if none was written."""
    async with Cloudflare(url, token) as api:
        ends = asyncio.get_running_loop().time() + PUBLISH_S
        try:
            async with asyncio.timeout_at(ends):
                zone = await api.zone_of(row.name)
        except TimeoutError:
            raise CloudflareUnavailable("Cloudflare responds too slowly.") from None
        if zone is None:
            raise TokenRefused(
                f"it has no access to a zone with {row.name}; give it the permissions Zone Read and DNS Edit there"
            )
        inside = [one for one in wanted if _within(one.host, zone)]
        results = await asyncio.gather(*[_write(api, zone, row, one, place_of, ends) for one in inside])
    return _summed_up(zone, inside, results)


def _summed_up(
    zone: Zone, wanted: Sequence[WantedRecord], results: "Sequence[Written | CloudflareUnavailable | TokenRefused]"
) -> DnsPublication:
    """Return all results; raise the first problem if nothing was written."""
    problems = [one for one in results if isinstance(one, Exception)]
    wrote = any(isinstance(one, Written) and one.outcome in {"created", "updated"} for one in results)
    if problems and not wrote:
        raise next((one for one in problems if isinstance(one, TokenRefused)), problems[0])
    return DnsPublication(
        zone.name,
        [
            one if isinstance(one, Written) else Written(asked, "failed", f"{one}")
            for asked, one in zip(wanted, results, strict=True)
        ],
    )


async def _write(
    api: Cloudflare, zone: Zone, row: DomainRow, wanted: WantedRecord, place_of: MailHostIdentity, ends: float
) -> "Written | CloudflareUnavailable | TokenRefused":
    """Write one record; return a problem of the token or of all Cloudflare as a value."""
    try:
        async with asyncio.timeout_at(ends):
            return await _bring(api, zone, row, wanted, place_of)
    except TimeoutError:
        return CloudflareUnavailable(NO_TIME)
    except (CloudflareUnavailable, TokenRefused) as problem:
        return problem
    except CloudflareDeclined as declined:
        if declined.codes & cloudflare.IDENTICAL:
            return Written(wanted, "unchanged")
        if declined.codes & cloudflare.ALIASED:
            return Written(
                wanted, "conflict", f"Another record at {wanted.host} is in conflict: {declined}. Remove it."
            )
        return Written(wanted, "failed", f"Cloudflare refused the record: {declined}.")


async def _bring(
    api: Cloudflare, zone: Zone, row: DomainRow, wanted: WantedRecord, place_of: MailHostIdentity
) -> Written:
    step = publishing.step_for(wanted, await api.records_at(zone, wanted.host), place_of)
    if step.action == "conflict":
        return Written(wanted, "conflict", step.reason)
    if step.action == "unchanged":
        return Written(wanted, "unchanged")
    if step.action == "update" and step.id is not None:
        await api.update(zone, step.id, wanted)
        return Written(wanted, "updated")
    if wanted.purpose == "dmarc":
        above = await _policy_above(api, zone, row.name, wanted)
        if above is not None:
            return Written(
                wanted, "unchanged", f"The policy at {above} applies to this name; a separate record would weaken it."
            )
    await api.create(zone, wanted)
    return Written(wanted, "created")


async def _policy_above(api: Cloudflare, zone: Zone, name: str, wanted: WantedRecord) -> str | None:
    """Return the name in the zone whose DMARC policy `name` inherits (RFC 7489 6.6.3), or None."""
    for above in records.ancestors(name):
        host = f"_dmarc.{above}"
        if _within(above, zone):
            held = [one.value for one in await api.records_at(zone, host) if one.type == "TXT"]
            if records.relevant(wanted, held):
                return host
    return None


async def _remember(
    pool: asyncpg.Pool, pepper: Pepper, row: DomainRow, token: str | None, done: DnsPublication, actor: str | None
) -> None:
    """Store a token that worked, if given, record the published records as an event, and schedule a check."""
    changed = [
        {"type": one.wanted.type, "host": one.wanted.host, "outcome": one.outcome}
        for one in done.records
        if one.outcome in {"created", "updated"}
    ]
    async with pool.acquire() as connection, connection.transaction():
        await locked_caps(connection, row.account_id)
        if token is not None and await store.read_token(connection, row.account_id, pepper=pepper) != token:
            await store.keep_token(connection, row.account_id, token, pepper=pepper)
            await record_event(
                connection, row.account_id, AccountEvent.CLOUDFLARE_CONNECTED, {"zone": done.zone}, actor=actor
            )
        if changed:
            named = {"id": ids.format_id(ids.Kind.DOMAIN, row.id), "name": row.name}
            detail = named | {"zone": done.zone, "records": changed}
            await record_event(connection, row.account_id, AccountEvent.DOMAIN_DNS_PUBLISHED, detail, actor=actor)
            await store.CHECK_SOON.execute(connection, row.account_id, row.id, clock.now() + SPREAD)


def _within(name: str, zone: Zone) -> bool:
    return name == zone.name or name.endswith(f".{zone.name}")
