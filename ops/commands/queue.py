"""`ops queue`: show pending deliveries; suspend, resume, flush and bounce them."""

from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import click
import msgspec

from engine.base.settings import Settings
from engine.delivery import queue_depths
from engine.delivery.holds import EVERYWHERE, HoldKind
from engine.delivery.mx_routes import opened_router
from engine.delivery.queue_depths import ActiveHold, PendingDeliveries, QueueView
from engine.sending.queue_commands import QueueChange, QueueCommands
from ops.commands.base import as_json, fail, in_service, limit_option, reported, show, table
from ops.commands.durations import Duration


def _target_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name the target of a queue command; exactly one of them must be given."""
    for name, words in (
        ("site", "Site (mail servers that share one limit), as `ops queue --by site` names it."),
        ("message", "Id of a message (msg_…)."),
        ("account", "Id of an account (acc_…)."),
        ("domain", "Recipient domain."),
    ):
        command = click.option(f"--{name}", f"on_{name}", help=words)(command)
    return click.option("--all", "on_all", is_flag=True, help="The whole queue.")(command)


def _target(given: dict[str, Any]) -> Any:
    everything = given.pop("on_all")
    found = [(HoldKind(name.removeprefix("on_")), value) for name, value in given.items() if value]
    if everything:
        found.append((HoldKind.SITE, EVERYWHERE))
    if len(found) != 1:
        fail("Give exactly one of --domain, --account, --message, --site and --all.")
    return found[0]


@click.group(invoke_without_command=True)
@click.option(
    "--by", type=click.Choice(["domain", "site", "account", "shard"]), default="domain", show_default=True,
    help="Property to group deliveries by.",
)  # fmt: skip
@limit_option(20, most=1000)
@as_json
@click.pass_context
@reported
def queue(context: click.Context, *, by: str, limit: int, as_json: bool) -> None:
    """Show pending deliveries, their age and holds; `suspend`, `resume`, `flush` and `bounce` change them."""
    if context.invoked_subcommand is not None:
        return
    found = in_service(depths, by=by, limit=limit)
    if as_json:
        show(found, as_json=True)
        return
    if found["waiting"]:
        table(found["waiting"], list(found["waiting"][0]))
        if beyond := found["rows"] - sum(one["rows"] for one in found["waiting"]):
            click.echo(f"and {beyond} more deliveries; --limit prints more lines.")
    else:
        click.echo("The queue is empty.")
    if found["holds"]:
        click.echo("\nHolds:")
        table(found["holds"], list(found["holds"][0]))


@queue.command("suspend")
@_target_options
@click.option("--reason", required=True, help="Reason, in a few words; written to the waybill of each held message.")
@click.option(
    "--for", "for_s", type=Duration(min_s=6, max_s=365 * 86_400),
    help="Duration, such as 90s, 30m, 2h or 3d; a plain number is minutes; default: until `ops queue resume`.",
)  # fmt: skip
@as_json
@reported
def queue_suspend(*, reason: str, for_s: float | None, as_json: bool, **on: Any) -> None:
    """Hold deliveries, within a second and across restarts. Mail is still accepted."""
    show(in_service(change, QueueCommands.suspend, _target(on), reason=reason, for_s=for_s), as_json=as_json)


@queue.command("resume")
@_target_options
@click.option("--note", help="Note, in a few words; written to the waybill of each message.")
@as_json
@reported
def queue_resume(*, note: str | None, as_json: bool, **on: Any) -> None:
    """End a hold and deliver its mail, spread over time."""
    show(in_service(change, QueueCommands.resume, _target(on), note=note), as_json=as_json)


@queue.command("flush")
@_target_options
@click.option("--note", help="Note, in a few words; written to the waybill of each message.")
@as_json
@reported
def queue_flush(*, note: str | None, as_json: bool, **on: Any) -> None:
    """Attempt now the deliveries that wait for a later attempt."""
    show(in_service(change, QueueCommands.flush, _target(on), note=note), as_json=as_json)


@queue.command("bounce")
@_target_options
@click.option("--reason", required=True, help="Reason, in a few words; written to the waybill of each message.")
@click.option("--yes", is_flag=True, help="Don't ask for confirmation.")
@as_json
@reported
def queue_bounce(*, reason: str, yes: bool, as_json: bool, **on: Any) -> None:
    """Fail pending deliveries; no address is suppressed. This can't be undone."""
    target = _target(on)
    if not yes:
        whose = "" if target[1] == EVERYWHERE else f" for the {target[0].value} {target[1]}"
        click.confirm(f"Fail all pending deliveries{whose}?", abort=True, err=True)
    show(in_service(change, QueueCommands.bounce, target, reason=reason), as_json=as_json)


async def depths(pool: asyncpg.Pool, settings: Settings, *, by: str, limit: int) -> dict[str, Any]:
    """Return pending deliveries by `domain`, `site`, `account` or `shard`, largest first, and the holds in force."""
    async with opened_router(settings) as router:
        found = await queue_depths.depths(pool, router, by=QueueView(by), limit=limit)
    return {
        "by": by,
        "rows": found.rows,
        "waiting": [_named(one, by) for one in found.waiting],
        "holds": [_hold(one) for one in found.holds],
    }


async def change(
    pool: asyncpg.Pool,
    settings: Settings,
    command: Callable[..., Awaitable[QueueChange]],
    on: tuple[HoldKind, str],
    /,
    **how: Any,
) -> dict[str, Any]:
    """Run a command of `QueueCommands` on a target; return what it did, as the operator's API shows it."""
    return dict(msgspec.to_builtins(await command(QueueCommands(pool, settings), *on, **how)))


def _named(one: PendingDeliveries, by: str) -> dict[str, Any]:
    """Return a group of deliveries with its name under the word that it is grouped by."""
    shown: dict[str, Any] = msgspec.to_builtins(one)
    return {by: shown.pop("name")} | shown


def _hold(one: ActiveHold) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(one)
    return {"suspended": shown.pop("kind")} | shown
