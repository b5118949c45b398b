"""The personalities of the local sink: each behaviour over SMTP, judged by what the mail carries."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec import Struct

from engine.base import clock, ids
from engine.base.secrets import DerivedKey
from engine.base.settings import HostPort
from engine.delivery.outcome import classify
from engine.mail.delivery_reports import read_delivery_report
from engine.mail.feedback_reports import read_feedback_report
from engine.mail.replies import Answer, Phase, Reply
from engine.mail.return_path import return_path
from engine.mail.tls_reports import read_tls_report
from engine.receiving.reports import report_reading
from engine.store import service_time
from engine.store.resolver import Resolver
from mta.smtp.client.connection import Envelope, SmtpConnection, TlsMode
from ops.local import personalities
from ops.local.dns import DnsBehaviour, Responder
from ops.local.personalities import BadPersonalities
from ops.local.receiving_rules import ReceivingRules
from ops.local.report_sender import ReportSender
from ops.local.sink import Sink
from ops.local.sink import main as sink_main
from ops.local.sink_journal import SinkJournal
from tests.harness.patience import until

PATH = return_path(DerivedKey(b"k" * 32), ids.uuid7(), 0, "bounces.shop.test")
MAIL = b"From: shop@shop.test\r\nSubject: Hello\r\nMessage-ID: <first@shop.test>\r\n\r\nHello!\r\n"
BULK = b"List-Id: <news.shop.test>\r\nList-Unsubscribe: <https://shop.test/u>\r\n" + MAIL
NAMES = ("gmail", "outlook", "yahoo", "icloud", "gmx", "strict")


class Clock:
    """A service time that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._at = clock.now()
        monkeypatch.setattr(clock, "now", self.now)

    def now(self) -> datetime:
        return self._at

    def advance(self, **by: float) -> None:
        self._at += timedelta(**by)


class Provider(Struct):
    """A sink with personalities, and the server that takes its reports."""

    sink: Sink
    mx: Sink
    journal: SinkJournal

    async def deliver(self, to: str, content: bytes = MAIL, sender: str = PATH) -> str:
        """Return the reply to one recipient."""
        connection = await SmtpConnection.open(
            self.sink.address, server_name="sink.test", helo="mta.shop.test", tls=TlsMode.OFF
        )
        sent = await connection.send(Envelope(sender, (to,), content))
        await connection.close()
        answer = sent.answers[0].outcome
        assert isinstance(answer, Reply)
        return f"{answer.code} {answer.text}"


@pytest.fixture
async def dns() -> AsyncIterator[Responder]:
    """The records of an honest sender."""
    async with Responder() as zone:
        zone.set("bounces.shop.test", "TXT", ["v=spf1 ip4:127.0.0.1 -all"])
        zone.set("shop.test", "TXT", ["nothing"])
        zone.set("_smtp._tls.shop.test", "TXT", ["v=TLSRPTv1; rua=mailto:tls+1@mail.test"])
        yield zone


class Host:
    """Starts providers on one folder, as a restart of the sink does."""

    def __init__(self, folder: Path, resolver: Resolver, mx: Sink) -> None:
        self._folder = folder
        self._resolver = resolver
        self._mx = mx
        self._running: tuple[Sink, SinkJournal, asyncio.Task[None]] | None = None

    async def start(self) -> Provider:
        await self.stop()
        journal = SinkJournal(self._folder / "sink")
        rules = ReceivingRules(personalities.load(self._folder), journal, self._resolver, "sink.test")
        reports = ReportSender(self._mx.address, "sink.test", journal=journal, rules=rules, dns=self._resolver)
        sink = Sink(reports=reports, rules=rules)
        await sink.start()
        self._running = sink, journal, asyncio.create_task(reports.run())
        return Provider(sink, self._mx, journal)

    async def stop(self) -> None:
        if self._running is not None:
            sink, journal, sending = self._running
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await sink.stop()
            journal.close()
            self._running = None


@pytest.fixture
async def host(tmp_path: Path, dns: Responder) -> AsyncIterator[Host]:
    resolver = Resolver((HostPort(*dns.address),))
    async with Sink() as mx:
        made = Host(tmp_path, resolver, mx)
        yield made
        await made.stop()
    await resolver.close()


@pytest.fixture
async def provider(host: Host) -> Provider:
    return await host.start()


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    async def sleep(seconds: float, _: object) -> None:
        await asyncio.sleep(min(seconds, 0.02))  # this clock wakes nobody

    monkeypatch.setattr(service_time, "sleep", sleep)
    return Clock(monkeypatch)


