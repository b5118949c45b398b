"""The clock of local mode, on a running service: what falls due happens as if the time had passed, and leases stand."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import aiohttp
import asyncpg
import pytest

from engine.base import clock
from engine.base.settings import Settings
from loadtests.kit.accounts import ApiAccess
from loadtests.kit.service import Service
from tests.contracts.test_clocks import MACHINE_TABLES
from tests.harness.accounts import add_key
from tests.harness.api import Answer, Api
from tests.harness.receiver import Receiver
from tests.harness.service import (
    arrived,
    command,
    following,
    message,
    new_access,
    octets,
    parsed,
    running,
    send,
    steps,
    until,
)
from tests.harness.service import try_send as post

pytestmark = [pytest.mark.journey, pytest.mark.timeout(400)]  # a move takes seconds of CPU in all processes

LADDER_S = Settings().retry_ladder_s
POST_LADDER_S = Settings().webhook_ladder_s
JITTER = 0.1  # of a wait, to either side
LATE = 0.05  # of a wait: how late a retry may be because many share a stop of the clock
MOVE_S = 300  # for one move, on a machine that does other things too
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
# Columns of service tables that come from outside, or say when a process began.
FOREIGN = {"schema_migrations.applied_at"}
COUNTS = """
SELECT format('%s.%s', c.table_name, c.column_name) AS name, c.table_name::text AS relation,
       c.column_name::text AS column
FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
WHERE c.table_schema = 'public' AND c.data_type = 'timestamp with time zone' AND t.table_type = 'BASE TABLE'
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A service whose clock these tests move, with the retry schedule as it comes."""
    # What a process that lost its lease had in hand is tried once more, which no schedule foresees.
    changes = {"PROFILE": "small", "LEASE_S": "60", "RETRY_LADDER_S": ",".join(f"{wait:g}" for wait in LADDER_S)}
    with running(changes) as started:
        yield started


@pytest.fixture
async def served(service: Service) -> AsyncIterator[Api]:
    """A client of its API that waits for moves of the clock: they end by their own limit, `timeoutS`."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2 * MOVE_S)) as session:
        yield Api(service.base_url, session)


async def advance(api: Api, access: ApiAccess, **by: object) -> float:
    """Move the clock; return the seconds that it took, by which all may be late: service time passes meanwhile."""
    began = time.monotonic()
    answer = await api.post("/v1/local/clock", access.key, {"timeoutS": MOVE_S, **by})
    assert answer.status == 200, answer.body
    return time.monotonic() - began


async def settle(api: Api, access: ApiAccess, **fields: object) -> Answer:
    return await api.post("/v1/local/settle", access.key, fields)


def times(found: dict[str, Any], kind: str) -> list[datetime]:
    return [clock.parse_iso(event["createdAt"]) for event in found["waybill"] if event["type"] == kind]


def check_waits(at: list[datetime], ladder_s: tuple[float, ...], *, last: int, moved_s: float) -> None:
    """Each wait is that of the schedule, within the jitter; from wait `last` on, the end of the message may cut it.

    All waits together may be late by `moved_s`: how long the machine took to move the clock.
    """
    late_s = 0.0
    for number, (before, after) in enumerate(pairwise(at)):
        wait_s, took_s = ladder_s[min(number, len(ladder_s) - 1)], (after - before).total_seconds()
        assert took_s >= wait_s * (1 - JITTER) or number >= last, (number, took_s)
        late_s += max(0, took_s - wait_s * (1 + JITTER + LATE))
    assert late_s <= moved_s, at


async def leases(service: Service) -> set[tuple[Any, ...]]:
    connection = await asyncpg.connect(service.database_url)
    try:
        members = await connection.fetch("SELECT o.shard, o.owner, o.epoch FROM shard_owners o")
        return {tuple(row) for row in members}
    finally:
        await connection.close()


async def test_deferred_mail_goes_through_its_whole_schedule_in_one_jump(service: Service, served: Api) -> None:
    access = await new_access(service)
    sent = [await send(served, access, f"full+{number}@full.test") for number in range(20)]
    before = await leases(service)
    with following(service, "tail") as tailed:
        moved_s = await advance(served, access, advance="5d")

        for one in sent:
            found = await message(served, access, one)
            attempts = times(found, "attempted")
            kinds = steps(found)
            assert found["status"] == "failed"
            assert kinds == ["accepted", *["attempted", "deferred"] * (len(attempts) - 1), "attempted", "failed"]
            assert [event["detail"]["attempt"] for event in found["waybill"] if event["type"] == "attempted"] == list(
                range(1, len(attempts) + 1)
            )
            check_waits(attempts, LADDER_S, last=len(attempts) - 2, moved_s=moved_s)
            lived = (attempts[-1] - times(found, "accepted")[0]).total_seconds()
            assert 0 <= lived - 72 * 3600 <= LATE * LADDER_S[-1] + moved_s

        async def is_told() -> bool:
            return len([line for line in tailed() if line["type"] == "failed"]) >= len(sent)

        await until(is_told)  # the tail was not closed
    assert await leases(service) == before


