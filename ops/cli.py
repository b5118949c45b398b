"""The operator's commands. Each prints for people, or with `--json` one JSON value for programs."""

import json
import os
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, ParamSpec

import click
from rich.console import Console
from rich.table import Table

from engine.base.errors import Refusal
from engine.base.ids import WrongId
from engine.base.plans import Plan
from engine.base.scopes import SCOPES
from engine.base.settings import BadSetting, Loaded, Settings, load, shown
from engine.mail.address import BadAddress
from ops import operate
from ops.first_run import FILE as FIRST_RUN

P = ParamSpec("P")
_DRILLS = ("kill-api", "kill-mta", "kill-worker", "kill-valkey", "kill-postgres")
_FAILED = (Refusal, WrongId, BadAddress, operate.ApiError, OSError, RuntimeError, ValueError)
_WIDE = None if sys.stdout.isatty() else 200  # a pipe has no width: ids must not be folded
_console = Console(highlight=False, soft_wrap=True, width=_WIDE)

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")


def main(argv: list[str] | None = None) -> int:
    """Run one command; gives its exit status."""
    try:
        found = cli.main(args=argv, prog_name="ops", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    return found if isinstance(found, int) else 0  # click gives the code of an Exit back


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Waybill: transactional email that you run yourself."""


def _fail(message: str) -> NoReturn:
    raise click.ClickException(message)


def _loaded() -> Loaded:
    try:
        return load(os.environ)
    except BadSetting as error:
        _fail(str(error))


def _attached() -> Settings:
    from ops.up import NotRunning, attach  # noqa: PLC0415 - commands that need no service start faster without

    try:
        return attach(_loaded())
    except NotRunning as error:
        _fail(str(error))


def _reported(command: Callable[P, None]) -> Callable[P, None]:
    """Refusals and unreachable servers as one line, not as a traceback."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except operate.ApiError as error:
            if kwargs.get("as_json"):
                click.echo(json.dumps(error.answer, indent=2))
                raise click.exceptions.Exit(1) from error
            _fail(str(error))
        except _FAILED as error:
            _fail(str(error))

    return run


def _print(value: Any, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(value, indent=2, ensure_ascii=False))
        return
    for name, one in value.items():
        if isinstance(one, list) and one and isinstance(one[0], dict):
            _table(one, list(one[0]))
        else:
            _console.print(f"{name:14} {', '.join(one) if isinstance(one, list) else one}", markup=False)


def _table(rows: list[dict[str, Any]], columns: list[str]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*[_cell(row.get(column)) for column in columns])
    _console.print(table)


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value).replace("[", r"\[")


# -- the service ----------------------------------------------------------------------------------


@cli.command()
def up() -> None:
    """Start everything and keep it running; Ctrl-C drains and stops."""
    from ops.up import run  # noqa: PLC0415

    raise click.exceptions.Exit(run(_loaded()))


@cli.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def test(arguments: tuple[str, ...]) -> None:
    """Run the test suite; arguments go to pytest."""
    from ops.testing import run  # noqa: PLC0415

    raise click.exceptions.Exit(run(list(arguments)))


@cli.command()
@as_json
def config(*, as_json: bool) -> None:
    """Every setting, its value with secrets masked, and where it comes from."""
    rows = [{"name": name, "value": value, "from": origin} for name, value, origin in shown(_loaded())]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        _table(rows, ["name", "value", "from"])


@cli.command()
@as_json
@_reported
def migrate(*, as_json: bool) -> None:
    """Bring the database up to date."""
    import asyncio  # noqa: PLC0415

    from engine.store.migrate import MigrationError  # noqa: PLC0415
    from engine.store.migrate import migrate as run  # noqa: PLC0415

    settings = _attached()
    assert settings.database_url is not None
    try:
        applied = asyncio.run(run(settings.database_url))
    except MigrationError as error:
        _fail(str(error))
    _print({"applied": applied or ["nothing: the database is up to date"]}, as_json=as_json)


