"""`ops drill lost-answer`: clients repeat requests whose answer was lost, and no message is sent twice.

Every send has an idempotency key. For a third of them the client closes the connection at a random moment, before or
after the commit, while API workers are killed. Then fifty clients post one key at once, and ten post one batch.
"""

import asyncio
import random
import time
from collections import Counter
from typing import Any, Final

import aiohttp
import msgspec

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.faults import FAULTS, InjectedFault, inject
from loadtests.drill.fresh_service import first_access, run_on_service
from loadtests.drill.kill_drills import RATE, report_after_faults, under_load
from loadtests.drill.reconciliation import Reconciliation
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.send_client import PAUSE_S, ApiAccess, Send, SendClient, plan, planned
from loadtests.drill.service import Service

NAME: Final = "lost-answer"
CUT: Final = 1 / 3
PARALLEL: Final = 50
BATCHES: Final = 10
KEYS: Final = 10  # a batch
_TRIES: Final = 200
_GONE: Final = (0, 429, 502, 503, 504)


def run(order: DrillOrder) -> DrillReport:
    """Run the drill (fault 2); each round kills a worker and posts one key fifty times at once."""

    async def play(service: Service) -> DrillReport:
        access = first_access(service)
        client = SendClient(service.base_url, access, plan(order.messages, NAME), rate=RATE, cut=CUT, rng=order.rng)
        injected = await under_load(service, client, FAULTS["kill-api"], rounds=order.rounds, rng=order.rng)
        checks = []
        for number in range(order.rounds):
            checks.append(await _parallel(service, access, client.sends))
            if number % 2:
                checks.append(await _parallel(service, access, client.sends, injected, order.rng))
            checks.append(await _batches(service, access, client.sends))
        wrong = [check for check in checks if not check.ok]

        async def extra_checks(_: Reconciliation) -> list[Check]:
            return wrong or [Check("parallel posts of one key make one message", True, f"{len(checks)} times")]  # noqa: FBT003 - a field

        return await report_after_faults(service, access, client, injected, name=NAME, extra_checks=extra_checks)

    return run_on_service(play)


async def _parallel(
    service: Service,
    access: ApiAccess,
    sends: list[Send],
    injected: list[InjectedFault] | None = None,
    rng: random.Random | None = None,
) -> Check:
    """Post one key fifty times at once; with `struck` a worker is killed meanwhile and lost answers are retried."""
    send = planned(NAME, len(sends))
    body = {
        "from": access.sender, "to": send.address, "subject": "Once", "text": "Once.\n",
        "headers": {"X-Test-Id": f"{NAME}-{send.number}"}, "idempotencyKey": f"{NAME}-{send.number}",
    }  # fmt: skip
    async with SendClient.session() as session, asyncio.TaskGroup() as tasks:
        posts = [tasks.create_task(_post(session, service, access, "/v1/emails", body)) for _ in range(PARALLEL)]
        if injected is not None and rng is not None:
            injected.append(await asyncio.to_thread(inject, FAULTS["kill-api"], service, rng))
    answers = [post.result() for post in posts]
    statuses = Counter(status for status, _ in answers)
    found = {answer.get("id") for _, answer in answers}
    _write_down(send, answers, sends)
    # The lost answer of the killed worker may have been the 202.
    firsts = (0, 1) if injected is not None else (1,)
    ok = len(found) == 1 and statuses[202] in firsts and statuses[200] == PARALLEL - statuses[202]
    return Check("parallel posts of one key make one message", ok, f"{dict(statuses)}, {len(found)} ids")


async def _batches(service: Service, access: ApiAccess, sends: list[Send]) -> Check:
    """Post the same ten messages in ten batches at once."""
    batch = [planned(NAME, len(sends) + number) for number in range(KEYS)]
    messages = [
        {
            "from": access.sender, "to": send.address, "subject": "Once", "text": "Once.\n",
            "headers": {"X-Test-Id": f"{NAME}-{send.number}"}, "idempotencyKey": f"{NAME}-{send.number}",
        }
        for send in batch
    ]  # fmt: skip
    body = {"messages": messages}
    async with SendClient.session() as session, asyncio.TaskGroup() as tasks:
        posts = [tasks.create_task(_post(session, service, access, "/v1/emails/batch", body)) for _ in range(BATCHES)]
    answers = [post.result()[1] for post in posts]
    accepted = sum(answer.get("accepted", 0) for answer in answers)
    duplicates = sum(answer.get("duplicates", 0) for answer in answers)
    ids = []
    for place, send in enumerate(batch):
        items = [(200, answer["data"][place]) for answer in answers if "data" in answer]
        ids.append({item.get("id") for _, item in items})
        _write_down(send, items, sends)
    ok = accepted == KEYS and duplicates == KEYS * (BATCHES - 1) and all(len(one) == 1 for one in ids)
    return Check("parallel batches of the same keys make one message each", ok, f"{accepted}, {duplicates} duplicates")


async def _post(
    session: aiohttp.ClientSession, service: Service, access: ApiAccess, path: str, body: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    """Post until an answer other than a temporary refusal arrives; return status and body."""
    headers = {"Authorization": f"Bearer {access.key}"}
    status, answer = 0, b"{}"
    for _ in range(_TRIES):
        try:
            async with session.post(service.base_url + path, json=body, headers=headers) as reply:
                status, answer = reply.status, await reply.read()
        except (aiohttp.ClientError, OSError):  # the time-out is an OSError
            status = 0
        if status not in _GONE:
            break
        await asyncio.sleep(random.uniform(*PAUSE_S))
    return status, msgspec.json.decode(answer) if answer else {}


def _write_down(send: Send, answers: list[tuple[int, dict[str, Any]]], sends: list[Send]) -> None:
    """Record the first id that the client received."""
    ids = [answer["id"] for _, answer in answers if "id" in answer]
    send.message_id = ids[0] if ids else None
    send.status = 202 if ids else answers[0][0]
    send.tries = 1
    send.first_at = send.answered_at = time.time()
    sends.append(send)
