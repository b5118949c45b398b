"""Commands that send mail, read messages, follow events and read the local sink."""

import json
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click

from engine.base.events import Status
from engine.base.settings import Loaded
from ops import admin
from ops.commands.base import as_json, attached, fail, line, loaded, print_json, reported, show, table
from ops.host.first_run import FILE as FIRST_RUN

_COLUMNS = ("createdAt", "status", "id", "from", "to", "subject")
_HEADERS = ("From", "To", "Cc", "Reply-To", "Subject", "Date", "Message-ID")
_key = click.option("--key", help="API key to use; default: the key of the first run.")


@click.command()
@click.option("--to", "recipients", required=True, multiple=True, help="Recipient; repeatable.")
@click.option("--from", "sender", help="Sender; default: hello@ the first run's domain.")
@click.option("--subject", default="Hello from Waybill", show_default=True, help="Subject of the message.")
@click.option("--text", default="It works.", show_default=True, help="Plain text of the message.")
@click.option("--html", help="HTML of the message, in addition to the text.")
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
    key: str | None,
    as_json: bool,
) -> None:
    """Send one message through the API."""
    access = _access(key)
    body: dict[str, Any] = {
        "from": sender or f"hello@{access['domain']}",
        "to": list(recipients),
        "subject": subject,
        "text": text,
    }
    if html is not None:
        body["html"] = html
    show(admin.call_api(access["baseUrl"], "POST", "/v1/emails", access["apiKey"], body), as_json=as_json)


@click.command()
@click.option("--limit", type=click.IntRange(1, 100), default=25, show_default=True, help="Print at most this many.")
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
        from ops import stored_messages  # noqa: PLC0415

        found = admin.with_pool(
            attached(), lambda pool: stored_messages.newest(pool, account=account, status=status, limit=limit)
        )
    else:
        access = _access(key)
        query = urlencode({"limit": limit} | ({"status": status} if status else {}))
        found = admin.call_api(access["baseUrl"], "GET", f"/v1/messages?{query}", access["apiKey"])["data"]
    if as_json:
        print_json(found)
    elif not found:
        click.echo("No messages.")
    else:
        table(found, [*(["account"] if everybody else []), *_COLUMNS])


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
        from ops import stored_messages  # noqa: PLC0415

        found = admin.with_pool(attached(), lambda pool: stored_messages.opened(pool, message, account=account))
    else:
        access = _access(key)
        found = admin.call_api(access["baseUrl"], "GET", f"/v1/messages/{message}", access["apiKey"])
    if as_json:
        print_json(found)
        return
    owner = ["accountId"] if "accountId" in found else []
    for name in (*owner, "id", "status", "from", "to", "subject", "createdAt", "deliveredAt"):
        line(name, found.get(name))
    for event in found["waybill"]:
        click.echo(f"{event['createdAt']}  {event['seq']:>6}  {event['type']:10} {_brief(event['detail'])}")


@click.command()
@click.option("--account", "account_id", help="Id of the account (acc_…); default: all accounts.")
@click.option("--after", type=int, help="Start after this sequence number of the account log (needs --account).")
@click.option("--seconds", type=float, help="Stop after this many seconds; default: on Ctrl-C.")
@as_json
@reported
def tail(*, account_id: str | None, after: int | None, seconds: float | None, as_json: bool) -> None:
    """Follow events as they are written; with --json, one JSON value per line."""
    from ops.tail import follow  # noqa: PLC0415

    settings = attached()
    ends = None if seconds is None else time.monotonic() + seconds
    for event in follow(settings, account=account_id, after=after, ends=ends):
        if as_json:
            click.echo(json.dumps(event, ensure_ascii=False))
        else:
            head = f"{event['createdAt']}  {event['accountId'][-6:]} {event['seq']:>6}  {event['type']:12}"
            click.echo(f"{head} {event['messageId'] or '-':30} {_brief(event['detail'])}")
        sys.stdout.flush()


@click.group(invoke_without_command=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="Print at most this many.")
@as_json
@click.pass_context
@reported
def sink(context: click.Context, *, limit: int, as_json: bool) -> None:
    """List the mail in the local sink, newest first; `show` prints one mail with its links."""
    if context.invoked_subcommand is not None:
        return
    from ops import sink as inbox  # noqa: PLC0415

    folder = _sink_folder()
    found = inbox.listed(folder, limit=limit)
    if as_json:
        print_json(found)
    elif not found:
        click.echo("The sink is empty.")
    else:
        rows = [row | {"subject": inbox.subject_of(folder, row)} for row in found]
        table(rows, ["id", "at", "to", "subject", "tls", "size"])
        click.echo("\n`ops sink show ID` (or LAST) prints one mail with its links.")


@sink.command("show")
@click.argument("wanted", metavar="ID|LAST", help="Id, as `ops sink` lists it, or LAST for the newest.")
@as_json
@reported
def sink_show(*, wanted: str, as_json: bool) -> None:
    """Print one mail from the sink: headers, text and links."""
    from ops import sink as inbox  # noqa: PLC0415

    found = inbox.shown(_sink_folder(), wanted)
    if as_json:
        print_json(found)
        return
    envelope = found["envelope"]
    line("envelope", f"{envelope['from']} -> {', '.join(envelope['to'])}")
    for header in found["headers"]:
        if header["name"] in _HEADERS:
            line(header["name"], header["value"])
    line("attachments", found["attachments"])
    line("file", found["file"])
    click.echo(f"\n{inbox.readable(found)}\n")
    click.echo("links:" if found["links"] else "links: none")
    for link in found["links"]:
        click.echo(f"  {link}")


def _sink_folder() -> Path:
    settings = loaded().settings
    if settings.delivery == "live":
        fail("Live mode has no sink: with WAYBILL_DELIVERY=live, mail goes to the recipients' mail servers.")
    return settings.state.expanduser().absolute() / "sink"


def _one_of(*, account: str | None, everybody: bool, key: str | None) -> bool:
    """Return True if the database is to be read, by --account or --all; at most one of the three may be given."""
    if (account is not None) + everybody + (key is not None) > 1:
        fail("Give only one of --account, --all and --key.")
    return everybody or account is not None


def _access(key: str | None) -> dict[str, str]:
    """Return base URL, key and domain for calls to the API: those of the first run, unless a key is given."""
    given = loaded()
    file = Path(given.settings.state).expanduser() / FIRST_RUN
    found = {"baseUrl": given.settings.public_url, "domain": "", "apiKey": ""}
    if file.is_file():
        found |= json.loads(file.read_text("utf-8"))
        found["baseUrl"] = _base_url(given) or found["baseUrl"]
    if key:
        found["apiKey"] = key
    if not found["apiKey"]:
        fail(
            f"No API key: {file.parent} has no first-run.json. Give one with --key (`ops key create` makes one),"
            " or set WAYBILL_STATE to the state folder."
        )
    return found


def _base_url(given: Loaded) -> str | None:
    """Return the API's base URL if host or port are set in the environment; None to use the first run's."""
    if given.origin["api_host"] == given.origin["api_port"] == "default":
        return None
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(given.settings.api_host, given.settings.api_host)  # noqa: S104
    return f"http://[{host}]:{given.settings.api_port}" if ":" in host else f"http://{host}:{given.settings.api_port}"


def _brief(detail: dict[str, Any]) -> str:
    names = ("recipient", "mx", "diagnostic", "reason", "note", "next_attempt_at", "to_domain", "source", "name", "id")
    return " ".join(f"{name}={detail[name]}" for name in names if detail.get(name))
