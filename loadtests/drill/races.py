"""`ops drill races`: concurrent requests that compete for one resource, a hundred times; counts must be exact.

Cases: sends at one below the daily cap, a cancellation against the release, a key revoked among sends, a domain deleted
and an address suppressed while their mail waits.
"""

import asyncio
import random
import time
from collections import Counter
from datetime import timedelta
from typing import Final

import asyncpg
import msgspec

from engine.base import clock, ids
from engine.people.api_keys import service as api_keys
from loadtests.drill.account_state import AccountState, client_of, send
from loadtests.drill.arrivals import arrived_at
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.report import Check, DrillReport, combined
from loadtests.drill.running import on_service, until_empty
from loadtests.kit.accounts import ApiAccess, new_access
from loadtests.kit.http_client import ApiClient
from loadtests.kit.service import Service
from ops import admin

AT_ONCE: Final = 30
DOMAINS_AT_ONCE: Final = 10
STARTS_S: Final = 2.0  # from setting a release's time until it comes
REVOKED_S: Final = 1.0  # a revocation shows everywhere within this
ON_ITS_WAY_S: Final = 1.5  # an attempt that was begun before a suppression may still end
_SETTINGS: Final = {"RETRY_LADDER_S": "1,1,1,1"}
_SETTLED: Final = {"delivered", "failed", "rejected", "bounced"}


@on_service(_SETTINGS)
async def run(service: Service, order: DrillOrder) -> DrillReport:
    """Run all races."""
    races = (_cap, _cancel, _revoke, _delete, _suppress)
    return combined("races", [await race(service, order.rounds, order.rng) for race in races])


async def _cap(service: Service, rounds: int, _rng: random.Random) -> DrillReport:
    """Send concurrently at one below the daily cap: exactly one send is accepted each time."""
    access = await new_access(service.settings, "race-cap", daily_cap=0)
    state = AccountState(service, access)
    wrong: list[str] = []
    statuses: Counter[int] = Counter()
    async with client_of(service, access) as api:
        for number in range(rounds):
            await state.read("UPDATE accounts SET daily_cap = $2 WHERE id = $1", number + 1)
            answers = await asyncio.gather(
                *[send(api, access, f"reader+cap{number}-{place}@races.test") for place in range(AT_ONCE)]
            )
            found = Counter(answer.status for answer in answers)
            statuses += found
            if found != {202: 1, 429: AT_ONCE - 1}:
                wrong.append(f"round {number}: {dict(found)}")
    await until_empty(service.database_url)
    arrived = sum(address.startswith("reader+cap") for address in await state.arrivals())
    report = _report("cap", statuses[202] + statuses[429], statuses[202], arrived)
    report.checks += [
        Check("exactly one of the sends at the cap's edge is accepted", not wrong,
              "; ".join(wrong[:3]) or f"{rounds} of {rounds}"),
        Check("every accepted message arrived", arrived == statuses[202], f"{arrived}"),
        *await state.check_account_log(statuses[202]),
    ]  # fmt: skip
    return report


async def _cancel(service: Service, rounds: int, rng: random.Random) -> DrillReport:
    """Cancel scheduled messages while they are released: each is either cancelled or delivered, and its events
    agree."""
    access = await new_access(service.settings, "race-cancel")
    state = AccountState(service, access)
    later = clock.iso(clock.now() + timedelta(hours=1))
    async with client_of(service, access) as api:
        made = [
            await send(api, access, f"reader+cancel{number}@races.test", scheduledAt=later) for number in range(rounds)
        ]
        waiting = [answer.json["id"] for answer in made]
        due = clock.now() + timedelta(seconds=STARTS_S)
        await state.read("UPDATE schedules SET due_at = $2, look_at = $2 WHERE account_id = $1", due)

        async def cancel(message: str) -> int:
            await asyncio.sleep(STARTS_S + rng.uniform(-0.2, 1.3))
            return (await api.call("DELETE", f"/v1/emails/{message}/schedule")).status

        answers = await asyncio.gather(*[cancel(message) for message in waiting])
        await asyncio.sleep(STARTS_S)
        await until_empty(service.database_url)
    statuses, arrivals = await state.statuses(), await state.arrivals()
    won, released = set(), set()
    for number, (message, answer) in enumerate(zip(waiting, answers, strict=True)):
        copies = len(arrivals.get(f"reader+cancel{number}@races.test", []))
        if answer == 200 and statuses[message] == "canceled" and copies == 0:
            won.add(message)
        elif answer == 409 and statuses[message] == "delivered" and copies == 1:
            released.add(message)
    stored = {kind: await state.events(kind) for kind in ("schedule_canceled", "accepted")}
    events = {kind: {ids.format_id(ids.Kind.MESSAGE, one) for one in found} for kind, found in stored.items()}
    report = _report("cancel", rounds, rounds, len(released) + len(won))
    found = f"{len(won)} canceled, {len(released)} released, of {rounds}; {dict(Counter(answers))}"
    report.checks += [
        Check("each is canceled or delivered, as its client was told", len(won) + len(released) == rounds, found),
        Check("the events agree", events == {"schedule_canceled": won, "accepted": released}, "as above"),
        Check("both outcomes occurred", bool(won) and bool(released), found),
        *await state.check_account_log(len(released)),
        Check("no message is counted as scheduled at the end",
              await state.read("SELECT scheduled FROM account_heads WHERE account_id = $1") == 0, "0"),
    ]  # fmt: skip
    return report


