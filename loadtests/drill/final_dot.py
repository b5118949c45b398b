"""Drills around the final dot: what dies or is cut when the message is on the wire, and nobody knows which side has it.

All mail goes through a wire (`world`) that holds the sink's 250 or the message's content for as long as it takes to
strike in exactly that moment.
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
from loadtests.drill.faults import COMES_BACK_S, Fault, Struck, kill_postgres, strike
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.run import Also, counted, under_load
from loadtests.drill.sends import DOMAINS, Send, SendClient, plan, planned
from loadtests.drill.service import Service, ServicePart
from loadtests.drill.stage import first_access, played_in_world
from loadtests.drill.verdict import DrillVerdict
from loadtests.drill.world import DrillWorld

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
    """Row 3: the process dies while the server still reads the content."""

    async def play(service: Service, world: DrillWorld) -> DrillReport:
        wire = world.wire(*_DOMAINS)
        access = first_access(service)
        sends = plan(EACH_ROUND * order.rounds, "before-dot")
        struck = []
        for number in range(order.rounds):
            wire.stall(STALL_AT)
            part = sends[number * EACH_ROUND : (number + 1) * EACH_ROUND]
            await SendClient(service.base_url, access, part, attachment=os.urandom(LARGE_BYTES)).run()
            await _until(lambda: wire.stalled > 0)
            struck.append(await asyncio.to_thread(strike, _kill_all, service, order.rng))
            wire.flow()
        client = SendClient(service.base_url, access, sends)
        return await counted(service, access, client, struck, name="before-dot", also=_whole_content(len(sends)))

    return played_in_world(play)


def held_reply(order: DrillOrder) -> DrillReport:
    """Row 4: the process dies between the server's 250 and the commit of it."""

    async def play(service: Service, world: DrillWorld) -> DrillReport:
        wire = world.wire(*_DOMAINS)
        in_window = 0

        async def hold() -> bool:
            await asyncio.sleep(HELD_S)
            return True

        wire.on_kept = hold

        def kill(service: Service, rng: random.Random) -> str:
            nonlocal in_window
            _wait_until(lambda: wire.holding > 0)
            who = _kill_all(service, rng)
            in_window += wire.holding + wire.passed_since(time.monotonic() - COMMIT_S)
            return who

        client, struck = await _loaded(service, order, kill, "held-reply")
        return await counted(
            service, first_access(service), client, struck, name="held-reply", most_copies=in_window,
        )  # fmt: skip

    return played_in_world(play)


def postgres_after_reply(order: DrillOrder) -> DrillReport:
    """Row 10: the database dies with the server's 250 in hand, and the process that holds it lives."""

    async def play(service: Service, world: DrillWorld) -> DrillReport:
        wire = world.wire(*_DOMAINS)
        aim = _Aim()
        wire.on_kept = aim.hold

        def kill(service: Service, rng: random.Random) -> str:
            aim.take()
            try:
                return kill_postgres(service, rng)
            finally:
                aim.let_go()

        client, struck = await _loaded(service, order, kill, "postgres-after-reply")
        return await counted(service, first_access(service), client, struck, name="postgres-after-reply")

    return played_in_world(play)


def unknown_outcome(order: DrillOrder) -> DrillReport:
    """Row 22: the connection breaks after the final dot, or the 250 comes late."""

    async def play(service: Service, world: DrillWorld) -> DrillReport:
        wire = world.wire(*_DOMAINS)
        fates: Counter[str] = Counter()

        async def decide() -> bool:
            fate = _drawn(order.rng)
            fates[fate] += 1
            await asyncio.sleep({"late": LATE_S, "too late": TOO_LATE_S}.get(fate, 0.0))
            return fate != "cut"

        wire.on_kept = decide
        access = first_access(service)
        client = SendClient(service.base_url, access, _with_dropped(order.messages), rate=RATE, rng=order.rng)
        await client.run()

        async def also(found: DrillVerdict) -> list[Check]:
            unknown = fates["cut"] + fates["too late"]
            return [
                Check("a reply that came within the time-out was believed", found.copies <= unknown,
                      f"{fates['late']} came {LATE_S:g} s late; {found.copies} copies of {unknown} unknown outcomes"),
                Check("every outcome was drawn", len(fates) == len(_FATES) + 1, f"{dict(fates)}"),
            ]  # fmt: skip

        most = max(order.messages, 1)  # the sharper bound is checked above, once the fates are known
        report = await counted(service, access, client, [], name="unknown-outcome", most_copies=most, also=also)
        report.figures["what became of the replies"] = dict(fates)
        return report

    return played_in_world(play, {"FINAL_DOT_TIMEOUT_S": f"{FINAL_DOT_S:g}"})


class _Aim(Struct):
    """Lets one 250 wait until the strike has fallen."""

    wanted: bool = False
    caught: bool = False

    async def hold(self) -> bool:
        """For the wire."""
        if self.wanted:
            self.caught = True
            while self.wanted:  # noqa: ASYNC110 - set by a thread
                await asyncio.sleep(_POLL_S)
        return True

    def take(self) -> None:
        """Wait until one is caught."""
        self.caught, self.wanted = False, True
        _wait_until(lambda: self.caught)

    def let_go(self) -> None:
        """It goes on its way."""
        self.wanted = False


async def _loaded(service: Service, order: DrillOrder, fault: Fault, name: str) -> tuple[SendClient, list[Struck]]:
    client = SendClient(service.base_url, first_access(service), plan(order.messages, name), rate=RATE, rng=order.rng)
    return client, await under_load(service, client, fault, rounds=order.rounds, rng=order.rng, every_s=4.0)


def _kill_all(service: Service, _rng: random.Random) -> str:
    """Every delivering process at once: whichever holds the reply is among them."""
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


def _whole_content(count: int) -> Also:
    async def also(found: DrillVerdict) -> list[Check]:
        return [Check("each died once and arrived whole", found.delivered + found.bounced == count, f"of {count}")]

    return also


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
