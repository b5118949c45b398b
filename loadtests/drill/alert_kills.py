"""`ops drill alerts`: the worker is killed again and again while alert rules cross their threshold and come back.

Each crossing of each account must give one alert event, one `alert.fired`, one mail and, once back, one `alert.ended`:
none twice, none lost. The drill moves the counts that rules read, and lets the rules fall due at once.
"""

import asyncio
import time
from collections import Counter
from typing import Final
from uuid import UUID

from engine.base import ids
from engine.base.events import AccountEvent
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.faults import InjectedFault, inject, kill_worker
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.running import on_service, until_empty
from loadtests.kit.service import Service
from ops.local.sink_store import entries

NAME: Final = "alerts"
CHANGED_S: Final = 90.0  # for all rules to change their state, with the restart of a worker
MAILED_S: Final = 120.0
_ASK_S: Final = 0.25
_KILL_WITHIN_S: Final = 6.0  # a worker looks for due rules every 5 s
_DOMAIN: Final = "people.test"
_STORE: Final = (
    "WITH account AS (INSERT INTO accounts (id, name, plan) SELECT id, 'Drill ' || place, 'free'"
    " FROM unnest($1::uuid[]) WITH ORDINALITY AS n (id, place) RETURNING id),"
    " head AS (INSERT INTO account_heads (account_id) SELECT id FROM account),"
    " person AS (INSERT INTO users (id, email) SELECT id, id || '@' || $2 FROM account RETURNING id),"
    " member AS (INSERT INTO members (account_id, user_id, role) SELECT id, id, 'owner' FROM person)"
    " INSERT INTO alert_rules (id, account_id, kind, threshold, window_days, cooldown_minutes, notify_email,"
    " notify_webhook, enabled, created_at, updated_at)"
    " SELECT gen_random_uuid(), id, 'quota_usage', 0.8, 1, 5, true, true, true, now(), now() FROM account"
)
_USE: Final = (
    "UPDATE account_heads SET sent_this_month = $2, month = date_trunc('month', now() AT TIME ZONE 'UTC')::date"
    " WHERE account_id = ANY ($1::uuid[])"
)
_DUE: Final = (
    "UPDATE alert_rules SET last_measured_at = NULL, noticed_at = noticed_at - interval '1 day'"
    " WHERE account_id = ANY ($1::uuid[])"
)
_LEFT: Final = (
    "SELECT count(*) FROM alert_rules WHERE account_id = ANY ($1::uuid[])"
    " AND ((firing_since IS NOT NULL) <> $2 OR last_measured_at IS NULL)"
)


@on_service()
async def run(service: Service, order: DrillOrder) -> DrillReport:
    """Let all rules cross and come back once a round, with a kill each time."""
    accounts = list(ids.uuid7s(order.messages))
    injected: list[InjectedFault] = []
    await service.rows(_STORE, accounts, _DOMAIN)
    changed, slowest = 0, 0.0
    for _ in range(order.rounds):
        for sent in (700, 0):
            took = await _change(service, accounts, sent, order, injected)
            changed += took is not None
            slowest = max(slowest, took or CHANGED_S)
    await _until_mailed(service, accounts, order.rounds)
    await until_empty(service.database_url)
    report = await _report(service, accounts, order, injected)
    report.recovery_s = round(slowest, 1)
    wanted = 2 * order.rounds
    report.checks.insert(0, Check("all rules changed each time", changed == wanted, f"{changed} of {wanted} times"))
    return report


async def _change(
    service: Service, accounts: list[UUID], sent: int, order: DrillOrder, injected: list[InjectedFault]
) -> float | None:
    """Change what all accounts have sent, kill the worker, and wait until all rules fire or none does.

    Returns the seconds until then, None if that took too long.
    """
    await service.rows(_USE, accounts, sent)
    await service.rows(_DUE, accounts)
    began = time.monotonic()
    await asyncio.sleep(order.rng.uniform(0, _KILL_WITHIN_S))
    injected.append(await asyncio.to_thread(inject, kill_worker, service, order.rng))
    while time.monotonic() - began < CHANGED_S:
        left = await service.value(_LEFT, accounts, sent > 0)
        if not left:
            return time.monotonic() - began
        if not sent:  # an alert ends after two measurements below
            await service.rows(
                "UPDATE alert_rules SET last_measured_at = NULL WHERE account_id = ANY ($1::uuid[]) AND below = 1",
                accounts,
            )
        await asyncio.sleep(_ASK_S)
    return None


async def _until_mailed(service: Service, accounts: list[UUID], each: int) -> None:
    """Wait until the sink has as many mails as wanted, and some time longer for those too many."""
    ends = time.monotonic() + MAILED_S
    while time.monotonic() < ends and sum(_mails(service, accounts).values()) < each * len(accounts):  # noqa: ASYNC110
        await asyncio.sleep(1.0)
    await asyncio.sleep(3.0)


def _mails(service: Service, accounts: list[UUID]) -> Counter[str]:
    people = {f"{account}@{_DOMAIN}" for account in accounts}
    return Counter(one.recipients[0] for one in entries(service.sink) if people.intersection(one.recipients))


async def _report(
    service: Service, accounts: list[UUID], order: DrillOrder, injected: list[InjectedFault]
) -> DrillReport:
    each = order.rounds
    wanted = each * len(accounts)
    fired, ended = [
        await _per_account(service, "events WHERE type = $2 AND", accounts, kind.value)
        for kind in (AccountEvent.ALERT_FIRED, AccountEvent.ALERT_ENDED)
    ]
    alerts = await _per_account(service, "alert_events WHERE ended_at IS NOT NULL AND $2 <> '' AND", accounts, NAME)
    mails = _mails(service, accounts)
    lost = sum(max(0, each - mails[f"{account}@{_DOMAIN}"]) for account in accounts)
    copies = sum(max(0, count - each) for count in mails.values())
    return DrillReport(
        drill=NAME,
        sent=wanted,
        accepted=sum(fired.values()),
        delivered=sum(mails.values()) - copies,
        lost=lost,
        duplicated=sum(count > each for count in mails.values()),
        copies=copies,
        done=[one.label for one in injected],
        checks=[
            Check(f"{each} {what} for each account", _all_are(found, each, len(accounts)), _spread(found))
            for what, found in (
                ("alert events that ended", alerts), ("alert.fired", fired), ("alert.ended", ended), ("mails", mails),
            )
        ],
    )  # fmt: skip


def _all_are(found: Counter[str], each: int, accounts: int) -> bool:
    return len(found) == accounts and set(found.values()) == {each}


def _spread(found: Counter[str]) -> str:
    counts = sorted(found.values())
    return f"{len(counts)} accounts with {counts[0]} to {counts[-1]}" if counts else "none"


async def _per_account(service: Service, rows: str, accounts: list[UUID], kind: str) -> Counter[str]:
    statement = f"SELECT account_id, count(*) FROM {rows} account_id = ANY ($1::uuid[]) GROUP BY 1"  # noqa: S608 - ours
    return Counter({str(row[0]): row[1] for row in await service.rows(statement, accounts, kind)})
