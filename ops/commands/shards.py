"""Commands about shards and about the processes of all hosts."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import asyncpg
import click

from engine.base.settings import Settings
from ops import admin
from ops.commands.base import as_json, attached, fail, reported, show, table

if TYPE_CHECKING:
    from ops.shards import ShardPlan

SHOWN = 20
MAX_STEPS = 40  # of a plan, printed

_member = click.argument(
    "name", metavar="MEMBER|NODE", help="An mta process or a host, as `ops shards` and `ops nodes` name them."
)
Planner = Callable[[asyncpg.Pool, Settings], Awaitable["ShardPlan"]]


def _changes(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every command that changes something."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Show the plan and stop."),
        click.option("--no-wait", is_flag=True, help="Don't watch until it is complete."),
        click.option("--timeout", "timeout_s", type=click.FloatRange(1, 86_400), default=300.0, show_default=True,
                     help="Seconds to watch; the change goes on without."),
        click.option("--reason", default="", help="In a few words; shown by `ops shards`."),
        as_json,
    ):  # fmt: skip
        command = option(command)
    return command


@click.group(invoke_without_command=True)
@click.option("--all", "every", is_flag=True, help="Every shard, not only the busiest.")
@as_json
@click.pass_context
@reported
def shards(context: click.Context, *, every: bool, as_json: bool) -> None:
    """Show which mta process owns which shard, what waits in it and how busy it is.

    `move`, `drain`, `weight`, `balance`, `split` and `merge` change that while mail flows.
    """
    if context.invoked_subcommand is not None:
        return
    from ops import shards as work  # noqa: PLC0415

    settings = attached()
    found = admin.with_pool(settings, lambda pool: work.show(pool, settings, limit=None if every else SHOWN))
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
@click.option("--to", help="A member or a node, as `ops shards` and `ops nodes` name them.")
@click.option("--unpin", is_flag=True, help="Let them be anywhere again.")
@_changes
@reported
def move(*, numbers: tuple[int, ...], to: str | None, unpin: bool, **how: Any) -> None:
    """Pin shards to a member or a node: they go there once what their owners have in hand is finished."""
    from ops import shards as work  # noqa: PLC0415

    if (to is None) != unpin:
        fail("Name either --to or --unpin.")
    _run(lambda pool, settings: work.plan_move(pool, settings, numbers, to, why=how["reason"]), **how)


@shards.command("drain")
@_member
@click.option("--undo", is_flag=True, help="Let it own shards again.")
@_changes
@reported
def drain(*, name: str, undo: bool, **how: Any) -> None:
    """Let a member, or all members of a node, give their shards to others and get no new ones."""
    from ops import shards as work  # noqa: PLC0415

    _run(
        lambda pool, settings: work.plan_place(pool, settings, name, weight=None, draining=not undo, why=how["reason"]),
        **how,
    )


@shards.command("weight")
@_member
@click.argument("weight", type=click.FloatRange(0.01, 100), help="Share of the load; 1 is the default of all.")
@_changes
@reported
def weigh(*, name: str, weight: float, **how: Any) -> None:
    """Set how much load a member, or each member of a node, carries; the default is 1."""
    from ops import shards as work  # noqa: PLC0415

    _run(
        lambda pool, settings: work.plan_place(pool, settings, name, weight=weight, draining=None, why=how["reason"]),
        **how,
    )


@shards.command("balance")
@click.option("--by-count", is_flag=True, help="Share shards out by their number again.")
@_changes
@reported
def balance(*, by_count: bool, **how: Any) -> None:
    """Share shards out by the load that was measured in the last minute."""
    from ops import shards as work  # noqa: PLC0415

    _run(lambda pool, settings: work.plan_balance(pool, settings, by_count=by_count), **how)


@shards.command("split")
@click.argument("domain", help="Domain of recipients.")
@click.option("--parts", type=int, required=True, help="Shards that its mail is to lie in.")
@_changes
@reported
def split(*, domain: str, parts: int, **how: Any) -> None:
    """Spread a recipients' domain over several shards: new mail at once, waiting mail soon after."""
    from ops import shards as work  # noqa: PLC0415

    if parts < 2:
        fail("A split has at least two parts; `ops shards merge` puts a domain together.")
    _run(lambda pool, settings: work.plan_split(pool, settings, domain, parts, why=how["reason"]), **how)


