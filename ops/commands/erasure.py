"""`ops erasure`: erasures of recipients in any account."""

from typing import Any

import asyncpg
import click
import orjson

from engine.base import clock, ids
from engine.base.list_filters import LAST_ID
from engine.retention.erasures import rules, service, store
from engine.retention.erasures.types import ErasureRow
from ops.commands.base import as_json, in_database, limit_option, print_json, reported, show_rows
from ops.commands.find_account import find_account

_account = click.argument("account", help="Id (acc_…) or name of the account.")
_COLUMNS = ["id", "state", "requestedAt", "finishedAt", "erased"]


@click.group()
def erasure() -> None:
    """Erase the data of a recipient from an account, as its owner may do with POST /v1/erasures."""


@erasure.command("request")
@_account
@click.argument("address", help="Email address of the recipient.")
@as_json
@reported
def erasure_request(*, account: str, address: str, as_json: bool) -> None:
    """Queue the erasure of ADDRESS in ACCOUNT; a worker does it within minutes.

    Messages, received mail, contacts, codes and log entries lose the address and their content; a suppression stays
    as a digest, so that mail to the address is still refused. It can't be undone.
    """
    found = in_database(request, account, address)
    if as_json:
        print_json(found)
    else:
        click.echo(f"{found['id']}: {found['state']}. `ops erasure list {account}` shows when it is completed.")


@erasure.command("list")
@_account
@limit_option(20, most=1_000)
@as_json
@reported
def erasure_list(*, account: str, limit: int, as_json: bool) -> None:
    """List the erasures of ACCOUNT, newest first, with what each erased. Addresses are not kept."""
    show_rows(in_database(listed, account, limit=limit), _COLUMNS, as_json=as_json)


async def request(pool: asyncpg.Pool, account: str, address: str) -> dict[str, Any]:
    """Queue the erasure of an address in an account (id or name); return its receipt.

    Raises the refusals of `POST /v1/erasures`.
    """
    owner = await find_account(pool, account)
    return _shown(await service.request(pool, owner, rules.address_of(address), actor="operator"))


async def listed(pool: asyncpg.Pool, account: str, *, limit: int) -> list[dict[str, Any]]:
    """Return the receipts of an account (id or name), newest first."""
    return [_shown(row) for row in await store.LIST.fetch(pool, await find_account(pool, account), LAST_ID, limit)]


def _shown(row: ErasureRow) -> dict[str, Any]:
    """Return a receipt without the address, which it forgets when it is completed."""
    counts = orjson.loads(row.counts)
    return {
        "id": ids.format_id(ids.Kind.ERASURE, row.id),
        "state": row.state,
        "requestedAt": clock.iso(row.requested_at),
        "finishedAt": clock.iso_or_none(row.finished_at),
        "erased": sum(counts.values()),
        "counts": counts,
    }
