"""`ops clock`: show the clock of local mode; move it forward."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from engine.base import clock as times
from engine.sending.local_clock import rules, service
from engine.sending.local_clock.types import ClockState
from ops.commands.base import as_json, attached, line, print_json, reported

MAX_WAIT_S = 3_600
wait = click.option(
    "--timeout",
    type=click.IntRange(1, MAX_WAIT_S),
    default=600,
    show_default=True,
    help="Seconds after which the command fails and shows the work that is still due.",
)


@click.group(invoke_without_command=True)
@click.pass_context
def clock(context: click.Context) -> None:
    """Show or move the clock of local mode; retries, expiries and new days follow it.

    It is the clock of the whole installation, and never goes back.
    """
    if context.invoked_subcommand is None:
        context.invoke(clock_show)


@clock.command("show")
@as_json
@reported
def clock_show(*, as_json: bool) -> None:
    """Print service time and machine time."""
    _print(service.state(attached()), as_json=as_json)


@clock.command("advance")
@click.argument("by", metavar="DURATION", help="Such as 90s, 2d or 1d12h.")
@wait
@as_json
@reported
def clock_advance(*, by: str, timeout: int, as_json: bool) -> None:
    """Move the clock forward, and wait until all that fell due has happened."""
    wanted = rules.duration(by)
    if wanted is None:
        raise click.UsageError(f"{by!r} is not a duration; write for example 90s, 2d or 1d12h.")
    _print(asyncio.run(service.advance(attached(), wanted, within_s=timeout)), as_json=as_json)


@clock.command("to")
@click.argument("at", metavar="TIME", help="ISO 8601, such as 2026-12-31T23:59; without a time zone: UTC.")
@wait
@as_json
@reported
def clock_to(*, at: str, timeout: int, as_json: bool) -> None:
    """Move the clock to a time, and wait until all that fell due until then has happened."""
    try:
        wanted = datetime.fromisoformat(at)
    except ValueError:
        raise click.UsageError(f"{at!r} is not a time; write for example 2026-12-31T23:59.") from None
    wanted = wanted.replace(tzinfo=UTC) if wanted.tzinfo is None else wanted
    _print(asyncio.run(service.advance(attached(), wanted, within_s=timeout)), as_json=as_json)


@clock.command("settle")
@wait
@as_json
@reported
def clock_settle(*, timeout: int, as_json: bool) -> None:
    """Wait until no delivery, webhook post or job is due at the present service time."""
    _print(asyncio.run(service.settle(attached(), within_s=timeout)), as_json=as_json)


def _print(state: ClockState, *, as_json: bool) -> None:
    shown: dict[str, Any] = {
        "serviceTime": times.iso(state.service_time),
        "machineTime": times.iso(state.machine_time),
        "aheadS": state.ahead_us / 1_000_000,
    }
    if as_json:
        print_json(shown)
        return
    line("service time", shown["serviceTime"])
    line("machine time", shown["machineTime"])
    line("ahead", str(timedelta(seconds=round(shown["aheadS"]))))
