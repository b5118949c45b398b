"""The command `ops bench`."""

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar, get_args

import click

from loadtests.bench import catalogue, command
from loadtests.bench.load import Door
from ops.commands.base import as_json

Command = TypeVar("Command", bound=Callable[..., Any])
# Options that select a bench by its name, and the option of the bench that takes the value.
_SIZE: Final = re.compile(r"([1-9][0-9]{0,8})(KB|MB)?")
_UNITS: Final = {None: 1, "KB": 1_000, "MB": 1_000_000}
_SELECTING: Final = {"tails": "tails", "broadcast": "contacts", "console": "rows"}


def _size(text: str) -> int:
    """Return a size in octets, which may be written in KB or MB."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a size. Give a number of bytes, such as 5000, 100KB or 1MB.")
    return int(found[1]) * _UNITS[found[2]]


def _flag(name: str, text: str) -> Callable[[Command], Command]:
    return click.option(f"--{name}", is_flag=True, default=None, help=text)


@click.command()
@click.argument("name", type=click.Choice([*catalogue.names(), catalogue.LIST]), metavar="NAME|list", required=False,
                help="Bench to run (default: send), or `list` to show all benches.")  # fmt: skip
@click.option("--scenario", type=click.Choice(["a", "b", "c"]), help="Recipient domains: a 10 (default), b 1, c 1,000.")
@click.option("--domains", type=click.IntRange(1, 100_000), help="Number of recipient domains, instead of --scenario.")
@click.option("--messages", type=click.IntRange(1), help="Counted messages or posts; default: 20,000, or less.")
@click.option("--warm-up", type=click.IntRange(0), help="Messages before counting begins; default: a twentieth.")
@click.option(
    "--connections",
    type=click.IntRange(1),
    help="Number of sending connections, default: 64; provider: those to it, default: 20.",
)
@click.option("--runs", type=click.IntRange(1), help="Number of runs; the result is their median.")
@click.option("--drain", type=click.IntRange(1), help="Queue this many messages first, then measure their delivery.")
@_flag("delivery-only", "The same as --drain with all --messages, queued in batches of 100.")
@click.option("--batch", type=click.IntRange(1, 100), help="Messages per request; default: 1.")
@click.option("--size", type=_size, metavar="N[KB|MB]", help="Attach a random file of this size (1 KB: 1,000 bytes).")
@click.option("--door", type=click.Choice(get_args(Door)), help="How messages come in; default: json.")
@click.option("--bystander", type=click.FloatRange(1), help="2 KB messages a second of another account meanwhile.")
@click.option("--stored", type=click.IntRange(0, 20_000_000), help="Messages of other accounts to store before.")
@click.option("--accounts", type=click.IntRange(1, 100_000), help="growth: number of accounts; default: 1,000.")
@click.option(
    "--suppressions",
    type=click.IntRange(1, 1_000_000),
    help="growth: addresses that each of ten accounts suppresses; default: 100,000.",
)
@click.option(
    "--rate",
    type=click.FloatRange(1),
    help="Rate of the latency run (default: half of the measured rate); with --drain: rate of queueing.",
)
@click.option("--no-paced", "paced", is_flag=True, flag_value=False, default=None, help="Skip the latency run.")
@_flag("tls", "Use STARTTLS; default: clear text, as the peers.")
@_flag("rsa", "Sign with RSA-2048 only, as the peers; default: also Ed25519.")
@_flag("profile", "Record flame graphs (needs py-spy).")
@_flag("lock-step", "relay: wait for each reply instead of pipelining.")
@click.option("--each", type=click.IntRange(0), help="relay, mx, provider: messages per session; 0: no limit.")
@click.option("--rtt", type=click.FloatRange(1, 2_000), help="provider: round trip in milliseconds; default: 50.")
@click.option("--idle", type=click.IntRange(0, 10_000), help="mx: sessions that stay open and idle.")
@_flag("posts", "mx: post each message to a webhook endpoint and measure that, too.")
@click.option("--hanging", type=click.IntRange(0), help="webhooks: endpoints that never answer; default: 500.")
@click.option("--tails", type=click.IntRange(1, 5_000), help="tails: number of open tails; default: 1,000.")
@click.option(
    "--contacts", type=click.IntRange(100, 1_000_000), help="broadcast: number of contacts; default: 100,000."
)
@click.option("--rows", type=click.IntRange(1_000, 1_000_000), help="console: messages in its list; default: 4,000.")
@click.option("--relay", "selected", flag_value="relay", hidden=True, help="The same as `relay`.")
@click.option("--mx", "selected", flag_value="mx", hidden=True, help="The same as `mx`.")
@click.option("--webhooks", "selected", flag_value="webhooks", hidden=True, help="The same as `webhooks`.")
@click.option("--broadcast", type=int, hidden=True, help="The same as `broadcast --contacts`.")
@click.option("--console", type=int, hidden=True, help="The same as `console --rows`.")
@as_json
def bench(*, name: str | None, selected: str | None, as_json: bool, **options: Any) -> None:
    """Start a separate service and measure rates, CPU and latencies; `list` shows the benches."""
    given = {option: value for option, value in options.items() if value is not None}
    for chosen, option in _SELECTING.items():
        if chosen in given:
            selected = chosen
            given[option] = given.pop(chosen)
    raise click.exceptions.Exit(command.run(name or selected or catalogue.DEFAULT, given, as_json=as_json))
