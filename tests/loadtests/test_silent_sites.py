"""The cases, servers and rules of `ops drill silent-sites`. No service runs here."""

import asyncio
import random
import socket
from contextlib import closing, suppress

import msgspec
import pytest
from click.testing import CliRunner

from loadtests.commands.drill import drill
from loadtests.drill import catalogue
from loadtests.drill.clients import Send
from loadtests.drill.silent_cases import SilentCase, SilentServerKind, Stage, address, records, remote_pattern
from loadtests.drill.silent_checks import (
    DeliveryTimes,
    HarmfulMailCost,
    HealthySender,
    SilentMailCount,
    limit_ms,
    report_of_case,
    series,
)
from loadtests.drill.silent_servers import OpenConnections, SilentServers
from loadtests.drill.silent_sites import DEFAULT_CASES, cases
from loadtests.ports import reserve_port

STEADY = DeliveryTimes(sent=100, accepted=100, arrived=100, p50_ms=20.0, p99_ms=60.0, worst_ms=70.0)
CASE = SilentCase(kind=SilentServerKind.SILENT, sites=300)
COUNT = SilentMailCount(
    sent=500, accepted=500, arrived=200, waiting=300, bounced=0, lost=0, copies=0, broken_logs=0, accounts=2
)  # fmt: skip
LOAD = HarmfulMailCost(
    queued_s=1.0, max_open=100, max_to_one=1, opened=300, mta_restarted=False, peak_before_mb=60.0, peak_after_mb=70.0
)
WAIT_S = 10.0
QUIET_S = 0.1


def sender(**changed: object) -> HealthySender:
    during = msgspec.structs.replace(STEADY, **changed)
    return HealthySender(name="bystander", baseline=STEADY, during=during, after_queueing=None)


def order(messages: int | None = None, **options: str | int) -> catalogue.DrillOrder:
    return catalogue.named("silent-sites").order(messages, None, random.Random(1), None, options)


# -- cases ------------------------------------------------------------------------------------


def test_without_options_the_drill_runs_one_account_and_a_thousand_with_ten_thousand_domains() -> None:
    found = cases(order())

    assert [(one.kind, one.accounts) for one in found] == list(DEFAULT_CASES)
    assert {one.sites for one in found} == {10_000}
    assert {1, 1_000} == {one.accounts for one in found}


def test_an_option_makes_it_one_case() -> None:
    assert cases(order(600, kind="dead", accounts=1_000, addresses=5)) == [
        SilentCase(kind=SilentServerKind.DEAD, accounts=600, sites=600, addresses=5)
    ]
    assert cases(order(600, stage="dot")) == [SilentCase(kind=SilentServerKind.SILENT, stage=Stage.DOT, sites=600)]


def test_an_option_of_another_drill_is_refused() -> None:
    found = CliRunner().invoke(drill, ["bystander", "--kind", "dead"])

    assert found.exit_code == 2
    assert "no option --kind; it can be given to: silent-sites." in found.output


def test_every_domain_has_its_own_mx_name_and_by_default_its_own_address() -> None:
    answer = records(SilentCase(kind=SilentServerKind.SILENT, sites=1_000))

    assert answer("s7.silent.test", "MX") == ["10 mx.s7.silent.test."]
    assert answer("mx.s7.silent.test", "AAAA") == answer("_mta-sts.s7.silent.test", "TXT") == []
    assert answer("healthy.test", "MX") is None
    found = {tuple(answer(f"mx.s{number}.silent.test", "A") or []) for number in range(1_000)}
    assert len(found) == 1_000
    assert all(len(one) == 1 and one[0].startswith("127.100.") for one in found)


def test_names_share_addresses_with_the_option_addresses() -> None:
    answer = records(SilentCase(kind=SilentServerKind.SILENT, sites=1_000, addresses=3))

    assert {str(answer(f"mx.s{number}.silent.test", "A")) for number in range(1_000)} == {
        str([address(place)]) for place in range(3)
    }


# -- servers ----------------------------------------------------------------------------------


@pytest.fixture
def port() -> int:
    return reserve_port()


async def answers(case: SilentCase, port: int, say: bytes, lines: int) -> list[bytes]:
    """So many lines of a silent server's answer to `say`, which must not close the connection, and what it sends in
    the moment afterwards."""
    async with SilentServers(case, port):
        reader, writer = await asyncio.open_connection(address(0), port)
        with closing(writer):
            writer.write(say)
            async with asyncio.timeout(WAIT_S):
                said = [await reader.readline() for _ in range(lines)]
            with suppress(TimeoutError):
                async with asyncio.timeout(QUIET_S):
                    said.append(await reader.readline())  # b"" is a closed connection
    return said


