"""`ops key`: create, list and revoke API keys."""

from typing import Any

import asyncpg
import click

from engine.base import clock, ids
from engine.base.errors import not_found
from engine.base.scopes import SCOPES
from engine.people.account import store as accounts
from engine.people.api_keys import rules, store
from engine.people.api_keys.service import revoke_key
from engine.people.api_keys.store import KeyListRow
from ops import admin
from ops.commands.base import as_json, in_database, in_service, reported, show

MAX_SHOWN = 1_000
_account = click.option("--account", "account_id", required=True, help="Id of the account (acc_…).")


@click.group()
def key() -> None:
    """Create, list and revoke API keys."""


@key.command("create")
@_account
@click.option(
    "--scopes",
    default="all",
    show_default=True,
    help=f"all, or some of: {', '.join(sorted(SCOPES))}",
)
@click.option("--name", default="Operator's key", show_default=True, help="Name of the key.")
@as_json
@reported
def key_create(*, account_id: str, scopes: str, name: str, as_json: bool) -> None:
    """Create an API key and print it, once."""
    wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    show(in_service(admin.create_key, account=account_id, name=name, scopes=wanted), as_json=as_json)


@key.command("list")
@_account
@as_json
@reported
def key_list(*, account_id: str, as_json: bool) -> None:
    """List an account's keys, without their secrets."""
    show({"keys": in_database(listed, account=account_id)}, as_json=as_json)


@key.command("revoke")
@_account
@click.argument("key_id", metavar="KEY_ID", help="Id of the key (key_…), as `ops key list` shows it.")
@as_json
@reported
def key_revoke(*, account_id: str, key_id: str, as_json: bool) -> None:
    """Revoke a key, for example one that has leaked. This can't be undone."""
    show(in_database(revoked, account=account_id, key=key_id), as_json=as_json)


async def listed(pool: asyncpg.Pool, *, account: str) -> list[dict[str, Any]]:
    """Return an account's newest keys, newest first, revoked ones included; raises Refusal (404) for no account."""
    account_id = ids.parse_id(ids.Kind.ACCOUNT, account)
    if await accounts.READ.first(pool, account_id) is None:
        raise not_found("account")
    return [_key(row) for row in await store.LIST.fetch(pool, account_id, None, MAX_SHOWN)]


async def revoked(pool: asyncpg.Pool, *, account: str, key: str) -> dict[str, Any]:
    """Revoke a key of the account or of its sub-accounts, in all processes within a second. Idempotent.

    Raises Refusal (404) for any other key.
    """
    account_id, key_id = ids.parse_id(ids.Kind.ACCOUNT, account), ids.parse_id(ids.Kind.API_KEY, key)
    await revoke_key(pool, account_id, key_id, actor="operator")
    return {"id": key, "account": account, "revoked": True}


def _key(row: KeyListRow) -> dict[str, Any]:
    at = {"createdAt": row.created_at, "lastUsedAt": row.last_used_at, "expiresAt": row.expires_at,
          "revokedAt": row.revoked_at}  # fmt: skip
    shown = {name: clock.iso_or_none(one) for name, one in at.items()}
    return {"id": ids.format_id(ids.Kind.API_KEY, row.id), "name": row.name, "hint": rules.hint(row.key_id)} | shown