# -- replies to a recipient --------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
async def test_an_ordinary_mailbox_accepts_authenticated_mail(provider: Provider, name: str, time: Clock) -> None:
    first = await provider.deliver(f"ann@{name}.sim")
    time.advance(minutes=5)

    assert first[:3] == ("451" if name == "strict" else "250")
    assert (await provider.deliver(f"ann@mx.{name}.sim"))[:3] == first[:3]  # a domain below it is another address
    assert (await provider.deliver(f"ann@{name}.sim"))[:3] == "250"


@pytest.mark.parametrize("local", ["unknown", "nobody", "Unknown+1"])
async def test_an_unknown_mailbox_is_refused(provider: Provider, local: str) -> None:
    reply = await provider.deliver(f"{local}@gmail.sim")

    assert reply.startswith("550 5.1.1 The email account that you tried to reach does not exist")


@pytest.mark.parametrize(("local", "code"), [("full", "452 4.2.2"), ("overquota", "552 5.2.2")])
@pytest.mark.parametrize("name", ["gmail", "outlook", "yahoo"])
async def test_a_full_mailbox_takes_mail_again_after_three_days(
    host: Host, time: Clock, name: str, local: str, code: str
) -> None:
    address = f"{local}@{name}.sim"
    provider = await host.start()
    assert (await provider.deliver(address)).startswith(code)
    time.advance(days=2, hours=23)
    provider = await host.start()  # a restart forgets nothing
    assert (await provider.deliver(address)).startswith(code)
    time.advance(hours=1)

    assert (await provider.deliver(address))[:3] == "250"


@pytest.mark.parametrize(("name", "code"), [("gmail", "451 4.7.1"), ("outlook", "451 4.7.500"), ("yahoo", "421 4.7.0")])
async def test_greylisting_ends_per_client_sender_and_recipient(
    provider: Provider, time: Clock, dns: Responder, name: str, code: str
) -> None:
    dns.set("other.test", "TXT", ["v=spf1 ip4:127.0.0.1 -all"])
    mail = MAIL.replace(b"shop@shop.test", b"ann@other.test")
    assert (await provider.deliver(f"grey@{name}.sim")).startswith(code)
    assert (await provider.deliver(f"grey@{name}.sim")).startswith(code)
    time.advance(minutes=15)

    assert (await provider.deliver(f"grey@{name}.sim"))[:3] == "250"
    assert (await provider.deliver(f"grey@{name}.sim", mail, "ann@other.test")).startswith(code)
    assert (await provider.deliver(f"grey+1@{name}.sim")).startswith(code)


async def test_a_rate_limit_allows_some_and_recovers(provider: Provider, time: Clock) -> None:
    replies = [await provider.deliver(f"ratelimit+{number}@gmail.sim") for number in range(7)]
    time.advance(minutes=10)

    assert [reply[:3] for reply in replies] == ["250"] * 5 + ["421"] * 2
    assert replies[-1].startswith("421 4.7.28")
    assert (await provider.deliver("ratelimit+6@gmail.sim"))[:3] == "250"


async def test_the_seed_draws_the_same_outcomes_again(host: Host, tmp_path: Path, time: Clock) -> None:
    addresses = [f"mixed+{number}@icloud.sim" for number in range(24)]
    provider = await host.start()
    first = [(await provider.deliver(one))[:3] for one in addresses]
    time.advance(days=1)
    again = [(await provider.deliver(one))[:3] for one in addresses]
    (tmp_path / personalities.FILE).write_text('seed = "another"')
    other = [(await (await host.start()).deliver(one))[:3] for one in addresses]

    assert set(first) == {"250", "550", "451"}
    assert again == ["250" if code == "451" else code for code in first]
    assert other != first


# -- replies to the content --------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "code"), [("gmail", "550 5.7.26"), ("outlook", "550 5.7.515"), ("gmx", "550 5.7.26")])
async def test_mail_that_passes_neither_spf_nor_dkim_is_refused(
    provider: Provider, dns: Responder, name: str, code: str
) -> None:
    dns.set("bounces.shop.test", "TXT", ["v=spf1 -all"])

    assert (await provider.deliver(f"ann@{name}.sim")).startswith(code)


