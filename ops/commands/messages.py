"""`ops send`, `ops messages` and `ops message`.

They call the API; with `--account` or `--all` they read the database.
"""

from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import asyncpg
import click
import msgspec
from msgspec import Struct

from api.areas.messages.resources import detail_of, message_of
from engine.base import clock, ids
from engine.base.errors import not_found
from engine.base.events import Status
from engine.base.settings import Settings
from engine.sending.emails.limits import MAX_CONTENT_HOURS
from engine.sending.messages import rules, store
from engine.store.queries import Queries
from ops import admin
from ops.commands.api_access import api_access
from ops.commands.base import (
    as_json,
    fail,
    in_database,
    in_service,
    limit_option,
    line,
    print_json,
    reported,
    show,
    show_rows,
)
from ops.commands.find_account import find_account
from ops.commands.tail import details_in_words

_SQL = Queries.beside(__file__, "messages.sql")


class NewestMessageRow(Struct, frozen=True):
    """A line of the list of messages of all accounts."""

    id: UUID
    account_id: UUID
    account: str
    status: str
    sender: str
    subject: str
    delivered_at: datetime | None
    recipients: list[str]


class MessageOwnerRow(Struct, frozen=True):
    """The account that owns a message."""

    account_id: UUID


_NEWEST = _SQL.rows("newest_messages", NewestMessageRow)
_OWNER = _SQL.rows("owner_of_message", MessageOwnerRow)
_COLUMNS = ("createdAt", "status", "id", "from", "to", "subject")
_key = click.option("--key", help="API key to use; default: WAYBILL_API_KEY, or the key of the first run.")


