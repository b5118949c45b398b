"""Commands about what waits for delivery, and about the servers it waits for."""

import json
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from ops import operate
from ops.commands.base import as_json, attached, fail, reported, show, table

N = TypeVar("N", int, float)


def _lever(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say what a lever is pulled on: exactly one of them."""
    for name, words in (
        ("site", "A set of mail servers, as `ops queue --by site` names it."),
        ("message", "msg_…"),
        ("account", "acc_…"),
        ("domain", "A recipients' domain."),
    ):
        command = click.option(f"--{name}", f"on_{name}", help=words)(command)
    return click.option("--all", "on_all", is_flag=True, help="Everything there is.")(command)


def _target(given: dict[str, Any]) -> Any:
    from engine.delivery.holds import EVERYWHERE, HoldKind  # noqa: PLC0415

    everything = given.pop("on_all")
    found = [(HoldKind(name.removeprefix("on_")), value) for name, value in given.items() if value]
    if everything:
        found.append((HoldKind.SITE, EVERYWHERE))
    if len(found) != 1:
        fail("Name exactly one of --domain, --account, --message, --site and --all.")
    return found[0]


def _numbers(option: str, text: str, kind: Callable[[str], N]) -> list[N]:
    try:
        return [kind(one) for one in text.split(",")]
    except ValueError:
        fail(f"{option} takes numbers joined by commas, such as 60,300,900.")


def on_everything(target: tuple[Any, str]) -> bool:
    """Whether a lever is pulled on all there is."""
    return target[1] == "*"


@click.group(invoke_without_command=True)
@click.option("--by", type=click.Choice(["domain", "site", "account", "shard"]), default="domain", show_default=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@as_json
@click.pass_context
@reported
def queue(context: click.Context, *, by: str, limit: int, as_json: bool) -> None:
    """What waits for delivery: depth, age, what is held; `suspend`, `resume`, `flush` and `bounce` move it."""
    if context.invoked_subcommand is not None:
        return
    from ops import queue as levers  # noqa: PLC0415

    settings = attached()
    found = operate.with_pool(settings, lambda pool: levers.depths(pool, settings, by=by, limit=limit))
    if as_json:
        show(found, as_json=True)
        return
    if found["waiting"]:
        table(found["waiting"], list(found["waiting"][0]))
        if beyond := found["rows"] - sum(one["rows"] for one in found["waiting"]):
            click.echo(f"and {beyond} more deliveries: --limit shows more lines.")
    else:
        click.echo("Nothing waits.")
    if found["holds"]:
        click.echo("\nHeld by the operator:")
        table(found["holds"], list(found["holds"][0]))


@queue.command("suspend")
@_lever
@click.option("--reason", required=True, help="In a few words; it stands on the waybill of every message held.")
@click.option("--for", "minutes", type=click.FloatRange(0.1, 525_600), help="Minutes; default: until it is resumed.")
@as_json
@reported
def queue_suspend(*, reason: str, minutes: float | None, as_json: bool, **on: Any) -> None:
    """Hold deliveries back, within a second and across restarts; mail is still accepted."""
    from ops import queue as levers  # noqa: PLC0415

    settings, target = attached(), _target(on)
    seconds = None if minutes is None else minutes * 60
    done = operate.with_pool(
        settings, lambda pool: levers.suspend(pool, settings, target, reason=reason, for_s=seconds)
    )
    show(done, as_json=as_json)


@queue.command("resume")
@_lever
@click.option("--note", help="Stands on the waybills.")
@as_json
@reported
def queue_resume(*, note: str | None, as_json: bool, **on: Any) -> None:
    """Let go what was suspended; it comes back spread over time."""
    from ops import queue as levers  # noqa: PLC0415

    settings, target = attached(), _target(on)
    show(operate.with_pool(settings, lambda pool: levers.resume(pool, settings, target, note=note)), as_json=as_json)


@queue.command("flush")
@_lever
@click.option("--note", help="Stands on the waybills.")
@as_json
@reported
def queue_flush(*, note: str | None, as_json: bool, **on: Any) -> None:
    """Try again now what waits for its next try."""
    from ops import queue as levers  # noqa: PLC0415

    settings, target = attached(), _target(on)
    show(operate.with_pool(settings, lambda pool: levers.flush(pool, settings, target, note=note)), as_json=as_json)


@queue.command("bounce")
@_lever
@click.option("--reason", required=True, help="In a few words; it stands on the waybill of every message given up.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@as_json
@reported
def queue_bounce(*, reason: str, yes: bool, as_json: bool, **on: Any) -> None:
    """Give up what waits: it ends as failed, nobody is suppressed. There is no way back."""
    from ops import queue as levers  # noqa: PLC0415

    target = _target(on)
    if not yes:
        whose = "" if on_everything(target) else f" for the {target[0].value} {target[1]}"
        click.confirm(f"Give up everything that waits{whose}?", abort=True, err=True)
    settings = attached()
    done = operate.with_pool(settings, lambda pool: levers.bounce(pool, settings, target, reason=reason))
    show(done, as_json=as_json)


@click.group()
def site() -> None:
    """How much mail servers are asked to take: rules as live data, and what the servers say to it."""


@site.command("show")
@click.argument("name")
@as_json
@reported
def site_show(*, name: str, as_json: bool) -> None:
    """Window, rules and their reasons, recent answers and the next probe of a domain's or host's servers."""
    from ops import sites  # noqa: PLC0415

    settings = attached()
    found = operate.with_pool(settings, lambda pool: sites.show(pool, settings, name))
    if as_json:
        show(found, as_json=True)
        return
    show({field: found[field] for field in ("site", "window", "hosts", "rules")}, as_json=False)
    if not found["processes"]:
        click.echo("\nNothing was delivered there within the hour.")
    for state in found["processes"]:
        click.echo(f"\n{state['process']}, {state['at']}: {state['phase']}, {state['waiting']} waiting")
        if state.get("source"):
            click.echo(f"  source {state['source']}")
        if refused := state.get("refused"):
            click.echo(f"  refused until {refused['until']}: {refused['said']}")
        click.echo(f"  window {state['window']:g}, share of all processes {state['share']}, {state['open']} open")
        if state.get("opening") or state.get("asking"):
            click.echo(f"  {state['opening']} being opened, {state['asking']} waiting for a connection slot")
        if state["nextProbe"]:
            click.echo(f"  next probe {state['nextProbe']}")
        if moved := state["movedBy"]:
            click.echo(f"  moved by   {moved['at']} {moved['said']}: {moved['effect']}")
        for answer in state["recent"]:
            click.echo(f"  {answer['at']}  {answer['said']}: {answer['effect']}")


@site.command("set")
@click.argument("name")
@click.option("--connections", type=click.IntRange(min=1), help="At once, over all processes.")
@click.option("--messages-per-connection", type=click.IntRange(min=1))
@click.option("--per-second", type=float, help="Messages begun, over all processes.")
@click.option("--per-minute", type=float)
@click.option("--per-hour", type=float)
@click.option("--recipients", type=click.IntRange(min=1), help="Of one transaction.")
@click.option("--family", type=click.Choice(["ipv4", "ipv6", "ipv4-only", "ipv6-only"]), help="Tried first, or alone.")
@click.option("--ladder", "ladder_s", help="Seconds between tries, such as 60,300,900; the last repeats.")
@click.option("--back-off", multiple=True, help="Words of an answer that mean: slow down.")
@click.option("--together/--apart", default=None, help="Whether all servers under the name share one window.")
@click.option("--unset", multiple=True, help="Take a field back, such as per_second.")
@click.option("--why", help="Shown beside the rule.")
@as_json
@reported
def site_set(
    *, name: str, ladder_s: str | None, unset: tuple[str, ...], why: str | None, as_json: bool, **given: Any
) -> None:
    """Change what holds for a mail host, all below a name, a domain's servers, or `*`; in force within a second."""
    from engine.delivery.sites import FIELDS  # noqa: PLC0415
    from ops import sites  # noqa: PLC0415

    fields = {field: value for field, value in given.items() if value is not None and value != ()}
    if ladder_s is not None:
        fields["ladder_s"] = _numbers("--ladder", ladder_s, float)
    wrong = [field for field in unset if field not in FIELDS]
    if wrong:
        fail(f"{wrong[0]} is no field of a rule; they are: {', '.join(FIELDS)}")
    fields |= dict.fromkeys(unset)
    if not fields and why is None:
        fail("Nothing to set: give at least one option.")
    settings = attached()
    show(operate.with_pool(settings, lambda pool: sites.change(pool, settings, name, fields, why)), as_json=as_json)


@site.command("list")
@as_json
@reported
def site_list(*, as_json: bool) -> None:
    """All rules, and the sites that something happened to within the hour."""
    from ops import sites  # noqa: PLC0415

    show(operate.with_pool(attached(), sites.listing), as_json=as_json)


@site.command("reset")
@click.argument("name")
@as_json
@reported
def site_reset(*, name: str, as_json: bool) -> None:
    """Forget your rule for a name."""
    from ops import sites  # noqa: PLC0415

    settings = attached()
    show(operate.with_pool(settings, lambda pool: sites.reset(pool, settings, name)), as_json=as_json)


@click.group()
def source() -> None:
    """The addresses that mail leaves from (WAYBILL_SOURCE_IPS): pools by stream, warm-up, refusals."""


@source.command("list")
@as_json
@reported
def source_list(*, as_json: bool) -> None:
    """All sources, pools, and which mail leaves from which pool."""
    from ops import sources  # noqa: PLC0415

    settings = attached()
    found = operate.with_pool(settings, lambda pool: sources.listing(pool, settings))
    if not as_json and not found["sources"]:
        click.echo("No source is configured: the system chooses an address for each connection.")
        return
    show(found if as_json else {name: value for name, value in found.items() if value}, as_json=as_json)


@source.command("show")
@click.argument("ip")
@as_json
@reported
def source_show(*, ip: str, as_json: bool) -> None:
    """One source: its warm-up, what it sent today against its allowance (UTC), and where it is refused."""
    from ops import sources  # noqa: PLC0415

    settings = attached()
    found = operate.with_pool(settings, lambda pool: sources.show(pool, settings, ip))
    show(
        found if as_json else {name: value for name, value in found.items() if value not in (None, [])}, as_json=as_json
    )


@source.group("pool")
def source_pool() -> None:
    """Addresses that are used alike."""


@source_pool.command("set")
@click.argument("name")
@click.option("--ips", required=True, help="Such as 192.0.2.1,192.0.2.2*3: the second takes three times as much.")
@as_json
@reported
def source_pool_set(*, name: str, ips: str, as_json: bool) -> None:
    """Make a pool, or give it other addresses; in force within a second."""
    from ops import sources  # noqa: PLC0415

    settings = attached()
    show(operate.with_pool(settings, lambda pool: sources.set_pool(pool, settings, name, ips)), as_json=as_json)


@source_pool.command("remove")
@click.argument("name")
@as_json
@reported
def source_pool_remove(*, name: str, as_json: bool) -> None:
    """Forget a pool that nothing is assigned to."""
    from ops import sources  # noqa: PLC0415

    show(operate.with_pool(attached(), lambda pool: sources.remove_pool(pool, name)), as_json=as_json)


@source.command("assign")
@click.option("--stream", required=True, help="A stream's id, broadcast, verification, or * for all mail.")
@click.option("--pool", "name", required=True)
@click.option("--account", help="acc_…; default: everybody's.")
@as_json
@reported
def source_assign(*, stream: str, name: str, account: str | None, as_json: bool) -> None:
    """Let mail of a stream leave from a pool; an account's own word goes before everybody's."""
    from ops import sources  # noqa: PLC0415

    done = operate.with_pool(attached(), lambda pool: sources.assign(pool, stream=stream, name=name, account=account))
    show(done, as_json=as_json)


@source.command("unassign")
@click.option("--stream", required=True)
@click.option("--account", help="acc_…; default: everybody's.")
@as_json
@reported
def source_unassign(*, stream: str, account: str | None, as_json: bool) -> None:
    """Let mail of a stream leave from any address again."""
    from ops import sources  # noqa: PLC0415

    done = operate.with_pool(attached(), lambda pool: sources.unassign(pool, stream=stream, account=account))
    show(done, as_json=as_json)


@source.command("warmup")
@click.argument("ip")
@click.option("--start", type=click.DateTime(["%Y-%m-%d"]), help="The UTC day of its first mail.")
@click.option("--plan", help="Messages a day to each provider, such as 50,100,500; default: the shipped ladder.")
@click.option("--off", is_flag=True, help="It is warm.")
@as_json
@reported
def source_warmup(*, ip: str, start: datetime | None, plan: str | None, off: bool, as_json: bool) -> None:
    """Introduce a new address to the providers day by day; what finds no room waits until midnight UTC."""
    from ops import sources  # noqa: PLC0415

    if off == (start is not None) or (off and plan):
        fail("Give either --start DATE, with or without --plan, or --off.")
    settings = attached()
    if start is None:
        show(operate.with_pool(settings, lambda pool: sources.end_warm_up(pool, ip)), as_json=as_json)
        return
    steps = None if plan is None else _numbers("--plan", plan, int)
    day = start.date()
    show(operate.with_pool(settings, lambda pool: sources.warm_up(pool, ip, day, steps)), as_json=as_json)


@source.command("trust")
@click.argument("ip")
@click.option("--site", help="As `ops source show` names it; default: all.")
@as_json
@reported
def source_trust(*, ip: str, site: str | None, as_json: bool) -> None:
    """Use an address again where it is spared since servers refused it; such as once it is off a blocklist."""
    from ops import sources  # noqa: PLC0415

    show(operate.with_pool(attached(), lambda pool: sources.trust(pool, ip, site)), as_json=as_json)


@click.command()
@click.argument("message")
@as_json
@reported
def explain(*, message: str, as_json: bool) -> None:
    """One message's fate in plain words: what happened, whose side it is on, what to do."""
    from ops.explain import explain as told  # noqa: PLC0415

    found = operate.with_pool(attached(), lambda pool: told(pool, message))
    if as_json:
        show(found, as_json=True)
    else:
        click.echo(found["explanation"])


@click.command()
@click.option("--domain", "name", required=True, help="A recipients' domain.")
@click.option("--seconds", type=float, help="Stop after so long; default: an hour, or Ctrl-C.")
@as_json
@reported
def trace(*, name: str, seconds: float | None, as_json: bool) -> None:
    """The SMTP conversations with a domain's servers as they happen, without the messages' content."""
    from ops.trace import follow, lines  # noqa: PLC0415

    settings = attached()
    ends = None if seconds is None else time.monotonic() + seconds
    for one in follow(settings, domain=name, ends=ends):
        for line in [json.dumps(one, ensure_ascii=False)] if as_json else lines(one):
            click.echo(line)
        sys.stdout.flush()
