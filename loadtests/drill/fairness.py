"""`ops drill fairness`: one account floods a slow site, another sends to it now and then; their waiting times are read.

Rules: the causes of each delivery sum to its time between two events; between the acceptance of a bystander's message
and its transaction no more of the flood begins than one turn of the deficit round robin and what the connections have
taken already; the sums of analytics are those of the messages.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from engine.base import clock
from loadtests.drill.arrivals import until_arrived
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import Send, send_paced
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.running import on_service
from loadtests.kit.accounts import ApiAccess, first_access, new_access
from loadtests.kit.http_client import ApiClient
from loadtests.kit.service import Service
from mta.outbound.sites.fair_queue import FLOOR, QUANTUM

CONNECTIONS: Final = 2  # to the site, each with one transaction per second
SITE: Final = "slow.test"
FLOOD: Final = 40
BYSTANDERS: Final = 8
EVERY_S: Final = 1.5
TURN: Final = QUANTUM // FLOOR  # messages of an account in one turn, at most
TAKEN: Final = 2 * CONNECTIONS  # by the connections before: one on the wire and one pipelined behind it, on each
TOLERANCE_MS: Final = 1
SETTINGS: Final = {"REQUEST_RATE": "100000", "SITE_CONNECTIONS": str(CONNECTIONS)}
_ARRIVE_S: Final = 40.0
_SETTLE_S: Final = 10.0
_ASK_S: Final = 0.1
_OUTCOMES: Final = frozenset({"delivered", "deferred", "bounced", "failed"})


class WaitedMessage(Struct, frozen=True):
    """A message and its waits, as the API shows them. Times are Unix milliseconds."""

    id: str
    created_ms: int
    outcomes_ms: list[int]
    waits: list[dict[str, Any]]

    @property
    def began_ms(self) -> int:
        """Return when the last transaction began."""
        last = self.waits[-1]
        return _ms(last["until"]) - int(last["causes"]["transaction"])

    @property
    def error_ms(self) -> int:
        """Return the largest difference between the sum of causes and the time that it divides."""
        starts = [self.created_ms, *self.outcomes_ms]
        spans = [end - start for start, end in zip(starts, self.outcomes_ms, strict=False)]
        sums = [sum(map(int, one["causes"].values())) for one in self.waits]
        if len(sums) != len(spans):
            return 1_000_000
        return max(abs(found - span) for found, span in zip(sums, spans, strict=True))

    def waited_ms(self, cause: str) -> int:
        """Return the time of one cause."""
        return sum(int(one["causes"][cause]) for one in self.waits)


@on_service(SETTINGS)
async def run(service: Service, _order: DrillOrder) -> DrillReport:
    """Flood the site, send the bystander's messages meanwhile, and read what each message waited for."""
    flooding, beside = first_access(service), await new_access(service.settings, "bystander")
    flood = [Send("flood", number, f"slow+1@{SITE}") for number in range(FLOOD)]
    bystander = [Send("bystander", number, f"slow+1@{SITE}") for number in range(BYSTANDERS)]
    async with ApiClient(service.base_url, flooding.key) as one, ApiClient(service.base_url, beside.key) as other:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send_paced(one, flooding, flood, 1_000))
            tasks.create_task(_beside(other, beside, bystander))
        sent = [*flood, *bystander]
        arrived = await until_arrived(service.sink, {send.key: send.answered_at for send in sent}, _ARRIVE_S)
        flooded = await asyncio.gather(*[_read(one, send) for send in flood])
        waited = await asyncio.gather(*[_read(other, send) for send in bystander])
        sums = (await other.insist("GET", "/v1/analytics/waits?days=1")).json["total"]["causes"]
    return _report(sent, len(arrived), flooded, waited, sums)


async def _beside(api: ApiClient, access: ApiAccess, sends: Sequence[Send]) -> None:
    await asyncio.sleep(EVERY_S)  # the flood waits first
    await send_paced(api, access, sends, 1 / EVERY_S)


async def _read(api: ApiClient, send: Send) -> WaitedMessage:
    """Read a message once it is settled, or as it is after `_SETTLE_S`."""
    for _ in range(round(_SETTLE_S / _ASK_S)):
        found = (await api.insist("GET", f"/v1/messages/{send.message_id}")).json
        if found["status"] == "delivered":
            break
        await asyncio.sleep(_ASK_S)
    return WaitedMessage(
        found["id"],
        _ms(found["createdAt"]),
        [_ms(event["createdAt"]) for event in found["waybill"] if event["type"] in _OUTCOMES],
        found["waits"],
    )


def _report(
    sent: Sequence[Send],
    arrived: int,
    flooded: Sequence[WaitedMessage],
    waited: Sequence[WaitedMessage],
    sums: dict[str, int],
) -> DrillReport:
    error_ms = max(one.error_ms for one in [*flooded, *waited])
    ahead = [sum(one.created_ms < other.began_ms < one.began_ms for other in flooded) for one in waited]
    others = [one.waited_ms("otherAccounts") for one in waited]
    shares = [one.waits[-1]["fairShare"] for one in waited]
    own: Counter[str] = Counter()
    for one in waited:
        for attempt in one.waits:
            own.update(attempt["causes"])
    return DrillReport(
        drill="fairness",
        sent=len(sent),
        accepted=sum(one.message_id is not None for one in sent),
        delivered=arrived,
        lost=len(sent) - arrived,
        recovery_s=max(others) / 1_000,
        checks=[
            Check(f"causes sum to the time within {TOLERANCE_MS} ms", error_ms <= TOLERANCE_MS, f"{error_ms} ms"),
            Check(
                f"at most {TURN + TAKEN} messages of the flood before each of the bystander",
                max(ahead) <= TURN + TAKEN,
                f"{max(ahead)}",
            ),
            Check("the bystander waited for other accounts", max(others) > 0, f"{max(others)} ms at most"),
            Check("and had a fair share below 1", min(shares) < 1, f"{min(shares):.2f}"),
            Check("analytics have the sums of its messages", +own == +Counter(sums), f"{sum(sums.values())} ms in all"),
        ],
        done=[
            f"bystander {number}: {ahead[number]} of the flood before it, {one.waits[-1]['text']}"
            for number, one in enumerate(waited)
        ],
        figures={"ahead": ahead, "otherAccountsMs": others, "fairShares": shares},
    )


def _ms(text: str) -> int:
    return clock.milliseconds(datetime.fromisoformat(text))
