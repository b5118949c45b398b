"""One-time codes as their recipients see them: the sealed mail of a verification, opened."""

import re
from typing import Any
from uuid import UUID

import asyncpg

from engine.base import ids
from engine.delivery import queue
from engine.delivery.sealed_mail import MailSealer
from engine.mail.read import bodies
from tests.harness.accounts import PEPPER, TestAccount
from tests.harness.api import Answer, Api


async def start(api: Api, account: TestAccount, to: str = "ann@people.test", **fields: object) -> dict[str, Any]:
    """Start a verification; return its record."""
    answer = await try_start(api, account, to, **fields)
    assert answer.status == 201, answer
    return dict(answer.json)


async def try_start(api: Api, account: TestAccount, to: str = "ann@people.test", **fields: object) -> Answer:
    """Start a verification; return the response."""
    return await api.post("/v1/verifications", account.token, {"to": to, "from": account.sender} | fields)


async def check(api: Api, account: TestAccount, verification: str, code: str) -> Answer:
    """Check a code."""
    return await api.post(f"/v1/verifications/{verification}/check", account.token, {"code": code})


async def mail_of(pool: asyncpg.Pool, message: str) -> tuple[str, bytes]:
    """Return the recipient and the octets of a queued verification message."""
    found = ids.parse_id(ids.Kind.MESSAGE, message)
    row = await queued(pool, found)
    ((_, address),) = MailSealer(PEPPER).open(row)
    assert row.mime is not None
    return address, row.mime


async def queued(pool: asyncpg.Pool, message: UUID) -> queue.Row:
    """Return the queue row of a message."""
    domain = await pool.fetchval("SELECT domain FROM queue WHERE message_id = $1", message)
    (row,) = await queue.load(pool, [(message, domain)])
    return row


async def text_of(pool: asyncpg.Pool, message: str) -> str:
    """Return the plain text of a queued verification message."""
    text = bodies((await mail_of(pool, message))[1]).text
    assert text is not None
    return text


async def code_of(pool: asyncpg.Pool, message: str) -> str:
    """Return the code that a queued verification message holds."""
    found = re.search(r"^    ([0-9]{4,8})\s*$", await text_of(pool, message), re.MULTILINE)
    assert found is not None
    return found[1]


def other_than(code: str) -> str:
    """Return a wrong code of the same length."""
    return f"{(int(code) + 1) % 10 ** len(code):0{len(code)}d}"
