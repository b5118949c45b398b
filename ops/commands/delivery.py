"""Commands for the queue, the limits of sites, source addresses, and the history of one delivery."""

import json
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from ops import admin
from ops.commands.base import as_json, attached, fail, reported, show, table
from ops.commands.durations import Duration

N = TypeVar("N", int, float)
_ip = click.argument("ip", help="Source address, as written in WAYBILL_SOURCE_IPS.")
_site_name = click.argument("name", help="Mail host, recipient domain, site, or `*`.")
_pool_name = click.argument("name", help="Name of the pool.")


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
    from engine.delivery.holds import EVERYWHERE, HoldKind  # noqa: PLC0415

    everything = given.pop("on_all")
    found = [(HoldKind(name.removeprefix("on_")), value) for name, value in given.items() if value]
    if everything:
        found.append((HoldKind.SITE, EVERYWHERE))
    if len(found) != 1:
        fail("Give exactly one of --domain, --account, --message, --site and --all.")
    return found[0]


def _numbers(option: str, text: str, kind: Callable[[str], N]) -> list[N]:
    try:
        return [kind(one) for one in text.split(",")]
    except ValueError:
        fail(f"{option} takes numbers joined by commas, such as 60,300,900.")


def on_everything(target: tuple[Any, str]) -> bool:
    """Return True if a command's target is the whole queue."""
    return target[1] == "*"


