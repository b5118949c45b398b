"""Commands that send and read mail."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from ops import operate
from ops.commands.base import as_json, attached, cell, console, fail, loaded, reported, show, table
from ops.first_run import FILE as FIRST_RUN


@click.command()
@click.option("--to", "recipients", required=True, multiple=True)
@click.option("--from", "sender", help="Default: hello@ the first run's domain.")
@click.option("--subject", default="Hello from Waybill", show_default=True)
@click.option("--text", default="It works.", show_default=True)
@click.option("--html")
@click.option("--key", help="Default: the first run's key.")
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
    show(operate.call_api(access["baseUrl"], "POST", "/v1/emails", access["apiKey"], body), as_json=as_json)


@click.command()
@click.option("--limit", type=click.IntRange(1, 100), default=25, show_default=True)
@click.option("--status")
@click.option("--key", help="Default: the first run's key.")
@as_json
@reported
def messages(*, limit: int, status: str | None, key: str | None, as_json: bool) -> None:
    """The newest messages."""
    access = _access(key)
    path = f"/v1/messages?limit={limit}" + (f"&status={status}" if status else "")
    found = operate.call_api(access["baseUrl"], "GET", path, access["apiKey"])
    if as_json:
        click.echo(json.dumps(found["data"], indent=2, ensure_ascii=False))
    else:
        table(found["data"], ["createdAt", "status", "id", "from", "to", "subject"])


@click.command()
@click.argument("message")
@click.option("--key", help="Default: the first run's key.")
@as_json
@reported
def message(*, message: str, key: str | None, as_json: bool) -> None:
    """One message with its waybill."""
    access = _access(key)
    found = operate.call_api(access["baseUrl"], "GET", f"/v1/messages/{message}", access["apiKey"])
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for name in ("id", "status", "from", "to", "subject", "createdAt", "deliveredAt"):
        console.print(f"{name:14} {cell(found.get(name))}", markup=False)
    for event in found["waybill"]:
        click.echo(f"{event['createdAt']}  {event['seq']:>6}  {event['type']:10} {_brief(event['detail'])}")


@click.command()
@click.option("--account", "account_id", help="acc_…; default: every account.")
@click.option("--after", type=int, help="Start behind this place of the log (with --account).")
@click.option("--seconds", type=float, help="Stop after so long; default: go on until Ctrl-C.")
@as_json
@reported
def tail(*, account_id: str | None, after: int | None, seconds: float | None, as_json: bool) -> None:
    """Follow events as they are written."""
    from ops.tail import follow  # noqa: PLC0415

    settings = attached()
    ends = None if seconds is None else time.monotonic() + seconds
    for event in follow(settings, account=account_id, after=after, ends=ends):
        if as_json:
            click.echo(json.dumps(event, ensure_ascii=False))
        else:
            line = f"{event['createdAt']}  {event['accountId'][-6:]} {event['seq']:>6}  {event['type']:12}"
            click.echo(f"{line} {event['messageId'] or '':30} {_brief(event['detail'])}")
        sys.stdout.flush()


@click.command()
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True)
@as_json
@reported
def sink(*, limit: int, as_json: bool) -> None:
    """What arrived in the local sink, newest first."""
    settings = loaded().settings
    found = operate.sink_messages(settings.state, limit=limit)
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
    elif not found:
        click.echo("Nothing has arrived yet.")
    else:
        table(found, list(found[0]))


def _access(key: str | None) -> dict[str, str]:
    """Base URL, key and domain to call the API with: the first run's, unless a key is given."""
    settings = loaded().settings
    file = Path(settings.state) / FIRST_RUN
    found = {"baseUrl": settings.public_url, "domain": "", "apiKey": ""}
    if file.is_file():
        found |= json.loads(file.read_text("utf-8"))
    if key:
        found["apiKey"] = key
    if not found["apiKey"]:
        fail("Give an API key with --key: there is no first-run.json in the state folder.")
    return found


def _brief(detail: dict[str, Any]) -> str:
    names = ("recipient", "mx", "diagnostic", "reason", "note", "next_attempt_at", "to_domain", "source", "name", "id")
    return " ".join(f"{name}={detail[name]}" for name in names if detail.get(name))
