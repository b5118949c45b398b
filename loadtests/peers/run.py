"""`ops loadtest peers`: mail servers of others and us in turn, pair by pair, with the same messages and the same sink.

Rates and CPU drift with whatever else the machine does, so only the ratio within a pair is quoted, and CPU beside the
cost of one RSA-2048 signature of the same minute. Our side is `ops bench`'s counted run, from the HTTP request to the
settled row; theirs runs from the first message to the last one's arrival, over plain SMTP on sessions that stay open,
which costs them neither TLS nor a login.
"""

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import dkim
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from rich.console import Console
from rich.table import Table

from engine.base import settings
from engine.base.settings import PREFIX
from loadtests.bench import figures, measure
from loadtests.bench.load import STRANGER_S, GeneratorFailed, Load, Order, Target
from loadtests.bench.protocol import _FAILURES, INTERRUPTED, BenchFailed, Options, _interruptible, _run, _turn
from loadtests.bench.report import Progress
from loadtests.bench.service import _root
from loadtests.bench.yardstick import Yardstick
from loadtests.peers.servers import PEERS, DidNotStart, Peer, Place, running
from loadtests.ports import reserve_ports
from ops import launch
from ops.fleet import ROOT
from ops.local.sink_store import INDEX, entries

MESSAGES: Final = 4_000
WARM_UP: Final = 400
CONNECTIONS: Final = 64
DOMAINS: Final = 10
_SENDER: Final = "shop@peer.test"
_PATIENCE_S: Final = 60.0
_SLOWEST_PER_S: Final = 20.0
_POLL_S: Final = 0.02
_SINK_S: Final = 15.0
_MAX_LINE: Final = 64 * 1024
_FIGURES: Final = ("delivered_per_s", "server_cpu_ms_per_message", "signature_ms", "cost_in_signatures")
_FAILED: Final = (*_FAILURES, DidNotStart, TimeoutError, subprocess.SubprocessError)


def run(*, runs: int, only: tuple[str, ...] = (), messages: int | None = None, as_json: bool = False) -> int:
    """Compare and print; 0 when every peer that was asked for and is installed was compared."""
    voice = Progress()
    unknown = [name for name in only if name not in PEERS]
    if unknown:
        voice.fail(f"There is no peer named {unknown[0]}; there are: {', '.join(PEERS)}.")
        return 1
    chosen = [peer for name, peer in PEERS.items() if not only or name in only]
    missing = {peer.name: words for peer in chosen if (words := peer.missing()) is not None}
    for name, words in missing.items():
        voice.say(f"{name} is left out. It needs {words}.")
    present = [peer for peer in chosen if peer.name not in missing]
    try:
        with _turn(voice.say):
            found = asyncio.run(_interruptible(_compared(present, runs, messages or MESSAGES, voice)))
    except _FAILED as error:
        voice.fail(str(error) or type(error).__name__)
        return 1
    except (asyncio.CancelledError, KeyboardInterrupt):
        voice.fail("Stopped before the end: nothing was compared.")
        return INTERRUPTED
    found["missing"] = missing
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _show(found)
    return 0 if present else 1


async def _compared(peers: list[Peer], runs: int, messages: int, voice: Progress) -> dict[str, Any]:
    """Ours, theirs, ours, theirs: a pair is what lies side by side in time."""
    yardstick = Yardstick()
    pairs: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in peers}
    for number in range(1, runs + 1):
        for peer in peers:
            voice.say(f"Pair {number} of {runs}: us and {peer.name}")
            ours = await _ours(messages, yardstick, voice)
            theirs = await _theirs(peer, messages, yardstick)
            pairs[peer.name].append({"ours": ours, "theirs": theirs})
    return {
        "messages": messages,
        "domains": DOMAINS,
        "connections": CONNECTIONS,
        "runs": runs,
        "peers": {peer.name: {"about": peer.about} | summed(pairs[peer.name]) for peer in peers},
    }


