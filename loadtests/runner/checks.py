"""Check the result of a load test: every accepted message was delivered once or is accounted for; logs are intact."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from engine.store.queries import Queries
from loadtests.bench.check import CheckResult
from loadtests.bench.service import BenchService
from loadtests.kit.accounts import ApiAccess
from loadtests.report.load_record import LoadRecord
from loadtests.runner.catalogue import Scenario
from loadtests.runner.setup import Receivers
from ops import admin

_SQL = Queries.beside(__file__, "checks.sql")
_OUTCOMES = _SQL.command("count_outcomes")
_ACCEPTED = _SQL.command("count_accepted")
_TAIL_EVENTS = _SQL.command("count_tail_events")
_POSTS = _SQL.command("count_posts")
_ENDED: Final = ("bounced", "failed", "rejected")


async def check_load(
    scenario: Scenario,
    service: BenchService,
    accounts: list[ApiAccess],
    record: LoadRecord,
    receivers: Receivers | None,
) -> list[CheckResult]:
    """Compare the load record with the database and the sink."""
    rows = await _OUTCOMES.records(service.pool, list(scenario.slow_domains))
    [stored] = await _ACCEPTED.records(service.pool)
    outcomes = {row["status"]: row["rows"] for row in rows}
    findings = [
        _answers(record, stored["messages"], stored["accepted"]),
        _recipients(record, outcomes, {row["status"]: row["healthy"] for row in rows}),
        CheckResult("every delivered copy arrived once", record.copies == 0, f"{record.copies} extra copies"),
        await _chains(service, accounts),
        CheckResult("no process died", not service.deaths(), ", ".join(service.deaths()) or "none"),
    ]
    if scenario.readers:
        findings.append(await _tails(scenario, service, accounts, record))
    if receivers is not None:
        findings.append(await _posts(service, receivers))
    return findings


def _answers(record: LoadRecord, messages: int, events: int) -> CheckResult:
    """Check that every accepted message is stored; a request without an answer may have been accepted too."""
    accepted = len(record.recipients)
    unknown = sum(one.offered - one.accepted for one in record.requests if one.status.startswith("lost"))
    refused = sum(one.offered - one.accepted for one in record.requests) - unknown
    return CheckResult(
        "every accepted message is stored, and nothing else",
        accepted <= messages == events <= accepted + unknown,
        f"{accepted} accepted, {messages} stored, {events} accepted events, {refused} refused, {unknown} unanswered",
    )


def _recipients(record: LoadRecord, outcomes: Mapping[str, int], healthy: Mapping[str, int]) -> CheckResult:
    """Check that mail for healthy domains has ended and that each pending recipient elsewhere is counted."""
    arrived = sum(recipient.arrived_at is not None for recipient in record.recipients) + record.unexpected
    delivered, ended = outcomes.get("delivered", 0), sum(outcomes.get(one, 0) for one in _ENDED)
    waiting = sum(outcomes.values()) - delivered - ended
    waiting_healthy = sum(healthy.values()) - healthy.get("delivered", 0) - sum(healthy.get(one, 0) for one in _ENDED)
    return CheckResult(
        "accepted = delivered + refused by their servers + waiting for slow servers",
        delivered <= arrived <= delivered + waiting and waiting_healthy == 0 and ended == 0,
        f"{sum(outcomes.values())} recipients: {delivered} delivered, {arrived} at the sink, {ended} bounced or failed,"
        f" {waiting} waiting",
    )


async def _chains(service: BenchService, accounts: list[ApiAccess]) -> CheckResult:
    """Verify the account logs over the API."""
    base = f"http://{service.settings.api_host}:{service.settings.api_port}"
    keys = [one.key for one in accounts]

    def asked() -> list[dict[str, Any]]:
        return [admin.call_api(base, "GET", "/v1/audit/verify", key) for key in keys]

    return check_chains(await asyncio.to_thread(asked))


def check_chains(verdicts: list[dict[str, Any]]) -> CheckResult:
    """Combine the answers of `GET /v1/audit/verify` of several accounts into one check."""
    events = sum(one["events"] for one in verdicts)
    intact = all(one["intact"] for one in verdicts)
    return CheckResult("every account log is intact", intact, f"{events} events of {len(verdicts)} accounts")


async def _tails(
    scenario: Scenario, service: BenchService, accounts: list[ApiAccess], record: LoadRecord
) -> CheckResult:
    [row] = await _TAIL_EVENTS.records(service.pool, [one.account_id for one in accounts])
    each = scenario.readers // len(accounts)
    expected = row["rows"] * each
    return CheckResult(
        "every live tail got every event",
        len(record.tailed) == expected,
        f"{len(record.tailed)} of {expected} on {scenario.readers} tails",
    )


async def _posts(service: BenchService, receivers: Receivers) -> CheckResult:
    [row] = await _POSTS.records(service.pool, receivers.hanging)
    arrived = receivers.arrivals()
    twice = len(arrived) - row["delivered"]
    return CheckResult(
        "every event was posted to every endpoint that answers",
        row["pending"] == 0 and twice == 0,
        f"{len(arrived)} arrived, {row['delivered']} recorded, {row['pending']} pending, {twice} unrecorded",
    )


async def posts_pending(service: BenchService, receivers: Receivers) -> int:
    """Return the number of webhook posts pending at endpoints that answer."""
    [row] = await _POSTS.records(service.pool, receivers.hanging)
    return int(row["pending"])
