"""Measure receiving: of this service as `ops bench mx` does, and of another mail server.

The messages are those of `ops bench mx`: 2 KB, signed with DKIM, from domains with SPF and DMARC records, over open
sessions in clear text. Waybill judges them by SPF, DKIM, ARC and DMARC and answers 250 after its commit.
"""

import asyncio
import shutil
from typing import Any, Final

from engine.authentication import dkim_signing as dkim
from loadtests.bench import inbound
from loadtests.bench.inbound import InboundBench
from loadtests.bench.load import SMTP_GENERATOR, LoadOrder, LoadProcess
from loadtests.bench.run import BenchRun
from loadtests.bench.run_control import BenchFailed
from loadtests.bench.smtp_load import SignedMails, SmtpTarget
from loadtests.bench.yardstick import Yardstick
from loadtests.peers.measurement import CONNECTIONS, costed, peer_folder
from loadtests.peers.peer import Peer, PeerPlace, running
from loadtests.ports import reserve_ports
from ops.local.dns import Responder

WARM_UP: Final = 500
_PATIENCE_S: Final = 180.0


async def measure_own_receiving(messages: int, run: BenchRun, _yardstick: Yardstick) -> dict[str, Any]:
    """Return the figures of `ops bench mx`."""
    found = (await InboundBench(messages=messages, connections=CONNECTIONS, paced=False).measure(run)).figures
    return {**found, "delivered_per_s": found["received_per_s"], "checks": found["stored"]}


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
            target = SmtpTarget(
                host="127.0.0.1", port=place.smtp_port, connections=CONNECTIONS, folder=str(folder),
                mails=SignedMails(inbound.RECIPIENT, inbound.SENDERS, str(place.key)),
            )  # fmt: skip
            async with (
                running(peer, place) as roots,
                LoadProcess(SMTP_GENERATOR, target, folder / "client.log") as client,
            ):
                await _send(client, 0, WARM_UP)
                return await costed(roots, messages, yardstick, lambda: _send(client, WARM_UP, messages))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _send(client: LoadProcess, first: int, count: int) -> float:
    """Send messages; return how many were accepted per second."""
    load = await client.send(LoadOrder(first=first, count=count, timeout_s=_PATIENCE_S))
    if load.refused:
        raise BenchFailed(f"The server refused: {load.refused}\n{load.example}")
    return count / (load.ended - load.began)


def _strings(text: str) -> str:
    """Return a TXT value as strings of at most 255 octets (RFC 1035 3.3.14)."""
    return " ".join(f'"{text[at : at + 250]}"' for at in range(0, len(text), 250))
