"""`ops site`: show and change the limits of destinations."""

from collections.abc import Callable
from typing import Any, TypeVar

import asyncpg
import click
import msgspec

from engine.base.settings import Settings
from engine.delivery.sites import FIELDS
from engine.sending import site_admin
from ops.commands.base import as_json, fail, in_database, in_service, reported, show

N = TypeVar("N", int, float)
_site_name = click.argument("name", help="Mail host, recipient domain, site, or `*`.")


def numbers(option: str, text: str, kind: Callable[[str], N]) -> list[N]:
    try:
        return [kind(one) for one in text.split(",")]
    except ValueError:
        fail(f"{option} needs numbers separated by commas, such as 60,300,900.")


@click.group()
def site() -> None:
    """Show and change the limits of destinations: connections, rates, retry waits."""


@site.command("show")
@_site_name
@as_json
@reported
def site_show(*, name: str, as_json: bool) -> None:
    """Show the limits of a domain's or host's site, their origin, recent replies and the next probe."""
    found = in_service(limits_of, name)
    if as_json:
        show(found, as_json=True)
        return
    show({field: found[field] for field in ("site", "window", "hosts", "rules")}, as_json=False)
    if not found["processes"]:
        click.echo("\nNo delivery was attempted there in the last hour.")
    for state in found["processes"]:
        click.echo(f"\n{state['process']}, {state['at']}: {state['phase']}, {state['waiting']} waiting")
        if state.get("source"):
            click.echo(f"  source {state['source']}")
        if refused := state.get("refused"):
            click.echo(f"  refused until {refused['until']}: {refused['said']}")
        click.echo(f"  window {state['window']:g}, share of all processes {state['share']}, {state['open']} open")
        if state.get("opening") or state.get("asking"):
            click.echo(f"  {state['opening']} opening, {state['asking']} waiting for a connection slot")
        if state["nextProbe"]:
            click.echo(f"  next probe {state['nextProbe']}")
        if moved := state["movedBy"]:
            click.echo(f"  moved by   {moved['at']} {moved['said']}: {moved['effect']}")
        for answer in state["recent"]:
            click.echo(f"  {answer['at']}  {answer['said']}: {answer['effect']}")


@site.command("set")
@_site_name
@click.option(
    "--connections", type=click.IntRange(min=1), help=("Maximum concurrent connections, across all processes.")
)
@click.option("--messages-per-connection", type=click.IntRange(min=1), help="Maximum messages per connection.")
@click.option("--per-second", type=float, help="Maximum messages per second, across all processes.")
@click.option("--per-minute", type=float, help="Maximum messages per minute, across all processes.")
@click.option("--per-hour", type=float, help="Maximum messages per hour, across all processes.")
@click.option("--recipients", type=click.IntRange(min=1), help="Maximum recipients per SMTP transaction.")
@click.option(
    "--family",
    type=click.Choice(["ipv4", "ipv6", "ipv4-only", "ipv6-only"]),
    help="Address family to try first, or to use only.",
)
@click.option(
    "--ladder", "ladder_s", help="Retry schedule: seconds between attempts, such as 60,300,900; the last repeats."
)
@click.option("--back-off", multiple=True, help="Words in a server's reply that ask to slow down; repeatable.")
@click.option(
    "--together/--apart",
    default=None,
    help=("Share one connection limit between all servers under the name, or use one per server."),
)
@click.option("--unset", multiple=True, help="Field to remove from the rule, such as per_second; repeatable.")
@click.option("--why", help="Reason, shown beside the rule.")
@as_json
@reported
def site_set(
    *, name: str, ladder_s: str | None, unset: tuple[str, ...], why: str | None, as_json: bool, **given: Any
) -> None:
    """Change the limits of a mail host, all hosts below a name, a domain's servers, or `*`, within a second."""
    fields = {field: value for field, value in given.items() if value is not None and value != ()}
    if ladder_s is not None:
        fields["ladder_s"] = numbers("--ladder", ladder_s, float)
    wrong = [field for field in unset if field not in FIELDS]
    if wrong:
        fail(f"Unknown field {wrong[0]!r}. Fields of a rule: {', '.join(FIELDS)}.")
    fields |= dict.fromkeys(unset)
    if not fields and why is None:
        fail("Nothing to change: give at least one option.")
    show(in_service(change, name, fields, why), as_json=as_json)


@site.command("list")
@as_json
@reported
def site_list(*, as_json: bool) -> None:
    """List all rules, and the sites whose state changed in the last hour."""
    show(in_database(listing), as_json=as_json)


@site.command("reset")
@_site_name
@as_json
@reported
def site_reset(*, name: str, as_json: bool) -> None:
    """Remove the operator's rule for a name, so that shipped rules and settings apply again."""
    show(in_service(reset, name), as_json=as_json)


async def limits_of(pool: asyncpg.Pool, settings: Settings, name: str) -> dict[str, Any]:
    """Return the limits of a domain, mail host or site with their origin, and its state in each mta process."""
    return _plain(await site_admin.show(pool, settings, name))


async def change(
    pool: asyncpg.Pool, settings: Settings, name: str, fields: dict[str, object], why: str | None
) -> dict[str, Any]:
    """Set fields of a name's rule, or remove those that are None; raises ValueError."""
    return _plain(await site_admin.change(pool, settings, name, fields, why))


async def reset(pool: asyncpg.Pool, settings: Settings, name: str) -> dict[str, Any]:
    """Remove the operator's rule for a name; raises Refusal (404) if there is none."""
    removed = await site_admin.reset(pool, settings, name)
    return {"name": removed, "reset": "shipped rules and settings apply"}


async def listing(pool: asyncpg.Pool) -> dict[str, Any]:
    """Return all rules, and the sites whose state changed in the last hour."""
    return _plain(await site_admin.listing(pool))


def _plain(found: object) -> dict[str, Any]:
    return dict(msgspec.to_builtins(found))
