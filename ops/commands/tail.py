"""`ops tail`: follow the events of one or all accounts, read from the database."""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

import click
from msgspec import Struct

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.store import postgres
from engine.store.queries import Queries
from ops.commands.base import as_json, attached, reported

EVERY_S = 0.3
LOOK_BACK_MS = 5_000  # event ids are older than their commit, so the last seconds are read again
_SQL = Queries.beside(__file__, "tail.sql")


class TailedEvent(Struct, frozen=True):
    """An event, as `ops tail` shows it."""

    id: UUID
    account_id: UUID
    seq: int
    type: str
    occurred_at: datetime
    payload: str


_NEW_EVENTS = _SQL.rows("new_events", TailedEvent)


@click.command()
@click.option("--account", "account_id", help="Id of the account (acc_…); default: all accounts.")
@click.option("--after", type=int, help="Start after this sequence number of the account log; needs --account.")
@click.option("--seconds", type=float, help="Stop after this many seconds; default: on Ctrl-C.")
@as_json
@reported
def tail(*, account_id: str | None, after: int | None, seconds: float | None, as_json: bool) -> None:
    """Follow events as they are written; with --json, one JSON value per line."""
    settings = attached()
    ends = None if seconds is None else time.monotonic() + seconds
    for event in follow(settings, account=account_id, after=after, ends=ends):
        if as_json:
            click.echo(json.dumps(event, ensure_ascii=False))
        else:
            head = f"{event['createdAt']}  {event['accountId'][-6:]} {event['seq']:>6}  {event['type']:12}"
            click.echo(f"{head} {event['messageId'] or '-':30} {details_in_words(event['detail'])}")
        sys.stdout.flush()


def details_in_words(detail: dict[str, Any]) -> str:
    """Return the parts of an event's detail that a line of output has room for."""
    names = ("recipient", "mx", "diagnostic", "reason", "note", "next_attempt_at", "to_domain", "source", "name", "id")
    return " ".join(f"{name}={detail[name]}" for name in names if detail.get(name))


def follow(
    settings: Settings, *, account: str | None, after: int | None, ends: float | None
) -> Iterator[dict[str, Any]]:
    """Yield new events until `ends` (monotonic seconds; None: without end), starting after sequence number `after`."""
    wanted = None if account is None else ids.parse_id(ids.Kind.ACCOUNT, account)
    assert settings.database_url is not None
    with asyncio.Runner() as runner:
        connection = runner.run(postgres.connect(settings.database_url, name="ops tail"))
        try:
            since = 0 if after is not None else clock.milliseconds(clock.now())
            seen: dict[UUID, None] = {}
            while ends is None or time.monotonic() < ends:
                rows = runner.run(_NEW_EVENTS.fetch(connection, ids.floor_of(since - LOOK_BACK_MS), wanted, after or 0))
                for row in rows:
                    if row.id not in seen and ids.milliseconds_of(row.id) >= since - LOOK_BACK_MS:
                        seen[row.id] = None
                        yield _shown(row)
                if rows:
                    since = max(since, ids.milliseconds_of(rows[-1].id))
                for old in [one for one in seen if ids.milliseconds_of(one) < since - 2 * LOOK_BACK_MS]:
                    del seen[old]
                runner.run(asyncio.sleep(EVERY_S))
        finally:
            runner.run(connection.close())


def _shown(row: TailedEvent) -> dict[str, Any]:
    payload = json.loads(row.payload)
    return {
        "accountId": ids.format_id(ids.Kind.ACCOUNT, row.account_id),
        "seq": row.seq,
        "id": ids.format_id(ids.Kind.EVENT, row.id),
        "type": row.type,
        "createdAt": clock.iso(row.occurred_at),
        "messageId": payload["messageId"],
        "detail": payload["detail"],
    }
