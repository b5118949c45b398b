"""Drills around the final dot: a process dies or a connection breaks before or after the server's 250.

All mail goes through a proxy (`smtp_proxy`) that holds the sink's 250 or the message content until the fault has
happened.
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import DOMAINS, Send, SendClient, plan, planned
from loadtests.drill.drill_network import DrillNetwork
from loadtests.drill.faults import COMES_BACK_S, Fault, inject, kill_postgres, until_some
from loadtests.drill.report import AllowedCopies, Check, CopyReason, DrillReport
from loadtests.drill.running import NO_COPIES, faulted, on_network, report_after_faults
from loadtests.kit.accounts import first_access
from loadtests.kit.processes import signal_all
from loadtests.kit.service import Service, ServicePart

RATE: Final = 60.0
HELD_S: Final = 0.2
COMMIT_S: Final = 1.0  # from the 250 to its commit, at most: what passed since then may come again
LARGE_BYTES: Final = 3 * 1024 * 1024  # more than the kernel buffers between two processes
STALL_AT: Final = 128 * 1024
EACH_ROUND: Final = 6
FINAL_DOT_S: Final = 15.0
LATE_S: Final = 9.0  # longer than a lease and than the first due time, shorter than the time-out
TOO_LATE_S: Final = 18.0
_FATES: Final = (("cut", 0.08), ("late", 0.04), ("too late", 0.01))
_DROPPED_AT: Final = 11  # of so many one goes to an address whose server hangs up after the dot and forgets it
_POLL_S: Final = 0.002
_DOMAINS: Final = tuple(f"d{number}.test" for number in range(DOMAINS))


@on_network()
async def before_dot(service: Service, network: DrillNetwork, order: DrillOrder) -> DrillReport:
    """Kill the mta processes while the server still reads the content."""
    proxy = network.add_proxy(*_DOMAINS)
    access = first_access(service)
    sends = plan(EACH_ROUND * order.rounds, "before-dot")
    injected = []
    for number in range(order.rounds):
        proxy.stall(STALL_AT)
        part = sends[number * EACH_ROUND : (number + 1) * EACH_ROUND]
        await SendClient(service.base_url, access, part, attachment=os.urandom(LARGE_BYTES)).run()
        await asyncio.to_thread(_wait_until, lambda: proxy.stalled > 0)
        injected.append(await asyncio.to_thread(inject, _kill_all, service, order.rng))
        proxy.flow()
    client = SendClient(service.base_url, access, sends)
    report = await report_after_faults(service, access, client, injected, name="before-dot")
    whole = report.delivered + report.bounced == len(sends)
    report.checks.append(Check("each message was interrupted once and arrived complete", whole, f"of {len(sends)}"))
    return report


@on_network()
async def held_reply(service: Service, network: DrillNetwork, order: DrillOrder) -> DrillReport:
    """Kill the mta processes between the server's 250 and its commit."""
    proxy = network.add_proxy(*_DOMAINS)
    in_window = 0

    async def hold() -> bool:
        await asyncio.sleep(HELD_S)
        return True

    proxy.on_kept = hold

    def kill(service: Service, rng: random.Random) -> str:
        nonlocal in_window
        _wait_until(lambda: proxy.holding > 0)
        label = _kill_all(service, rng)
        in_window += proxy.holding + proxy.passed_since(time.monotonic() - COMMIT_S)
        return label

    report = await _faulted(service, order, kill, "held-reply", allowed_copies=None)
    report.allow_copies(AllowedCopies(in_window, (CopyReason.MTA_KILLED,)))
    return report


@on_network()
async def postgres_after_reply(service: Service, network: DrillNetwork, order: DrillOrder) -> DrillReport:
    """Kill PostgreSQL while an mta process waits for the server's 250."""
    proxy = network.add_proxy(*_DOMAINS)
    held = _ReplyHold()
    proxy.on_kept = held.hold

    def kill(service: Service, rng: random.Random) -> str:
        held.catch()
        try:
            return kill_postgres(service, rng)
        finally:
            held.release()

    return await _faulted(service, order, kill, "postgres-after-reply")


@on_network({"FINAL_DOT_TIMEOUT_S": f"{FINAL_DOT_S:g}"})
async def unknown_outcome(service: Service, network: DrillNetwork, order: DrillOrder) -> DrillReport:
    """Break the connection after the final dot, or delay the 250."""
    proxy = network.add_proxy(*_DOMAINS)
    fates: Counter[str] = Counter()

    async def decide() -> bool:
        fate = _drawn(order.rng)
        fates[fate] += 1
        await asyncio.sleep({"late": LATE_S, "too late": TOO_LATE_S}.get(fate, 0.0))
        return fate != "cut"

    proxy.on_kept = decide
    access = first_access(service)
    client = SendClient(service.base_url, access, _with_dropped(order.messages), rate=RATE, rng=order.rng)
    await client.run()

    report = await report_after_faults(service, access, client, [], name="unknown-outcome", allowed_copies=None)
    unknown = fates["cut"] + fates["too late"]
    report.allow_copies(AllowedCopies(unknown, (CopyReason.NO_REPLY,)))
    report.checks += [
        Check("a reply that came within the time-out was believed", report.copies <= unknown,
              f"{fates['late']} came {LATE_S:g} s late; {report.copies} copies of {unknown} unknown outcomes"),
        Check("every outcome was drawn", len(fates) == len(_FATES) + 1, f"{dict(fates)}"),
    ]  # fmt: skip
    report.figures["what became of the replies"] = dict(fates)
    return report


class _ReplyHold(Struct):
    """Holds one 250 in the proxy until the fault has been injected."""

    wanted: bool = False
    caught: bool = False

    async def hold(self) -> bool:
        """Wait while a reply is to be held; called by the proxy."""
        if self.wanted:
            self.caught = True
            while self.wanted:  # noqa: ASYNC110 - set by a thread
                await asyncio.sleep(_POLL_S)
        return True

    def catch(self) -> None:
        """Wait until a reply is held."""
        self.caught, self.wanted = False, True
        _wait_until(lambda: self.caught)

    def release(self) -> None:
        """Let the held reply continue."""
        self.wanted = False


async def _faulted(
    service: Service, order: DrillOrder, fault: Fault, name: str, *, allowed_copies: AllowedCopies | None = NO_COPIES
) -> DrillReport:
    return await faulted(service, order, fault, name=name, rate=RATE, every_s=4.0, allowed_copies=allowed_copies)


def _kill_all(service: Service, _rng: random.Random) -> str:
    """Kill every mta process at once, so that the one with the held reply is among them."""
    pids = until_some(service, ServicePart.MTA)
    signal_all(pids, signal.SIGKILL)
    return f"mta {' '.join(map(str, pids))}"


def _with_dropped(count: int) -> list[Send]:
    sends = plan(count, "unknown-outcome")
    return [_dropped(send.number) if send.number % _DROPPED_AT == _DROPPED_AT - 1 else send for send in sends]


def _dropped(number: int) -> Send:
    send = planned("unknown-outcome", number)
    return Send(send.run, number, f"drop+{send.address.partition('+')[2]}")


def _drawn(rng: random.Random) -> str:
    at = rng.random()
    for fate, share in _FATES:
        if at < share:
            return fate
        at -= share
    return "passed"


def _wait_until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + COMES_BACK_S
    while not true():
        if time.monotonic() > ends:
            raise TimeoutError("the moment to strike did not come")
        time.sleep(_POLL_S)
