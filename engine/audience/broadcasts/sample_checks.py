"""Check a broadcast before it is sent: what spam filters and mailbox providers will probably make of its messages."""

from functools import partial

import asyncpg

from engine.audience.broadcasts import checks as broadcast_checks
from engine.audience.broadcasts import content as broadcast_content
from engine.audience.broadcasts.content import CompiledBroadcast
from engine.audience.broadcasts.types import Broadcast
from engine.base import clock, ids
from engine.base.settings import Settings
from engine.mail.unsubscribe_links import UnsubscribeLinks
from engine.sending.accept import Acceptor
from engine.sending.emails.recipients import sender_of
from engine.sending.emails.types import SendRequest
from engine.sending.preparation import Composer, Origin
from engine.sending.sender_checks import check_message, sender_facts
from engine.sending.sender_requirements import SendChecks, SenderFacts
from engine.store.large_mail import run_sized


async def sample_checks(
    pool: asyncpg.Pool, acceptor: Acceptor, settings: Settings, links: UnsubscribeLinks, row: Broadcast, origin: Origin
) -> SendChecks:
    """Return the checks of the message for a contact without fields.

    Raises the refusal that keeps the broadcast from being composed, such as that of a domain that is not verified.
    """
    template = await broadcast_checks.template_of(pool, row)
    broadcast = broadcast_content.without_required(await broadcast_checks.compiled(pool, row, template))
    sender = sender_of(SendRequest(from_=row.sender, to=row.sender))
    compose = await acceptor.preparer.composer(origin, sender, row.stream)
    async with pool.acquire() as connection:
        facts = await sender_facts(connection, settings, row.account_id, sender.domain, clock.now().date())
    return await run_sized(broadcast.size_bytes, partial(_checked, broadcast, facts, links, compose, row.stream))


def _checked(
    broadcast: CompiledBroadcast, facts: SenderFacts, links: UnsubscribeLinks, compose: Composer, stream: str
) -> SendChecks:
    values, link = broadcast_checks.SAMPLE, links.of(ids.uuid7())  # not stored, so its use has no effect
    content = broadcast_content.rendered(broadcast, values, link)
    request = broadcast_content.request_to(broadcast, values, content, link)
    return check_message(facts, compose(request, content, None, ids.uuid7()).mime, stream)
