"""Show a broadcast before it is sent: rendered for one contact, or mailed to people of the account's team.

Both have the content of the contact with that address, or of a contact without fields, and an unsubscribe link that
does nothing.
"""

from collections.abc import Sequence
from functools import partial
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.audience.broadcasts import audience as broadcast_audience
from engine.audience.broadcasts import checks as broadcast_checks
from engine.audience.broadcasts import content as broadcast_content
from engine.audience.broadcasts.content import CompiledBroadcast, MergeContact
from engine.audience.broadcasts.types import Broadcast
from engine.audience.contacts import store as contacts
from engine.base import ids
from engine.base.errors import Refusal, existing
from engine.mail.address import Mailbox, canonical
from engine.mail.unsubscribe_links import UnsubscribeLinks
from engine.people.team import recipients as team_recipients
from engine.sending.accept import Acceptor
from engine.sending.admission import Decision
from engine.sending.emails.recipients import sender_of
from engine.sending.emails.types import Accepted, Content, Prepared, SendRequest
from engine.sending.preparation import Composer, Origin
from engine.store.large_mail import run_sized


class BroadcastPreview(Struct, frozen=True):
    """A broadcast as one contact would get it, and how many recipients it has now (None: they can't be counted)."""

    content: Content
    blocks: str | None  # the document that the content was made of
    recipients: int | None


async def preview(
    pool: asyncpg.Pool, links: UnsubscribeLinks, row: Broadcast, contact: UUID | None
) -> BroadcastPreview:
    """Render a broadcast for a contact of the account, None for one without fields.

    Raises the 404 for an unknown contact, and the refusal that would skip the contact.
    """
    values = broadcast_checks.SAMPLE
    if contact is not None:
        found = existing(await contacts.READ.first(pool, row.account_id, contact), "contact")
        values = MergeContact(found.email, found.name, found.fields)
    template = await broadcast_checks.template_of(pool, row)
    broadcast = await broadcast_checks.compiled(pool, row, template)
    if contact is None:
        broadcast = broadcast_content.without_required(broadcast)
    content = broadcast_content.rendered(broadcast, values, links.of(ids.uuid7()))
    blocks = row.blocks if template is None else template.blocks
    return BroadcastPreview(content, blocks, await broadcast_audience.count_now(pool, row.account_id, row.audience))


async def send_test(
    pool: asyncpg.Pool,
    acceptor: Acceptor,
    links: UnsubscribeLinks,
    row: Broadcast,
    to: Sequence[str],
    origin: Origin,
) -> list[Decision]:
    """Mail a broadcast to people of the account's team; return a decision for each address, in order.

    Raises the 400 for an address of somebody else, and the refusals of a send that concern all addresses.
    """
    mailboxes = await team_recipients.checked(pool, row.account_id, to)
    template = await broadcast_checks.check(
        pool, acceptor, row, origin, await broadcast_checks.caps_of(pool, row.account_id), sending=True
    )
    broadcast = broadcast_content.without_required(await broadcast_checks.compiled(pool, row, template))
    sender = sender_of(SendRequest(from_=row.sender, to=row.sender))
    compose = await acceptor.preparer.composer(origin, sender, row.stream)
    known = await _contacts(pool, row.account_id, mailboxes)
    decisions: list[Decision] = []
    for one in mailboxes:
        values = known.get(canonical(one.address), MergeContact(one.address))
        work = partial(_test_message, broadcast, values, links, compose)
        message = await run_sized(broadcast.size_bytes, work)
        decisions += await acceptor.accept_set([message])
    refused = [one for one in decisions if isinstance(one, Refusal)]
    if refused and not any(isinstance(one, Accepted) for one in decisions):
        raise refused[0]
    return decisions


def _test_message(
    broadcast: CompiledBroadcast, values: MergeContact, links: UnsubscribeLinks, compose: Composer
) -> Prepared:
    message = ids.uuid7()
    link = links.of(ids.uuid7())  # not stored, so its use has no effect
    content = broadcast_content.for_test(broadcast_content.rendered(broadcast, values, link))
    return compose(broadcast_content.request_to(broadcast, values, content, link), content, None, message)


async def _contacts(pool: asyncpg.Pool, account: UUID, mailboxes: Sequence[Mailbox]) -> dict[str, MergeContact]:
    addresses = [canonical(one.address) for one in mailboxes]
    found = await contacts.FIND.fetch(pool, account, addresses)
    emails = {canonical(one.address): one.address for one in mailboxes}
    return {one.address: MergeContact(emails[one.address], one.name, one.fields) for one in found}