async def _revoke(service: Service, rounds: int, rng: random.Random) -> DrillReport:
    """Revoke a key among its sends: each is accepted and arrives, or is refused and leaves no trace."""
    access = await new_access(service.settings, "race-revoke")
    state = AccountState(service, access)
    statuses: Counter[int] = Counter()
    late: list[str] = []
    settings = service.settings
    accepted: list[str] = []
    async with admin.opened(settings) as pool:
        for number in range(rounds):
            key = await admin.create_key(pool, settings, account=access.account, name=f"r{number}", scopes=["all"])
            own = msgspec.structs.replace(access, key=key["apiKey"])
            async with client_of(service, own) as api:
                await send(api, own, f"reader+revoke{number}-first@races.test")
                accepted.append(f"reader+revoke{number}-first@races.test")
                statuses[202] += 1
                answers, ended = await _sends_until(api, own, number, pool, key["id"], rng)
            statuses.update(status for status, _, _ in answers)
            accepted += [address for status, address, _ in answers if status == 202]
            late += [address for status, address, at in answers if status == 202 and at > ended + REVOKED_S]
    await until_empty(service.database_url)
    arrivals = await state.arrivals()
    arrived = {address for address in arrivals if "+revoke" in address}
    copies = sum(len(found) for address, found in arrivals.items() if "+revoke" in address)
    stored = len(await state.statuses())
    report = _report("revoke", sum(statuses.values()), len(accepted), len(arrived))
    found = f"{dict(statuses)}, {len(arrived)} arrived, {copies} copies, {stored} stored"
    strange = set(statuses) - {202, 401}
    report.checks += [
        Check("each send is accepted or refused by 401", not strange, found),
        Check("accepted ones arrive once, refused ones leave nothing",
              arrived == set(accepted) and copies == stored == len(accepted), found),
        Check(f"none is accepted {REVOKED_S:g} s after the revocation", not late, f"{len(late)} late"),
        *await state.check_account_log(len(accepted)),
    ]  # fmt: skip
    return report


