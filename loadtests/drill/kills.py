"""Drills that kill one kind of process at random moments under load."""

from typing import Final

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import RelayClient, plan
from loadtests.drill.faults import FAULTS
from loadtests.drill.report import DrillReport
from loadtests.drill.running import ON_THE_WIRE, RATE, faulted, on_service
from loadtests.kit.accounts import first_access
from loadtests.kit.service import Service

_MAY_COPY: Final = frozenset({"kill-mta", "kill-postgres", "kill-backend"})  # what was on the wire comes again
_IN_HOST: Final = frozenset({"kill-relay", "kill-worker"})  # kills that end the mta too in the small profile


@on_service()
async def run(service: Service, order: DrillOrder) -> DrillReport:
    """Run the drill that is named after one of `faults.FAULTS`."""
    return await faulted(service, order, FAULTS[order.name], name=order.name, max_copies=_copies(order))


@on_service()
async def kill_relay(service: Service, order: DrillOrder) -> DrillReport:
    """Kill the SMTP submission process."""
    sends = plan(order.messages, "kill-relay")
    client = RelayClient(service.submission_tls_port, first_access(service), sends, rate=RATE, rng=order.rng)
    return await faulted(
        service, order, FAULTS["kill-relay"], name="kill-relay", client=client, max_copies=_copies(order)
    )


def _copies(order: DrillOrder) -> int:
    """Return how many extra copies the drill allows."""
    may = order.name in _MAY_COPY or (order.profile == "small" and order.name in _IN_HOST)
    return order.rounds * ON_THE_WIRE if may else 0
