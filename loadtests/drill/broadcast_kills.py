"""A drill that kills processes at random during one broadcast, which is also paused and resumed again and again.

Each address must get exactly one message: one is stored for each contact, and each arrives. A killed mta process may
deliver the messages that waited for their commit once more, with the same Message-ID.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from engine.base import ids
from loadtests.drill import faults
from loadtests.drill.account_state import AccountState, client_of
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.faults import Fault, InjectedFault, inject
from loadtests.drill.report import AllowedCopies, Check, CopyReason, DrillReport
from loadtests.drill.running import EVERY_S, ON_THE_WIRE, on_service, until_empty
from loadtests.kit.accounts import ApiAccess, new_access
from loadtests.kit.http_client import ApiClient
from loadtests.kit.service import Service

DOMAINS: Final = 1_000
ENDS_S: Final = 300.0  # for the broadcast to end after the last kill
_FAULTS: Final[Sequence[Fault]] = (
    faults.kill_worker, faults.kill_worker, faults.kill_api, faults.kill_mta, faults.kill_postgres, faults.kill_valkey,
)  # fmt: skip


@on_service()
async def run(service: Service, order: DrillOrder) -> DrillReport:
    """Kill worker, api, mta, PostgreSQL and Valkey during one broadcast."""
    access = await new_access(service.settings, "broadcasts")
    await _store_contacts(service, access, order.messages)
    async with client_of(service, access) as api:
        broadcast = await _start(api, access, order)
        injected = await _strike(service, api, broadcast, order)
        ended = await _until_sent(api, broadcast)
    await until_empty(service.database_url)
    return await _report(service, access, broadcast, ended, injected, order)


async def _strike(service: Service, api: ApiClient, broadcast: str, order: DrillOrder) -> list[InjectedFault]:
    """Kill one process after the other, with a pause and a resume around each."""
    injected: list[InjectedFault] = []
    for _ in range(order.rounds):
        await asyncio.sleep(order.rng.uniform(0.5, 1.5) * EVERY_S)
        fault = order.rng.choice(_FAULTS)
        injected.append(await asyncio.to_thread(inject, fault, service, order.rng))
        for action in ("pause", "resume"):
            await api.insist("POST", f"/v1/broadcasts/{broadcast}/{action}", rng=order.rng)
            await asyncio.sleep(order.rng.uniform(0, 0.2))
    return injected


async def _start(api: ApiClient, access: ApiAccess, order: DrillOrder) -> str:
    """Send a broadcast whose pace keeps it going until about the last kill."""
    per_minute = max(60, round(order.messages / (order.rounds * EVERY_S * 2.0) * 60))
    list_id = (await api.insist("GET", "/v1/lists")).json["data"][0]["id"]
    body = {"name": "Drill", "list": list_id, "from": access.sender, "subject": "Hello {{name}}",
            "text": "Hello {{email}}.", "perMinute": per_minute}  # fmt: skip
    made = (await api.insist("POST", "/v1/broadcasts", body)).json
    await api.insist("POST", f"/v1/broadcasts/{made['id']}/send", {})
    return str(made["id"])


async def _until_sent(api: ApiClient, broadcast: str) -> dict[str, Any]:
    """Return the broadcast once it has ended, or after some minutes."""
    answer: dict[str, Any] = {}
    for _ in range(round(ENDS_S)):
        answer = (await api.insist("GET", f"/v1/broadcasts/{broadcast}")).json
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
    with_mta = ("mta", "postgres", "worker") if order.profile == "small" else ("mta", "postgres")
    kills = sum(one.label.startswith(with_mta) for one in injected)
    counts = ended.get("counts", {})
    people = order.messages
    report = DrillReport(
        drill="broadcast-kills", sent=people, accepted=counts.get("accepted", 0), delivered=len(arrived),
        lost=people - len(arrived), duplicated=sum(count > 1 for count in arrived.values()), copies=copies,
        done=[one.label for one in injected],
    )  # fmt: skip
    report.allow_copies(
        AllowedCopies.each(kills, ON_THE_WIRE, CopyReason.MTA_KILLED, CopyReason.POSTGRES_ENDED)
    )  # fmt: skip
    report.checks += [
        Check("the broadcast is sent", ended.get("status") == "sent", str(ended.get("status"))),
        Check("accepted + skipped = recipients", counts.get("waiting") == 0, f"{counts}"),
        Check("one message is stored for each address", tuple(stored) == (people, people), f"{tuple(stored)}"),
        Check("every recipient is marked", unmarked == 0, f"{unmarked} are not"),
        Check("each address got it", len(arrived) == people, f"{len(arrived)} of {people}"),
        *await state.check_account_log(people),
    ]
    return report


async def _store_contacts(service: Service, access: ApiAccess, people: int) -> None:
    """Store a list with contacts, a stream, and an approved review."""
    addresses = [f"person{number}@drill-{number % DOMAINS}.test" for number in range(people)]
    await service.rows(
        "WITH list AS (INSERT INTO contact_lists (id, account_id, name, name_key, contacts, created_at, updated_at)"
        " VALUES ($2, $1, 'Drill', 'drill', $5, now(), now())), review AS ("
        "INSERT INTO broadcast_reviews (account_id, approved_at) VALUES ($1, now())), stream AS ("
        "INSERT INTO streams (account_id, slug, name, created_at) VALUES ($1, 'announcements', 'News', now())),"
        " stored AS (INSERT INTO contacts (id, account_id, address, email, consent, consent_at, consent_by, search,"
        " trigrams, created_at, updated_at) SELECT n.id, $1, n.address, n.address, 'customer', now(), 'drill',"
        " n.address, '{}', now(), now() FROM unnest($3::uuid[], $4::text[]) AS n (id, address) RETURNING id)"
        " INSERT INTO contact_list_members (list_id, contact_id, account_id, added_at)"
        " SELECT $2, id, $1, now() FROM stored",
        access.account_id, ids.uuid7(), list(ids.uuid7s(people)), addresses, people,
    )  # fmt: skip
