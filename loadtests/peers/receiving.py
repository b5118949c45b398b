"""`ops loadtest peers-receiving`: compare receiving with other mail servers in pairs of runs, with the same messages.

The messages are those of `ops bench mx`: 2 KB, signed with DKIM, from domains with SPF and DMARC records, over open
sessions in clear text. Waybill judges them by SPF, DKIM, ARC and DMARC and answers 250 after its commit.
"""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from engine.authentication import dkim_signing as dkim
from engine.base import settings
from loadtests.bench import inbound, measure
from loadtests.bench.inbound import InboundBench
from loadtests.bench.load import SMTP_GENERATOR, LoadOrder, LoadProcess
from loadtests.bench.report import Progress
from loadtests.bench.run import BenchRun
from loadtests.bench.run_control import FAILURES, BenchFailed, machine_lock
from loadtests.bench.smtp_load import SignedMails, SmtpTarget
from loadtests.bench.yardstick import Yardstick
from loadtests.peers.comparison import FAILED, summarize
from loadtests.peers.measurement import peer_folder
from loadtests.peers.peer import Peer, PeerPlace, running
from loadtests.peers.receivers import RECEIVERS
from loadtests.ports import reserve_ports
from ops.local.dns import Responder

MESSAGES: Final = 3_000
CONNECTIONS: Final = 64
WARM_UP: Final = 500
_PATIENCE_S: Final = 180.0
_FIGURES: Final = ("delivered_per_s", "server_cpu_ms_per_message", "signature_ms", "cost_in_signatures")


def run(*, runs: int, only: tuple[str, ...] = (), messages: int | None = None, as_json: bool = False) -> int:
    """Compare with every chosen server that is installed; return exit status 0 when one was compared."""
    progress = Progress()
    chosen = [peer for name, peer in RECEIVERS.items() if not only or name in only]
    for peer in chosen:
        if (words := peer.missing()) is not None:
            progress.say(f"{peer.name} is skipped. It needs {words}.")
    present = [peer for peer in chosen if peer.missing() is None]
    try:
        with machine_lock(progress.say):
            found = asyncio.run(_compared(present, runs, messages or MESSAGES, progress))
    except (*FAILURES, *FAILED) as error:
        progress.fail(str(error) or type(error).__name__)
        return 1
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _show(found)
    return 0 if present else 1


async def _compared(peers: list[Peer], runs: int, messages: int, progress: Progress) -> dict[str, Any]:
    yardstick = Yardstick()
    pairs: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in peers}
    for number in range(1, runs + 1):
        for peer in peers:
            progress.say(f"Pair {number} of {runs}: us and {peer.name}")
            ours = await _ours(messages, progress)
            pairs[peer.name].append({"ours": ours, "theirs": await measure_receiver(peer, messages, yardstick)})
    return {
        "messages": messages, "connections": CONNECTIONS, "runs": runs,
        "peers": {peer.name: {"about": peer.about} | summarize(pairs[peer.name]) for peer in peers},
    }  # fmt: skip


async def _ours(messages: int, progress: Progress) -> dict[str, Any]:
    """Measure this service as `ops bench mx` does; raises BenchFailed when its check fails."""
    bench = InboundBench(messages=messages, connections=CONNECTIONS, paced=False)
    found = (await bench.measure(BenchRun(settings.load(os.environ).settings, progress.say))).figures
    if not found["checked"]:
        raise BenchFailed(f"Waybill's own run failed its check: sent {found['sent']}, {found['stored']}")
    return {"delivered_per_s": found["received_per_s"]} | {name: found[name] for name in _FIGURES[1:]}


async def measure_receiver(peer: Peer, messages: int, yardstick: Yardstick) -> dict[str, Any]:
    """Start a server in a fresh folder, warm it up and measure it from the first message to the last 250.

    Raises BenchFailed when a message is refused.
    """
    folder = peer_folder()
    try:
        key = await asyncio.to_thread(dkim.generate_rsa)
        async with Responder(cache=True) as dns:
            for name, values in inbound.zone_of(dkim.public_txt(key)).items():
                dns.set(name, "TXT", [_strings(text) for text in values])
            place = PeerPlace(folder, reserve_ports(1)[0], 0, 0, folder / "sender.der", dns.address[1])
            place.key.write_bytes(key)
            async with (
                running(peer, place) as roots,
                LoadProcess(SMTP_GENERATOR, _target(place), folder / "client.log") as client,
            ):
                await _send(client, 0, WARM_UP)
                return await _counted(client, roots, messages, yardstick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _counted(
    client: LoadProcess, roots: dict[str, list[int]], messages: int, yardstick: Yardstick
) -> dict[str, Any]:
    first = await asyncio.to_thread(yardstick.measure)
    before = measure.sample(roots)
    rate = await _send(client, WARM_UP, messages)
    await asyncio.sleep(0.5)  # what a server does behind the last 250 is part of its cost
    after = measure.sample(roots)
    signature_ms = (first.cpu_ms + (await asyncio.to_thread(yardstick.measure)).cpu_ms) / 2
    cpu_ms = sum(after.roles[role].cpu_ms - before.roles[role].cpu_ms for role in roots) / messages
    return {
        "delivered_per_s": round(rate, 1),
        "server_cpu_ms_per_message": round(cpu_ms, 4),
        "signature_ms": round(signature_ms, 4),
        "cost_in_signatures": round(cpu_ms / signature_ms, 2),
    }


async def _send(client: LoadProcess, first: int, count: int) -> float:
    """Send messages; return how many were accepted per second."""
    load = await client.send(LoadOrder(first=first, count=count, timeout_s=_PATIENCE_S))
    if load.refused:
        raise BenchFailed(f"The server refused: {load.refused}\n{load.example}")
    return count / (load.ended - load.began)


def _strings(text: str) -> str:
    """Return a TXT value as strings of at most 255 octets (RFC 1035 3.3.14)."""
    return " ".join(f'"{text[at : at + 250]}"' for at in range(0, len(text), 250))


def _target(place: PeerPlace) -> SmtpTarget:
    return SmtpTarget(
        host="127.0.0.1", port=place.smtp_port, connections=CONNECTIONS, folder=str(Path(place.folder)),
        mails=SignedMails(inbound.RECIPIENT, inbound.SENDERS, str(place.key)),
    )  # fmt: skip


def _show(found: dict[str, Any]) -> None:
    console = Console(highlight=False, width=140)
    for one in found["peers"].values():
        theirs, ours = one["theirs"], one["ours"]
        console.print(
            f"{one['about']}: {theirs['delivered_per_s']:,.0f} a second, {theirs['cost_in_signatures']:.1f} signatures;"
            f" Waybill: {ours['delivered_per_s']:,.0f}, {ours['cost_in_signatures']:.1f};"
            f" {one['times_the_rate']:.2f} × the rate",
            soft_wrap=True,
        )