@cli.command()
@click.option("--dry-run", is_flag=True, help="Only tell what would go.")
@as_json
@_reported
def purge(*, dry_run: bool, as_json: bool) -> None:
    """Take away now what no plan keeps any more; the worker does it daily."""
    from ops import retention  # noqa: PLC0415

    _print(operate.with_pool(_attached(), lambda pool: retention.purge(pool, dry_run=dry_run)), as_json=as_json)


@cli.command()
@as_json
def doctor(*, as_json: bool) -> None:
    """What is wrong with this installation, and how to mend it."""
    from ops.doctor import examine  # noqa: PLC0415

    findings = examine(_loaded())
    if as_json:
        click.echo(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        for finding in findings:
            mark = "ok  " if finding.ok else "BAD "
            click.echo(f"{mark} {finding.check}: {finding.found}")
            if finding.mend:
                click.echo(f"     mend: {finding.mend}")
    if not all(finding.ok for finding in findings):
        raise click.exceptions.Exit(1)


@cli.command()
@click.option("--scenario", type=click.Choice(["a", "b", "c"]), default="a", help="10, 1 or 1,000 domains.")
@click.option("--messages", default=20_000, show_default=True, help="Counted messages.")
@click.option("--warm-up", default=1_000, show_default=True)
@click.option("--connections", default=64, show_default=True)
@click.option("--runs", default=1, show_default=True, help="Runs to take the median of.")
@click.option("--drain", type=int, help="Queue this many first, then deliver.")
@click.option("--profile", is_flag=True, help="Flame graphs beside the report (needs py-spy).")
@click.option("--tls", is_flag=True, help="Deliver over STARTTLS; default: in clear, as the peers were measured.")
@click.option("--webhooks", is_flag=True, help="Measure posting to webhook endpoints instead.")
@click.option("--hanging", default=500, show_default=True, help="With --webhooks: endpoints that never answer.")
@click.option("--tails", type=click.IntRange(1, 5_000), help="Measure so many open live tails instead.")
@click.option("--relay", is_flag=True, help="Measure accepting over SMTP beside accepting over HTTP instead.")
@click.option("--lock-step", is_flag=True, help="With --relay: a client that waits for each reply.")
@click.option("--each", type=click.IntRange(min=0), default=0, help="With --relay: messages a session; 0: all.")
@click.option("--batch", type=click.IntRange(1, 100), default=1, show_default=True, help="Messages a request.")
@click.option("--no-paced", "paced", is_flag=True, default=True, flag_value=False, help="Skip the latency run.")
@as_json
def bench(
    *, webhooks: bool, hanging: int, tails: int | None, relay: bool, lock_step: bool, each: int, **options: Any
) -> None:
    """Measure a service of its own: rate, CPU per message, latencies."""
    from ops.bench import run, run_relay, run_tails, run_webhooks  # noqa: PLC0415

    if tails is not None:
        raise click.exceptions.Exit(run_tails(tails=tails, as_json=options["as_json"]))
    if relay:
        chosen = {name: options[name] for name in ("messages", "connections", "runs", "profile", "as_json")}
        raise click.exceptions.Exit(run_relay(**chosen, pipelined=not lock_step, each=each))
    if webhooks:
        chosen = {name: options[name] for name in ("profile", "as_json")}
        raise click.exceptions.Exit(run_webhooks(deliveries=options["messages"], hanging=hanging, **chosen))
    raise click.exceptions.Exit(run(**options))


@cli.command()
@click.argument(
    "name", type=click.Choice(["kill-api", "kill-mta", "kill-worker", "kill-valkey", "kill-postgres", "all", "tails"])
)
@click.option("--messages", type=click.IntRange(100, 100_000), default=5_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1, 100), default=5, show_default=True, help="Kills during the run.")
@as_json
def drill(*, name: str, messages: int, rounds: int, as_json: bool) -> None:
    """Kill a part of a service of its own while mail flows, then count every message; `tails`: every event."""
    from ops.drill import run, tails  # noqa: PLC0415

    if name == "tails":
        raise click.exceptions.Exit(tails.run(events=messages, kills=rounds, as_json=as_json))
    raise click.exceptions.Exit(run(name, messages=messages, rounds=rounds, as_json=as_json))


