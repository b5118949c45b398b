"""Store enquiries from a contact form, and mail them to the owners of the platform account.

The form is on the operator's web site, whose server passes enquiries on. All come from that server, so rate limits
count mail addresses, not networks.
"""

from typing import Protocol
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.accounts import platform_account
from engine.accounts.leads import store
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.events import AccountEvent
from engine.base.text import checked_line, checked_text
from engine.ledger.events import record_event
from engine.people.log_in import too_many
from engine.people.people import store as people
from engine.people.people.rules import checked_email
from engine.people.system_mail.store import enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.store.rate_limits import RateLimiter

MAX_NAME, MAX_COMPANY, MAX_MESSAGE = 120, 200, 5_000
PER_ADDRESS, IN_ALL = 3, 120  # enquiries per hour


class LeadServices(Protocol):
    """The services of a process that storing an enquiry needs."""

    pool: asyncpg.Pool
    limits: RateLimiter


class Enquiry(Struct, frozen=True):
    """The fields of the form."""

    email: str
    message: str
    name: str | None = None
    company: str | None = None


async def take(services: LeadServices, account: UUID, enquiry: Enquiry, *, actor: str) -> UUID:
    """Store an enquiry and mail it; return its id.

    Raises 403 for a key of any account but the platform's, 422 for an invalid address, 429 for too many in an hour.
    """
    at = clock.now()
    named = await platform_account.read(services.pool, at)
    if named.account_id != account:
        raise Refusal(ErrorType.FORBIDDEN, "Only a key of the platform account can call this operation.")
    email = checked_email(enquiry.email)
    name = None if enquiry.name is None else checked_line(enquiry.name, "name", MAX_NAME)
    company = None if enquiry.company is None else checked_line(enquiry.company, "company", MAX_COMPANY)
    message = checked_text(enquiry.message, "message", MAX_MESSAGE).strip()
    if not message:
        raise invalid("message", "`message` must not be empty.")
    await _slow_down(services.limits, email)
    lead = ids.uuid7()
    async with services.pool.acquire() as connection, connection.transaction():
        await store.INSERT.execute(connection, lead, account, name, email, company, message, at)
        await record_event(
            connection, account, AccountEvent.LEAD_RECEIVED, {"id": ids.format_id(ids.Kind.LEAD, lead)}, actor=actor
        )
        for owner in await people.OWNERS.fetch(connection, account):
            await enqueue(
                connection,
                SystemMailKind.LEAD,
                owner.email,
                at=at,
                name=name,
                email=email,
                company=company,
                message=message,
            )
    return lead


async def _slow_down(limits: RateLimiter, email: str) -> None:
    for bucket, most in ((f"lead:{email}", PER_ADDRESS), ("lead", IN_ALL)):
        standing = await limits.check(bucket, most / 3_600, burst_s=3_600)
        if not standing.allowed:
            raise too_many(standing.retry_after_s)
