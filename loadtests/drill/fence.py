"""`ops drill fence`: an mta process stops for twice its lease and must not touch deliveries that it has lost.

Like `pause-mta`, with a short lease and slow replies to the final dot, so that every stop interrupts mail on the wire.
"""

from typing import Final

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.drill_network import DrillNetwork
from loadtests.drill.fresh_service import first_access, run_with_network
from loadtests.drill.kill_drills import ON_THE_WIRE, report_after_faults, under_load
from loadtests.drill.process_stops import ProcessStops
from loadtests.drill.reconciliation import Reconciliation
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.send_client import DOMAINS, SendClient, plan
from loadtests.drill.service import Service
from loadtests.drill.site_sinks import SinkSites

NAME: Final = "fence"
RATE: Final = 120.0
DOT_S: Final = 0.1
SETTINGS: Final = {"MTA_WORKERS": "2", "LEASE_S": "3", "SHARD_RULES": "manual"}


def run(order: DrillOrder) -> DrillReport:
    """Stop mta processes while mail is on the wire (fault 5)."""

    async def play(service: Service, network: DrillNetwork) -> DrillReport:
        access, stops = first_access(service), ProcessStops(DOT_S)
        store = service.state.parent / "mail"
        client = SendClient(service.base_url, access, plan(order.messages, NAME), rate=RATE, rng=order.rng)
        domains = [f"d{number}.test" for number in range(DOMAINS)]

        async def extra_checks(_: Reconciliation) -> list[Check]:
            return [stops.check_copies(store, client.sends)]

        async with SinkSites(domains, store, network.point, port=service.sink_port, delay_s=DOT_S):
            injected = await under_load(service, client, stops.inject, rounds=order.rounds, rng=order.rng)
            copies = order.rounds * ON_THE_WIRE
            return await report_after_faults(
                service, access, client, injected, name=NAME, max_copies=copies, extra_checks=extra_checks, store=store
            )

    return run_with_network(play, SETTINGS)
