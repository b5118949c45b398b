"""A drill that kills processes at random during one broadcast, which is also paused and resumed again and again.

Each address must get exactly one message: one is stored for each contact, and each arrives. A killed mta process may
deliver the messages that waited for their commit once more, with the same Message-ID.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import aiohttp
import asyncpg

from engine.base import ids
from loadtests.drill import faults
from loadtests.drill.api_caller import AccountState, ApiCaller
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.faults import Fault, InjectedFault, inject
from loadtests.drill.fresh_service import account_id, database_url, new_access, run_on_service, until_empty
from loadtests.drill.kill_drills import EVERY_S, ON_THE_WIRE
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.send_client import ApiAccess
from loadtests.drill.service import Service

DOMAINS: Final = 1_000
ENDS_S: Final = 300.0  # for the broadcast to end after the last kill
TRIES: Final = 60  # of a call while the service comes back
_AWAY = (OSError, TimeoutError, aiohttp.ClientError, asyncpg.PostgresError, asyncpg.InterfaceError)
_FAULTS: Final[Sequence[Fault]] = (
    faults.kill_worker, faults.kill_worker, faults.kill_api, faults.kill_mta, faults.kill_postgres, faults.kill_valkey,
)  # fmt: skip


def run(order: DrillOrder) -> DrillReport:
    """Kill worker, api, mta, PostgreSQL and Valkey during one broadcast."""

    async def play(service: Service) -> DrillReport:
        access = await new_access(service, "broadcasts")
        await _store_contacts(service, access, order.messages)
        async with ApiCaller(service, access) as caller:
            broadcast = await _start(caller, access, order)
            injected = await _strike(service, caller, broadcast, order)
            ended = await _until_sent(caller, broadcast)
        await until_empty(database_url(service))
        return await _report(service, access, broadcast, ended, injected, order)

    return run_on_service(play)


async def _strike(service: Service, caller: ApiCaller, broadcast: str, order: DrillOrder) -> list[InjectedFault]:
    """Kill one process after the other, with a pause and a resume around each."""
    injected: list[InjectedFault] = []
    for _ in range(order.rounds):
        await asyncio.sleep(order.rng.uniform(0.5, 1.5) * EVERY_S)
        fault = order.rng.choice(_FAULTS)
        injected.append(await asyncio.to_thread(inject, fault, service, order.rng))
        for action in ("pause", "resume"):
            await _insist(caller, "POST", f"/v1/broadcasts/{broadcast}/{action}")
            await asyncio.sleep(order.rng.uniform(0, 0.2))
    return injected


async def _start(caller: ApiCaller, access: ApiAccess, order: DrillOrder) -> str:
    """Send a broadcast whose pace keeps it going until about the last kill."""
    per_minute = max(60, round(order.messages / (order.rounds * EVERY_S * 2.0) * 60))
    list_id = (await _insist(caller, "GET", "/v1/lists"))["data"][0]["id"]
    body = {"name": "Drill", "list": list_id, "from": access.sender, "subject": "Hello {{name}}",
            "text": "Hello {{email}}.", "perMinute": per_minute}  # fmt: skip
    made = await _insist(caller, "POST", "/v1/broadcasts", body)
    await _insist(caller, "POST", f"/v1/broadcasts/{made['id']}/send", {})
    return str(made["id"])


async def _insist(caller: ApiCaller, method: str, path: str, body: object = None) -> dict[str, Any]:
    """Repeat a call until the service answers it; a 409 is an answer."""
    for _ in range(TRIES):
        with suppress(*_AWAY):
            status, answer = await caller.call(method, path, body)
            if status < 500:
                return answer
        await asyncio.sleep(0.5)
    raise RuntimeError(f"{method} {path} was not answered")


async def _until_sent(caller: ApiCaller, broadcast: str) -> dict[str, Any]:
    """Return the broadcast once it has ended, or after some minutes."""
    answer: dict[str, Any] = {}
    for _ in range(round(ENDS_S)):
        answer = await _insist(caller, "GET", f"/v1/broadcasts/{broadcast}")
        if answer.get("status") not in {"sending", "paused"}:
            break
        await asyncio.sleep(1.0)
    return answer


async def _report(
    service: Service, access: ApiAccess, broadcast: str, ended: dict[str, Any], injected: list[InjectedFault],
    order: DrillOrder,
) -> DrillReport:  # fmt: skip
    state = AccountState(service, access)
    number = ids.parse_id(ids.Kind.BROADCAST, broadcast)
    stored = await state.read("SELECT ROW(count(*), count(DISTINCT address)) FROM recipients WHERE account_id = $1")
    unmarked = await state.read(
        "SELECT count(*) FROM broadcast_recipients WHERE $1::uuid IS NOT NULL AND broadcast_id = $2"
        " AND (state <> 'accepted' OR message_id IS NULL)",
        number,
    )
    arrived = {address: len(found) for address, found in (await state.arrivals()).items()}
    copies = sum(arrived.values()) - len(arrived)
    kills = sum(one.label.startswith(("mta", "postgres")) for one in injected)
    counts = ended.get("counts", {})
    people = order.messages
    return DrillReport(
        drill="broadcast-kills",
        sent=people,
        accepted=counts.get("accepted", 0),
        delivered=len(arrived),
        lost=people - len(arrived),
        duplicated=sum(count > 1 for count in arrived.values()),
        copies=copies,
        done=[one.label for one in injected],
        checks=[
            Check("the broadcast is sent", ended.get("status") == "sent", str(ended.get("status"))),
            Check("accepted + skipped = recipients", counts.get("waiting") == 0, f"{counts}"),
            Check("one message is stored for each address", tuple(stored) == (people, people), f"{tuple(stored)}"),
            Check("every recipient is marked", unmarked == 0, f"{unmarked} are not"),
            Check("each address got it", len(arrived) == people, f"{len(arrived)} of {people}"),
            Check(f"at most {kills * ON_THE_WIRE} extra copies", copies <= kills * ON_THE_WIRE, f"{copies}"),
            *await state.check_account_log(people),
        ],
    )


async def _store_contacts(service: Service, access: ApiAccess, people: int) -> None:
    """Store a list with contacts, a stream, and an approved review."""
    account, list_id = account_id(access), ids.uuid7()
    contacts: list[UUID] = list(ids.uuid7s(people))
    addresses = [f"person{number}@drill-{number % DOMAINS}.test" for number in range(people)]
    connection = await asyncpg.connect(database_url(service), timeout=10)
    try:
        await connection.execute(
            "WITH list AS (INSERT INTO contact_lists (id, account_id, name, name_key, contacts, created_at, updated_at)"
            " VALUES ($2, $1, 'Drill', 'drill', $5, now(), now())), review AS ("
            "INSERT INTO broadcast_reviews (account_id, approved_at) VALUES ($1, now())), stream AS ("
            "INSERT INTO streams (account_id, slug, name, created_at) VALUES ($1, 'announcements', 'News', now())),"
            " stored AS (INSERT INTO contacts (id, account_id, address, email, consent, consent_at, consent_by, search,"
            " trigrams, created_at, updated_at) SELECT n.id, $1, n.address, n.address, 'customer', now(), 'drill',"
            " n.address, '{}', now(), now() FROM unnest($3::uuid[], $4::text[]) AS n (id, address) RETURNING id)"
            " INSERT INTO contact_list_members (list_id, contact_id, account_id, added_at)"
            " SELECT $2, id, $1, now() FROM stored",
            account, list_id, contacts, addresses, people,
        )  # fmt: skip
    finally:
        await connection.close()
