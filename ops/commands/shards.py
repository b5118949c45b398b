"""Commands for shards and for the processes of all hosts."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import asyncpg
import click
import msgspec
from rich.console import Console
from rich.progress import Progress

from engine.base.settings import Settings
from engine.store.process_list import listing
from ops import admin
from ops.commands.base import as_json, attached, fail, in_database, in_service, reported, show, table
from shards import admin as shard_admin
from shards.admin import ShardPlan
from shards.overview import overview

DEFAULT_SHOWN = 20
MAX_STEPS = 40  # steps of a plan that are printed

_member = click.argument(
    "name", metavar="MEMBER|NODE", help="Mta process or host, as `ops shards` and `ops nodes` name them."
)
Planner = Callable[[asyncpg.Pool, Settings], Awaitable[ShardPlan]]


def _change_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that all changing commands share."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Only print the plan."),
        click.option("--no-wait", is_flag=True, help="Don't wait until the change is complete."),
        click.option("--timeout", "timeout_s", type=click.FloatRange(1, 86_400), default=300.0, show_default=True,
                     help="Seconds to wait; the change continues afterwards."),
        click.option("--reason", default="", help="Reason, in a few words; shown by `ops shards`."),
        as_json,
    ):  # fmt: skip
        command = option(command)
    return command


@click.group(invoke_without_command=True)
@click.option("--all", "every", is_flag=True, help="Show all shards, not only the busiest.")
@as_json
@click.pass_context
@reported
def shards(context: click.Context, *, every: bool, as_json: bool) -> None:
    """Show which mta process owns which shard, its pending deliveries and its load.

    `move`, `drain`, `weight`, `balance`, `split` and `merge` change this while mail flows.
    """
    if context.invoked_subcommand is not None:
        return
    limit = None if every else DEFAULT_SHOWN
    found = msgspec.to_builtins(in_service(overview, limit=limit))
    if as_json:
        show(found, as_json=True)
        return
    click.echo(f"Balanced by {found['balancedBy']}.\n")
    for title in ("members", "shards", "splits"):
        if found[title]:
            table(found[title], list(found[title][0]))
            click.echo("")


@shards.command("move")
@click.argument("numbers", metavar="SHARD...", nargs=-1, required=True, type=int, help="Numbers of shards.")
@click.option("--to", help="Mta process (member) or host (node), as `ops shards` and `ops nodes` name them.")
@click.option("--unpin", is_flag=True, help="Remove the pins of these shards.")
@_change_options
@reported
def move(*, numbers: tuple[int, ...], to: str | None, unpin: bool, **how: Any) -> None:
    """Pin shards to a member or a node. They move when their owners have finished the deliveries under way."""
    if (to is None) != unpin:
        fail("Give either --to or --unpin.")
    _run(lambda pool, settings: shard_admin.plan_move(pool, settings, numbers, to, why=how["reason"]), **how)


@shards.command("drain")
@_member
@click.option("--undo", is_flag=True, help="Allow it to own shards again.")
@_change_options
@reported
def drain(*, name: str, undo: bool, **how: Any) -> None:
    """Move all shards away from a member, or from all members of a node, and assign no new ones."""
    _run(
        lambda pool, settings: shard_admin.plan_place(
            pool, settings, name, weight=None, draining=not undo, why=how["reason"]
        ),
        **how,
    )


@shards.command("weight")
@_member
@click.argument("weight", type=click.FloatRange(0.01, 100), help="Relative share of the load; the default is 1.")
@_change_options
@reported
def weigh(*, name: str, weight: float, **how: Any) -> None:
    """Set the relative share of load of a member, or of each member of a node; the default is 1."""
    _run(
        lambda pool, settings: shard_admin.plan_place(
            pool, settings, name, weight=weight, draining=None, why=how["reason"]
        ),
        **how,
    )


@shards.command("balance")
@click.option("--by-count", is_flag=True, help="Distribute by number of shards again.")
@_change_options
@reported
def balance(*, by_count: bool, **how: Any) -> None:
    """Distribute shards by the load measured in the last minute."""
    _run(lambda pool, settings: shard_admin.plan_balance(pool, settings, by_count=by_count), **how)


@shards.command("split")
@click.argument("domain", help="Recipient domain.")
@click.option("--parts", type=int, required=True, help="Number of shards to spread its mail over.")
@_change_options
@reported
def split(*, domain: str, parts: int, **how: Any) -> None:
    """Spread a recipient domain over several shards: new mail at once, pending mail soon after."""
    if parts < 2:
        fail(f"--parts is {parts}; a split needs at least 2. Use `ops shards merge` to undo a split.")
    _run(lambda pool, settings: shard_admin.plan_split(pool, settings, domain, parts, why=how["reason"]), **how)


@shards.command("merge")
@click.argument("domain", help="Recipient domain.")
@click.option("--by-rule", is_flag=True, help="Allow the automatic rule to split it again when it is busy.")
@_change_options
@reported
def merge(*, domain: str, by_rule: bool, **how: Any) -> None:
    """Merge a split domain into one shard, and keep the automatic rule from splitting it."""
    parts = None if by_rule else 1
    _run(lambda pool, settings: shard_admin.plan_split(pool, settings, domain, parts, why=how["reason"]), **how)


@click.command()
@as_json
@reported
def nodes(*, as_json: bool) -> None:
    """List the processes of all hosts: their load, and when each was last seen.

    An API process has one line per worker.
    """
    found = msgspec.to_builtins(in_database(listing))
    if as_json:
        show(found, as_json=True)
    elif found["processes"]:
        rows = [{"process": f"{row['host']}:{row['name']}"} | row for row in found["processes"]]
        table(rows, [column for column in rows[0] if column not in ("host", "name")])
    else:
        click.echo("No process is registered: Waybill runs on no host of this database.")


def _run(planner: Planner, *, dry_run: bool, no_wait: bool, timeout_s: float, as_json: bool, reason: str) -> None:  # noqa: ARG001
    """ShardPlan, show, write, watch."""
    settings = attached()
    try:
        left = asyncio.run(
            _carry_out(planner, settings, dry_run=dry_run, no_wait=no_wait, timeout_s=timeout_s, as_json=as_json)
        )
    except KeyboardInterrupt:
        click.echo("\nStopped waiting; the change continues. Run the command again to watch it.", err=True)
        raise click.exceptions.Exit(130) from None
    if left:
        raise click.exceptions.Exit(1)


async def _carry_out(
    planner: Planner, settings: Settings, *, dry_run: bool, no_wait: bool, timeout_s: float, as_json: bool
) -> int:
    """Apply a plan and return the number of unfinished steps; 0 with `dry_run` or `no_wait`."""
    async with admin.opened(settings) as pool:
        plan = await planner(pool, settings)
        left = plan.total
        if not as_json:
            _print_plan(plan)
        if not dry_run:
            await shard_admin.carry_out(pool, plan)
            if not no_wait:
                left = await _wait_until_done(pool, plan, timeout_s)
                if not as_json:
                    click.echo("Done." if not left else f"{left} of {plan.total} steps remain; the change continues.")
    if as_json:
        found = {"plan": plan.words, "steps": plan.steps, "dryRun": dry_run, "left": left}
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
    return 0 if dry_run or no_wait else left


async def _wait_until_done(pool: asyncpg.Pool, plan: ShardPlan, timeout_s: float) -> int:
    left = plan.total
    bar = Progress(console=Console(stderr=True), transient=True) if sys.stderr.isatty() else None
    with bar or nullcontext():
        task = bar.add_task("shards", total=max(1, plan.total)) if bar else None
        async for left in shard_admin.watch(pool, plan, timeout_s):
            if bar and task is not None:
                bar.update(task, completed=plan.total - left)
    return left


def _print_plan(plan: ShardPlan) -> None:
    show(plan.words, as_json=False)
    if plan.steps:
        table(plan.steps[:MAX_STEPS], list(plan.steps[0]))
        if len(plan.steps) > MAX_STEPS:
            click.echo(f"... and {len(plan.steps) - MAX_STEPS} more")
