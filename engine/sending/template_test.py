"""Mail a template to people of the account's team, as a send with the same values would, with a marked subject."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base.errors import Refusal, not_found
from engine.people.team import recipients as team_recipients
from engine.sending.accept import Acceptor
from engine.sending.admission import Decision
from engine.sending.emails.types import Accepted, SendRequest
from engine.sending.preparation import Origin
from engine.sending.templates import rules as template_rules
from engine.sending.templates import store as templates
from engine.sending.templates.types import MAX_SUBJECT


class TemplateTest(Struct, frozen=True, kw_only=True):
    """A test to send: a template, its version (None: the latest), values, sender, stream and recipients."""

    slug: str
    version: int | None
    sender: str
    to: Sequence[str]
    values: Mapping[str, str]
    data: Mapping[str, Any] | None = None
    stream: str | None = None


async def send(pool: asyncpg.Pool, acceptor: Acceptor, test: TemplateTest, origin: Origin) -> list[Decision]:
    """Mail a template to people of the account's team; return a decision for each address, in order.

    Raises the 404 for an unknown template, the 400 for an address of somebody else, and the refusal if all are refused.
    """
    version, subject = await _rendered(pool, origin.account_id, test)
    await team_recipients.checked(pool, origin.account_id, test.to)
    requests = [
        SendRequest(
            from_=test.sender,
            to=address,
            subject=f"{team_recipients.TEST_PREFIX}{subject}"[:MAX_SUBJECT],
            template=test.slug,
            template_version=version,
            variables=dict(test.values),
            data=None if test.data is None else dict(test.data),
            stream=test.stream,
        )
        for address in test.to
    ]
    decisions = await acceptor.accept_set(await acceptor.preparer.check_all(requests, origin))
    refused = [one for one in decisions if isinstance(one, Refusal)]
    if refused and not any(isinstance(one, Accepted) for one in decisions):
        raise refused[0]
    return decisions


async def _rendered(pool: asyncpg.Pool, account: UUID, test: TemplateTest) -> tuple[int, str]:
    """Return the number of the version and its subject with the values."""
    row = await templates.load_row(pool, account, test.slug, test.version)
    if row is None:
        if await templates.load_row(pool, account, test.slug, None) is None:
            raise not_found("template")
        raise template_rules.unknown(test.slug, test.version)

    def subject() -> str:
        version = template_rules.version_of(row)
        template_rules.check_sendable(version)
        return template_rules.render_checked(version, test.values, test.data).subject

    large = template_rules.is_large(row) or test.data
    return row.version, await asyncio.to_thread(subject) if large else subject()
