"""Measure one peer: send through it to our sink, count what arrives, and take the CPU of its processes."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import dkim
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from engine.base.settings import PREFIX
from engine.store.sink_folder import INDEX
from loadtests.bench import measure
from loadtests.bench.load import SMTP_GENERATOR, LoadOrder, LoadProcess, LoadResult
from loadtests.bench.run_control import BenchFailed
from loadtests.bench.service import disk_folder
from loadtests.bench.smtp_load import SmtpTarget
from loadtests.bench.yardstick import Yardstick
from loadtests.peers.peer import Peer, PeerPlace, running
from loadtests.ports import reserve_ports
from ops.host import launch
from ops.host.process_specs import ROOT
from ops.local.sink_store import entries

WARM_UP: Final = 400
CONNECTIONS: Final = 64
DOMAINS: Final = 10
_SENDER: Final = "shop@peer.test"
_PATIENCE_S: Final = 60.0
_SLOWEST_PER_S: Final = 20.0
_POLL_S: Final = 0.02
_SINK_S: Final = 15.0
_BEHIND_S: Final = 0.5  # what a server does behind the last reply is part of its cost
_OURS: Final = "ours"  # this process and all that it started, the peer included
_IDLE_SESSION_S: Final = 2.5  # above the keep-alive in the peers' configurations


async def measure_peer(peer: Peer, messages: int, yardstick: Yardstick) -> dict[str, Any]:
    """Start a peer in a fresh folder, check that its signature verifies, warm it up, and measure it.

    Raises BenchFailed when a message is refused, lost or doubled, or when a signature does not verify.
    """
    folder = peer_folder()
    try:
        smtp_port, sink_port, milter_port = reserve_ports(3)
        place = PeerPlace(folder, smtp_port, sink_port, milter_port, folder / "key.pem")
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
            # A message on an idle session to the ended sink would be deferred for minutes.
            await asyncio.sleep(_IDLE_SESSION_S)
            async with _sink(place, "index") as store:
                return await _counted(client, store, roots, messages, yardstick, awaits=peer.awaits)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def peer_folder() -> Path:
    """Make a folder on a disk; the servers, which run as users of their own, may pass through it."""
    folder = Path(tempfile.mkdtemp(prefix="waybill-peer-", dir=disk_folder()))
    folder.chmod(0o711)
    return folder


async def _counted(
    client: LoadProcess,
    store: Path,
    roots: dict[str, list[int]],
    messages: int,
    yardstick: Yardstick,
    *,
    awaits: bool,
) -> dict[str, Any]:
    await _send(client, store, 1, WARM_UP)
    await asyncio.sleep(1.0)

    async def rate() -> float:
        load, ended = await _send(client, store, 1 + WARM_UP, messages, already=WARM_UP)
        return messages / (ended - load.began)

    found = await costed(roots, messages, yardstick, rate, awaits=awaits)
    arrived = [recipient for one in entries(store) for recipient in one.recipients]
    if len(arrived) != len(set(arrived)) or len(arrived) != WARM_UP + messages:
        raise BenchFailed(f"{len(arrived)} of {WARM_UP + messages} arrived, {len(set(arrived))} different ones.")
    return found


async def costed(
    roots: dict[str, list[int]],
    messages: int,
    yardstick: Yardstick,
    work: Callable[[], Awaitable[float]],
    *,
    awaits: bool = True,
) -> dict[str, Any]:
    """Return the rate (a second) that `work` returns, and the CPU of a peer's processes meanwhile.

    Of a peer that does not await its processes this includes all CPU of the machine that no process of ours used.
    """
    everything = roots | {_OURS: [os.getpid()]}
    first = await asyncio.to_thread(yardstick.measure)
    before = measure.sample(everything)
    rate = await work()
    await asyncio.sleep(_BEHIND_S)
    after = measure.sample(everything)
    signature_ms = (first.cpu_ms + (await asyncio.to_thread(yardstick.measure)).cpu_ms) / 2
    used = {role: after.roles[role].cpu_ms - before.roles[role].cpu_ms for role in everything}
    lost_ms = 0.0 if awaits else max(0.0, after.machine_busy_ms - before.machine_busy_ms - used[_OURS])
    cpu_ms = (sum(used[role] for role in roots) + lost_ms) / messages
    return {
        "delivered_per_s": round(rate, 1), "server_cpu_ms_per_message": round(cpu_ms, 4),
        "signature_ms": round(signature_ms, 4), "cost_in_signatures": round(cpu_ms / signature_ms, 2),
    }  # fmt: skip


async def _send(client: LoadProcess, store: Path, first: int, count: int, already: int = 0) -> tuple[LoadResult, float]:
    """Send `count` messages; return the load and the monotonic time at which the last one had arrived."""
    timeout_s = _PATIENCE_S + count / _SLOWEST_PER_S
    waiting = asyncio.create_task(_arrived(store, already + count, timeout_s + _PATIENCE_S))
    try:
        load = await client.send(LoadOrder(first=first, count=count, timeout_s=timeout_s))
        if load.refused:
            raise BenchFailed(f"The server refused: {load.refused}\n{load.example}")
        return load, await waiting
    finally:
        waiting.cancel()
        with suppress(asyncio.CancelledError, BenchFailed):
            await waiting


async def _arrived(store: Path, count: int, timeout_s: float) -> float:
    """Return the monotonic time at which the sink's index had `count` lines; reads only what was added to it."""
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
    """Raise BenchFailed unless the one message in the sink carries a DKIM signature that verifies."""
    [entry] = entries(store)
    assert entry.file is not None
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    record = b"v=DKIM1; k=rsa; p=" + b"".join(pem.splitlines()[1:-1])
    if not dkim.verify((store / entry.file).read_bytes(), dnsfunc=lambda _name, timeout=0: record):  # noqa: ARG005
        raise BenchFailed("The peer's signature does not verify.")


def _client(place: PeerPlace) -> LoadProcess:
    """Return the process that sends to a peer."""
    target = SmtpTarget(
        host="127.0.0.1", port=place.smtp_port, sender=_SENDER, domains=DOMAINS, connections=CONNECTIONS,
        folder=str(place.folder), opened=False,
    )  # fmt: skip
    return LoadProcess(SMTP_GENERATOR, target, place.folder / "client.log")


@asynccontextmanager
async def _sink(place: PeerPlace, mode: str) -> AsyncIterator[Path]:
    """Run our sink without TLS on the port of `place`, and yield its store."""
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


def _environ() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if not name.startswith(PREFIX)}
