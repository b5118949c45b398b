"""Set and check hosted MTA-STS policies: the policy, its DNS records, the certificate of the policy host.

A policy is served as soon as it is stored. Senders use it once the domain's CNAME, TXT record and certificate are
right; each of them has a verdict of its own.
"""

import asyncio
import secrets
import ssl
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg
import msgspec
import structlog

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import AccountEvent
from engine.base.netaddr import is_public
from engine.base.settings import Settings
from engine.ledger.events import record_event
from engine.ledger.plan_limits import locked_caps
from engine.people.api_keys.rules import KeyRestrictions
from engine.receiving.mta_sts import rules, store
from engine.receiving.mta_sts.certificate_check import certificate_status
from engine.receiving.mta_sts.types import HostedPolicyRow, StsFindings, StsMode
from engine.sending.domains import lookups, records
from engine.sending.domains import store as domains
from engine.sending.domains.lookups import SetupResolver
from engine.sending.domains.types import Place
from engine.store.database_clock import new_id
from engine.store.database_errors import DatabaseUnavailable
from engine.store.jobs import Job

MAX_AT_ONCE: Final = 10
MAX_CLAIMED: Final = 50
CLAIMED_FOR: Final = timedelta(minutes=5)
CHECK_EVERY: Final = timedelta(hours=6)
NOT_LIVE_EVERY: Final = timedelta(minutes=15)  # so that records published now are found soon

_log = structlog.get_logger("mta-sts")


async def put_policy(
    pool: asyncpg.Pool,
    account: UUID,
    domain: str,
    *,
    mode: StsMode,
    max_age_s: int | None,
    reach: KeyRestrictions | None = None,
    actor: str | None = None,
) -> HostedPolicyRow:
    """Set the policy of a verified domain; a PUT that changes nothing keeps the policy's id.

    Raises the 404 for a domain that the account does not have, the 403 for one that is not verified.
    """
    async with pool.acquire() as connection, connection.transaction():
        await locked_caps(connection, account)
        row = await domains.READ.first(connection, account, domain)
        if row is None or (reach is not None and not reach.covers_domain(domain)):
            raise not_found("domain")
        if row.status != "verified":
            raise Refusal(
                ErrorType.DOMAIN_NOT_VERIFIED,
                f"{domain} is not verified. Verify the domain before you set its MTA-STS policy.",
                domain=domain,
            )
        before = await store.READ.first(connection, row.id)
        after = rules.changed(before, mode, max_age_s)
        if after is not None:
            at = clock.now()
            policy_id = rules.next_policy_id(None if before is None else before.policy_id, at)
            await store.SAVE.execute(connection, row.id, account, *after, policy_id, at, await new_id(connection))
            detail = {"domain": domain, "mode": after[0], "max_age": after[1], "policy_id": policy_id}
            await record_event(connection, account, AccountEvent.MTA_STS_UPDATED, detail, actor=actor)
        kept = await store.READ.first(connection, row.id)
        assert kept is not None
        return kept


async def check_policy(
    pool: asyncpg.Pool, settings: Settings, account: UUID, domain: str, *, reach: KeyRestrictions | None = None
) -> HostedPolicyRow:
    """Look up the DNS records and the certificate of a policy now; raises the 404 for a domain without one."""
    row = await domains.READ.first(pool, account, domain)
    policy = None if row is None else await store.READ.first(pool, row.id)
    if policy is None or (reach is not None and not reach.covers_domain(domain)):
        raise not_found("MTA-STS policy")
    resolver = lookups.for_checks(settings)
    try:
        await _check(pool, settings, policy, resolver)
    finally:
        await resolver.close()
    checked = await store.READ.first(pool, policy.domain_id)
    if checked is None:  # removed meanwhile
        raise not_found("MTA-STS policy")
    return checked


