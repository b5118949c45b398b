"""Check the result of a load test: every accepted message was delivered once or is accounted for; logs are intact."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from engine.store.queries import Queries
from loadtests.bench.service import BenchService
from loadtests.kit.accounts import ApiAccess
from loadtests.kit.check import Check
from loadtests.runner.catalogue import Scenario
from loadtests.runner.load_record import LoadRecord
from loadtests.runner.setup import Hooks
from ops import admin

_SQL = Queries.beside(__file__, "checks.sql")
_OUTCOMES = _SQL.command("count_outcomes")
_ACCEPTED = _SQL.command("count_accepted")
_TAIL_EVENTS = _SQL.command("count_tail_events")
_POSTS = _SQL.command("count_posts")
_ENDED: Final = ("bounced", "failed", "rejected")


async def check_load(
    scenario: Scenario, service: BenchService, accounts: list[ApiAccess], record: LoadRecord, hooks: Hooks | None
) -> list[Check]:
    """Compare the load record with the database and the sink."""
    rows = await _OUTCOMES.records(service.pool, list(scenario.slow_domains))
    [stored] = await _ACCEPTED.records(service.pool)
    outcomes = {row["status"]: row["rows"] for row in rows}
    died = ", ".join(service.deaths())
    findings = [
        _answers(record, stored["messages"], stored["accepted"]),
        _recipients(record, outcomes, {row["status"]: row["healthy"] for row in rows}),
        Check("every delivered copy arrived once", record.copies == 0, f"{record.copies} extra copies"),
        await check_logs(service.base_url, [one.key for one in accounts]),
        Check("no process died", not died, died or "none"),
    ]
    if scenario.readers:
        findings.append(await _tails(scenario, service, accounts, record.tail_events))
    if hooks is not None:
        findings.append(await _posts(service, hooks))
    return findings


async def check_logs(base_url: str, keys: list[str]) -> Check:
    """Verify the account logs over the API."""

    def asked() -> list[dict[str, Any]]:
        return [admin.call_api(base_url, "GET", "/v1/audit/verify", key) for key in keys]

    verdicts = await asyncio.to_thread(asked)
    events, intact = sum(one["events"] for one in verdicts), all(one["intact"] for one in verdicts)
    return Check("every account log is intact", intact, f"{events} events of {len(verdicts)} accounts")


async def posts_pending(service: BenchService, hooks: Hooks) -> int:
    """Return the number of webhook posts pending at endpoints that answer."""
    [row] = await _POSTS.records(service.pool, hooks.hanging)
    return int(row["pending"])


def _answers(record: LoadRecord, messages: int, events: int) -> Check:
    """Check that every accepted message is stored; one without an answer may be stored too."""
    counts = record.answers
    return Check(
        "every accepted message is stored, and nothing else",
        record.accepted <= messages == events <= record.accepted + counts["lost"],
        f"{dict(counts)}, {messages} stored, {events} accepted events",
    )


def _recipients(record: LoadRecord, outcomes: Mapping[str, int], healthy: Mapping[str, int]) -> Check:
    """Check that mail for healthy domains has ended and that each pending recipient elsewhere is counted."""
    delivered, ended = outcomes.get("delivered", 0), sum(outcomes.get(one, 0) for one in _ENDED)
    waiting = sum(outcomes.values()) - delivered - ended
    waiting_healthy = sum(healthy.values()) - healthy.get("delivered", 0) - sum(healthy.get(one, 0) for one in _ENDED)
    return Check(
        "accepted = delivered + refused by their servers + waiting for slow servers",
        delivered <= record.arrived <= delivered + waiting and waiting_healthy == 0 and ended == 0,
        f"{sum(outcomes.values())} recipients: {delivered} delivered, {record.arrived} at the sink, {ended} bounced or"
        f" failed, {waiting} waiting",
    )


async def _tails(scenario: Scenario, service: BenchService, accounts: list[ApiAccess], seen: int) -> Check:
    [row] = await _TAIL_EVENTS.records(service.pool, [one.account_id for one in accounts])
    expected = row["rows"] * (scenario.readers // len(accounts))
    found = f"{seen} of {expected} on {scenario.readers} tails"
    return Check("every live tail got every event", seen == expected, found)


async def _posts(service: BenchService, hooks: Hooks) -> Check:
    [row] = await _POSTS.records(service.pool, hooks.hanging)
    arrived = await hooks.arrivals.count()
    twice = arrived - row["delivered"]
    return Check(
        "every event was posted to every endpoint that answers",
        row["pending"] == 0 and twice == 0,
        f"{arrived} arrived, {row['delivered']} recorded, {row['pending']} pending, {twice} unrecorded",
    )