@pytest.mark.parametrize(
    ("name", "code"), [("gmail", "550 5.7.26"), ("yahoo", "554 5.7.9"), ("outlook", "550 5.7.515")]
)
@pytest.mark.parametrize("record", ["v=DMARC1; p=none", None])
async def test_mail_without_alignment_is_refused(
    provider: Provider, dns: Responder, name: str, code: str, record: str | None
) -> None:
    if record is not None:
        dns.set("_dmarc.bank.test", "TXT", [record])
    mail = MAIL.replace(b"shop@shop.test", b"clerk@bank.test")

    assert (await provider.deliver(f"ann@{name}.sim", mail)).startswith(code)
    assert (await provider.deliver("ann@gmx.sim", mail))[:3] == "250"


async def test_mail_is_accepted_while_dns_fails(provider: Provider, dns: Responder) -> None:
    dns.behave_under("test", DnsBehaviour(rcode="SERVFAIL"))

    assert (await provider.deliver("ann@gmail.sim"))[:3] == "250"


@pytest.mark.parametrize("name", ["gmail", "yahoo"])
async def test_bulk_mail_needs_a_signed_one_click_unsubscribe(provider: Provider, name: str) -> None:
    post = b"List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n"
    signed = b"DKIM-Signature: v=1; d=shop.test; h=From:List-Unsubscribe:\r\n List-Unsubscribe-Post; b=x\r\n"

    for mail in (BULK, post + BULK, signed + BULK, b"Precedence: bulk\r\n" + MAIL):
        assert (await provider.deliver(f"ann@{name}.sim", mail)).startswith("550 5.7.1")
    assert (await provider.deliver(f"ann@{name}.sim", signed + post + BULK))[:3] == "250"
    local = BULK.replace(b"https://shop.test", b"http://127.0.0.1:8025")  # a local service has no https
    assert (await provider.deliver(f"ann@{name}.sim", local))[:3] == "250"


async def test_all_mail_to_the_mailbox_bulk_is_bulk_mail(provider: Provider) -> None:
    assert (await provider.deliver("bulk@icloud.sim")).startswith("550 5.7.1")
    assert (await provider.deliver("ann@icloud.sim", BULK))[:3] == "250"


async def test_a_large_message_is_refused_by_its_size(provider: Provider, time: Clock) -> None:
    large = MAIL + (b"x" * 998 + b"\r\n") * 10_500
    await provider.deliver("ann@strict.sim")
    time.advance(minutes=5)

    assert (await provider.deliver("ann@gmail.sim", large))[:3] == "250"
    assert (await provider.deliver("ann@strict.sim", large)).startswith("552 5.3.4")
    assert (await provider.deliver("ann@strict.sim"))[:3] == "250"


# -- reports afterwards ------------------------------------------------------------------------------


async def test_a_late_bounce_comes_an_hour_later(provider: Provider, time: Clock) -> None:
    assert (await provider.deliver("late-bounce@outlook.sim"))[:3] == "250"
    time.advance(minutes=59)
    await asyncio.sleep(0.1)  # a report that is sent too early would come now
    assert provider.mx.count == 0
    time.advance(minutes=1)
    await provider.mx.until(1)

    (report,) = provider.mx.messages
    assert (report.sender, report.recipients) == ("", (PATH,))
    [said] = read_delivery_report(report.content).recipients
    assert (said.address, said.status) == ("late-bounce@outlook.sim", "5.1.10")


async def test_a_deferred_mail_is_accepted_and_then_bounced(host: Host, time: Clock) -> None:
    provider = await host.start()
    assert (await provider.deliver("defer-bounce@gmail.sim")).startswith("450 4.2.1")
    time.advance(minutes=5)
    assert (await provider.deliver("defer-bounce@gmail.sim"))[:3] == "250"
    provider = await host.start()  # a restart forgets no report
    time.advance(hours=1)
    await provider.mx.until(1)
    await until(lambda: not provider.journal.reports)
    provider = await host.start()
    await asyncio.sleep(0.1)  # a report that is sent again would come now

    [report] = provider.mx.messages
    assert [one.status for one in read_delivery_report(report.content).recipients] == ["5.2.1"]


async def test_a_complaint_comes_after_two_days(provider: Provider, time: Clock) -> None:
    assert (await provider.deliver("complains+7@yahoo.sim"))[:3] == "250"
    assert (await provider.deliver("complain@ann.gmx.sim"))[:3] == "250"  # the sink's own, at 3 s
    time.advance(seconds=3)
    await provider.mx.until(1)
    time.advance(days=2)
    await provider.mx.until(2)

    reports = [read_feedback_report(one.content) for one in provider.mx.messages]
    assert [one.recipients for one in reports if one] == [("complain@ann.gmx.sim",), ("complains+7@yahoo.sim",)]


