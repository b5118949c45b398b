"""The sink's `latebounce@` and `complain@`: real reports to the return path, and never to anything else."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec import Struct

from engine.base import ids
from engine.base.secrets import DerivedKey
from engine.mail.delivery_reports import Action, ReportKind, read_delivery_report
from engine.mail.feedback_reports import FeedbackType, read_feedback_report
from engine.mail.return_path import return_path
from mta.smtp.client.connection import Envelope, SmtpConnection, TlsMode
from ops.local import report_sender
from ops.local.report_sender import ReportSender
from ops.local.sink import Sink

PATH = return_path(DerivedKey(b"k" * 32), ids.uuid7(), 0, "bounces.mail.test")
MAIL = b"From: shop@a.test\r\nSubject: Hello\r\nMessage-ID: <first@a.test>\r\n\r\nHello!\r\n"


class Circle(Struct):
    """A sink, the server that takes its reports, and the reports that wait."""

    sink: Sink
    mx: Sink
    reports: ReportSender

    async def mail(self, sender: str, *recipients: str) -> None:
        connection = await SmtpConnection.open(
            self.sink.address, server_name="sink.test", helo="client.test", tls=TlsMode.OFF
        )
        await connection.send(Envelope(sender, recipients, MAIL))
        await connection.close()


@pytest.fixture
async def circle() -> AsyncIterator[Circle]:
    async with Sink() as mx:
        reports = ReportSender(mx.address, "sink.test", delay_s=0.0)
        sending = asyncio.create_task(reports.run())
        async with Sink(reports=reports) as sink:
            yield Circle(sink, mx, reports)
        sending.cancel()


async def test_a_late_bounce_goes_to_the_return_path(circle: Circle) -> None:
    await circle.mail(PATH, "latebounce+1@people.test", "ann@people.test")
    await circle.mx.until(1)

    (report,) = circle.mx.messages
    assert (report.sender, report.recipients) == ("", (PATH,))
    read = read_delivery_report(report.content)
    assert (read.kind, read.message_id) == (ReportKind.BOUNCE, "first@a.test")
    assert [(one.address, one.action, one.status) for one in read.recipients] == [
        ("latebounce+1@people.test", Action.FAILED, "5.1.1"),
    ]  # fmt: skip


async def test_a_complaint_goes_to_the_return_path(circle: Circle) -> None:
    await circle.mail(PATH, "Complain@people.test")
    await circle.mx.until(1)

    read = read_feedback_report(circle.mx.messages[0].content)
    assert read is not None
    assert (read.type, read.return_path, read.recipients) == (FeedbackType.ABUSE, PATH, ("Complain@people.test",))
    assert read.messages[0].message_id == "first@a.test"


async def test_other_senders_get_no_report_so_that_nothing_loops(
    circle: Circle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_sender, "MAX_WAITING", 1)
    for sender in ("", "ann@a.test", "b+short@a.test"):
        await circle.mail(sender, "latebounce@people.test", "complain@people.test")
    await circle.mail(PATH, "complain+1@people.test", "complain+2@people.test")
    await circle.mx.until(1)
    await circle.mail(PATH, "complain+3@people.test")
    await circle.mx.until(2)

    told = [read_feedback_report(one.content) for one in circle.mx.messages]
    assert [one.recipients for one in told if one] == [("complain+1@people.test",), ("complain+3@people.test",)]