@click.command()
@click.option("--to", "recipients", required=True, multiple=True, help="Recipient; repeatable.")
@click.option("--from", "sender", help="Sender; default: hello@ the first run's domain.")
@click.option("--subject", default="Hello from Waybill", show_default=True, help="Subject of the message.")
@click.option("--text", default="It works.", show_default=True, help="Plain text of the message.")
@click.option("--html", help="HTML of the message, in addition to the text.")
@click.option("--no-retain", is_flag=True, help="Delete the content once the message is final.")
@click.option(
    "--content-until",
    type=click.IntRange(1, MAX_CONTENT_HOURS),
    metavar="HOURS",
    help="Delete the content this many hours after the message is final.",
)
@_key
@as_json
@reported
def send(
    *,
    recipients: tuple[str, ...],
    sender: str | None,
    subject: str,
    text: str,
    html: str | None,
    no_retain: bool,
    content_until: int | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Send one message through the API."""
    access = api_access(key)
    body: dict[str, Any] = {
        "from": sender or f"hello@{access['domain']}",
        "to": list(recipients),
        "subject": subject,
        "text": text,
    }
    if html is not None:
        body["html"] = html
    if no_retain:
        body["retainContent"] = False
    if content_until is not None:
        body["contentUntil"] = content_until
    show(admin.call_api(access["baseUrl"], "POST", "/v1/emails", access["apiKey"], body), as_json=as_json)


@click.command()
@limit_option(25, most=100)
@click.option("--status", type=click.Choice([one.value for one in Status]), help="Only messages in this status.")
@click.option("--account", help="Messages of this account (id acc_… or name), read from the database.")
@click.option("--all", "everybody", is_flag=True, help="Messages of all accounts, read from the database.")
@_key
@as_json
@reported
def messages(
    *, limit: int, status: str | None, account: str | None, everybody: bool, key: str | None, as_json: bool
) -> None:
    """List the newest messages of the key's account, of another account, or of all accounts."""
    if _one_of(account=account, everybody=everybody, key=key):
        found = in_database(newest, account=account, status=status, limit=limit)
    else:
        access = api_access(key)
        query = urlencode({"limit": limit} | ({"status": status} if status else {}))
        found = admin.call_api(access["baseUrl"], "GET", f"/v1/messages?{query}", access["apiKey"])["data"]
    show_rows(found, [*(["account"] if everybody else []), *_COLUMNS], as_json=as_json, empty="No messages.")


@click.command()
@click.argument("message", metavar="MESSAGE_ID", help="Id of the message (msg_…).")
@click.option("--account", help="Account of the message (id acc_… or name); read from the database.")
@click.option("--all", "everybody", is_flag=True, help="Look in all accounts; read from the database.")
@_key
@as_json
@reported
def message(*, message: str, account: str | None, everybody: bool, key: str | None, as_json: bool) -> None:
    """Show one message with its waybill (the history of its events)."""
    if _one_of(account=account, everybody=everybody, key=key):
        found = in_service(opened, message, account=account)
    else:
        access = api_access(key)
        found = admin.call_api(access["baseUrl"], "GET", f"/v1/messages/{message}", access["apiKey"])
    if as_json:
        print_json(found)
        return
    owner = ["accountId"] if "accountId" in found else []
    for name in (*owner, "id", "status", "from", "to", "subject", "createdAt", "deliveredAt"):
        line(name, found.get(name))
    waits = {one["eventId"]: one["text"] for one in found["waits"]}
    for event in found["waybill"]:
        words = " ".join(filter(None, (details_in_words(event["detail"]), waits.get(event["id"]))))
        click.echo(f"{event['createdAt']}  {event['seq']:>6}  {event['type']:10} {words}")


def _one_of(*, account: str | None, everybody: bool, key: str | None) -> bool:
    """Return True if the database is to be read, by --account or --all; at most one of the three may be given."""
    if (account is not None) + everybody + (key is not None) > 1:
        fail("Give only one of --account, --all and --key.")
    return everybody or account is not None


async def newest(pool: asyncpg.Pool, *, account: str | None, status: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the newest messages: of one account as its API lists them, or shorter rows of all (`account` None)."""
    if account is None:
        return [_line(row) for row in await _NEWEST.fetch(pool, status, limit)]
    owner = await find_account(pool, account)
    wanted = rules.filters(
        before=None, status=status, to=None, search=None, domain=None, stream=None, tags=(), metadata=None, since=None,
        until=None,
    )  # fmt: skip
    page = await store.page(pool, owner, wanted, limit=limit)
    return [_owned(owner) | msgspec.to_builtins(message_of(row)) for row in page.rows]


async def opened(pool: asyncpg.Pool, settings: Settings, message: str, *, account: str | None) -> dict[str, Any]:
    """Return one message with its waybill as the API shows it; `account` None finds it in any account.

    Raises Refusal (404) or ValueError if there is no such message.
    """
    message_id = ids.parse_id(ids.Kind.MESSAGE, message)
    owner = await _owner(pool, message_id) if account is None else await find_account(pool, account)
    row = None if owner is None else await store.read(pool, owner, message_id)
    if owner is None or row is None:
        raise (not_found("message") if account is not None else ValueError(f"No message {message} exists."))
    mime = await store.body(pool, owner, message_id, pepper=settings.pepper)
    return _owned(owner) | dict(msgspec.to_builtins(detail_of(row, mime)))


async def _owner(pool: asyncpg.Pool, message: UUID) -> UUID | None:
    row = await _OWNER.first(pool, message)
    return None if row is None else row.account_id


def _line(row: NewestMessageRow) -> dict[str, Any]:
    return {
        **_owned(row.account_id),
        "account": row.account,
        "id": ids.format_id(ids.Kind.MESSAGE, row.id),
        "status": row.status,
        "from": row.sender,
        "to": row.recipients,
        "subject": row.subject,
        "createdAt": clock.iso(rules.made_at(row.id)),
        "deliveredAt": clock.iso_or_none(row.delivered_at),
    }


def _owned(account: UUID) -> dict[str, Any]:
    return {"accountId": ids.format_id(ids.Kind.ACCOUNT, account)}
