"""Drills that kill one kind of process at random moments under load."""

from typing import Final

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import RelayClient, plan
from loadtests.drill.faults import FAULTS
from loadtests.drill.report import AllowedCopies, CopyReason, DrillReport
from loadtests.drill.running import NO_COPIES, ON_THE_WIRE, RATE, faulted, on_service
from loadtests.kit.accounts import first_access
from loadtests.kit.service import Service

_MAY_COPY: Final = {  # what was on the wire comes again
    "kill-mta": CopyReason.MTA_KILLED, "kill-postgres": CopyReason.POSTGRES_ENDED,
    "kill-backend": CopyReason.POSTGRES_ENDED,
}  # fmt: skip
_IN_HOST: Final = frozenset({"kill-relay", "kill-worker"})  # kills that end the mta too in the small profile


@on_service()
async def run(service: Service, order: DrillOrder) -> DrillReport:
    """Run the drill that is named after one of `faults.FAULTS`."""
    return await faulted(service, order, FAULTS[order.name], name=order.name, allowed_copies=_copies(order))


@on_service()
async def kill_relay(service: Service, order: DrillOrder) -> DrillReport:
    """Kill the SMTP submission process."""
    sends = plan(order.messages, "kill-relay")
    client = RelayClient(service.submission_tls_port, first_access(service), sends, rate=RATE, rng=order.rng)
    return await faulted(
        service, order, FAULTS["kill-relay"], name="kill-relay", client=client, allowed_copies=_copies(order)
    )


def _copies(order: DrillOrder) -> AllowedCopies:
    """Return how many extra copies the drill allows, and why."""
    reason = _MAY_COPY.get(order.name)
    if order.profile == "small" and order.name in _IN_HOST:
        reason = CopyReason.MTA_KILLED
    return AllowedCopies.each(order.rounds, ON_THE_WIRE, reason) if reason else NO_COPIES