async def check_due(pool: asyncpg.Pool, settings: Settings) -> int:
    """Check every policy that is due; return their number. Safe with several workers: each claims its policies."""
    done = 0
    while claimed := await _claim(pool):
        resolver = lookups.for_checks(settings)
        slots = asyncio.Semaphore(MAX_AT_ONCE)
        try:
            async with asyncio.TaskGroup() as tasks:
                for policy in claimed:
                    tasks.create_task(_check_one(pool, settings, policy, resolver, slots))
        finally:
            await resolver.close()
        done += len(claimed)
        if len(claimed) < MAX_CLAIMED:
            break
    return done


JOB = Job("mta-sts policies", every_s=5, run=check_due)


async def _claim(pool: asyncpg.Pool) -> list[HostedPolicyRow]:
    at = clock.now()
    return await store.CLAIM_DUE.fetch(pool, at, MAX_CLAIMED, at + CLAIMED_FOR)


async def _check_one(
    pool: asyncpg.Pool,
    settings: Settings,
    policy: HostedPolicyRow,
    resolver: SetupResolver,
    slots: asyncio.Semaphore,
) -> None:
    async with slots:
        try:
            await _check(pool, settings, policy, resolver)
        except DatabaseUnavailable as error:
            _log.warning("policy not checked", domain=policy.domain, error=repr(error))
        except Exception:  # noqa: BLE001 - process loop: an error of one domain must not stop the others
            _log.exception("policy not checked", domain=policy.domain)


async def _check(pool: asyncpg.Pool, settings: Settings, policy: HostedPolicyRow, resolver: SetupResolver) -> None:
    findings = await find(settings, policy, resolver)
    at = clock.now()
    await store.SAVE_FINDINGS.execute(pool, policy.domain_id, rules.encoded(findings), at, _next_check(findings, at))


def _next_check(findings: StsFindings, at: datetime) -> datetime:
    return at + (CHECK_EVERY if findings.live and findings.problem is None else NOT_LIVE_EVERY)


async def find(settings: Settings, policy: HostedPolicyRow, resolver: SetupResolver) -> StsFindings:
    """Look up what senders would find; where DNS gives no answer, the earlier result stays."""
    name, mail_host = policy.domain, settings.mail_host.lower()
    host = f"{rules.HOST_LABEL}{name}"
    alias, txt, mx = ("CNAME", host), ("TXT", f"_mta-sts.{name}"), ("MX", name)
    other: Place = ("CNAME", f"wb-{secrets.token_hex(6)}.{name}")
    places: list[Place] = [alias, txt, mx, other]  # type: ignore[list-item]  # literals of a tuple are str to mypy
    answers = await lookups.look_up_all(resolver, places)
    before = rules.decoded(policy.findings)
    found = {place: answers[place] for place in places}
    aliases, texts, servers = found[places[0]], found[places[1]], found[places[2]]
    wanted = f"{rules.HOST_LABEL}{mail_host}"
    certificate = await certificate_status(
        host,
        settings.policy_port,
        resolver=resolver,
        trusted=await asyncio.to_thread(_trusted, settings),
        may_dial=(lambda _: True) if settings.allow_private_mx else is_public,
    )
    hosts = None if servers is None else [one.split()[-1] for one in servers]
    return msgspec.structs.replace(
        before,
        cname=before.cname if aliases is None else rules.alias_status(aliases, wanted),
        txt=before.txt if texts is None else rules.txt_status(texts, policy.policy_id),
        certificate=certificate,
        mx_ours=before.mx_ours if hosts is None else mail_host in hosts and len(hosts) == 1,
        foreign_mx=before.foreign_mx if hosts is None else tuple(one for one in hosts if one != mail_host)[:10],
        wildcard=bool(found[other]) and found[other] == aliases,
        problem=None if None not in (aliases, texts, servers) else records.NO_ANSWER,
    )


def _trusted(settings: Settings) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=settings.tls_authorities)


def public_id(policy: HostedPolicyRow) -> str:
    """Return the cursor of a policy: the id of its domain."""
    return ids.format_id(ids.Kind.DOMAIN, policy.domain_id)
