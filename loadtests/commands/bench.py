"""The command `ops bench`."""

from typing import Any

import click

from ops.commands.base import as_json


@click.command()
@click.option("--scenario", type=click.Choice(["a", "b", "c"]), default="a", help="10, 1 or 1,000 domains.")
@click.option("--messages", default=20_000, show_default=True, help="Counted messages.")
@click.option("--domains", type=click.IntRange(1, 100_000), help="So many domains instead of the scenario's.")
@click.option("--warm-up", default=1_000, show_default=True, help="Messages before counting begins.")
@click.option("--connections", default=64, show_default=True, help="HTTP connections that send.")
@click.option("--runs", default=1, show_default=True, help="Runs to take the median of.")
@click.option("--drain", type=int, help="Queue this many first, then deliver.")
@click.option("--profile", is_flag=True, help="Flame graphs beside the report (needs py-spy).")
@click.option("--tls", is_flag=True, help="Deliver over STARTTLS; default: in clear, as the peers were measured.")
@click.option("--rsa", is_flag=True, help="Sign with RSA-2048 alone, as the peers do; default: with Ed25519 beside it.")
@click.option("--webhooks", is_flag=True, help="Measure posting to webhook endpoints instead.")
@click.option("--hanging", default=500, show_default=True, help="With --webhooks: endpoints that never answer.")
@click.option("--tails", type=click.IntRange(1, 5_000), help="Measure so many open live tails instead.")
@click.option("--people", is_flag=True, help="Measure requests of signed-in people and signing in instead.")
@click.option(
    "--readers", is_flag=True, help="Measure what the worst input costs each reader of outside octets instead."
)
@click.option("--only", help="With --readers: cases that hold this text.")
@click.option("--relay", is_flag=True, help="Measure accepting over SMTP beside accepting over HTTP instead.")
@click.option("--lock-step", is_flag=True, help="With --relay: a client that waits for each reply.")
@click.option("--each", type=click.IntRange(min=0), default=0, help="With --relay: messages a session; 0: all.")
@click.option("--batch", type=click.IntRange(1, 100), default=1, show_default=True, help="Messages a request.")
@click.option("--delivery-only", is_flag=True, help="Queue all messages first, in batches of 100; then deliver.")
@click.option("--stored", type=click.IntRange(0, 20_000_000), default=0, help="Messages of others stored before.")
@click.option(
    "--rate",
    type=click.FloatRange(1),
    help="Latencies at so many a second, by default half of the measured; with --drain: queue at that rate.",
)
@click.option("--no-paced", "paced", is_flag=True, default=True, flag_value=False, help="Skip the latency run.")
@as_json
def bench(
    *,
    webhooks: bool,
    hanging: int,
    tails: int | None,
    people: bool,
    readers: bool,
    only: str | None,
    relay: bool,
    lock_step: bool,
    each: int,
    delivery_only: bool,
    **options: Any,
) -> None:
    """Start a separate service and measure message rate, CPU per message and latencies."""
    from loadtests.bench import run, run_people, run_readers, run_relay, run_tails, run_webhooks  # noqa: PLC0415

    if tails is not None:
        raise click.exceptions.Exit(run_tails(tails=tails, as_json=options["as_json"]))
    if people:
        raise click.exceptions.Exit(run_people(requests=options["messages"] // 10, as_json=options["as_json"]))
    if readers:
        raise click.exceptions.Exit(run_readers(as_json=options["as_json"], only=only))
    if relay:
        chosen = {name: options[name] for name in ("messages", "connections", "runs", "profile", "as_json")}
        raise click.exceptions.Exit(run_relay(**chosen, pipelined=not lock_step, each=each))
    if webhooks:
        chosen = {name: options[name] for name in ("profile", "as_json")}
        raise click.exceptions.Exit(run_webhooks(deliveries=options["messages"], hanging=hanging, **chosen))
    if delivery_only:
        options |= {"drain": options["drain"] or options["messages"], "batch": 100}
    raise click.exceptions.Exit(run(**options))
