"""`ops drill bystander`: one site of ten misbehaves; measure the delivery times of the other nine.

The same paced mail goes to ten sites several times: first all are healthy, then one of them shows a different fault in
each phase. Rule: the 95th percentile of the other nine, from the 202 to the arrival, stays within twice the baseline.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from loadtests.drill.arrivals import until_arrived
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import Send, percentile, send_paced
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.running import at_best, on_service
from loadtests.kit.accounts import ApiAccess, first_access
from loadtests.kit.http_client import ApiClient
from loadtests.kit.service import Service

SITES: Final = 10
RATE: Final = 50  # messages a second: about a tenth of what two cores deliver, so that queues are the sites' own
SECONDS: Final = 15.0  # a phase
WITHIN: Final = 2.0  # times the baseline
TRIES: Final = 3
WELL: Final = "all are healthy"
BEHAVIOURS: Final = {  # local parts that select the behaviour of the sink; {n} makes each address different
    "tarpit": "one octet of the reply to RCPT every 10 s",
    "slow+60": "250 a minute after the final dot",
    "busy+{n}": "421 at RCPT, then closed",
    "full+{n}": "452 at RCPT",
    "drop+{n}": "closed after the final dot",
}
SETTINGS: Final = {"REQUEST_RATE": "100000", "RETRY_LADDER_S": "60"}
_WARM_S: Final = 3.0
_ARRIVE_S: Final = 15.0  # for the last ones of a phase
_MIN_SAMPLES: Final = 20  # arrivals needed for a percentile


class BystanderPhase(Struct, kw_only=True):
    """Delivery times of the nine healthy sites during one behaviour of the tenth, in milliseconds."""

    tenth: str
    sent: int  # to the nine
    arrived: int
    p50_ms: float
    p95_ms: float
    worst_ms: float
    times_baseline: float = 1.0
    tries: int = 1


@on_service(SETTINGS)
async def run(service: Service, _order: DrillOrder) -> DrillReport:
    """Run the drill at its standard rate and duration."""
    return _report(await drill(service, rate=RATE, seconds=SECONDS))


async def drill(
    service: Service,
    *,
    rate: int,
    seconds: float,
    behaviours: Sequence[str] = tuple(BEHAVIOURS),
    access: ApiAccess | None = None,
) -> list[BystanderPhase]:
    """Measure the phases on a running service, the baseline first; its retry schedule must be longer than a phase."""
    sender, count = access or first_access(service), round(rate * seconds)
    async with ApiClient(service.base_url, sender.key) as api:
        await _send(api, sender, "warm", round(rate * _WARM_S), rate, None)

        async def phase(behaviour: str | None, number: int = 1) -> BystanderPhase:
            name = "".join(letter if letter.isalnum() else "-" for letter in f"{behaviour or WELL}-{number}")
            sent = await _send(api, sender, name, count, rate, behaviour)
            return await _measured(service, BEHAVIOURS.get(behaviour or "", WELL), sent)

        phases = [await phase(None)]
        base_ms = max(phases[0].p95_ms, 0.001)
        for behaviour in behaviours:
            found, tries = await at_best(partial(phase, behaviour), _judged, WITHIN * base_ms, TRIES)
            found.times_baseline, found.tries = round(found.p95_ms / base_ms, 2), tries
            phases.append(found)
    return phases


def _judged(phase: BystanderPhase) -> float:
    """Return the time to judge a phase by; below all limits if mail was lost, so that no further try hides that."""
    return phase.p95_ms if phase.arrived == phase.sent else -1.0


async def _measured(service: Service, tenth: str, sent: Sequence[Send]) -> BystanderPhase:
    waiting = {one.key: one.answered_at for one in sent}
    arrived = await until_arrived(service.sink, waiting, _ARRIVE_S)
    waits = sorted(max(0.0, at - waiting[key]) * 1_000 for key, at in arrived.items())
    p50, p95, worst = (_percentile(waits, part) for part in (0.50, 0.95, 1.0))
    return BystanderPhase(tenth=tenth, sent=len(sent), arrived=len(waits), p50_ms=p50, p95_ms=p95, worst_ms=worst)


async def _send(
    api: ApiClient, access: ApiAccess, name: str, count: int, rate: int, behaviour: str | None
) -> list[Send]:
    """Send `count` messages to the sites in turn, those of the first site to `behaviour`; return the others.

    Raises RuntimeError for a message that is not accepted.
    """
    sends = []
    for number in range(count):
        site = number % SITES
        local = behaviour.format(n=number) if site == 0 and behaviour is not None else f"reader+{name}-{number}"
        sends.append(Send(name, number, f"{local}@bystander{site}.test"))
    await send_paced(api, access, sends, rate)
    for one in sends:
        if one.message_id is None:
            raise RuntimeError(f"not accepted: {one.status} {one.refusal}")
    return [one for one in sends if one.number % SITES]


def _percentile(ordered: Sequence[float], part: float) -> float:
    return percentile(ordered, part) if len(ordered) >= _MIN_SAMPLES else float("inf")


def _report(phases: Sequence[BystanderPhase]) -> DrillReport:
    lines = [
        f"{one.tenth}: p95 {one.p95_ms:.1f} ms, {one.times_baseline:.2f} times, {one.tries} tries" for one in phases
    ]
    sent, arrived = (sum(getattr(one, name) for one in phases) for name in ("sent", "arrived"))
    late = max(one.times_baseline for one in phases)
    return DrillReport(
        drill="bystander",
        sent=sent,
        accepted=sent,
        delivered=arrived,
        lost=sent - arrived,
        recovery_s=max(one.worst_ms for one in phases) / 1_000,
        checks=[
            Check("mail to the other nine sites arrived", sent == arrived, f"{arrived} of {sent}"),
            Check(f"within {WITHIN:g} times their baseline", late <= WITHIN, f"{late:.2f}"),
        ],
        done=lines,
    )