# -- accounts, keys, domains ----------------------------------------------------------------------


@cli.group()
def account() -> None:
    """Accounts."""


@account.command("create")
@click.option("--name", required=True)
@click.option("--email", required=True, help="The owner's address.")
@click.option("--plan", type=click.Choice([plan.value for plan in Plan]), default=Plan.FREE.value, show_default=True)
@click.option("--daily-cap", type=click.IntRange(min=0), help="An agreed cap in place of the ladder's.")
@click.option("--monthly-cap", type=click.IntRange(min=0), help="An agreed allowance in place of the plan's.")
@as_json
@_reported
def account_create(
    *, name: str, email: str, plan: str, daily_cap: int | None, monthly_cap: int | None, as_json: bool
) -> None:
    """A new account; its owner's password is printed once."""
    made = operate.with_pool(
        _attached(),
        lambda pool: operate.create_account(
            pool, name=name, email=email, plan=Plan(plan), daily_cap=daily_cap, monthly_cap=monthly_cap
        ),
    )
    _print(made, as_json=as_json)


@account.command("retention")
@click.option("--account", "account_id", required=True, help="acc_…")
@click.option("--days", type=click.IntRange(1, 36_500), help="Default: back to what the plan says.")
@as_json
@_reported
def account_retention(*, account_id: str, days: int | None, as_json: bool) -> None:
    """Keep an account's records longer than its plan does."""
    from ops import retention  # noqa: PLC0415

    agreed = operate.with_pool(_attached(), lambda pool: retention.agree(pool, account=account_id, days=days))
    _print(agreed, as_json=as_json)


@cli.group()
def key() -> None:
    """API keys."""


@key.command("create")
@click.option("--account", "account_id", required=True, help="acc_…")
@click.option("--scopes", default="all", show_default=True, help=f"all, or of: {', '.join(sorted(SCOPES))}")
@click.option("--name", default="Operator's key", show_default=True)
@as_json
@_reported
def key_create(*, account_id: str, scopes: str, name: str, as_json: bool) -> None:
    """A new API key, printed once."""
    settings = _attached()
    wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    made = operate.with_pool(
        settings, lambda pool: operate.create_key(pool, settings, account=account_id, name=name, scopes=wanted)
    )
    _print(made, as_json=as_json)


@cli.group()
def domain() -> None:
    """Sending domains."""


@domain.command("add")
@click.option("--account", "account_id", required=True, help="acc_…")
@click.option("--name", required=True)
@click.option("--verified", is_flag=True, help="Take the operator's word instead of DNS'.")
@as_json
@_reported
def domain_add(*, account_id: str, name: str, verified: bool, as_json: bool) -> None:
    """Add a domain; prints the DNS records to publish."""
    settings = _attached()
    made = operate.with_pool(
        settings, lambda pool: operate.add_domain(pool, settings, account=account_id, name=name, verified=verified)
    )
    _print(made, as_json=as_json)


@domain.command("verify")
@click.option("--account", "account_id", required=True, help="acc_…")
@click.option("--name", required=True)
@as_json
@_reported
def domain_verify(*, account_id: str, name: str, as_json: bool) -> None:
    """Look a domain's records up in DNS; ends with 1 while it is not verified."""
    settings = _attached()
    found = operate.with_pool(
        settings, lambda pool: operate.check_domain(pool, settings, account=account_id, name=name)
    )
    if found is None:
        _fail(f"{name} is not a domain of {account_id}.")
    _print(found, as_json=as_json)
    if found["status"] != "verified":
        raise click.exceptions.Exit(1)


# -- mail -----------------------------------------------------------------------------------------


