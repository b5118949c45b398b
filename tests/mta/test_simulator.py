"""The simulator's recipients: each by its name, and nothing of it held against anybody."""

import asyncio
from typing import Any

import pytest

from engine.accounts import suspend
from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.base.settings import SourceIp
from engine.mail import return_path
from engine.mail.feedback_reports import read_feedback_report
from engine.mail.return_path import ReturnPathOrigin
from engine.mail.simulator import SimulatedOutcome, domain_of, simulated_outcome
from engine.sending.suppressions.service import suppress
from engine.sending.suppressions.types import Reason
from mta.simulator.complaints import ReportRoute, SimulatedComplaints
from mta.simulator.server import Simulator
from ops.commands.explain import explanation
from ops.local.sink import Sink
from tests.harness.accounts import PEPPER, make_account
from tests.harness.outbound import World
from tests.harness.patience import PATIENCE_S

DOMAIN = "simulator.mail.waybill.test"


def at(local: str) -> str:
    return f"{local}@{DOMAIN}"


async def outcome(here: World, message: Any, kind: str) -> dict[str, Any]:
    """The detail of the event of that type, once it has come."""
    await here.until_step(message, kind)
    return dict(await here.waybill(message))[kind]


@pytest.mark.parametrize(
    ("address", "outcome"),
    [
        ("delivered@x", SimulatedOutcome.DELIVERED), ("Bounced@x", SimulatedOutcome.BOUNCED),
        ("deferred+a+b@x", SimulatedOutcome.DEFERRED), ("COMPLAINED+Order-7@x", SimulatedOutcome.COMPLAINED),
        ("slow+@x", SimulatedOutcome.SLOW), ("nobody@x", None), ("+slow@x", None), ("delivered.x@x", None),
        ("@x", None),
    ],
)  # fmt: skip
def test_the_local_part_selects_the_outcome_in_any_case_and_with_any_tag(
    address: str, outcome: SimulatedOutcome | None
) -> None:
    assert simulated_outcome(address) is outcome
    assert domain_of("Mail.Example.com") == "simulator.mail.example.com"


@pytest.mark.parametrize("live", [False, True])
async def test_each_recipient_does_as_it_is_called(here: World, live: bool) -> None:
    """Live with an address to leave from, and TLS demanded: neither has anything to do with it."""
    mta = await (here.live(source_ips=(SourceIp("127.0.0.5"),)) if live else here.mta())
    least: dict[str, Any] = {"minTls": "verified"} if live else {}
    sent = {
        name: await here.send(at(name), **least)
        for name in ("Delivered", "bounced+sign.up", "Deferred+Ü7", "complained")
    }
    unknown = await here.send(at("nobody"))

    delivered = await outcome(here, sent["Delivered"], "delivered")
    assert (delivered["smtp_code"], delivered["simulated"], delivered["mx"]) == (250, True, DOMAIN)
    for message in (sent["bounced+sign.up"], unknown):
        bounced = await outcome(here, message, "bounced")
        assert (bounced["smtp_code"], bounced["enhanced_code"], bounced["class"]) == (550, "5.1.1", "user_unknown")
        assert (bounced["suppressed"], bounced["simulated"]) == (False, True)
    assert "delivered, bounced, deferred, complained, slow" in bounced["diagnostic"]
    deferred = await outcome(here, sent["Deferred+Ü7"], "deferred")
    assert (deferred["smtp_code"], deferred["scope"], deferred["attempt"]) == (452, "recipient", 1)
    assert (await outcome(here, sent["Deferred+Ü7"], "delivered"))["attempt"] == 2
    complained = await outcome(here, sent["complained"], "complained")
    assert complained == {
        "recipient": at("complained"), "feedback_type": "abuse", "suppressed": False, "simulated": True,
    }  # fmt: skip
    assert await here.steps(sent["complained"]) == ["accepted", "attempted", "delivered", "complained"]
    assert [await here.status(one) for one in sent.values()] == ["delivered", "bounced", "delivered", "complained"]
    assert await here.suppressed() == []
    assert here.sink.most_open == 0
    assert "source_ip" not in dict(await here.waybill(unknown))["attempted"]
    assert not mta.outbound.site_stats.answers._sites
    assert await here.pool.fetchval("SELECT count(*) FROM tls_days") == 0
    for message in (unknown, sent["complained"]):
        told = (await explanation(here.pool, ids.format_id(ids.Kind.MESSAGE, message)))["explanation"]
        assert "It is a simulator recipient" in told
        assert "lies with" not in told
        assert "nothing more goes" not in told


