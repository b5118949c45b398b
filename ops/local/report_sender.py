"""Reports that the local sink sends to the service's own MX after a mail: late bounces, complaints, TLS reports."""

import asyncio
import re
import sys
from typing import Final

from engine.authentication.dns import AuthenticationDns
from engine.base import clock, ids
from engine.mail.outgoing_reports import MAX_HEADER, ReportedMail, bounce_report, complaint_report, tls_report
from engine.mail.received_header import addresses, read_header
from engine.store import service_time
from engine.store.resolver import Records
from engine.store.service_time import Wake
from mta.smtp.client.report_mail import send_report
from ops.local.receiving_rules import FollowingReport, ReceivingRules
from ops.local.sink_journal import FollowUp, Sent, SinkJournal
from ops.local.sink_script import SinkBehaviour, behaviour_of
from ops.local.sink_store import SinkMessage

DELAY_S: Final = 3.0
MAX_WAITING: Final = 1_000  # reports; more mail to these addresses gets none
_TRIES: Final = 3
_RETRY_S: Final = 5.0
# Only mail with a return path of the service is reported, so that no report is answered by another.
_return_path = re.compile(r"b\+[0-9a-z]{40}@[^@<>\s]{1,253}", re.IGNORECASE).fullmatch
_rua = re.compile(r"(?:^|[;,=\s])mailto:([^@,;\s!]{1,64}@[^@,;\s!]{1,253})", re.IGNORECASE).search


class ReportSender:
    """The reports that wait to be sent, which the journal keeps; lives as long as the sink."""

    def __init__(
        self,
        mx: tuple[str, int],
        name: str,
        *,
        delay_s: float = DELAY_S,
        journal: SinkJournal | None = None,
        rules: ReceivingRules | None = None,
        dns: AuthenticationDns | None = None,
    ) -> None:
        """Send to `mx`. `rules` say what follows mail to their personalities; `dns` finds where TLS reports go."""
        self._mx = mx
        self._name = name
        self._delay_s = delay_s
        self._journal = journal or SinkJournal()
        self._rules = rules
        self._dns = dns
        self._came: asyncio.Queue[FollowUp] = asyncio.Queue(MAX_WAITING * 2)
        self._one_by_one = asyncio.Lock()
        for report in self._journal.reports.values():  # of the run before
            self._came.put_nowait(report)

    def add(self, received: SinkMessage) -> None:
        """Queue a report for each recipient of a stored message that asks for one."""
        if _return_path(received.sender) is None:
            return
        for recipient in received.recipients:
            wanted = self._wanted(recipient)
            if wanted is None or len(self._journal.reports) >= MAX_WAITING:
                continue
            mail = ReportedMail(wanted.reporter, received.sender, recipient, received.content[:MAX_HEADER])
            due_ms = clock.milliseconds(clock.now()) + round(wanted.after_s * 1_000)
            report = FollowUp(str(ids.uuid7()), due_ms, wanted.kind, mail, wanted.said)
            self._journal.record(report)
            self._came.put_nowait(report)

    def _wanted(self, recipient: str) -> FollowingReport | None:
        if self._rules is not None and self._rules.name_a_mailbox(recipient):
            return self._rules.report(recipient)
        match behaviour_of(recipient):
            case SinkBehaviour.LATE_BOUNCE:
                return FollowingReport("bounce", self._delay_s, self._name, None)
            case SinkBehaviour.COMPLAIN:
                return FollowingReport("complaint", self._delay_s, self._name, None)
        return None

    async def run(self) -> None:
        """Send each report when it is due, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                with service_time.resting():
                    report = await self._came.get()
                group.create_task(self._send_when_due(report))

    async def _send_when_due(self, report: FollowUp) -> None:
        while (left_ms := report.due_ms - clock.milliseconds(clock.now())) > 0:
            await service_time.sleep(left_ms / 1_000, Wake.APPOINTMENT)
        async with self._one_by_one:
            await self._send(report)
        self._journal.record(Sent(report.id))

    async def _send(self, report: FollowUp) -> None:
        """Compose and send a report, up to three times: the MX may be restarting."""
        recipient, content = report.mail.return_path, b""
        match report.kind:
            case "bounce":
                content = bounce_report(report.mail, clock.now(), report.said)
            case "complaint":
                content = complaint_report(report.mail, clock.now())
            case "tls":
                domain = _author_domain(report.mail.content)
                found = await self._tls_address(domain)
                if found is None:
                    return
                recipient, content = found, tls_report(report.mail.reporter, found, domain, clock.now())
        for last in (False,) * (_TRIES - 1) + (True,):
            if await send_report(self._mx, helo=report.mail.reporter, recipient=recipient, content=content):
                return
            if not last:
                await asyncio.sleep(_RETRY_S)
        print(f"sink could not send a report to {self._mx[0]}:{self._mx[1]}", file=sys.stderr, flush=True)

    async def _tls_address(self, domain: str) -> str | None:
        """Return the address of the domain's TLS reports (RFC 8460 3); None, and a line in the log, without one."""
        answer = None if self._dns is None or not domain else await self._dns.txt(f"_smtp._tls.{domain}")
        for record in answer.values if isinstance(answer, Records) else ():
            text = record.decode("ascii", "replace")
            if text.lower().startswith("v=tlsrptv1") and (found := _rua(text)) is not None:
                return found[1]
        print(f"sink sends no TLS report: _smtp._tls.{domain} names no address", file=sys.stderr, flush=True)
        return None


def _author_domain(content: bytes) -> str:
    """Return the domain of From, "" without one."""
    found, _ = addresses(read_header(content).first(b"from") or b"")
    return found[0].address.rpartition("@")[2].lower() if found else ""
