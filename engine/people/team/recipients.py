"""Check the recipients of a test: each is a person on the account's team."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import asyncpg

from engine.base.errors import ErrorType, Refusal, invalid
from engine.mail.address import BadAddress, Mailbox, canonical, parse_mailbox
from engine.people.team import store as team

TEST_PREFIX: Final = "[Test] "  # of the subject


async def checked(pool: asyncpg.Pool, account: UUID, to: Sequence[str]) -> list[Mailbox]:
    """Return the addresses of a test; raise the 400 for one that is unusable or belongs to nobody on the team."""
    mailboxes = [_mailbox(text, index) for index, text in enumerate(to)]
    for one in mailboxes:
        if not await team.WITH_ADDRESS.records(pool, account, canonical(one.address)):
            raise invalid("to", f"{one.address} isn't the address of a member of your team.")
    return mailboxes


def _mailbox(text: str, index: int) -> Mailbox:
    try:
        return parse_mailbox(text)
    except BadAddress as error:
        field = f"to[{index}]"
        raise Refusal(
            ErrorType.INVALID_ADDRESS, f"`{field}` is not an email address: {error}", address=text, field=field
        ) from None