async def test_slow_keeps_nobody_else_waiting(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.harness.outbound.SLOW_S", 120.0)  # longer than any machine needs for the others
    await here.mta(site_connections=1)
    slow = [await here.send(at(f"slow+{number}")) for number in range(2)]
    quick = [await here.send(at(f"delivered+{number}")) for number in range(3)]
    for message in quick:
        await here.until_step(message, "delivered")
    assert [await here.steps(message) for message in slow] == [["accepted"]] * 2


async def test_slow_is_delivered_after_its_delay(here: World) -> None:
    await here.mta()
    message = await here.send(at("slow"))
    await here.until_step(message, "delivered")
    assert dict(await here.waybill(message))["delivered"]["mx"] == DOMAIN


async def test_recipients_of_one_message_have_each_their_own_fate(here: World) -> None:
    await here.mta()
    here.domain("far.test")
    message = await here.send(
        at("delivered"), "ann@far.test", cc=[at("deferred"), at("bounced")], bcc=[at("complained"), at("nobody")]
    )
    await here.until_step(message, "delivered", times=4)
    await here.until_step(message, "complained")

    assert await here.statuses(message) == {
        at("delivered"): "delivered", "ann@far.test": "delivered", at("deferred"): "delivered",
        at("bounced"): "bounced", at("complained"): "complained", at("nobody"): "bounced",
    }  # fmt: skip
    assert await here.status(message) == "complained"
    marked = [detail.get("simulated", False) for kind, detail in await here.waybill(message) if kind == "delivered"]
    assert sorted(marked) == [False, True, True, True]
    assert await here.suppressed() == []


async def test_a_complaint_before_the_last_recipient_is_settled_ends_the_message_as_complained(here: World) -> None:
    await here.mta(retry_ladder_s=(0.8,))
    message = await here.send(at("complained"), at("deferred"))
    await here.until_step(message, "complained")
    assert await here.status(message) == "sending"

    await here.until_step(message, "delivered", times=2)
    row = await here.pool.fetchrow("SELECT status, delivered_at FROM messages WHERE id = $1", message)
    assert row is not None
    assert (row["status"], row["delivered_at"] is None) == ("complained", False)


async def test_deferred_is_put_off_at_the_first_attempt_however_long_it_waited(here: World) -> None:
    message = await here.send(at("deferred"))
    await here.pool.execute("UPDATE queue SET due_at = clock_timestamp() + interval '0.4 s'")
    await here.flush_hints()
    await here.mta()

    await here.until_step(message, "delivered")
    assert await here.steps(message) == ["accepted", "attempted", "deferred", "attempted", "delivered"]


async def test_a_suppression_by_hand_holds_and_stays(here: World) -> None:
    waiting = await here.send(at("delivered"), at("complained"))
    await suppress(here.pool, here.account.id, [(at("delivered"), Reason.MANUAL)])
    with pytest.raises(Refusal) as refusal:
        await here.send(at("Delivered"))
    assert refusal.value.kind.value == "suppressed"
    await here.mta()
    await here.until_step(waiting, "complained")

    assert (await here.statuses(waiting))[at("delivered")] == "rejected"
    assert await here.suppressed() == [at("delivered")]
    assert "suppression list" in (await explanation(here.pool, ids.format_id(ids.Kind.MESSAGE, waiting)))["explanation"]


async def test_they_count_as_mail_and_nobody_is_judged_by_them(here: World) -> None:
    account = await make_account(here.pool, daily_cap=None)
    await here.mta(site_connections=4)
    sent = [await here.send(at(f"{name}+{n}"), account=account) for n in range(5) for name in ("bounced", "complained")]
    real = await here.send("ann@peer.test", account=account)
    for message in sent[1::2]:
        await here.until_step(message, "complained")
    await here.until_step(real, "delivered")
    await here.until_idle()

    async def row(query: str) -> tuple[int, ...]:
        found = await here.pool.fetchrow(f"SELECT {query} WHERE account_id = $1", account.id)
        assert found is not None
        return tuple(found)

    assert await row("sent_today FROM account_heads") == (11,)
    assert await row("delivered, bounced, complained, failed FROM account_days") == (6, 5, 5, 0)
    assert await row("messages, settled, bounced, complained FROM simulated_days") == (10, 10, 5, 5)
    await suspend.judge(here.pool, clock.now())
    assert await row("sum(settled), sum(bounced), sum(complained) FROM outcome_quarters") == (1, 0, 0)


async def test_a_process_that_starts_makes_the_complaints_that_one_killed_left(here: World) -> None:
    first = await here.mta(lease_s=1.0)
    first.complaints._delay_s = 3600.0
    message = await here.send(at("complained+killed"))
    await here.until_step(message, "delivered")
    here.mtas.remove(first)
    first.complaints._waiting.clear()
    await first.crash()

    await here.mta("mta-2")
    await here.until_step(message, "complained")
    late = SimulatedComplaints(here.pool, DOMAIN, asyncio.Queue(), delay_s=0.0)
    await late._find()
    assert not late._waiting
    assert (await here.steps(message)).count("complained") == 1


async def test_a_process_that_drains_makes_its_complaints_first(here: World) -> None:
    mta = await here.mta()
    mta.complaints._delay_s = 3600.0
    message = await here.send(at("complained"))
    await here.until_step(message, "delivered")
    here.mtas.remove(mta)
    await mta.stop()

    assert (await here.steps(message))[-1] == "complained"


# -- the server by itself ----------------------------------------------------------------------


async def talk(server: Simulator, *commands: bytes) -> list[bytes]:
    """The last lines of the replies to commands, said one after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    replies = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            for command in (b"", *commands):
                writer.write(command)
                while (line := await reader.readline())[3:4] == b"-":
                    pass
                replies.append(line.rstrip())
    finally:
        writer.close()
    return replies


async def test_the_server_knows_its_trade_and_keeps_to_its_bounds(here: World) -> None:
    mta = await here.mta()
    server = await Simulator.start(mta.settings, here.pool, slow_s=0.0)
    server.max_bytes = 1_000
    hello, mail = b"EHLO me\r\n", b"MAIL FROM:<a@b.test> SIZE=10\r\n"
    to = f"RCPT TO:<{at('slow')}>\r\n".encode()
    try:
        said = await talk(server, hello, b"DATA\r\n", to, b"MAIL FROM:<a@b.test> SIZE=5000\r\n", b"STARTTLS\r\n")
        assert [one[:9] for one in said[2:]] == [b"503 5.5.1", b"503 5.5.1", b"552 5.3.4", b"502 5.5.1"]
        said = await talk(server, hello, mail, b"RCPT TO:<a@b.test>\r\n", to, b"DATA\r\n", b".\r\n", b"QUIT\r\n")
        assert [one[:9] for one in said[3:]] == [
            b"550 5.7.1", b"250 2.1.5", b"354 go on", b"250 2.0.0", b"221 2.0.0",
        ]  # fmt: skip
        forged = f"RCPT TO:<{at('deferred')}>\r\n".encode()
        said = await talk(server, hello, mail, forged, to, b"DATA\r\n", b"x" * 1_500 + b"\r\n.\r\n", b"y" * 5_000)
        assert [one[:9] for one in said[3:]] == [b"452 4.2.2", b"250 2.1.5", b"354 go on", b"552 5.3.4", b""]
        server._max_sessions = 0
        assert await talk(server) == [b"421 4.3.2 too many connections"]
    finally:
        await server.close()


async def test_a_complaint_goes_as_a_report_by_the_mx_and_directly_if_it_is_not_recorded(here: World) -> None:
    key = return_path.key_of(PEPPER)
    async with Sink() as mx:
        route = ReportRoute(mx.address, key, "bounces.mail.waybill.test")
        mta = await here.mta()
        mta.complaints._route, mta.complaints._confirm_s = route, 0.1
        message = await here.send(at("complained"))
        await mx.until(1)
        (report,) = mx.messages
        origin = return_path.origin(key, report.recipients[0])
        assert (report.sender, origin) == ("", ReturnPathOrigin(message, 0))
        read = read_feedback_report(report.content)
        assert read is not None
        assert (read.type.value, read.return_path) == ("abuse", report.recipients[0])
        await here.until_step(message, "complained")


async def test_a_complaint_is_recorded_directly_where_no_mx_runs(here: World) -> None:
    async with Sink() as gone:
        route = ReportRoute(gone.address, return_path.key_of(PEPPER), "bounces.mail.waybill.test")
    mta = await here.mta()
    mta.complaints._route, mta.complaints._confirm_s = route, 3600.0
    message = await here.send(at("complained"))

    await here.until_step(message, "complained")
