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
from contextlib import suppress
from typing import Final

from msgspec import Struct

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.drill_network import DrillNetwork
from loadtests.drill.faults import COMES_BACK_S, Fault, InjectedFault, inject, kill_postgres
from loadtests.drill.fresh_service import first_access, run_with_network
from loadtests.drill.kill_drills import ExtraChecks, report_after_faults, under_load
from loadtests.drill.reconciliation import Reconciliation
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.send_client import DOMAINS, Send, SendClient, plan, planned
from loadtests.drill.service import Service, ServicePart

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


def before_dot(order: DrillOrder) -> DrillReport:
    """Kill the mta processes while the server still reads the content (fault 3)."""

    async def play(service: Service, network: DrillNetwork) -> DrillReport:
        proxy = network.add_proxy(*_DOMAINS)
        access = first_access(service)
        sends = plan(EACH_ROUND * order.rounds, "before-dot")
        injected = []
        for number in range(order.rounds):
            proxy.stall(STALL_AT)
            part = sends[number * EACH_ROUND : (number + 1) * EACH_ROUND]
            await SendClient(service.base_url, access, part, attachment=os.urandom(LARGE_BYTES)).run()
            await _until(lambda: proxy.stalled > 0)
            injected.append(await asyncio.to_thread(inject, _kill_all, service, order.rng))
            proxy.flow()
        client = SendClient(service.base_url, access, sends)
        return await report_after_faults(
            service, access, client, injected, name="before-dot", extra_checks=_whole_content(len(sends))
        )

    return run_with_network(play)


def held_reply(order: DrillOrder) -> DrillReport:
    """Kill the mta processes between the server's 250 and its commit (fault 4)."""

    async def play(service: Service, network: DrillNetwork) -> DrillReport:
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

        client, injected = await _loaded(service, order, kill, "held-reply")
        return await report_after_faults(
            service, first_access(service), client, injected, name="held-reply", max_copies=in_window,
        )  # fmt: skip

    return run_with_network(play)


def postgres_after_reply(order: DrillOrder) -> DrillReport:
    """Kill PostgreSQL while an mta process waits for the server's 250 (fault 10)."""

    async def play(service: Service, network: DrillNetwork) -> DrillReport:
        proxy = network.add_proxy(*_DOMAINS)
        held = _ReplyHold()
        proxy.on_kept = held.hold

        def kill(service: Service, rng: random.Random) -> str:
            held.catch()
            try:
                return kill_postgres(service, rng)
            finally:
                held.release()

        client, injected = await _loaded(service, order, kill, "postgres-after-reply")
        return await report_after_faults(service, first_access(service), client, injected, name="postgres-after-reply")

    return run_with_network(play)


def unknown_outcome(order: DrillOrder) -> DrillReport:
    """Break the connection after the final dot, or delay the 250 (fault 22)."""

    async def play(service: Service, network: DrillNetwork) -> DrillReport:
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

        async def extra_checks(found: Reconciliation) -> list[Check]:
            unknown = fates["cut"] + fates["too late"]
            return [
                Check("a reply that came within the time-out was believed", found.copies <= unknown,
                      f"{fates['late']} came {LATE_S:g} s late; {found.copies} copies of {unknown} unknown outcomes"),
                Check("every outcome was drawn", len(fates) == len(_FATES) + 1, f"{dict(fates)}"),
            ]  # fmt: skip

        most = max(order.messages, 1)  # the sharper bound is checked above, once the fates are known
        report = await report_after_faults(
            service, access, client, [], name="unknown-outcome", max_copies=most, extra_checks=extra_checks
        )
        report.figures["what became of the replies"] = dict(fates)
        return report

    return run_with_network(play, {"FINAL_DOT_TIMEOUT_S": f"{FINAL_DOT_S:g}"})


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


async def _loaded(
    service: Service, order: DrillOrder, fault: Fault, name: str
) -> tuple[SendClient, list[InjectedFault]]:
    client = SendClient(service.base_url, first_access(service), plan(order.messages, name), rate=RATE, rng=order.rng)
    return client, await under_load(service, client, fault, rounds=order.rounds, rng=order.rng, every_s=4.0)


def _kill_all(service: Service, _rng: random.Random) -> str:
    """Kill every mta process at once, so that the one with the held reply is among them."""
    _wait_until(lambda: bool(service.pids(ServicePart.MTA)))
    pids = service.pids(ServicePart.MTA)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
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


def _whole_content(count: int) -> ExtraChecks:
    async def extra_checks(found: Reconciliation) -> list[Check]:
        return [
            Check(
                "each message was interrupted once and arrived complete",
                found.delivered + found.bounced == count,
                f"of {count}",
            )
        ]

    return extra_checks


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(COMES_BACK_S):
        while not true():  # noqa: ASYNC110 - counted by the wire
            await asyncio.sleep(_POLL_S)


def _wait_until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + COMES_BACK_S
    while not true():
        if time.monotonic() > ends:
            raise TimeoutError("the moment to strike did not come")
        time.sleep(_POLL_S)