@click.group(invoke_without_command=True)
@click.option(
    "--by", type=click.Choice(["domain", "site", "account", "shard"]), default="domain", show_default=True,
    help="Group deliveries by this.",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Print at most this many.")
@as_json
@click.pass_context
@reported
def queue(context: click.Context, *, by: str, limit: int, as_json: bool) -> None:
    """Show pending deliveries, their age and holds; `suspend`, `resume`, `flush` and `bounce` change them."""
    if context.invoked_subcommand is not None:
        return
    from ops import queue as ops_queue  # noqa: PLC0415

    settings = attached()
    found = admin.with_pool(settings, lambda pool: ops_queue.depths(pool, settings, by=by, limit=limit))
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
    from ops import queue as ops_queue  # noqa: PLC0415

    settings, target = attached(), _target(on)
    done = admin.with_pool(settings, lambda pool: ops_queue.suspend(pool, settings, target, reason=reason, for_s=for_s))
    show(done, as_json=as_json)


@queue.command("resume")
@_target_options
@click.option("--note", help="Note, in a few words; written to the waybill of each message.")
@as_json
@reported
def queue_resume(*, note: str | None, as_json: bool, **on: Any) -> None:
    """End a hold and deliver its mail, spread over time."""
    from ops import queue as ops_queue  # noqa: PLC0415

    settings, target = attached(), _target(on)
    show(admin.with_pool(settings, lambda pool: ops_queue.resume(pool, settings, target, note=note)), as_json=as_json)


@queue.command("flush")
@_target_options
@click.option("--note", help="Note, in a few words; written to the waybill of each message.")
@as_json
@reported
def queue_flush(*, note: str | None, as_json: bool, **on: Any) -> None:
    """Attempt now the deliveries that wait for a later attempt."""
    from ops import queue as ops_queue  # noqa: PLC0415

    settings, target = attached(), _target(on)
    show(admin.with_pool(settings, lambda pool: ops_queue.flush(pool, settings, target, note=note)), as_json=as_json)


@queue.command("bounce")
@_target_options
@click.option("--reason", required=True, help="Reason, in a few words; written to the waybill of each message.")
@click.option("--yes", is_flag=True, help="Don't ask for confirmation.")
@as_json
@reported
def queue_bounce(*, reason: str, yes: bool, as_json: bool, **on: Any) -> None:
    """Fail pending deliveries; no address is suppressed. This can't be undone."""
    from ops import queue as ops_queue  # noqa: PLC0415

    target = _target(on)
    if not yes:
        whose = "" if on_everything(target) else f" for the {target[0].value} {target[1]}"
        click.confirm(f"Fail all pending deliveries{whose}?", abort=True, err=True)
    settings = attached()
    done = admin.with_pool(settings, lambda pool: ops_queue.bounce(pool, settings, target, reason=reason))
    show(done, as_json=as_json)


@click.group()
def site() -> None:
    """Show and change the limits of destinations: connections, rates, retry waits."""


@site.command("show")
@_site_name
@as_json
@reported
def site_show(*, name: str, as_json: bool) -> None:
    """Show the limits of a domain's or host's site, their origin, recent replies and the next probe."""
    from ops import sites  # noqa: PLC0415

    settings = attached()
    found = admin.with_pool(settings, lambda pool: sites.show(pool, settings, name))
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
@click.option("--connections", type=click.IntRange(min=1), help="Maximum of connections at once, over all processes.")
@click.option("--messages-per-connection", type=click.IntRange(min=1), help="Maximum of messages per connection.")
@click.option("--per-second", type=float, help="Maximum of messages per second, over all processes.")
@click.option("--per-minute", type=float, help="Maximum of messages per minute, over all processes.")
@click.option("--per-hour", type=float, help="Maximum of messages per hour, over all processes.")
@click.option("--recipients", type=click.IntRange(min=1), help="Maximum of recipients per SMTP transaction.")
@click.option(
    "--family",
    type=click.Choice(["ipv4", "ipv6", "ipv4-only", "ipv6-only"]),
    help="Address family to try first, or to use only.",
)
@click.option(
    "--ladder", "ladder_s", help="Retry schedule: seconds between attempts, such as 60,300,900; the last repeats."
)
@click.option("--back-off", multiple=True, help="Words in a reply that ask to slow down; repeatable.")
@click.option(
    "--together/--apart", default=None, help="Share one connection limit between all servers under the name, or not."
)
@click.option("--unset", multiple=True, help="Field to remove from the rule, such as per_second; repeatable.")
@click.option("--why", help="Reason, shown beside the rule.")
@as_json
@reported
def site_set(
    *, name: str, ladder_s: str | None, unset: tuple[str, ...], why: str | None, as_json: bool, **given: Any
) -> None:
    """Change the limits of a mail host, all hosts below a name, a domain's servers, or `*`, within a second."""
    from engine.delivery.sites import FIELDS  # noqa: PLC0415
    from ops import sites  # noqa: PLC0415

    fields = {field: value for field, value in given.items() if value is not None and value != ()}
    if ladder_s is not None:
        fields["ladder_s"] = _numbers("--ladder", ladder_s, float)
    wrong = [field for field in unset if field not in FIELDS]
    if wrong:
        fail(f"Unknown field {wrong[0]!r}. Fields of a rule: {', '.join(FIELDS)}.")
    fields |= dict.fromkeys(unset)
    if not fields and why is None:
        fail("Nothing to change: give at least one option.")
    settings = attached()
    show(admin.with_pool(settings, lambda pool: sites.change(pool, settings, name, fields, why)), as_json=as_json)


@site.command("list")
@as_json
@reported
def site_list(*, as_json: bool) -> None:
    """List all rules, and the sites whose state changed in the last hour."""
    from ops import sites  # noqa: PLC0415

    show(admin.with_pool(attached(), sites.listing), as_json=as_json)


@site.command("reset")
@_site_name
@as_json
@reported
def site_reset(*, name: str, as_json: bool) -> None:
    """Remove the operator's rule for a name, so that shipped rules and settings apply again."""
    from ops import sites  # noqa: PLC0415

    settings = attached()
    show(admin.with_pool(settings, lambda pool: sites.reset(pool, settings, name)), as_json=as_json)


@click.group()
def source() -> None:
    """Manage source addresses (WAYBILL_SOURCE_IPS): pools by stream, warm-up, refusals."""


@source.command("list")
@as_json
@reported
def source_list(*, as_json: bool) -> None:
    """List source addresses, pools, and the streams assigned to them."""
    from ops import sources  # noqa: PLC0415

    settings = attached()
    found = admin.with_pool(settings, lambda pool: sources.listing(pool, settings))
    if not as_json and not found["sources"]:
        click.echo("No source address is configured: the system chooses one for each connection.")
        return
    show(found if as_json else {name: value for name, value in found.items() if value}, as_json=as_json)


@source.command("show")
@_ip
@as_json
@reported
def source_show(*, ip: str, as_json: bool) -> None:
    """Show a source address: warm-up, messages sent today (UTC) and their limit, and sites that refuse it."""
    from ops import sources  # noqa: PLC0415

    settings = attached()
    found = admin.with_pool(settings, lambda pool: sources.show(pool, settings, ip))
    show(
        found if as_json else {name: value for name, value in found.items() if value not in (None, [])}, as_json=as_json
    )


@source.group("pool")
def source_pool() -> None:
    """Manage pools of source addresses."""


@source_pool.command("set")
@_pool_name
@click.option(
    "--ips", required=True, help="Addresses, such as 192.0.2.1,192.0.2.2*3; here the second sends three times as much."
)
@as_json
@reported
def source_pool_set(*, name: str, ips: str, as_json: bool) -> None:
    """Create a pool or replace its addresses. In force within a second."""
    from ops import sources  # noqa: PLC0415

    settings = attached()
    show(admin.with_pool(settings, lambda pool: sources.set_pool(pool, settings, name, ips)), as_json=as_json)


@source_pool.command("remove")
@_pool_name
@as_json
@reported
def source_pool_remove(*, name: str, as_json: bool) -> None:
    """Remove a pool that no stream is assigned to."""
    from ops import sources  # noqa: PLC0415

    show(admin.with_pool(attached(), lambda pool: sources.remove_pool(pool, name)), as_json=as_json)


@source.command("assign")
@click.option("--stream", required=True, help="Id of a stream, `broadcast`, `verification`, or `*` for all mail.")
@click.option("--pool", "name", required=True, help="Name of the pool.")
@click.option("--account", help="Id of an account (acc_…); default: all accounts.")
@as_json
@reported
def source_assign(*, stream: str, name: str, account: str | None, as_json: bool) -> None:
    """Send the mail of a stream from a pool. An assignment for one account wins over one for all accounts."""
    from ops import sources  # noqa: PLC0415

    done = admin.with_pool(attached(), lambda pool: sources.assign(pool, stream=stream, name=name, account=account))
    show(done, as_json=as_json)


@source.command("unassign")
@click.option("--stream", required=True, help="Stream, as given to `ops source assign`.")
@click.option("--account", help="Id of an account (acc_…); default: all accounts.")
@as_json
@reported
def source_unassign(*, stream: str, account: str | None, as_json: bool) -> None:
    """Send the mail of a stream from any source address again."""
    from ops import sources  # noqa: PLC0415

    done = admin.with_pool(attached(), lambda pool: sources.unassign(pool, stream=stream, account=account))
    show(done, as_json=as_json)


@source.command("warmup")
@_ip
@click.option("--start", type=click.DateTime(["%Y-%m-%d"]), help="Day (UTC) of its first mail.")
@click.option("--plan", help="Messages per day to each provider, such as 50,100,500; default: the shipped plan.")
@click.option("--off", is_flag=True, help="End the warm-up and its daily limits.")
@as_json
@reported
def source_warmup(*, ip: str, start: datetime | None, plan: str | None, off: bool, as_json: bool) -> None:
    """Warm up a new address with more mail each day. Mail above the day's limit waits until midnight UTC."""
    from ops import sources  # noqa: PLC0415

    if off == (start is not None) or (off and plan):
        fail("Give either --start DATE (and optionally --plan), or --off.")
    settings = attached()
    if start is None:
        show(admin.with_pool(settings, lambda pool: sources.end_warm_up(pool, ip)), as_json=as_json)
        return
    steps = None if plan is None else _numbers("--plan", plan, int)
    day = start.date()
    show(admin.with_pool(settings, lambda pool: sources.warm_up(pool, ip, day, steps)), as_json=as_json)


@source.command("trust")
@_ip
@click.option("--site", help="Site, as `ops source show` names it; default: all.")
@as_json
@reported
def source_trust(*, ip: str, site: str | None, as_json: bool) -> None:
    """Use an address again for sites that refused it, for example after its removal from a blocklist."""
    from ops import sources  # noqa: PLC0415

    show(admin.with_pool(attached(), lambda pool: sources.trust(pool, ip, site)), as_json=as_json)


@click.command()
@click.argument("message", metavar="MESSAGE_ID", help="Id of the message (msg_…).")
@as_json
@reported
def explain(*, message: str, as_json: bool) -> None:
    """Explain what happened to a message, who can act on it, and how."""
    from ops.explain import explain as explain_message  # noqa: PLC0415

    found = admin.with_pool(attached(), lambda pool: explain_message(pool, message))
    if as_json:
        show(found, as_json=True)
    else:
        click.echo(found["explanation"])


@click.command()
@click.option("--domain", "name", required=True, help="Recipient domain.")
@click.option("--seconds", type=float, help="Stop after this many seconds; default: after an hour or Ctrl-C.")
@as_json
@reported
def trace(*, name: str, seconds: float | None, as_json: bool) -> None:
    """Follow the SMTP dialogues with a domain's servers, without message content."""
    from ops.trace import follow, lines  # noqa: PLC0415

    settings = attached()
    ends = None if seconds is None else time.monotonic() + seconds
    for one in follow(settings, domain=name, ends=ends):
        for line in [json.dumps(one, ensure_ascii=False)] if as_json else lines(one):
            click.echo(line)
        sys.stdout.flush()
