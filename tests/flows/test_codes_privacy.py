"""The codes and destinations of verifications can be read nowhere: while they wait, and once they are settled."""

import base64
import contextlib
import io
import re
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import orjson
import pytest

from engine.areas.messages import store as messages
from engine.areas.verifications.types import VerificationRow
from engine.base import ids, logs
from engine.base.settings import Settings
from engine.delivery.sealed_mail import MailSealer, cut_out
from engine.flows.codes.send import CodeSender
from engine.flows.codes.types import ResendRequest, StartRequest
from engine.flows.sending.accept import Origin
from engine.mail.read import bodies
from tests.conftest import NewDatabase
from tests.harness.outbound import World, world


@pytest.fixture(scope="module")
async def around(settings: Settings, lasting_database: NewDatabase) -> AsyncIterator[World]:
    async with world(settings, await lasting_database()) as made:
        await made.mta(delivery="live", smtp_port=made.settings.sink_port, allow_private_mx=True)
        yield made


async def start(around: World, to: str, **fields: object) -> VerificationRow:
    request = msgspec.convert({"to": to, "from": around.account.sender} | fields, StartRequest)
    started = await CodeSender(around.pool, around.acceptor, around.settings).start(request, origin(around))
    return started.row


def origin(around: World) -> Origin:
    return Origin(around.account.id, "verification")


async def stored_texts(pool: asyncpg.Pool, *, ignore: frozenset[str] = frozenset()) -> AsyncIterator[tuple[str, str]]:
    """Each row of each table as text, bytea in hex and also as text where it is printable."""
    tables = await pool.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
        " AND NOT relispartition"
    )
    for table in tables:
        if table["relname"] in ignore:
            continue
        for row in await pool.fetch(f'SELECT * FROM "{table["relname"]}"'):
            for value in row.values():
                text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
                yield table["relname"], text


async def holders(pool: asyncpg.Pool, *secrets: str, ignore: frozenset[str] = frozenset()) -> set[str]:
    """The tables in which one of the secrets can be read, plain or in base64."""
    wanted = [*secrets, *(base64.b64encode(one.encode()).decode().rstrip("=")[:-1] for one in secrets)]
    found = set()
    async for table, text in stored_texts(pool, ignore=ignore):
        if any(one.lower() in text.lower() for one in wanted):
            found.add(table)
    return found


def sent_to(around: World, address: str) -> list[bytes]:
    return [one.content for one in around.sink.entries if address in one.recipients]


def code_in(mime: bytes) -> str:
    found = re.search(r"^    ([0-9]{4,8})\s*$", bodies(mime).text or "", re.MULTILINE)
    assert found is not None
    return found[1]
