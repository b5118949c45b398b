"""`ops drill mx-hostile`: hostile clients of the MX, one kind after the other, while a bystander's mail comes in.

Rules: every attack is refused as it should be, nothing smuggled is stored, and the p99 of the bystander, from MAIL to
the 250, stays below twice its p99 in the time without attacks right before. The bystander runs in a process of its own.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from msgspec import Struct

from engine.authentication import dkim_signing as dkim
from loadtests.bench import measure
from loadtests.bench.load import SMTP_GENERATOR, LoadOrder, LoadProcess, times_of
from loadtests.bench.smtp_load import SignedMails, SmtpTarget
from loadtests.drill import mx_attacks as attacks
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import percentile
from loadtests.drill.mx_attacks import Attack, AttackTarget
from loadtests.drill.mx_drills import FEW, receivers
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.running import at_best, on_service
from loadtests.kit.service import Service, ServicePart

NAME: Final = "mx-hostile"
RATE: Final = 40.0
PHASE_S: Final = 10.0
WARM_UP_S: Final = 15.0  # caches, statements and connections of a new service
WITHIN: Final = 2.0  # times the baseline
TRIES: Final = 3  # of a phase that breaks the rule: other work on the machine only adds time
SLOW_CLIENTS: Final = 500
IDLE: Final = 2_000
LARGE_MESSAGES: Final = 8
MAX_IDLE_MB: Final = 80.0
# One process, so that all clients and the bystander meet in it, and its memory is that of all sessions.
SETTINGS: Final = FEW | {"MX_WORKERS": "1", "MX_SESSIONS": "3000", "MX_SESSIONS_EACH": "3000"}
_OPENING: Final = 100  # connections opened at a time
_PER_S: Final[dict[Attack, float]] = {  # attacks a second: bounded, so that the machine itself is not full
    attacks.false_end: 30.0,
    attacks.bare_line_feeds: 30.0,
    attacks.many_recipients: 2.0,
    attacks.unknown_recipients: 5.0,
    attacks.injected_behind_starttls: 10.0,
}


class HostilePhase(Struct, kw_only=True):
    """The bystander's times during one kind of attack, in milliseconds, and what went wrong.

    `baseline_ms` is the p99 right before, without attacks.
    """

    name: str
    baseline_ms: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    attacks: int = 0
    wrong: list[str] = []
    tries: int = 1

    @property
    def ratio(self) -> float:
        """Return the p99 in multiples of the baseline."""
        return round(self.p99_ms / max(self.baseline_ms, 0.001), 2)


class HostileClients:
    """The bystander and the attacked service."""

    def __init__(self, service: Service, bystander: LoadProcess, target: AttackTarget) -> None:
        self.sent = 0
        self.refused: Counter[str] = Counter()
        self.phases: list[HostilePhase] = []
        self._service = service
        self._bystander = bystander
        self._target = target

    def resident_mb(self) -> float:
        """Return the resident memory of the mx process."""
        return round(measure.resident_mb(self._service.pids(ServicePart.MX)[0]), 1)

    async def warm_up(self) -> None:
        """Send the bystander's mail for a while."""
        await self.measured(WARM_UP_S)

    async def attacked(self, attack: Attack) -> None:
        """Measure the bystander while attacks come at their rate."""
        baseline = await self.measured(PHASE_S)
        name = attack.__name__.replace("_", " ")
        await self._at_best(name, baseline, lambda phase, over: self._repeat(attack, phase, over))

    async def crowded(self, attack: Attack, clients: int) -> list[str]:
        """Measure the bystander while `clients` stay connected; they open first. Return how each one ended."""
        baseline = await self.measured(PHASE_S)
        tasks: list[asyncio.Task[str]] = []
        for start in range(0, clients, _OPENING):
            tasks += [asyncio.create_task(attack(self._target)) for _ in range(min(_OPENING, clients - start))]
            await asyncio.sleep(0.2)
        name = f"{clients} times {attack.__name__}".replace("_", " ")
        return await self._while_running(tasks, name, baseline)

    async def large(self) -> tuple[HostilePhase, list[str]]:
        """Measure the bystander while large messages come in parallel; return its times, and the replies to them."""
        baseline = await self.measured(PHASE_S)
        tasks = [asyncio.create_task(attacks.large_message(self._target)) for _ in range(LARGE_MESSAGES)]
        times = await self.measured(PHASE_S)
        replies = [await task for task in tasks]
        phase = HostilePhase(
            name="large messages", baseline_ms=baseline["p99_ms"], p50_ms=times["p50_ms"], p99_ms=times["p99_ms"]
        )
        return phase, replies

    async def _while_running(
        self, tasks: Sequence[asyncio.Task[str]], name: str, baseline: dict[str, float]
    ) -> list[str]:
        try:
            await self._at_best(name, baseline, lambda _phase, over: over.wait())
        finally:
            for task in tasks:
                task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        self.phases[-1].attacks = len(tasks)
        self.phases[-1].wrong += [repr(one) for one in found if isinstance(one, Exception)][:3]
        return [one if isinstance(one, str) else type(one).__name__ for one in found]

    async def _at_best(
        self, name: str, baseline: dict[str, float], attack: Callable[[HostilePhase, asyncio.Event], Awaitable[object]]
    ) -> None:
        """Measure a phase, again while it breaks the rule; keep its best times and everything that went wrong."""
        phase = HostilePhase(name=name, baseline_ms=baseline["p99_ms"])

        async def measure(_number: int) -> dict[str, float]:
            over = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_done(attack(phase, over)))
                times = await self.measured(PHASE_S)
                over.set()
            return times

        times, phase.tries = await at_best(measure, _p99, WITHIN * phase.baseline_ms, TRIES)
        phase.p50_ms, phase.p99_ms = times["p50_ms"], times["p99_ms"]
        self.phases.append(phase)

    async def _repeat(self, attack: Attack, phase: HostilePhase, over: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            while not over.is_set():
                tasks.create_task(self._one(attack, phase))
                await asyncio.sleep(1 / _PER_S[attack])

    async def _one(self, attack: Attack, phase: HostilePhase) -> None:
        phase.attacks += 1
        try:
            wrong = await attack(self._target)
        except (OSError, EOFError) as error:  # the time-out is an OSError
            wrong = repr(error)
        if wrong:
            phase.wrong.append(wrong)

    async def measured(self, seconds: float) -> dict[str, float]:
        """Return the times of the bystander's mail over so many seconds."""
        count = round(RATE * seconds)
        order = LoadOrder(first=self.sent, count=count, rate=RATE, timeout_s=seconds + 120)
        result = await self._bystander.send(order)
        self.sent += count
        self.refused.update(result.refused)
        waits = sorted(one for one in times_of(result)[0] if not math.isnan(one))  # nan: refused
        return {"p50_ms": percentile(_ms(waits), 0.5), "p99_ms": percentile(_ms(waits), 0.99)}


@on_service(SETTINGS)
async def run(service: Service, _order: DrillOrder) -> DrillReport:
    """Run all attacks."""
    accounts, recipients = await receivers(service, ("bystander", "attacked"))
    target = AttackTarget(service.settings.mx_port, recipients[1])
    began = time.monotonic()
    async with LoadProcess(
        SMTP_GENERATOR, await bystander(service, recipients[0]), service.state / "generator.log"
    ) as one:
        clients = HostileClients(service, one, target)
        await clients.warm_up()
        for attack in _PER_S:
            await clients.attacked(attack)
        before_mb = clients.resident_mb()
        idle = asyncio.create_task(clients.crowded(attacks.silent_client, IDLE))
        await asyncio.sleep(2 * PHASE_S)  # the idle sessions open after the baseline
        idle_mb = clients.resident_mb()
        await idle
        await clients.crowded(attacks.slow_client, SLOW_CLIENTS)
        during_large, large = await clients.large()
        peak_mb = clients.resident_mb()
    stored = await stored_of(service, accounts)
    checks = [
        *_checks(clients, stored),
        *_large(large),
        Check(f"{IDLE:,} idle sessions", idle_mb - before_mb <= MAX_IDLE_MB, f"{before_mb} to {idle_mb} MiB"),
    ]
    figures = {
        one.name: f"p50 {one.p50_ms} ms, p99 {one.p99_ms} ms, before {one.baseline_ms} ms, {one.attacks} attacks"
        for one in [*clients.phases, during_large]
    }
    figures["large messages: times the baseline"] = str(during_large.ratio)  # reported: disks differ in how they write
    figures["memory after the large messages, MiB"] = str(peak_mb)
    return DrillReport(
        drill=NAME, sent=clients.sent, accepted=clients.sent - clients.refused.total(), delivered=stored["bystander"],
        lost=clients.sent - clients.refused.total() - stored["bystander"], took_s=time.monotonic() - began,
        checks=checks, figures=dict(figures),
    )  # fmt: skip


async def bystander(service: Service, recipient: str) -> SmtpTarget:
    """Return the target of a process that sends signed mail to the recipient."""
    key = service.state / "bystander.der"
    key.write_bytes(await asyncio.to_thread(dkim.generate_rsa))
    return SmtpTarget(
        host="127.0.0.1", port=service.settings.mx_port, connections=8, folder=str(Path(service.state)),
        mails=SignedMails(recipient, ["bystander-sender.test"], str(key)),
    )  # fmt: skip


def _checks(clients: HostileClients, stored: dict[str, int]) -> list[Check]:
    checks = [Check("the bystander's mail is not refused", not clients.refused, f"{dict(clients.refused) or 0}")]
    for one in clients.phases:
        found = f"p99 {one.p99_ms} ms, {one.ratio} times, {one.tries} tries"
        checks.append(Check(f"{one.name}: bystander below {WITHIN:g} times", one.ratio < WITHIN, found))
        if one.attacks:
            answered = f"{one.attacks} attacks, {len(one.wrong)} wrong {one.wrong[:2] or ''}".strip()
            checks.append(Check(f"{one.name}: answered as decided", not one.wrong, answered))
    checks.append(Check("nothing smuggled is stored", stored["smuggled"] == 0, f"{stored['smuggled']}"))
    return checks


def _large(replies: Sequence[str]) -> list[Check]:
    codes = Counter(one[:9] for one in replies)
    ok = codes.keys() <= {"250 2.0.0", "452 4.3.1"} and codes["250 2.0.0"] > 0 and codes["452 4.3.1"] > 0
    return [Check("large messages beyond the memory for messages get 452", ok, f"{dict(codes)}")]


async def stored_of(service: Service, accounts: Sequence[UUID]) -> dict[str, int]:
    """Count the received messages of the first account, and those that were smuggled in."""
    [row] = await service.rows(
        "SELECT count(*) FILTER (WHERE account_id = $1) AS bystander,"
        " count(*) FILTER (WHERE subject = $2) AS smuggled FROM inbound_messages",
        accounts[0], attacks.SMUGGLED,
    )  # fmt: skip
    return dict(row)


def _ms(seconds: Sequence[float]) -> list[float]:
    return [one * 1_000 for one in seconds]


def _p99(times: dict[str, float]) -> float:
    return times["p99_ms"]


async def _done(work: Awaitable[object]) -> None:
    await work