@cli.command()
@click.option("--to", "recipients", required=True, multiple=True)
@click.option("--from", "sender", help="Default: hello@ the first run's domain.")
@click.option("--subject", default="Hello from Waybill", show_default=True)
@click.option("--text", default="It works.", show_default=True)
@click.option("--html")
@click.option("--key", help="Default: the first run's key.")
@as_json
@_reported
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
    _print(operate.call_api(access["baseUrl"], "POST", "/v1/emails", access["apiKey"], body), as_json=as_json)


@cli.command()
@click.option("--limit", type=click.IntRange(1, 100), default=25, show_default=True)
@click.option("--status")
@click.option("--key", help="Default: the first run's key.")
@as_json
@_reported
def messages(*, limit: int, status: str | None, key: str | None, as_json: bool) -> None:
    """The newest messages."""
    access = _access(key)
    path = f"/v1/messages?limit={limit}" + (f"&status={status}" if status else "")
    found = operate.call_api(access["baseUrl"], "GET", path, access["apiKey"])
    if as_json:
        click.echo(json.dumps(found["data"], indent=2, ensure_ascii=False))
    else:
        _table(found["data"], ["createdAt", "status", "id", "from", "to", "subject"])


@cli.command()
@click.argument("message")
@click.option("--key", help="Default: the first run's key.")
@as_json
@_reported
def message(*, message: str, key: str | None, as_json: bool) -> None:
    """One message with its waybill."""
    access = _access(key)
    found = operate.call_api(access["baseUrl"], "GET", f"/v1/messages/{message}", access["apiKey"])
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for name in ("id", "status", "from", "to", "subject", "createdAt", "deliveredAt"):
        _console.print(f"{name:14} {_cell(found.get(name))}", markup=False)
    for event in found["waybill"]:
        click.echo(f"{event['createdAt']}  {event['seq']:>6}  {event['type']:10} {_brief(event['detail'])}")


@cli.command()
@click.option("--account", "account_id", help="acc_…; default: every account.")
@click.option("--after", type=int, help="Start behind this place of the log (with --account).")
@click.option("--seconds", type=float, help="Stop after so long; default: go on until Ctrl-C.")
@as_json
@_reported
def tail(*, account_id: str | None, after: int | None, seconds: float | None, as_json: bool) -> None:
    """Follow events as they are written."""
    from ops.tail import follow  # noqa: PLC0415

    settings = _attached()
    ends = None if seconds is None else time.monotonic() + seconds
    for event in follow(settings, account=account_id, after=after, ends=ends):
        if as_json:
            click.echo(json.dumps(event, ensure_ascii=False))
        else:
            line = f"{event['createdAt']}  {event['accountId'][-6:]} {event['seq']:>6}  {event['type']:12}"
            click.echo(f"{line} {event['messageId'] or '':30} {_brief(event['detail'])}")
        sys.stdout.flush()


@cli.command()
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True)
@as_json
@_reported
def sink(*, limit: int, as_json: bool) -> None:
    """What arrived in the local sink, newest first."""
    settings = _loaded().settings
    found = operate.sink_messages(settings.state, limit=limit)
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
    elif not found:
        click.echo("Nothing has arrived yet.")
    else:
        _table(found, list(found[0]))


def _access(key: str | None) -> dict[str, str]:
    """Base URL, key and domain to call the API with: the first run's, unless a key is given."""
    settings = _loaded().settings
    file = Path(settings.state) / FIRST_RUN
    found = {"baseUrl": settings.public_url, "domain": "", "apiKey": ""}
    if file.is_file():
        found |= json.loads(file.read_text("utf-8"))
    if key:
        found["apiKey"] = key
    if not found["apiKey"]:
        _fail("Give an API key with --key: there is no first-run.json in the state folder.")
    return found


def _brief(detail: dict[str, Any]) -> str:
    names = ("recipient", "mx", "diagnostic", "reason", "next_attempt_at", "to_domain", "source", "name", "id")
    return " ".join(f"{name}={detail[name]}" for name in names if detail.get(name))
