"""Drills that kill one kind of process at random moments under load."""

from typing import Final

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import RelayClient, plan
from loadtests.drill.faults import FAULTS
from loadtests.drill.report import DrillReport
from loadtests.drill.running import ON_THE_WIRE, RATE, faulted, run_on_service
from loadtests.kit.accounts import first_access
from loadtests.kit.service import Service

_MAY_COPY: Final = frozenset({"kill-mta", "kill-postgres", "kill-backend"})  # what was on the wire comes again


def run(order: DrillOrder) -> DrillReport:
    """Run the drill that is named after one of `faults.FAULTS`."""
    copies = order.rounds * ON_THE_WIRE if order.name in _MAY_COPY else 0

    async def play(service: Service) -> DrillReport:
        return await faulted(service, order, FAULTS[order.name], name=order.name, max_copies=copies)

    return run_on_service(play)


def kill_relay(order: DrillOrder) -> DrillReport:
    """Kill the SMTP submission process."""

    async def play(service: Service) -> DrillReport:
        sends = plan(order.messages, "kill-relay")
        client = RelayClient(service.submission_tls_port, first_access(service), sends, rate=RATE, rng=order.rng)
        return await faulted(service, order, FAULTS["kill-relay"], name="kill-relay", client=client)

    return run_on_service(play)