async def test_webhook_posts_are_retried_for_their_twenty_hours(service: Service, served: Api) -> None:
    access = await new_access(service)
    async with Receiver() as receiver:
        receiver.status = 500
        made = await served.post("/v1/webhooks", access.key, {"url": receiver.url, "eventTypes": ["accepted"]})
        assert made.status == 201, made.body
        await send(served, access, "ann@people.test")
        assert (await settle(served, access)).status == 200
        assert receiver.got[0].attempt == 1

        moved_s = await advance(served, access, advance="1d")

        assert [one.attempt for one in receiver.got] == list(range(1, len(POST_LADDER_S) + 2))
        [first, *_] = receiver.got
        signed_at = int(first.headers["service-signature"].split(",")[0].removeprefix("t="))
        assert abs(signed_at - clock.machine_now().timestamp()) < 600  # receivers compare it with their own clock
        event = first.headers["service-delivery-id"]
        told = await served.get(f"/v1/webhooks/{made.json['id']}/deliveries/{event}", access.key)
        at = [clock.parse_iso(one["at"]) for one in told.json["delivery"]["attempts"]]
        check_waits(at, POST_LADDER_S, last=len(at), moved_s=moved_s)


async def test_a_scheduled_message_leaves_when_its_time_has_come(service: Service, served: Api) -> None:
    access = await new_access(service)
    now = clock.parse_iso((await served.get("/v1/local/clock", access.key)).json["serviceTime"])
    at = now + DAY
    sent = await send(served, access, "later@people.test", scheduledAt=clock.iso(at))

    await advance(served, access, to=clock.iso(at - HOUR))
    assert (await message(served, access, sent))["status"] == "scheduled"
    moved_s = await advance(served, access, advance="1h")

    found = await message(served, access, sent)
    assert found["status"] == "delivered"
    assert at <= times(found, "delivered")[0] <= at + MINUTE + timedelta(seconds=moved_s)
    assert [entry.recipients for entry in arrived(service, "later@people.test")] == [("later@people.test",)]


async def test_a_verification_expires_after_its_ten_minutes_and_is_forgotten(service: Service, served: Api) -> None:
    access = await new_access(service)
    made = await served.post("/v1/verifications", access.key, {"to": "ann@people.test", "from": access.sender})
    assert made.status == 201, made.body
    path = f"/v1/verifications/{made.json['id']}"

    await advance(served, access, advance="9m")
    assert (await served.get(path, access.key)).json["status"] == "pending"
    await advance(served, access, advance="2m")
    assert (await served.get(path, access.key)).json["status"] == "expired"
    await advance(served, access, advance="49h")
    assert (await served.get(path, access.key)).status == 404


async def test_people_get_a_mail_about_the_sends_that_wait_for_them(service: Service, served: Api) -> None:
    access = await new_access(service)
    async with asyncpg.create_pool(service.database_url, min_size=1, max_size=1) as pool:
        key = await add_key(
            pool, access.account_id, scopes=["emails:send"], approval="required", pepper=service.settings.pepper
        )
    email = {"from": access.sender, "to": "asked-by-an-agent@people.test", "subject": "Hello", "text": "A text."}
    asked = await served.post("/v1/agent-sends", key, {"email": email})
    assert (asked.status, asked.json["state"]) == (202, "pending")

    await advance(served, access, advance="2m")

    name = access.sender.removeprefix("drill@").removesuffix(".test")
    [told] = [parsed(octets(service, entry)) for entry in arrived(service, f"{name}@drill.test")]
    assert told["Subject"] == f"Emails of {name} wait for approval"
    assert "/console/approvals" in str(told)
    assert arrived(service, "asked-by-an-agent@people.test") == []


async def test_a_late_bounce_comes_before_the_clock_has_moved_on(service: Service, served: Api) -> None:
    access = await new_access(service)
    sent = await send(served, access, "latebounce@people.test")

    moved_s = await advance(served, access, advance="1m")

    found = await message(served, access, sent)
    assert found["status"] == "bounced"
    [delivered], [bounced] = times(found, "delivered"), times(found, "bounced")
    assert bounced - delivered < MINUTE + timedelta(seconds=moved_s)


