"""`ops loadtest peers` and `peers-receiving`: compare with other mail servers in pairs of runs, with the same messages.

Rates and CPU vary with other load on the machine, so only the ratio within a pair is quoted, and CPU in signatures
measured in the same minute. Sending: Waybill's side is the counted run of `ops bench`, from the HTTP request to the
settled row; the peer's side runs from the first message to the last arrival, over plain SMTP on open sessions, without
TLS or login. Receiving: `loadtests.peers.receiving`.
"""

import json
import os
import statistics
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Struct

from engine.base import settings
from loadtests.bench import figures, report
from loadtests.bench.report import Progress, Row
from loadtests.bench.run import BenchRun
from loadtests.bench.run_control import BenchFailed, measured
from loadtests.bench.send import SendBench
from loadtests.bench.yardstick import Yardstick
from loadtests.peers.exim import EXIM
from loadtests.peers.haraka import HARAKA, RECEIVING_HARAKA
from loadtests.peers.measurement import CONNECTIONS, DOMAINS, WARM_UP, measure_peer
from loadtests.peers.opensmtpd import OPENSMTPD
from loadtests.peers.peer import Peer, PeerNotReady
from loadtests.peers.postfix import POSTFIX_UNSIGNED, POSTFIX_WITH_OPENDKIM, POSTFIX_WITH_RSPAMD, RECEIVING_POSTFIX
from loadtests.peers.receiving import measure_own_receiving, measure_receiver

_FIGURES: Final = ("delivered_per_s", "server_cpu_ms_per_message", "signature_ms", "cost_in_signatures")
_FAILED: Final = (PeerNotReady, TimeoutError, subprocess.SubprocessError)


async def _measure_own_sending(messages: int, run: BenchRun, yardstick: Yardstick) -> dict[str, Any]:
    bench = SendBench(messages=messages, warm_up=WARM_UP, connections=CONNECTIONS, paced=False, rsa=True)
    return await bench.measure_once(run, yardstick)


class Comparison(Struct, frozen=True):
    """A measurement of this service and of its peers, and its default number of messages."""

    peers: tuple[Peer, ...]
    messages: int
    ours: Callable[[int, BenchRun, Yardstick], Awaitable[dict[str, Any]]]
    theirs: Callable[[Peer, int, Yardstick], Awaitable[dict[str, Any]]]


COMPARISONS: Final = {
    "peers": Comparison(
        (POSTFIX_WITH_OPENDKIM, POSTFIX_WITH_RSPAMD, POSTFIX_UNSIGNED, HARAKA, OPENSMTPD, EXIM), 4_000,
        _measure_own_sending, measure_peer,
    ),
    "peers-receiving": Comparison(
        (RECEIVING_POSTFIX, RECEIVING_HARAKA), 3_000, measure_own_receiving, measure_receiver,
    ),
}  # fmt: skip


def run(name: str, *, runs: int, only: tuple[str, ...] = (), messages: int | None = None, as_json: bool = False) -> int:
    """Compare with every chosen peer that is installed and print the result.

    Return the exit status: 0 when at least one peer was compared, 1 otherwise.
    """
    progress, comparison = Progress(), COMPARISONS[name]
    names = [peer.name for peer in comparison.peers]
    unknown = [one for one in only if one not in names]
    if unknown:
        progress.fail(f"There is no peer named {unknown[0]}; there are: {', '.join(names)}.")
        return 1
    chosen = [peer for peer in comparison.peers if not only or peer.name in only]
    missing = {peer.name: words for peer in chosen if (words := peer.missing()) is not None}
    for one, words in missing.items():
        progress.say(f"{one} is skipped. It needs {words}.")
    present = [peer for peer in chosen if peer.name not in missing]
    work = _compared(comparison, present, runs, messages or comparison.messages, progress)
    found = measured(work, progress, *_FAILED)
    found["missing"] = missing
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        report.show(_rows(found))
    return 0 if present else 1


async def _compared(
    comparison: Comparison, peers: list[Peer], runs: int, messages: int, progress: Progress
) -> dict[str, Any]:
    """Measure this service and each peer in turn, `runs` times, and return the pairs with their medians."""
    yardstick, given = Yardstick(), settings.load(os.environ).settings
    pairs: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in peers}
    for number in range(1, runs + 1):
        for peer in peers:
            progress.say(f"Pair {number} of {runs}: us and {peer.name}")
            ours = await comparison.ours(messages, BenchRun(given, lambda _: None), yardstick)
            if not ours["checked"]:
                raise BenchFailed(f"Waybill's own run failed its check: {ours['checks']}")
            progress.say(f"  us: {ours['delivered_per_s']:,.0f} a second, {ours['cost_in_signatures']:.1f} signatures")
            theirs = await comparison.theirs(peer, messages, yardstick)
            pairs[peer.name].append({"ours": {name: ours[name] for name in _FIGURES}, "theirs": theirs})
    return {
        "messages": messages, "domains": DOMAINS, "connections": CONNECTIONS, "runs": runs,
        "peers": {peer.name: {"about": peer.about} | summarize(pairs[peer.name]) for peer in peers},
    }  # fmt: skip


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


def _rows(found: dict[str, Any]) -> list[Row]:
    """Return a table with a row for each peer: its figure, ours and their ratio, three times."""
    columns = (("a second", "delivered_per_s", "times_the_rate", ",.0f"),
               ("CPU ms", "server_cpu_ms_per_message", "times_less_cpu", ".2f"),
               ("signatures", "cost_in_signatures", "times_less_in_signatures", ".1f"))  # fmt: skip
    titles = [title for name, *_ in columns for title in (name, "us", "ratio")]
    rows: list[Row] = [(f"{found['messages']:,} messages, medians of {found['runs']}", *titles)]
    for one in found["peers"].values():
        cells = [(one["theirs"][name], one["ours"][name], one[ratio], form) for _, name, ratio, form in columns]
        figured = [(f"{theirs:{form}}", f"{ours:{form}}", f"{ratio:.1f} ×") for theirs, ours, ratio, form in cells]
        rows.append((one["about"], *(cell for three in figured for cell in three)))
    return [*rows, *((f"{name} was skipped: it needs {words}.",) for name, words in found["missing"].items())]
