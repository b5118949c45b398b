"""Check a broadcast as create, change and send do: sender, stream, audience and content.

sender domain verified → stream exists, and is not the transactional one → list or segment exists → template exists or
the content compiles → a sample is composed, which checks the attachments and the size. A draft may lack its content.
"""

import asyncio
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import structs

from engine.audience.broadcasts import audience as broadcast_audience
from engine.audience.broadcasts import content as broadcast_content
from engine.audience.broadcasts.content import CompiledBroadcast, MergeContact
from engine.audience.broadcasts.types import Broadcast, BroadcastAudience
from engine.audience.contacts import lists_store, segments
from engine.base import ids
from engine.base.errors import existing, invalid, not_found
from engine.base.plans import Caps
from engine.ledger import heads
from engine.mail.unsubscribe_links import UnsubscribeLink
from engine.sending.accept import Acceptor
from engine.sending.emails import rules as email_rules
from engine.sending.emails.recipients import sender_of
from engine.sending.emails.types import SendRequest
from engine.sending.images import in_mail
from engine.sending.preparation import Origin
from engine.sending.streams.store import TRANSACTIONAL
from engine.sending.suppressions.rules import BROADCAST
from engine.sending.templates import rules as template_rules
from engine.sending.templates import store as templates
from engine.sending.templates.types import VersionRow
from engine.store.large_mail import run_sized
from engine.store.queries import Source

SOURCE: Final = BROADCAST  # of the messages
DEFAULT_STREAM: Final = "announcements"
SAMPLE: Final = MergeContact("recipient@example.com")
SAMPLE_LINK: Final = UnsubscribeLink(f"https://example.com/u/{'0' * 48}", f"mailto:u+{'0' * 48}@example.com")
LARGE_CONTENT: Final = 50_000  # characters; compiling more takes over 1 ms


async def check(
    pool: asyncpg.Pool,
    acceptor: Acceptor,
    row: Broadcast,
    origin: Origin,
    caps: Caps,
    *,
    sending: bool = False,
    is_stream_new: bool = False,
) -> VersionRow | None:
    """Raise the refusal of the first failed check; return the version of its template, None without a template.

    `sending`: the broadcast must have content. `is_stream_new`: its stream is created after the checks.
    """
    if row.stream == TRANSACTIONAL and not has_one_stream(caps):
        raise invalid("stream", "Broadcasts can't use the transactional stream. Name another `stream`, or create one.")
    request = SendRequest(
        from_=row.sender, to=SAMPLE.email, subject=row.subject, text=row.text, html=row.html, reply_to=row.reply_to,
        stream=row.stream, template=row.template,
    )  # fmt: skip
    stream = TRANSACTIONAL if is_stream_new else row.stream
    compose = await acceptor.preparer.composer(origin, sender_of(request), stream)
    await _check_audience(pool, row.account_id, row.audience)
    has_content = row.template is not None or row.html is not None or row.text is not None
    if has_content or sending:
        email_rules.check_shape(request)
    template = await template_of(pool, row)
    broadcast = await compiled(pool, row if has_content else structs.replace(row, text=""), template)
    if has_content:
        template_rules.check_sendable(broadcast.version)
    sample = broadcast_content.without_required(broadcast)

    def compose_sample() -> None:
        content = broadcast_content.rendered(sample, SAMPLE, SAMPLE_LINK)
        compose(broadcast_content.request_to(sample, SAMPLE, content, SAMPLE_LINK), content, None, ids.uuid7())

    await run_sized(broadcast.size_bytes, compose_sample)
    return template


async def compiled(source: Source, row: Broadcast, template: VersionRow | None) -> CompiledBroadcast:
    """Compile the content of a broadcast with the images that its messages carry, in a thread if it is large."""
    files = await in_mail.carried(source, row.account_id, row.blocks if template is None else template.blocks)
    size = sum(len(part or "") for part in (row.html, row.text, row.attachments))
    if size > LARGE_CONTENT or (template is not None and template_rules.is_large(template)):
        return await asyncio.to_thread(broadcast_content.compiled, row, template, files)
    return broadcast_content.compiled(row, template, files)


async def template_of(pool: asyncpg.Pool, row: Broadcast) -> VersionRow | None:
    """Return the version of the broadcast's template: the pinned one, which survives the template, or the latest.

    Raises the `template_error` for an unknown template.
    """
    if row.template is None:
        return None
    if row.template_version is not None:
        found = await templates.LOAD_PINNED.first(pool, row.account_id, row.template, row.template_version)
    else:
        found = await templates.load_row(pool, row.account_id, row.template, None)
    if found is None:
        raise template_rules.unknown(row.template, row.template_version)
    return found


async def caps_of(source: Source, account: UUID) -> Caps:
    """Return the limits of an account; raise the 404 if it was erased."""
    head = existing(await heads.READ.first(source, account), "account")
    return head.caps


def has_one_stream(caps: Caps) -> bool:
    """Return True if the plan holds the transactional stream only, which broadcasts then use."""
    return caps.streams == 1


async def _check_audience(pool: asyncpg.Pool, account: UUID, chosen: BroadcastAudience) -> None:
    if await broadcast_audience.audience_of(pool, account, chosen) is not None:
        return
    raise not_found(lists_store.WHAT if chosen.list_id is not None else segments.WHAT)