async def test_settling_needs_no_sleep_to_prove_a_negative(service: Service, served: Api) -> None:
    access = await new_access(service)
    sent = [await send(served, access, f"ann{number}@people.test") for number in range(20)]

    assert (await settle(served, access)).status == 200

    states = Counter([(await message(served, access, one))["status"] for one in sent])
    assert states == {"delivered": 20}


async def test_a_move_that_takes_too_long_says_what_it_waits_for(service: Service, served: Api) -> None:
    access = await new_access(service)
    sent = await send(served, access, "slow@people.test")

    refused = await settle(served, access, timeoutS=1)

    assert (refused.status, refused.error["type"]) == (409, "invalid_state")
    assert re.search("deliveries|jobs of the processes", refused.error["message"])
    assert (await settle(served, access, timeoutS=50)).status == 200
    assert (await message(served, access, sent))["status"] == "delivered"


async def test_moves_of_two_requests_follow_one_another(service: Service, served: Api) -> None:
    access = await new_access(service)
    before = clock.parse_iso((await served.get("/v1/local/clock", access.key)).json["serviceTime"])

    await asyncio.gather(*(advance(served, access, advance="1h") for _ in range(3)))

    after = clock.parse_iso((await served.get("/v1/local/clock", access.key)).json["serviceTime"])
    assert timedelta(hours=3) <= after - before < timedelta(hours=3) + 5 * MINUTE


async def test_everything_that_is_stored_after_a_jump_is_dated_by_it(service: Service, served: Api) -> None:
    access = await new_access(service)
    await advance(served, access, advance="3d")
    before = await counted(service)

    for path, body in {
        "/v1/webhooks": {"url": "http://127.0.0.1:1/nobody"},
        "/v1/domains": {"name": "dated.test"},
        "/v1/templates": {"id": "dated", "name": "Dated", "subject": "Hi", "text": "Hi"},
        "/v1/lists": {"name": "Dated"},
        "/v1/contacts": {"email": "dated@people.test", "consent": "customer"},
        "/v1/suppressions": {"address": "dated@people.test"},
        "/v1/streams": {"id": "dated", "name": "Dated"},
        "/v1/verifications": {"to": "ann@people.test", "from": access.sender},
    }.items():
        answer = await served.post(path, access.key, body)
        assert answer.status < 300, (path, answer.body)
    for to in ("ann@people.test", "bounce@people.test", "latebounce@people.test", "complain@people.test"):
        assert (await post(served, access, to)).status == 202
    assert command(service, "queue", "suspend", "--domain", "dated.test", "--reason", "dated", "--json").status == 0
    await advance(served, access, advance="2m")

    after = await counted(service)
    assert {name: after[name] - before[name] for name in after if after[name] > before[name]} == {}


async def counted(service: Service) -> Counter[str]:
    """How many values of each column lie within an hour of machine time, apart from those that are machine time."""
    connection = await asyncpg.connect(service.database_url)
    try:
        found: Counter[str] = Counter()
        for row in await connection.fetch(COUNTS):
            if row["relation"] in MACHINE_TABLES or row["name"] in FOREIGN:
                continue
            found[row["name"]] = await connection.fetchval(
                f'SELECT count(*) FROM "{row["relation"]}" WHERE "{row["column"]}"'
                " BETWEEN now() - interval '1 hour' AND now() + interval '1 hour'"
            )
        return found
    finally:
        await connection.close()


@pytest.mark.exhaustive
async def test_the_clock_outlives_a_restart_and_the_command_moves_it(
    service: Service, http: aiohttp.ClientSession
) -> None:
    shown = command(service, "clock", "show", "--json")
    moved = command(service, "clock", "advance", "2d", "--json")
    assert clock.parse_iso(moved.json["serviceTime"]) - clock.parse_iso(shown.json["serviceTime"]) >= 2 * DAY

    service.stop()
    service.start()

    again = command(service, "clock", "show", "--json").json
    assert again["aheadS"] == moved.json["aheadS"]
    told = await Api(service.base_url, http).get("/v1/local/clock", (await new_access(service)).key)
    assert told.json["aheadS"] == moved.json["aheadS"]
    assert "The clock of this installation is" in service.output_text()
    assert command(service, "clock", "advance", "soon").status == 2
    assert "never goes back" in command(service, "clock", "to", "2020-01-01T00:00").err


def test_the_command_refuses_live_mode(service: Service) -> None:
    refused = command(service, "clock", "advance", "1d", DELIVERY="live")

    assert refused.status == 1
    assert "WAYBILL_DELIVERY is live" in refused.err