@pytest.mark.parametrize(
    ("stage", "codes"),
    [
        (Stage.GREETING, []),
        (Stage.EHLO, ["220"]),
        (Stage.STARTTLS, ["220", "250", "250"]),
        (Stage.MAIL, ["220", "250"]),
        (Stage.RCPT, ["220", "250", "250"]),
        (Stage.DATA, ["220", "250", "250", "250"]),
        (Stage.DOT, ["220", "250", "250", "250", "354"]),
    ],
)
async def test_a_silent_server_answers_up_to_its_stage(stage: Stage, codes: list[str], port: int) -> None:
    starttls = b"STARTTLS\r\n" if stage is Stage.STARTTLS else b""
    say = b"EHLO a.test\r\n" + starttls + b"MAIL FROM:<>\r\nRCPT TO:<a@b.test>\r\nDATA\r\nSubject: 1\r\n\r\nHi\r\n.\r\n"

    said = await answers(SilentCase(kind=SilentServerKind.SILENT, stage=stage, sites=1), port, say, len(codes))

    assert [line[:3].decode() for line in said] == codes


async def test_a_dripping_server_sends_a_reply_without_end(port: int) -> None:
    said = await answers(SilentCase(kind=SilentServerKind.DRIP, stage=Stage.EHLO, sites=1), port, b"EHLO a.test\r\n", 3)

    assert said == [b"220 silent.test ESMTP\r\n", b"250-wait\r\n", b"250-wait\r\n"]


async def test_half_of_the_mixed_servers_are_dead_and_connections_are_counted(port: int) -> None:
    async with (
        SilentServers(SilentCase(kind=SilentServerKind.MIXED, sites=2), port),
        OpenConnections(remote_pattern(port)) as counted,
    ):
        _, writer = await asyncio.open_connection(address(0), port)
        dead = socket.socket()
        with closing(writer), closing(dead):
            dead.setblocking(False)
            connecting = asyncio.create_task(asyncio.get_running_loop().sock_connect(dead, (address(1), port)))
            async with asyncio.timeout(WAIT_S):
                while counted.max_open < 2:
                    await asyncio.sleep(0.05)
            assert not connecting.done()
            connecting.cancel()

    assert (counted.opened, counted.max_open, counted.max_to_one) == (2, 2, 1)


# -- rules ------------------------------------------------------------------------------------


def test_mail_that_has_not_arrived_counts_with_the_time_it_has_waited() -> None:
    sent = [Send("t", number, "a@b.test", answered_at=100.0, message_id=f"msg_{number}") for number in range(100)]
    sent.append(Send("t", 100, "a@b.test", answered_at=100.0, status=503, refusal="busy"))

    found = series(sent, {f"t-{number}": 100.01 for number in range(99)}, until=160.0)

    assert (found.sent, found.accepted, found.arrived) == (101, 100, 99)
    assert (found.p50_ms, found.p99_ms, found.worst_ms) == (10.0, 60_000.0, 60_000.0)


def test_the_limit_is_twice_the_baseline_and_never_below_the_floor() -> None:
    assert limit_ms(STEADY) == 120.0
    assert limit_ms(msgspec.structs.replace(STEADY, p99_ms=9.0)) == 100.0


def test_a_case_without_a_fault_passes() -> None:
    assert report_of_case(CASE, [sender()], COUNT, LOAD).passed
    assert report_of_case(CASE, [sender(p99_ms=119.9)], COUNT, LOAD).passed


@pytest.mark.parametrize("changed", [{"p99_ms": 120.0}, {"arrived": 99}, {"accepted": 49, "sent": 49}], ids=str)
def test_healthy_mail_that_suffers_fails_the_drill(changed: dict[str, object]) -> None:
    assert not report_of_case(CASE, [sender(), sender(**changed)], COUNT, LOAD).passed


@pytest.mark.parametrize("changed", [{"p99_ms": 501.0}, {"arrived": 99}, {"arrived": 40, "sent": 40}], ids=str)
def test_an_unusable_baseline_fails_the_drill(changed: dict[str, object]) -> None:
    unsteady = msgspec.structs.replace(sender(), baseline=msgspec.structs.replace(STEADY, **changed))

    assert not report_of_case(CASE, [unsteady], COUNT, LOAD).passed


@pytest.mark.parametrize(
    "changed", [{"lost": 1}, {"copies": 1}, {"broken_logs": 1}, {"bounced": 1}, {"accepted": 499}], ids=str
)
def test_a_loss_a_copy_or_a_broken_log_fails_the_drill(changed: dict[str, int]) -> None:
    assert not report_of_case(CASE, [sender()], msgspec.structs.replace(COUNT, **changed), LOAD).passed


def test_a_second_connection_for_one_message_fails_the_drill() -> None:
    twice = msgspec.structs.replace(LOAD, max_to_one=2)

    assert not report_of_case(CASE, [sender()], COUNT, twice).passed
    shared = SilentCase(kind=SilentServerKind.SILENT, sites=300, addresses=3)
    assert report_of_case(shared, [sender()], COUNT, twice).passed
