"""`ops trace`: the conversations with a domain's servers line by line as they happen, and how each attempt ended, with
nothing of the messages' content in them."""

import asyncio
import json
import math
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.mail.address import domain_name
from engine.store import postgres
from engine.store.caches import bump
from engine.store.queries import Queries

CHANNEL = "wb_trace"
LASTS_S, RENEW_S = 30.0, 10.0  # a watcher that dies is forgotten within the first
MAX_S = 3_600.0  # a watcher that was left alone ends by itself
MAX_WAITING = 1_000  # conversations that were heard of and not yet printed
EVERY_S = 0.2

_SQL = Queries.beside(__file__, "trace.sql")
_BEGIN = _SQL.command("begin_trace")
_END = _SQL.command("end_trace")


def follow(settings: Settings, *, domain: str, ends: float | None) -> Iterator[dict[str, Any]]:
    """Lines and attempts about a recipients' domain, until `ends` (monotonic seconds), an hour at most.

    Raises BadAddress.

    A line has `way` (`>` ours, `<` theirs, `*` neither) and `text`, an attempt `outcomes`, and what says how many of
    them were left out `leftOut`.
    """
    name = domain_name(domain)
    assert settings.database_url is not None
    trace = ids.uuid7()
    ends = min(ends or math.inf, time.monotonic() + MAX_S)
    with asyncio.Runner() as runner:
        connection = runner.run(postgres.connect(settings.database_url, name="ops trace"))
        heard: asyncio.Queue[str] = asyncio.Queue(MAX_WAITING)
        try:
            runner.run(connection.add_listener(CHANNEL, lambda *told: _keep(heard, str(told[3]))))
            renew_at = 0.0
            while time.monotonic() < ends:
                if time.monotonic() >= renew_at:
                    runner.run(renew(connection, trace, name))
                    renew_at = time.monotonic() + RENEW_S
                runner.run(asyncio.sleep(EVERY_S))
                while not heard.empty():
                    yield from _about(name, json.loads(heard.get_nowait()))
        finally:
            runner.run(_end(connection, trace))


async def renew(connection: asyncpg.Connection, trace: UUID, domain: str) -> None:
    """Watch for another while; every delivering process hears of it within half a second."""
    async with connection.transaction():
        await _BEGIN.execute(connection, trace, domain, clock.now() + timedelta(seconds=LASTS_S))
        await bump(connection, "traces")


def lines(one: dict[str, Any]) -> Iterator[str]:
    """What `follow` gives, for people; of an attempt how it ended, since its conversation was shown before."""
    if "leftOut" in one:
        yield f"({one['leftOut']} lines and attempts were left out: there were too many to show)"
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


def _about(name: str, told: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "lines" in told:
        yield from (line for line in told["lines"] if name in line["domains"])
    elif told.get("domain") in (name, None):
        yield told


def _keep(heard: "asyncio.Queue[str]", text: str) -> None:
    if not heard.full():  # a terminal that can't keep up misses some
        heard.put_nowait(text)


async def _end(connection: asyncpg.Connection, trace: UUID) -> None:
    async with connection.transaction():
        await _END.execute(connection, trace)
        await bump(connection, "traces")
    await connection.close()
