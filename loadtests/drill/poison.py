"""`ops drill poison`: messages that crash or fail their process on every attempt.

One large message whose mta process is killed each time it loads the message, and messages that cannot be signed. After
a few attempts each must fail with a reason, and other mail must continue to flow.
"""

import asyncio
import os
import re
import signal
import time
from base64 import b64encode
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from engine.base import ids
from loadtests.drill.account_state import AccountState, client_of, must_send
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.faults import COMES_BACK_S, InjectedFault
from loadtests.drill.report import AllowedCopies, Check, CopyReason, DrillReport
from loadtests.drill.running import ON_THE_WIRE, on_service, planned_client, report_after_faults, while_sending
from loadtests.kit.accounts import ApiAccess, first_access, new_access
from loadtests.kit.processes import command_line, signal_all
from loadtests.kit.service import Service, ServicePart
from mta.outbound.poison_guard import MAX_DEATHS

NAME: Final = "poison"
RATE: Final = 60.0
LARGE_BYTES: Final = 9 * 1024 * 1024  # an attachment: three take long enough to be fetched for a watcher to see it
ATTACHED: Final = 3
UNSIGNABLE: Final = 4  # messages
END_S: Final = 120.0
_POLL_S: Final = 0.0005
_MARK: Final = 16  # octets
_LARGE_MARKS: Final = slice(2 * _MARK, 17 * _MARK)  # behind the file's name and the mark of the one at work
_NAME: Final = re.compile(r"--name (mta-\d+)")


@on_service()
async def run(service: Service, order: DrillOrder) -> DrillReport:
    """Send poison messages among normal mail."""
    culprit = await new_access(service.settings, "culprit")
    client, state = planned_client(service, order, NAME, rate=RATE), AccountState(service, culprit)

    async def poisoned() -> tuple[list[InjectedFault], list[Check]]:
        deadly, injected = await _deadly(service, culprit, state)
        return injected, [
            await _failed(state, "the message that kills its process", [deadly]),
            await _unsignable(service),
        ]

    injected, checks = await while_sending([client], poisoned())
    deaths = len(injected)
    # All deaths count, but a process that takes the shard over before the dead one restarts does not know of them.
    most = MAX_DEATHS - 1 + service.settings.mta_workers
    suppressed = await state.read("SELECT count(*) FROM suppressions WHERE account_id = $1")
    report = await report_after_faults(
        service, first_access(service), client, injected, name=NAME,
        allowed_copies=AllowedCopies.each(deaths, ON_THE_WIRE, CopyReason.MTA_KILLED),
    )  # fmt: skip
    report.checks += [
        *checks,
        Check("a message kills only a few processes", MAX_DEATHS <= deaths <= most, f"{deaths}"),
        Check("no address is suppressed for it", suppressed == 0, f"{suppressed}"),
    ]
    return report


async def _deadly(service: Service, access: ApiAccess, state: AccountState) -> tuple[str, list[InjectedFault]]:
    """Send a large message and kill each process that loads it until it is settled; return its id and the kills."""
    watcher = _Watcher(service)
    watch = asyncio.create_task(asyncio.to_thread(watcher.run))
    try:
        async with client_of(service, access) as api:
            headers = {"X-Test-Id": "deadly"}
            message = await must_send(
                api, access, "reader+deadly@deadly.test", headers=headers, attachments=_attached()
            )  # fmt: skip
        watcher.message = ids.parse_id(ids.Kind.MESSAGE, message)
        await state.until_settled([message], END_S)
    finally:
        watcher.over = True
        injected = await watch
    return message, injected


class _Watcher:
    """Watches the marks of messages that mta processes have in work, and kills the process with the large one."""

    def __init__(self, service: Service) -> None:
        self.message: UUID | None = None  # until it is known, any large one: there is no other
        self.over = False
        self._service = service

    def run(self) -> list[InjectedFault]:
        """Kill processes until `over` is set; return the kills."""
        injected: list[InjectedFault] = []
        while not self.over:
            for file in (self._service.state / "mta").glob("mta-*.hand"):
                pid = self._holder(file)
                if pid is not None:
                    signal_all([pid], signal.SIGKILL)
                    injected.append(InjectedFault(f"{file.stem} {pid}", time.time(), time.time()))
                    self._wait_for_next_life(file)
            time.sleep(_POLL_S)
        return injected

    def _holder(self, file: Path) -> int | None:
        marks = _large_in_hand(file)
        if not marks or (self.message is not None and self.message not in marks):
            return None
        for pid in self._service.pids(ServicePart.MTA):
            found = _NAME.search(command_line(pid))
            if found is not None and found[1] == file.stem:
                return pid
        return None

    def _wait_for_next_life(self, file: Path) -> None:
        """Wait until the restarted process has read the mark."""
        ends = time.monotonic() + COMES_BACK_S
        while _large_in_hand(file) and time.monotonic() < ends:
            time.sleep(_POLL_S)


def _large_in_hand(file: Path) -> set[UUID]:
    """Return the messages being loaded, from the marks of `mta.outbound.poison_guard`."""
    marks = file.read_bytes()[_LARGE_MARKS]
    found = {marks[at : at + _MARK] for at in range(0, len(marks), _MARK)}
    return {UUID(bytes=mark) for mark in found if any(mark)}


async def _unsignable(service: Service) -> Check:
    """Send messages whose signing key cannot be read, so that every attempt fails internally."""
    access = await new_access(service.settings, "unsignable")
    state = AccountState(service, access)
    await state.read(
        "UPDATE domain_keys k SET sealed_key = $2 FROM domains d WHERE d.account_id = $1 AND d.id = k.domain_id",
        os.urandom(64),
    )
    async with client_of(service, access) as api:
        sent = [await must_send(api, access, f"reader+unsignable{one}@unsignable.test") for one in range(UNSIGNABLE)]
    await state.until_settled(sent, END_S)
    return await _failed(state, "messages that can't be signed", sent)


async def _failed(state: AccountState, what: str, messages: list[str]) -> Check:
    """Check that the messages failed and that the log has a reason."""
    statuses = await state.statuses()
    ended = {statuses.get(one, "absent") for one in messages}
    last = await state.read(
        "SELECT payload FROM events WHERE account_id = $1 AND message_id = $2 AND type = 'failed'",
        ids.parse_id(ids.Kind.MESSAGE, messages[0]),
    )
    reason = re.search(r'"diagnostic":"([^"]*)"', str(last))
    return Check(f"{what}: failed, with a reason", ended == {"failed"} and reason is not None,
                 f"{', '.join(sorted(ended))}: {reason[1] if reason else str(last)[:200]}")  # fmt: skip


def _attached() -> list[dict[str, Any]]:
    content = b64encode(os.urandom(LARGE_BYTES)).decode()
    return [
        {"filename": f"{number}.bin", "contentType": "application/octet-stream", "content": content}
        for number in range(ATTACHED)
    ]
