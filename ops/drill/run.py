"""The drill itself: a service of its own under load, a process killed at random moments, then the count."""

import asyncio
import random
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import asyncpg
import msgspec
from rich.console import Console
from rich.table import Table

from engine.base import ids
from ops.drill.faults import FAULTS, Fault
from ops.drill.sends import Access, Client, plan
from ops.drill.service import Service, clear, make_folder
from ops.drill.verdict import Kill, Verdict, judge

EMPTY_S: Final = 300.0  # how long the queue may take to empty after the last send
ASK_S: Final = 0.25
SETTINGS: Final = {"RETRY_LADDER_S": "1,2,4,8", "REQUEST_RATE": "100000"}
_WIDTH: Final = 150  # a log or a pipe has no width of its own
_BUSY_PART = (0.05, 0.95)  # of the sends: kills fall in between
_SHOWN = {
    "drill": "drill", "sent": "sent", "accepted": "accepted", "delivered": "delivered", "bounced": "refused by MX",
    "lost": "lost", "duplicated": "duplicated", "accept_gap_s": "202 gap s", "delivery_gap_s": "delivery gap s",
    "longest_wait_s": "longest wait s", "took_s": "took s",
}  # fmt: skip
_WRONG = {
    "lost": "lost", "waiting": "waiting", "unsettled": "unsettled", "unknown": "never accepted",
    "unanswered": "unanswered", "left_behind": "processes left behind", "accepted": "accepted",
    "accepted_events": "accepted events", "sent_today": "counted today",
}  # fmt: skip


def run(name: str, *, messages: int, rounds: int, as_json: bool) -> int:
    """`ops drill NAME`: kill while sending, and count. 0 when nothing was lost and the log is intact.

    `name` is one of FAULTS or `all`, each kind in turn on a service of its own; `messages` are sent and `rounds`
    kills fall at random among them.
    """
    if sys.platform != "linux":
        print("ops drill finds its victims through /proc: it runs on Linux.", file=sys.stderr)
        return 1
    verdicts = []
    for one in FAULTS if name == "all" else (name,):
        verdict = drill_once(one, messages=messages, rounds=rounds)
        verdicts.append(verdict)
        if not as_json:
            _show([verdict])
    if as_json:
        print(msgspec.json.format(msgspec.json.encode([_shown(verdict) for verdict in verdicts])).decode())
    elif len(verdicts) > 1:
        _show(verdicts)
    return 0 if all(verdict.passed for verdict in verdicts) else 1


def drill_once(name: str, *, messages: int, rounds: int) -> Verdict:
    """One drill on a fresh service. The folder of one that failed stays, and is named on standard error."""
    folder = make_folder()
    keep = False
    try:
        with Service(folder, SETTINGS) as service:
            verdict = asyncio.run(drill(service, name, messages=messages, rounds=rounds))
            service.stop()
            verdict.left_behind = len(service.everything())
            keep = not verdict.passed
            return verdict
    except BaseException:
        keep = True
        raise
    finally:
        if keep:
            print(f"what this drill left is in {folder}", file=sys.stderr)
        else:
            clear(folder)


async def drill(
    service: Service,
    name: str,
    *,
    messages: int,
    rounds: int,
    access: Access | None = None,
    pause_s: float = 0.0,
    patience_s: float = EMPTY_S,
    rng: random.Random | None = None,
) -> Verdict:
    """Send, kill, wait up to `patience_s` for the empty queue and judge, on a running service.

    `access` (default: the first run's) must belong to an account without other mail.
    """
    sender = access or first_access(service)
    sends = plan(messages, name)
    client = Client(service.base_url, sender, sends, pause_s)
    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(client.run())
        kills = tasks.create_task(
            _kill_on_the_way(service, client, FAULTS[name], messages, rounds, rng or random.Random())
        )
    database_url = service.settings.database_url
    assert database_url is not None
    await until_empty(database_url, patience_s)
    took_s = time.monotonic() - began
    account = ids.parse_id(ids.Kind.ACCOUNT, sender.account)
    return await judge(database_url, service.sink, account, sends, kills.result(), drill=name, took_s=took_s)


def first_access(service: Service) -> Access:
    """The account that the service made at its first start."""
    made = service.first_run
    return Access(made["accountId"], made["apiKey"], f"drill@{made['domain']}")


async def until_empty(database_url: str, timeout_s: float = EMPTY_S) -> None:
    """Wait until no delivery is pending, or until the patience ends: what hangs then shows in the verdict."""
    ends = time.monotonic() + timeout_s
    while time.monotonic() < ends:
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):  # it may just be coming back
            connection = await asyncpg.connect(database_url, timeout=5)
            try:
                while time.monotonic() < ends:
                    if not await connection.fetchval("SELECT EXISTS (SELECT FROM queue)", timeout=5):
                        return
                    await asyncio.sleep(ASK_S)
            finally:
                connection.terminate()
        await asyncio.sleep(ASK_S)


async def _kill_on_the_way(
    service: Service, client: Client, fault: Fault, messages: int, rounds: int, rng: random.Random
) -> list[Kill]:
    low, high = (round(messages * part) for part in _BUSY_PART)
    kills = []
    for moment in sorted(rng.randint(low, high) for _ in range(rounds)):
        await client.reached(moment)
        at = time.time()
        who = await asyncio.to_thread(fault, service, rng)
        kills.append(Kill(who, at))
    return kills


def _shown(verdict: Verdict) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(verdict)
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in found.items()} | {
        "passed": verdict.passed
    }


def _show(verdicts: Sequence[Verdict]) -> None:
    console = Console(highlight=False)
    console.width = max(console.width, _WIDTH)
    table = Table(box=None, pad_edge=False)
    for title in (*_SHOWN.values(), "log"):
        table.add_column(title, justify="left" if title in ("drill", "log") else "right")
    for verdict in verdicts:
        values = [getattr(verdict, name) for name in _SHOWN]
        log = f"intact, {verdict.events} events" if verdict.chain_intact else "BROKEN"
        table.add_row(*[f"{one:.2f}" if isinstance(one, float) else str(one) for one in values], log)
    console.print(table)
    for verdict in verdicts:
        if len(verdicts) == 1:
            _tell(console, verdict)


def _tell(console: Console, verdict: Verdict) -> None:
    console.print(
        f"killed: {', '.join(verdict.kills)}; sends repeated by the client: {verdict.retried}", soft_wrap=True
    )
    if verdict.duplicated:
        same = "with the same Message-ID" if verdict.same_message_id else "with DIFFERENT Message-IDs"
        console.print(f"{verdict.copies} copies too many of {verdict.duplicated} messages, {same}")
    if not verdict.passed:
        figures = ", ".join(f"{words} {getattr(verdict, name)}" for name, words in _WRONG.items())
        console.print(f"FAILED: {figures}", soft_wrap=True)
        for line in verdict.examples:
            console.print(f"  {line}", markup=False, soft_wrap=True)
