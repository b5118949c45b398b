"""The command `ops bench`."""

from typing import Any

import click

from ops.commands.base import as_json


@click.command()
@click.option(
    "--scenario", type=click.Choice(["a", "b", "c"]), default="a", help="Recipient domains: a 10, b 1, c 1,000."
)
@click.option("--messages", default=20_000, show_default=True, help="Counted messages.")
@click.option("--domains", type=click.IntRange(1, 100_000), help="Number of recipient domains, instead of --scenario.")
@click.option("--warm-up", default=1_000, show_default=True, help="Messages before counting begins.")
@click.option("--connections", default=64, show_default=True, help="Number of sending connections.")
@click.option("--runs", default=1, show_default=True, help="Number of runs; the result is their median.")
@click.option("--drain", type=int, help="Queue this many messages first, then measure their delivery.")
@click.option("--profile", is_flag=True, help="Record flame graphs (needs py-spy).")
@click.option("--tls", is_flag=True, help="Deliver over STARTTLS; default: in clear text, as the peers.")
@click.option("--rsa", is_flag=True, help="Sign with RSA-2048 only, as the peers; default: also Ed25519.")
@click.option("--webhooks", is_flag=True, help="Measure webhook posts instead.")
@click.option(
    "--hanging", default=500, show_default=True, help="With --webhooks: number of endpoints that never answer."
)
@click.option("--tails", type=click.IntRange(1, 5_000), help="Measure this many open live tails instead.")
@click.option("--people", is_flag=True, help="Measure requests with sessions, and sign-ins, instead.")
@click.option("--readers", is_flag=True, help="Measure the CPU cost of the worst input of each parser instead.")
@click.option("--only", help="With --readers: only cases that contain this text.")
@click.option("--relay", is_flag=True, help="Compare acceptance over SMTP and HTTP instead.")
@click.option("--mx", is_flag=True, help="Measure receiving mail instead; --tls and --each 1: a TLS session a message.")
@click.option("--posts", is_flag=True, help="With --mx: post each message to a webhook endpoint and measure that, too.")
@click.option("--idle", type=click.IntRange(0, 10_000), default=0, help="With --mx: sessions that stay open and idle.")
@click.option(
    "--mailbox",
    type=click.IntRange(1_000, 20_000_000),
    help="Measure pages and counts of a mailbox of this size instead.",
)
@click.option(
    "--alerts", type=click.IntRange(5, 100_000), help="Measure the CPU of measuring this many alert rules instead."
)
@click.option("--codes", is_flag=True, help="Measure one-time codes and address checks instead.")
@click.option(
    "--billing", is_flag=True, help="Measure payment events, in 200 orders too, invoices and billing histories instead."
)
@click.option(
    "--console",
    type=click.IntRange(1_000, 1_000_000),
    help="Measure the web console in Chromium, with this many messages in its list, instead.",
)
@click.option(
    "--console-people",
    type=click.IntRange(1, 5_000),
    help="Measure accepting mail while this many people have the console open, instead.",
)
@click.option(
    "--contacts",
    type=click.IntRange(10_000, 2_000_000),
    help="Measure imports, pages and searches with this many contacts, and with a tenth, instead.",
)
@click.option(
    "--broadcast",
    type=click.IntRange(100, 1_000_000),
    help="Measure a broadcast to this many contacts, and single messages meanwhile, instead.",
)
@click.option(
    "--past",
    type=click.IntRange(0, 100),
    default=0,
    help="With --broadcast, --unsubscribe and --codes: ended broadcasts to store before, and how many times as many"
    " other contacts.",
)
@click.option(
    "--reports", type=click.FloatRange(1, 5_000), help="Measure sends while this many late bounces a second come in."
)
@click.option(
    "--unsubscribe", type=click.FloatRange(1, 5_000), help="Measure this many posts a second to unsubscribe links."
)
@click.option("--lock-step", is_flag=True, help="With --relay: wait for each reply instead of pipelining.")
@click.option(
    "--each", type=click.IntRange(min=0), default=0, help="With --relay and --mx: messages per session; 0: no limit."
)
@click.option("--batch", type=click.IntRange(1, 100), default=1, show_default=True, help="Messages per request.")
@click.option(
    "--delivery-only", is_flag=True, help="The same as --drain with all --messages, queued in batches of 100."
)
@click.option(
    "--stored", type=click.IntRange(0, 20_000_000), default=0, help="Messages of other accounts to store before."
)
@click.option(
    "--rate",
    type=click.FloatRange(1),
    help="Rate of the latency run (default: half of the measured rate); with --drain: rate of queueing.",
)
@click.option("--no-paced", "paced", is_flag=True, default=True, flag_value=False, help="Skip the latency run.")
@as_json
def bench(  # noqa: C901, PLR0912 - one branch for each mode
    *,
    webhooks: bool,
    hanging: int,
    tails: int | None,
    people: bool,
    readers: bool,
    only: str | None,
    relay: bool,
    mx: bool,
    posts: bool,
    mailbox: int | None,
    console: int | None,
    console_people: int | None,
    contacts: int | None,
    broadcast: int | None,
    past: int,
    alerts: int | None,
    codes: bool,
    billing: bool,
    reports: float | None,
    unsubscribe: float | None,
    idle: int,
    lock_step: bool,
    each: int,
    delivery_only: bool,
    **options: Any,
) -> None:
    """Start a separate service and measure message rate, CPU per message and latencies."""
    from loadtests.bench import (  # noqa: PLC0415
        run,
        run_alerts,
        run_billing,
        run_broadcast,
        run_codes,
        run_console,
        run_console_people,
        run_contacts,
        run_mailbox,
        run_mx,
        run_people,
        run_readers,
        run_relay,
        run_reports,
        run_tails,
        run_unsubscribe,
        run_webhooks,
    )

    if alerts is not None:
        raise click.exceptions.Exit(run_alerts(rules=alerts, as_json=options["as_json"]))
    if tails is not None:
        raise click.exceptions.Exit(run_tails(tails=tails, as_json=options["as_json"]))
    if codes:
        starts = options["messages"] // 40
        raise click.exceptions.Exit(run_codes(starts=starts, rounds=100, past=past, as_json=options["as_json"]))
    if billing:
        raise click.exceptions.Exit(run_billing(events=options["messages"] // 40, as_json=options["as_json"]))
    if mailbox is not None:
        raise click.exceptions.Exit(run_mailbox(messages=mailbox, as_json=options["as_json"]))
    if console is not None:
        raise click.exceptions.Exit(run_console(rows=console, as_json=options["as_json"]))
    if console_people is not None:
        raise click.exceptions.Exit(run_console_people(people=console_people, as_json=options["as_json"]))
    if contacts is not None:
        raise click.exceptions.Exit(run_contacts(contacts=contacts, as_json=options["as_json"]))
    if broadcast is not None:
        raise click.exceptions.Exit(run_broadcast(contacts=broadcast, past=past, as_json=options["as_json"]))
    if reports is not None:
        raise click.exceptions.Exit(run_reports(rate=reports, runs=options["runs"], as_json=options["as_json"]))
    if unsubscribe is not None:
        raise click.exceptions.Exit(run_unsubscribe(rate=unsubscribe, past=past, as_json=options["as_json"]))
    if people:
        raise click.exceptions.Exit(run_people(requests=options["messages"] // 10, as_json=options["as_json"]))
    if readers:
        raise click.exceptions.Exit(run_readers(as_json=options["as_json"], only=only))
    if relay:
        chosen = {name: options[name] for name in ("messages", "connections", "runs", "profile", "as_json")}
        raise click.exceptions.Exit(run_relay(**chosen, pipelined=not lock_step, each=each))
    if mx:
        chosen = {name: options[name] for name in ("messages", "connections", "runs", "profile", "as_json", "tls")}
        raise click.exceptions.Exit(run_mx(**chosen, each=each, idle=idle, posts=posts))
    if webhooks:
        chosen = {name: options[name] for name in ("profile", "as_json")}
        raise click.exceptions.Exit(run_webhooks(deliveries=options["messages"], hanging=hanging, **chosen))
    if delivery_only:
        options |= {"drain": options["drain"] or options["messages"], "batch": 100}
    raise click.exceptions.Exit(run(**options))
