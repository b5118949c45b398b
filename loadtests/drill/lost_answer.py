"""`ops drill lost-answer`: clients repeat requests whose answer was lost, and no message is sent twice.

Every send has an idempotency key. For a third of them the client closes the connection at a random moment, before or
after the commit, while API workers are killed. Then fifty clients post one key at once, and ten post one batch.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import Send, SendClient, body_of, plan, planned
from loadtests.drill.faults import FAULTS, InjectedFault, inject
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.running import RATE, on_service, report_after_faults, under_load
from loadtests.kit.accounts import ApiAccess, first_access
from loadtests.kit.http_client import ApiClient
from loadtests.kit.service import Service

NAME: Final = "lost-answer"
CUT: Final = 1 / 3
PARALLEL: Final = 50
BATCHES: Final = 10
KEYS: Final = 10  # a batch


@on_service()
async def run(service: Service, order: DrillOrder) -> DrillReport:
    """Run the drill; each round kills a worker and posts one key fifty times at once."""
    access = first_access(service)
    client = SendClient(service.base_url, access, plan(order.messages, NAME), rate=RATE, cut=CUT, rng=order.rng)
    injected = await under_load(service, client, FAULTS["kill-api"], rounds=order.rounds, rng=order.rng)
    checks = []
    async with ApiClient(service.base_url, access.key) as api:
        for number in range(order.rounds):
            checks.append(await _parallel(service, api, access, client.sends))
            if number % 2:
                checks.append(await _parallel(service, api, access, client.sends, injected, order.rng))
            checks.append(await _batches(api, access, client.sends))
    report = await report_after_faults(service, access, client, injected, name=NAME)
    done = Check("parallel posts of one key make one message", True, f"{len(checks)} times")  # noqa: FBT003 - a field
    report.checks += [check for check in checks if not check.ok] or [done]
    return report


async def _parallel(
    service: Service,
    api: ApiClient,
    access: ApiAccess,
    sends: list[Send],
    injected: list[InjectedFault] | None = None,
    rng: random.Random | None = None,
) -> Check:
    """Post one key fifty times at once; with `injected` a worker is killed meanwhile and lost answers are retried."""
    send = planned(NAME, len(sends))
    body = body_of(access, send)
    async with asyncio.TaskGroup() as tasks:
        posts = [tasks.create_task(api.insist("POST", "/v1/emails", body)) for _ in range(PARALLEL)]
        if injected is not None and rng is not None:
            injected.append(await asyncio.to_thread(inject, FAULTS["kill-api"], service, rng))
    answers = [post.result() for post in posts]
    statuses = Counter(answer.status for answer in answers)
    found = {answer.json.get("id") for answer in answers}
    _note(send, [answer.json for answer in answers], answers[0].status, sends)
    # The lost answer of the killed worker may have been the 202.
    firsts = (0, 1) if injected is not None else (1,)
    ok = len(found) == 1 and statuses[202] in firsts and statuses[200] == PARALLEL - statuses[202]
    return Check("parallel posts of one key make one message", ok, f"{dict(statuses)}, {len(found)} ids")


async def _batches(api: ApiClient, access: ApiAccess, sends: list[Send]) -> Check:
    """Post the same ten messages in ten batches at once."""
    batch = [planned(NAME, len(sends) + number) for number in range(KEYS)]
    body = {"messages": [body_of(access, send) for send in batch]}
    posts = [api.insist("POST", "/v1/emails/batch", body) for _ in range(BATCHES)]
    answers = [one.json for one in await asyncio.gather(*posts)]
    accepted, duplicates = (sum(one.get(name, 0) for one in answers) for name in ("accepted", "duplicates"))
    ids = []
    for place, send in enumerate(batch):
        items = [answer["data"][place] for answer in answers if "data" in answer]
        ids.append({item.get("id") for item in items})
        _note(send, items, 200, sends)
    ok = accepted == KEYS and duplicates == KEYS * (BATCHES - 1) and all(len(one) == 1 for one in ids)
    return Check("parallel batches of the same keys make one message each", ok, f"{accepted}, {duplicates} duplicates")


def _note(send: Send, answers: Sequence[dict[str, Any]], status: int, sends: list[Send]) -> None:
    """Record the first id that the client received."""
    taken = next((answer["id"] for answer in answers if "id" in answer), None)
    send.first_at, send.tries = time.time(), 1
    send.answered(202 if taken else status, taken)
    sends.append(send)