async def test_a_tls_report_comes_to_the_address_that_the_domain_names(provider: Provider, time: Clock) -> None:
    assert (await provider.deliver("tls-report@gmail.sim"))[:3] == "250"
    time.advance(days=1)
    await provider.mx.until(1)

    [report] = provider.mx.messages
    [content] = [one for one in report_reading._contents(report.content) if one.startswith(b"{")]
    read = read_tls_report(content)
    assert report.recipients == ("tls+1@mail.test",)
    assert read.reporter == "gmail.sim"
    assert [(one.policy_domain, one.successful, one.failed) for one in read.policies] == [("shop.test", 1, 0)]


# -- the tables --------------------------------------------------------------------------------------


async def test_a_mapped_domain_and_a_new_personality_are_used(host: Host, tmp_path: Path) -> None:
    (tmp_path / personalities.FILE).write_text(
        '[domains]\n"example.com" = "gmail"\n'
        '[personalities.mine]\ntitle = "Mine"\nsource = "us"\nlike = "gmail"\n'
        '[[personalities.mine.rules]]\nmailboxes = ["ann"]\nreply = "550 5.7.1 not {recipient}"\nsource = "us"\n'
    )
    provider = await host.start()

    assert (await provider.deliver("unknown@mail.example.com")).startswith("550 5.1.1 The email account")
    assert await provider.deliver("ann@mine.sim") == "550 5.7.1 not ann@mine.sim"
    assert (await provider.deliver("unknown@mine.sim")).startswith("550 5.1.1 The email account")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[domains", "]"),
        ('[domains]\n"a.test" = "gmial"', "maps a.test to `gmial`"),
        ('[personalities.a]\ntitle = ""\nsource = ""\nlike = "b"', "like `b`"),
        ('[personalities.a]\ntitle = ""\nsource = ""\nlike = "a"', "like itself"),
        ('[personalities.gmail]\ntitle = ""\nsource = ""\nrule = []', "unknown field `rule`"),
        ("reply = '250 2.0.0 ok'", "code of 400 to 599"),
        ("reply = '550 no'\nreport = 'tls'", "either `reply` or `report`"),
        ("reply = '450 no'\nlasts = 'soon'", "`soon` is not a time"),
        ("reply = '450 no'\nshare = 2", "0 to 1"),
        ("reply = '450 no'\nallow = 2", "needs `lasts`"),
        ("reply = '552 no'\ncheck = 'too_large'", "max_bytes"),
        ("reply = '450 no'\nmailboxes = ['Ann']", "lower case"),
    ],
)
def test_a_bad_file_is_refused_with_its_reason(tmp_path: Path, text: str, said: str) -> None:
    if not text.startswith("["):
        text = f"[personalities.a]\ntitle = ''\nsource = ''\n[[personalities.a.rules]]\nsource = ''\n{text}"
    (tmp_path / personalities.FILE).write_text(text)

    with pytest.raises(BadPersonalities) as refused:
        personalities.load(tmp_path)

    assert said in str(refused.value)
    assert str(tmp_path / personalities.FILE) in str(refused.value)


def test_the_sink_does_not_start_with_a_bad_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / personalities.FILE).write_text('[domains]\n"a.test" = "gmial"')

    status = sink_main(["--port", "0", "--store", str(tmp_path / "sink"), "--personalities", str(tmp_path)])

    assert status == 2
    assert "There are plain, gmail, outlook" in capsys.readouterr().err


CATEGORIES = {
    "unknown": {"user_unknown", "mailbox_unavailable"}, "full": {"mailbox_full"}, "overquota": {"mailbox_full"},
    "grey": {"greylisted", "rate"}, "ratelimit": {"rate", "reputation"},
    "defer-bounce": {"rate", "mailbox_unavailable"},
    "unauthenticated": {"auth"}, "unaligned": {"auth"}, "no_one_click": {"policy"}, "too_large": {"size"},
}  # fmt: skip


@pytest.mark.parametrize("name", ["plain", *NAMES])
def test_the_replies_of_the_shipped_tables_are_read_as_they_are_meant(name: str) -> None:
    for rule in personalities.load().by_name[name].rules:
        text = rule.reply
        if text is None or "mixed" in rule.mailboxes:
            continue
        phase = Phase.RCPT if rule.check == "always" else Phase.BODY
        reply = Reply(int(text[:3]), text[4:], text.split()[1])
        subject = rule.check if rule.check != "always" else rule.mailboxes[0] if rule.mailboxes else "grey"
        assert classify(Answer(phase, reply)).category in CATEGORIES[subject], text
