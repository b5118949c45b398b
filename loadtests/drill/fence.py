"""`ops drill fence`: a delivering process stands still for twice its lease and must not touch what it has lost then.

As `pause-mta`, with a short lease and with mail servers that take their time over the final dot: every stop meets mail
on the wire.
"""

from typing import Final

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.run import ON_THE_WIRE, counted, under_load
from loadtests.drill.sends import DOMAINS, SendClient, plan
from loadtests.drill.service import Service
from loadtests.drill.sinks import SinkSites
from loadtests.drill.stage import first_access, played_in_world
from loadtests.drill.stops import Stops
from loadtests.drill.verdict import DrillVerdict
from loadtests.drill.world import DrillWorld

NAME: Final = "fence"
RATE: Final = 120.0
DOT_S: Final = 0.1
SETTINGS: Final = {"MTA_WORKERS": "2", "LEASE_S": "3", "SHARD_RULES": "manual"}


def run(order: DrillOrder) -> DrillReport:
    """Row 5, aimed."""

    async def play(service: Service, world: DrillWorld) -> DrillReport:
        access, stops = first_access(service), Stops(DOT_S)
        store = service.state.parent / "mail"
        client = SendClient(service.base_url, access, plan(order.messages, NAME), rate=RATE, rng=order.rng)
        domains = [f"d{number}.test" for number in range(DOMAINS)]

        async def also(_: DrillVerdict) -> list[Check]:
            return [stops.judged(store, client.sends)]

        async with SinkSites(domains, store, world.point, port=service.sink_port, delay_s=DOT_S):
            struck = await under_load(service, client, stops.strike, rounds=order.rounds, rng=order.rng)
            copies = order.rounds * ON_THE_WIRE
            return await counted(service, access, client, struck, name=NAME, most_copies=copies, also=also, store=store)

    return played_in_world(play, SETTINGS)
