"""`ops trace`: follow the SMTP dialogues with a domain's servers and the outcome of each attempt.

Message content is never shown.
"""

import asyncio
import json
import math
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import click

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.mail.address import domain_name
from engine.store import postgres
from engine.store.caches import bump
from engine.store.own_schema import CHANNEL_SCHEMA
from engine.store.queries import Queries
from ops.commands.base import as_json, attached, reported

CHANNEL = "wb_trace"
_CHANNEL_NAME = f"SELECT '{CHANNEL}' || {CHANNEL_SCHEMA}"
LASTS_S, RENEW_S = 30.0, 10.0  # a trace whose command died expires after the first
MAX_S = 3_600.0  # a forgotten command ends by itself
MAX_WAITING = 1_000  # notifications received and not yet printed
EVERY_S = 0.2
_SQL = Queries.beside(__file__, "trace.sql")
_BEGIN = _SQL.command("begin_trace")
_END = _SQL.command("end_trace")


@click.command()
@click.option("--domain", "name", required=True, help="Recipient domain.")
@click.option("--seconds", type=float, help="Stop after this many seconds; default: after an hour or Ctrl-C.")
@as_json
@reported
def trace(*, name: str, seconds: float | None, as_json: bool) -> None:
    """Follow the SMTP dialogues with a domain's servers, without message content."""
    settings = attached()
    ends = None if seconds is None else time.monotonic() + seconds
    for one in follow(settings, domain=name, ends=ends):
        for line in [json.dumps(one, ensure_ascii=False)] if as_json else lines(one):
            click.echo(line)
        sys.stdout.flush()


def follow(settings: Settings, *, domain: str, ends: float | None) -> Iterator[dict[str, Any]]:
    """Yield dialogue lines and attempts of a recipient domain, until `ends` (monotonic seconds), at most an hour.

    A line has `way` (`>` sent, `<` received, `*` a note) and `text`; an attempt has `outcomes`; a record with
    `leftOut` counts those that were dropped. Raises BadAddress.
    """
    name = domain_name(domain)
    assert settings.database_url is not None
    trace = ids.uuid7()
    ends = min(ends or math.inf, time.monotonic() + MAX_S)
    with asyncio.Runner() as runner:
        connection = runner.run(postgres.connect(settings.database_url, name="ops trace"))
        received: asyncio.Queue[str] = asyncio.Queue(MAX_WAITING)
        try:
            channel: str = runner.run(connection.fetchval(_CHANNEL_NAME))
            runner.run(connection.add_listener(channel, lambda *notification: _keep(received, str(notification[3]))))
            renew_at = 0.0
            while time.monotonic() < ends:
                if time.monotonic() >= renew_at:
                    runner.run(renew(connection, trace, name))
                    renew_at = time.monotonic() + RENEW_S
                runner.run(asyncio.sleep(EVERY_S))
                while not received.empty():
                    yield from _about(name, json.loads(received.get_nowait()))
        finally:
            runner.run(_end(connection, trace))


async def renew(connection: asyncpg.Connection, trace: UUID, domain: str) -> None:
    """Start or prolong a trace; every mta process applies it within half a second."""
    async with connection.transaction():
        await _BEGIN.execute(connection, trace, domain, clock.machine_now() + timedelta(seconds=LASTS_S))
        await bump(connection, "traces")


def lines(one: dict[str, Any]) -> Iterator[str]:
    """Format a record of `follow` for people; of an attempt only the outcome, as its dialogue was shown before."""
    if "leftOut" in one:
        yield f"({one['leftOut']} lines and attempts were left out: there were too many to print)"
        return
    if "way" in one:
        took = f"{one['ms']:.1f} ms" if "ms" in one else ""
        place = f"{one['mx']} [{one['ip']}]"
        yield f"{one['at'][11:23]}  {one['conversation']:9}  {place}  {took:>10} {one['way']} {one['text']}"
        return
    tls = one.get("tls")
    how = f" {tls.get('version', '')} {tls.get('certificate', '')}".rstrip() if isinstance(tls, dict) else ""
    yield f"{one.get('at', '')}  {one['messageId']}  {one.get('mx') or 'no server'}{how}"
    if one.get("note"):
        yield f"               ({one['note']})"
    for outcome in one.get("outcomes", []):
        yield f"               = {outcome}"


def _about(name: str, record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "lines" in record:
        yield from (line for line in record["lines"] if name in line["domains"])
    elif record.get("domain") in (name, None):
        yield record


def _keep(received: "asyncio.Queue[str]", text: str) -> None:
    if not received.full():  # a slow terminal loses some records
        received.put_nowait(text)


async def _end(connection: asyncpg.Connection, trace: UUID) -> None:
    async with connection.transaction():
        await _END.execute(connection, trace)
        await bump(connection, "traces")
    await connection.close()