async def _sends_until(
    api: ApiClient, access: ApiAccess, number: int, pool: asyncpg.Pool, key: str, rng: random.Random
) -> tuple[list[tuple[int, str, float]], float]:
    """Send around a revocation; return (status, address, start) of each send, and the time of the commit."""
    answers: list[tuple[int, str, float]] = []

    async def send_one(place: int, pause_s: float) -> None:
        address = f"reader+revoke{number}-{place}@races.test"
        await asyncio.sleep(pause_s)
        began = time.monotonic()
        answers.append(((await send(api, access, address)).status, address, began))

    async def revoke() -> float:
        await asyncio.sleep(rng.uniform(0.0, 0.05))
        await api_keys.revoke_key(pool, access.account_id, ids.parse_id(ids.Kind.API_KEY, key), actor="operator")
        return time.monotonic()

    async with asyncio.TaskGroup() as tasks:
        revoking = tasks.create_task(revoke())
        for place in range(AT_ONCE // 3):
            tasks.create_task(send_one(place, rng.uniform(0.0, 0.1)))
        tasks.create_task(send_one(AT_ONCE, REVOKED_S + 0.3))
    return answers, revoking.result()


async def _delete(service: Service, rounds: int, rng: random.Random) -> DrillReport:
    """Delete a domain while its mail is sent and waits: accepted mail arrives or fails, as its status says."""
    access = await new_access(service.settings, "race-delete")
    settings = service.settings
    made: list[tuple[str, str]] = []
    async with admin.opened(settings) as pool:
        for number in range(rounds):
            name = f"race{number}.test"
            domain = await admin.add_domain(pool, settings, account=access.account, name=name, verified=True)
            made.append((name, domain["id"]))
    accepted: dict[str, str] = {}
    statuses: Counter[int] = Counter()
    async with client_of(service, access) as api:
        for start in range(0, rounds, DOMAINS_AT_ONCE):
            found = await asyncio.gather(
                *[_around_deletion(api, access, name, id_, rng) for name, id_ in made[start : start + DOMAINS_AT_ONCE]]
            )
            for one in found:
                statuses.update(status for status, _, _ in one)
                accepted |= {message: address for status, address, message in one if status == 202}
        again = [
            (await send(api, access, "reader@races.test", **{"from": f"drill@{name}"})).status for name, _ in made[:10]
        ]
    await until_empty(service.database_url)
    return await _as_told(
        service, access, "delete", accepted, statuses,
        [Check("a deleted domain sends no more", 202 not in again, f"{dict(Counter(again))}")],
    )  # fmt: skip


async def _around_deletion(
    api: ApiClient, access: ApiAccess, name: str, id_: str, rng: random.Random
) -> list[tuple[int, str, str]]:
    """Send from a domain that is deleted meanwhile, half of it greylisted; return (status, address, message)."""

    async def send_one(place: int) -> tuple[int, str, str]:
        address = f"{('reader', 'defer')[place % 2]}+{name.partition('.')[0]}-{place}@races.test"
        await asyncio.sleep(rng.uniform(0.0, 0.06))
        answer = await send(api, access, address, **{"from": f"drill@{name}"})
        return answer.status, address, answer.json.get("id", "")

    async def delete() -> tuple[int, str, str]:
        await asyncio.sleep(rng.uniform(0.02, 0.08))
        status = (await api.call("DELETE", f"/v1/domains/{id_}")).status
        assert status in (200, 204), status
        return 0, "", ""

    found = await asyncio.gather(*[send_one(place) for place in range(6)], delete())
    return [one for one in found if one[0]]


async def _suppress(service: Service, rounds: int, rng: random.Random) -> DrillReport:
    """Suppress an address while its mail waits for the next attempt: no mail is sent to it afterwards."""
    access = await new_access(service.settings, "race-suppress")
    state = AccountState(service, access)
    accepted: dict[str, str] = {}
    statuses: Counter[int] = Counter()
    forbidden: dict[str, float] = {}

    async def one(api: ApiClient, number: int) -> None:
        address = f"{('reader', 'defer')[number % 2]}+suppress{number}@races.test"

        async def send_one() -> None:
            answer = await send(api, access, address)
            statuses[answer.status] += 1
            if answer.status == 202:
                accepted[answer.json["id"]] = address

        async def suppress() -> None:
            await asyncio.sleep(rng.uniform(0.0, 0.05) if number % 3 else rng.uniform(0.3, 1.2))
            status = (await api.call("POST", "/v1/suppressions", {"address": address})).status
            assert status in (200, 201), status
            forbidden[address] = time.time()

        await asyncio.gather(send_one(), suppress())

    async with client_of(service, access) as api:
        await asyncio.gather(*[one(api, number) for number in range(rounds)])
    await until_empty(service.database_url)
    arrivals = await state.arrivals()
    late = [
        address
        for address, at in forbidden.items()
        if any(arrived_at(copy) > at + ON_ITS_WAY_S for copy in arrivals.get(address, []))
    ]
    check = Check("nothing arrives after the suppression was answered", not late, f"{len(late)} late: {late[:3]}")
    return await _as_told(service, access, "suppress", accepted, statuses, [check])


async def _as_told(
    service: Service,
    access: ApiAccess,
    name: str,
    accepted: dict[str, str],
    answers: Counter[int],
    extra_checks: list[Check],
) -> DrillReport:
    """Check that accepted messages are settled and that statuses match the sink. `accepted`: address by message id."""
    state = AccountState(service, access)
    statuses, arrivals = await state.statuses(), await state.arrivals()
    wrong = []
    for message, address in accepted.items():
        status, copies = statuses.get(message, "absent"), len(arrivals.get(address, []))
        if status not in _SETTLED or (status == "delivered") != (copies == 1) or copies > 1:
            wrong.append(f"{address}: {status}, {copies} copies")
    ends = Counter(statuses.values())
    report = _report(name, sum(answers.values()), len(accepted), ends["delivered"])
    refused = {status for status in answers if status >= 500}
    report.checks += [
        Check("every accepted message is settled with the right status", not wrong,
              "; ".join(wrong[:3]) or f"{dict(ends)}"),
        Check("no other message is stored", set(statuses) == set(accepted), f"{len(statuses)} of {len(accepted)}"),
        Check("no request fails with a 5xx status", not refused, f"{dict(answers)}"),
        *await state.check_account_log(len(accepted)),
        *extra_checks,
    ]  # fmt: skip
    return report


def _report(name: str, sent: int, accepted: int, delivered: int) -> DrillReport:
    return DrillReport(drill=name, sent=sent, accepted=accepted, delivered=delivered)
