"""`ops loadtest peers`: compare with other mail servers in pairs of runs, with the same messages and sink.

Rates and CPU vary with other load on the machine, so only the ratio within a pair is quoted, and CPU in signatures
measured in the same minute. Waybill's side is the counted run of `ops bench`, from the HTTP request to the settled row;
the peer's side runs from the first message to the last arrival, over plain SMTP on open sessions, without TLS or login.
"""

import asyncio
import json
import os
import statistics
import subprocess
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from engine.base import settings
from loadtests.bench import figures
from loadtests.bench.report import Progress
from loadtests.bench.run import BenchRun
from loadtests.bench.run_control import FAILURES, INTERRUPTED, BenchFailed, interruptible, machine_lock
from loadtests.bench.send import SendBench
from loadtests.bench.yardstick import Yardstick
from loadtests.peers.catalogue import PEERS
from loadtests.peers.measurement import CONNECTIONS, DOMAINS, WARM_UP, measure_peer
from loadtests.peers.peer import Peer, PeerNotReady

MESSAGES: Final = 4_000
_FIGURES: Final = ("delivered_per_s", "server_cpu_ms_per_message", "signature_ms", "cost_in_signatures")
FAILED: Final = (*FAILURES, PeerNotReady, TimeoutError, subprocess.SubprocessError)


def run(*, runs: int, only: tuple[str, ...] = (), messages: int | None = None, as_json: bool = False) -> int:
    """Compare with every chosen peer that is installed and print the result.

    Return the exit status: 0 when at least one peer was compared, 1 otherwise, 130 after a signal.
    """
    progress = Progress()
    unknown = [name for name in only if name not in PEERS]
    if unknown:
        progress.fail(f"There is no peer named {unknown[0]}; there are: {', '.join(PEERS)}.")
        return 1
    chosen = [peer for name, peer in PEERS.items() if not only or name in only]
    missing = {peer.name: words for peer in chosen if (words := peer.missing()) is not None}
    for name, words in missing.items():
        progress.say(f"{name} is skipped. It needs {words}.")
    present = [peer for peer in chosen if peer.name not in missing]
    try:
        with machine_lock(progress.say):
            found = asyncio.run(interruptible(_compared(present, runs, messages or MESSAGES, progress)))
    except FAILED as error:
        progress.fail(str(error) or type(error).__name__)
        return 1
    except (asyncio.CancelledError, KeyboardInterrupt):
        progress.fail("Interrupted: nothing was compared.")
        return INTERRUPTED
    found["missing"] = missing
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _show(found)
    return 0 if present else 1


async def _compared(peers: list[Peer], runs: int, messages: int, progress: Progress) -> dict[str, Any]:
    """Measure this service and each peer in turn, `runs` times, and return the pairs with their medians."""
    yardstick = Yardstick()
    pairs: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in peers}
    for number in range(1, runs + 1):
        for peer in peers:
            progress.say(f"Pair {number} of {runs}: us and {peer.name}")
            ours = await _ours(messages, yardstick, progress)
            theirs = await measure_peer(peer, messages, yardstick)
            pairs[peer.name].append({"ours": ours, "theirs": theirs})
    return {
        "messages": messages,
        "domains": DOMAINS,
        "connections": CONNECTIONS,
        "runs": runs,
        "peers": {peer.name: {"about": peer.about} | summarize(pairs[peer.name]) for peer in peers},
    }


def summarize(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of each side and of the ratios within the pairs: rate over rate, their CPU over ours."""
    return {
        "ours": figures.medians([one["ours"] for one in pairs]),
        "theirs": figures.medians([one["theirs"] for one in pairs]),
        "times_the_rate": _ratio(pairs, "delivered_per_s", ours_first=True),
        "times_less_cpu": _ratio(pairs, "server_cpu_ms_per_message", ours_first=False),
        "times_less_in_signatures": _ratio(pairs, "cost_in_signatures", ours_first=False),
        "pairs": pairs,
    }


def _ratio(pairs: list[dict[str, Any]], name: str, *, ours_first: bool) -> float:
    ratios = [one["ours"][name] / one["theirs"][name] for one in pairs]
    middle: float = statistics.median(ratios if ours_first else [1 / ratio for ratio in ratios])
    return round(middle, 2)


async def _ours(messages: int, yardstick: Yardstick, progress: Progress) -> dict[str, Any]:
    """Measure this service as `ops bench` does; raises BenchFailed when its check fails."""
    bench = SendBench(messages=messages, warm_up=WARM_UP, connections=CONNECTIONS, paced=False, rsa=True)
    given = settings.load(os.environ).settings
    found = await bench.measure_once(BenchRun(given, lambda _: None), yardstick)
    if not found["checked"]:
        raise BenchFailed(f"Waybill's own run failed its check: {found['checks']}")
    progress.say(f"  us: {found['delivered_per_s']:,.0f} a second, {found['cost_in_signatures']:.1f} signatures")
    return {name: found[name] for name in _FIGURES}


def _show(found: dict[str, Any]) -> None:
    console = Console(highlight=False, emoji=False, width=140)
    table = Table(box=None, pad_edge=False)
    table.add_column(f"{found['messages']:,} messages, medians of {found['runs']}", no_wrap=True)
    for title in ("a second", "us", "ratio", "CPU ms", "us", "ratio", "signatures", "us", "ratio"):
        table.add_column(title, justify="right", no_wrap=True)
    for one in found["peers"].values():
        theirs, ours = one["theirs"], one["ours"]
        table.add_row(
            one["about"],
            f"{theirs['delivered_per_s']:,.0f}", f"{ours['delivered_per_s']:,.0f}", f"{one['times_the_rate']:.1f} ×",
            f"{theirs['server_cpu_ms_per_message']:.2f}", f"{ours['server_cpu_ms_per_message']:.2f}",
            f"{one['times_less_cpu']:.1f} ×",
            f"{theirs['cost_in_signatures']:.1f}", f"{ours['cost_in_signatures']:.1f}",
            f"{one['times_less_in_signatures']:.1f} ×",
        )  # fmt: skip
    console.print(table)
    for name, words in found["missing"].items():
        console.print(f"{name} was skipped: it needs {words}.", markup=False)
