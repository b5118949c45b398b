"""`ops drill mx-scanner-hung`: clamd and rspamd hang, answer garbage, close or are away while mail comes in.

Required scanners make the MX answer 451, and nothing is stored without their verdicts. Optional ones let mail in: the
attachments are marked `failed`, and the built-in rules give the score. Nothing is lost in either case.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.faults import InjectedFault
from loadtests.drill.mx_client import INFECTED, MxClient
from loadtests.drill.mx_drills import FEW, mailbox_report, receivers, refused_only
from loadtests.drill.report import Check, DrillReport, combined
from loadtests.drill.running import run_on_service, while_sending
from loadtests.kit.scanners import SCORE, ClamdPeer, RspamdPeer, ScannerMode
from loadtests.kit.service import Service
from loadtests.ports import reserve_ports

NAME: Final = "mx-scanner-hung"
RATE: Final = 30.0
TIMEOUT_S: Final = 2.0  # of the scanners
FAULT_S: Final = 6.0
BETWEEN_S: Final = 12.0  # above the pause after failures in a row (mta.inbound.scanning.breaker)
FAULTY: Final = (ScannerMode.HANGING, ScannerMode.GARBAGE, ScannerMode.CLOSING, ScannerMode.AWAY)
_ROWS: Final = """
    SELECT m.attachments::text AS attachments, m.spam_score, sha256(b.bytes) AS digest
    FROM inbound_messages m JOIN inbound_bytes b ON b.id = m.raw_id WHERE m.account_id = ANY ($1)
"""


def run(order: DrillOrder) -> DrillReport:
    """Run the drill with required scanners, then with optional ones."""
    return combined(NAME, [_part(order, required=True), _part(order, required=False)])


def _part(order: DrillOrder, *, required: bool) -> DrillReport:
    clamd_port, rspamd_port = reserve_ports(2)
    settings = {
        "CLAMD": f"127.0.0.1:{clamd_port}", "CLAMD_TIMEOUT_S": str(TIMEOUT_S),
        "RSPAMD_URL": f"http://127.0.0.1:{rspamd_port}", "RSPAMD_TIMEOUT_S": str(TIMEOUT_S),
        "CLAMD_REQUIRED": str(required).lower(), "RSPAMD_REQUIRED": str(required).lower(),
    }  # fmt: skip

    async def play(service: Service) -> DrillReport:
        async with ClamdPeer(clamd_port, viruses={INFECTED: "Drill.Test"}) as clamd, RspamdPeer(rspamd_port) as rspamd:
            return await _play(service, order, clamd, rspamd, required=required)

    return run_on_service(play, order.settings(FEW | settings))


async def _play(
    service: Service, order: DrillOrder, clamd: ClamdPeer, rspamd: RspamdPeer, *, required: bool
) -> DrillReport:
    name = "required" if required else "optional"
    accounts, recipients = await receivers(service)
    client = MxClient(service.mx_port, recipients, f"scan-{name}", rate=RATE, rng=order.rng)
    began = time.monotonic()
    injected = await while_sending([client], _failing(clamd, rspamd))
    report = await mailbox_report(name, service, accounts, [client], injected, time.monotonic() - began)
    rows = await service.rows(_ROWS, accounts)
    verdicts = Counter(one["scan"] for row in rows for one in json.loads(row["attachments"]))
    report.figures["verdicts on attachments"] = dict(verdicts)
    if required:
        report.checks += [refused_only(client.attempts, {"451 4.3.0"}), _all_scanned(rows, verdicts, clamd, rspamd)]
    else:
        report.checks += _let_in(rows, verdicts, client, clamd)
    return report


async def _failing(clamd: ClamdPeer, rspamd: RspamdPeer) -> list[InjectedFault]:
    """Let one scanner after the other fail in every way."""
    injected = []
    for scanner, label in ((clamd, "clamd"), (rspamd, "rspamd")):
        for mode in FAULTY:
            at = time.time()
            await scanner.change(mode)
            await asyncio.sleep(FAULT_S)
            injected.append(InjectedFault(f"{label} {mode}", at, time.time()))
        await scanner.change(ScannerMode.WORKING)
        await asyncio.sleep(BETWEEN_S)
    return injected


def _all_scanned(rows: Sequence[Any], verdicts: Counter[str], clamd: ClamdPeer, rspamd: RspamdPeer) -> Check:
    scanned = clamd.digests & rspamd.digests
    unscanned = [row for row in rows if row["digest"] not in scanned]
    scores = [row for row in rows if row["spam_score"] != SCORE]
    whole = not unscanned and not scores and set(verdicts) == {"clean", "infected"}
    return Check("nothing is stored without both verdicts", whole, f"{len(unscanned)} of {len(rows)}, {dict(verdicts)}")


def _let_in(rows: Sequence[Any], verdicts: Counter[str], client: MxClient, clamd: ClamdPeer) -> list[Check]:
    refused = Counter(one.reply for one in client.attempts if not one.reply.startswith("250"))
    scanned = clamd.digests
    wrong = [row for row in rows if "failed" not in row["attachments"] and row["digest"] not in scanned]
    marked = not wrong and verdicts["failed"] > 0 and set(verdicts) <= {"clean", "infected", "failed"}
    slowest = max(one.took_s for one in client.attempts)
    return [
        Check("optional scanners refuse nothing", not refused, f"{dict(refused) or 0}"),
        Check("attachments without a verdict are marked failed", marked, f"{len(wrong)} are not, {dict(verdicts)}"),
        Check("a failing scanner costs a message its time limit at most", slowest < 3 * TIMEOUT_S, f"{slowest:.1f} s"),
    ]
