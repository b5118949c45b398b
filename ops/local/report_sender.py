"""Reports that the local sink sends to the service's own MX: a late bounce or a complaint, seconds after the mail."""

import asyncio
import re
import sys
from collections import deque
from typing import Final

from engine.base import clock
from engine.mail.outgoing_reports import ReportedMail, bounce_report, complaint_report
from engine.store import service_time
from engine.store.service_time import Wake
from mta.smtp.client.report_mail import send_report
from ops.local.sink_script import SinkBehaviour, behaviour_of
from ops.local.sink_store import SinkMessage

DELAY_S: Final = 3.0
MAX_WAITING: Final = 1_000  # reports; more mail to these addresses gets none
_TRIES: Final = 3
_RETRY_S: Final = 5.0
# Only mail with a return path of the service is reported, so that no report is answered by another.
_return_path = re.compile(r"b\+[0-9a-z]{40}@[^@<>\s]{1,253}", re.IGNORECASE).fullmatch
_REPORTS: Final = {SinkBehaviour.LATE_BOUNCE: bounce_report, SinkBehaviour.COMPLAIN: complaint_report}


class ReportSender:
    """The reports that wait to be sent; lives as long as the sink."""

    def __init__(self, mx: tuple[str, int], name: str, *, delay_s: float = DELAY_S) -> None:
        self._mx = mx
        self._name = name
        self._delay_s = delay_s
        self._waiting: deque[tuple[float, str, bytes]] = deque()
        self._came = asyncio.Event()

    def add(self, received: SinkMessage) -> None:
        """Queue a report for each recipient of a stored message that asks for one."""
        if _return_path(received.sender) is None:
            return
        for recipient in received.recipients:
            behaviour = behaviour_of(recipient)
            if behaviour not in _REPORTS or len(self._waiting) >= MAX_WAITING:
                continue
            mail = ReportedMail(self._name, received.sender, recipient, received.content)
            report = _REPORTS[behaviour](mail, clock.now())
            self._waiting.append((clock.monotonic() + self._delay_s, received.sender, report))
            self._came.set()

    async def run(self) -> None:
        """Send each report when it is due, one after the other, until cancelled."""
        while True:
            if not self._waiting:
                self._came.clear()
                with service_time.resting():
                    await self._came.wait()
            due, recipient, report = self._waiting.popleft()
            await service_time.sleep(max(0.0, due - clock.monotonic()), Wake.APPOINTMENT)
            await self._send(recipient, report)

    async def _send(self, recipient: str, report: bytes) -> None:
        """Send one report, up to three times: the MX may be restarting."""
        for last in (False,) * (_TRIES - 1) + (True,):
            if await send_report(self._mx, helo=self._name, recipient=recipient, content=report):
                return
            if not last:
                await asyncio.sleep(_RETRY_S)
        print(f"sink could not send a report to {self._mx[0]}:{self._mx[1]}", file=sys.stderr, flush=True)