@shards.command("merge")
@click.argument("domain", help="Domain of recipients.")
@click.option("--by-rule", is_flag=True, help="The rule may split it again when it is hot.")
@_changes
@reported
def merge(*, domain: str, by_rule: bool, **how: Any) -> None:
    """Put a split domain together in its own shard, and keep the rule from splitting it."""
    from ops import shards as work  # noqa: PLC0415

    parts = None if by_rule else 1
    _run(lambda pool, settings: work.plan_split(pool, settings, domain, parts, why=how["reason"]), **how)


@click.command()
@as_json
@reported
def nodes(*, as_json: bool) -> None:
    """List the processes of all hosts: what each is busy with, and when it was last seen.

    An API process has a line for each of its workers.
    """
    from ops import nodes as work  # noqa: PLC0415

    found = admin.with_pool(attached(), work.listing)
    if as_json:
        show(found, as_json=True)
    elif found["processes"]:
        rows = [{"process": f"{row['host']}:{row['name']}"} | row for row in found["processes"]]
        table(rows, [column for column in rows[0] if column not in ("host", "name")])
    else:
        click.echo("No process has shown itself.")


def _run(planner: Planner, *, dry_run: bool, no_wait: bool, timeout_s: float, as_json: bool, reason: str) -> None:  # noqa: ARG001
    """ShardPlan, show, write, watch."""
    settings = attached()
    try:
        left = asyncio.run(
            _carry_out(planner, settings, dry_run=dry_run, no_wait=no_wait, timeout_s=timeout_s, as_json=as_json)
        )
    except KeyboardInterrupt:
        click.echo("\nNot watched any more; what was begun goes on. Run the command again to watch.", err=True)
        raise click.exceptions.Exit(130) from None
    if left:
        raise click.exceptions.Exit(1)


async def _carry_out(
    planner: Planner, settings: Settings, *, dry_run: bool, no_wait: bool, timeout_s: float, as_json: bool
) -> int:
    """What is left of it when nobody watches any more; 0 without a wish to watch."""
    from ops import shards as work  # noqa: PLC0415

    async with admin.opened(settings) as pool:
        plan = await planner(pool, settings)
        left = plan.total
        if not as_json:
            _print_plan(plan)
        if not dry_run:
            await work.carry_out(pool, plan)
            if not no_wait:
                left = await _watched(pool, plan, timeout_s)
                if not as_json:
                    click.echo("Done." if not left else f"{left} of {plan.total} are still under way; they go on.")
    if as_json:
        found = {"plan": plan.words, "steps": plan.steps, "dryRun": dry_run, "left": left}
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
    return 0 if dry_run or no_wait else left


async def _watched(pool: asyncpg.Pool, plan: "ShardPlan", timeout_s: float) -> int:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    from ops import shards as work  # noqa: PLC0415

    left = plan.total
    bar = Progress(console=Console(stderr=True), transient=True) if sys.stderr.isatty() else None
    with bar or nullcontext():
        task = bar.add_task("shards", total=max(1, plan.total)) if bar else None
        async for left in work.watch(pool, plan, timeout_s):
            if bar and task is not None:
                bar.update(task, completed=plan.total - left)
    return left


def _print_plan(plan: "ShardPlan") -> None:
    show(plan.words, as_json=False)
    if plan.steps:
        table(plan.steps[:MAX_STEPS], list(plan.steps[0]))
        if len(plan.steps) > MAX_STEPS:
            click.echo(f"... and {len(plan.steps) - MAX_STEPS} more")