def summed(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of each side, and of the ratios within the pairs: rate over rate, their CPU over ours."""
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


async def _ours(messages: int, yardstick: Yardstick, voice: Progress) -> dict[str, Any]:
    """The bench's counted run; raises BenchFailed where its check does not hold."""
    options = Options(
        scenario="a", messages=messages, warm_up=WARM_UP, connections=CONNECTIONS, runs=1, drain=None, profile=False,
        paced=False, tls=False, rsa=True,
    )  # fmt: skip
    given = settings.load(os.environ).settings
    found = await _run(options, given, yardstick, None, lambda _: None)
    if not found["checked"]:
        raise BenchFailed(f"Our own run failed its check: {found['checks']}")
    voice.say(f"  us: {found['delivered_per_s']:,.0f} a second, {found['cost_in_signatures']:.1f} signatures")
    return {name: found[name] for name in _FIGURES}


async def _theirs(peer: Peer, messages: int, yardstick: Yardstick) -> dict[str, Any]:
    """One peer in a fresh folder: a message to see that it signs, a warm-up, the counted run, the check."""
    folder = _folder()
    try:
        smtp_port, sink_port, milter_port = reserve_ports(3)
        place = Place(folder, smtp_port, sink_port, milter_port, folder / "key.pem")
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        place.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
            )
        )
        place.key.chmod(0o644)  # a throw-away key in a throw-away folder, read by another user
        async with running(peer, place) as roots, _client(place) as client:
            async with _sink(place, "files") as store:
                await _send(client, store, 0, 1)
                if peer.signs:
                    _check_signature(store, key.public_key())
            async with _sink(place, "index") as store:
                return await _counted(client, store, roots, messages, yardstick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _folder() -> Path:
    """A fresh one on a disk; its servers run as users of their own, who pass through."""
    folder = Path(tempfile.mkdtemp(prefix="waybill-peer-", dir=_root()))
    folder.chmod(0o711)
    return folder


async def _counted(
    client: "_Client", store: Path, roots: dict[str, list[int]], messages: int, yardstick: Yardstick
) -> dict[str, Any]:
    await _send(client, store, 1, WARM_UP)
    await asyncio.sleep(1.0)
    first = await asyncio.to_thread(yardstick.measure)
    before = measure.sample(roots)
    load, ended = await _send(client, store, 1 + WARM_UP, messages, already=WARM_UP)
    await asyncio.sleep(0.2)  # what a server does behind the last 250 is part of its cost
    after = measure.sample(roots)
    second = await asyncio.to_thread(yardstick.measure)
    arrived = [recipient for one in entries(store) for recipient in one.recipients]
    if len(arrived) != len(set(arrived)) or len(arrived) != WARM_UP + messages:
        raise BenchFailed(f"{len(arrived)} of {WARM_UP + messages} arrived, {len(set(arrived))} different ones.")
    cpu_ms = sum(after.roles[role].cpu_ms - before.roles[role].cpu_ms for role in roots) / messages
    signature_ms = (first.cpu_ms + second.cpu_ms) / 2
    return {
        "delivered_per_s": round(messages / (ended - load.began), 1),
        "server_cpu_ms_per_message": round(cpu_ms, 4),
        "signature_ms": round(signature_ms, 4),
        "cost_in_signatures": round(cpu_ms / signature_ms, 2),
    }


async def _send(client: "_Client", store: Path, first: int, count: int, already: int = 0) -> tuple[Load, float]:
    """Have so many sent and wait for their arrival; gives when the last one was seen, on the monotonic clock."""
    timeout_s = _PATIENCE_S + count / _SLOWEST_PER_S
    waiting = asyncio.create_task(_arrived(store, already + count, timeout_s + _PATIENCE_S))
    try:
        load = await client.send(Order(first=first, count=count, timeout_s=timeout_s))
        if load.refused:
            raise BenchFailed(f"The server refused: {load.refused}\n{load.example}")
        return load, await waiting
    finally:
        waiting.cancel()
        with suppress(asyncio.CancelledError, BenchFailed):
            await waiting


async def _arrived(store: Path, count: int, timeout_s: float) -> float:
    """When the sink's index had so many lines: each is written at once, so that only its end is read."""
    deadline = time.monotonic() + timeout_s
    at, lines = 0, 0
    while time.monotonic() < deadline:
        with suppress(FileNotFoundError), (store / INDEX).open("rb") as index:
            index.seek(at)
            text = index.read()
            at, lines = at + len(text), lines + text.count(b"\n")
        if lines >= count:
            return time.monotonic()
        await asyncio.sleep(_POLL_S)
    raise BenchFailed(f"Only {lines} of {count} messages arrived.")


def _check_signature(store: Path, public: rsa.RSAPublicKey) -> None:
    """A peer that is to sign does: its message verifies."""
    [entry] = entries(store)
    assert entry.file is not None
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    record = b"v=DKIM1; k=rsa; p=" + b"".join(pem.splitlines()[1:-1])
    if not dkim.verify((store / entry.file).read_bytes(), dnsfunc=lambda _name, timeout=0: record):  # noqa: ARG005
        raise BenchFailed("The peer's signature does not verify.")


@asynccontextmanager
async def _sink(place: Place, mode: str) -> AsyncIterator[Path]:
    """Our sink in clear on the place's port; gives its store."""
    store = place.folder / f"sink-{mode}"
    words = [
        sys.executable, "-m", "ops.local.sink", "--port", str(place.sink_port), "--store", str(store),
        "--store-mode", mode, "--no-tls",
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *launch.command(words), env=_environ(), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_SINK_S):
            await process.stdout.readline()
        yield store
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@asynccontextmanager
async def _client(place: Place) -> AsyncIterator["_Client"]:
    """The SMTP generator's process."""
    target = Target(
        host="127.0.0.1", port=place.smtp_port, key="", sender=_SENDER, domains=DOMAINS, connections=CONNECTIONS,
        folder=str(place.folder),
    )  # fmt: skip
    log = place.folder / "client.log"
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *launch.command([sys.executable, "-m", "loadtests.peers.client"]), env=_environ(), cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True, limit=_MAX_LINE,
        )  # fmt: skip
    try:
        client = _Client(process, log)
        await client.ask(target, STRANGER_S)
        yield client
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class _Client:
    """Speaks with the generator's process."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    async def send(self, order: Order) -> Load:
        """Have an order carried out; raises GeneratorFailed."""
        return msgspec.json.decode(await self.ask(order, order.timeout_s + STRANGER_S), type=Load)

    async def ask(self, what: Target | Order, timeout_s: float) -> bytes:
        """One line there, one line back."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = b""
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(timeout_s):
                self._process.stdin.write(msgspec.json.encode(what) + b"\n")
                await self._process.stdin.drain()
                line = await self._process.stdout.readline()
        if not line:
            raise GeneratorFailed(f"The SMTP client ended early:\n{self._log.read_text('utf-8', 'replace')[-2000:]}")
        return line


def _environ() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if not name.startswith(PREFIX)}


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
        console.print(f"{name} was left out: it needs {words}.", markup=False)
