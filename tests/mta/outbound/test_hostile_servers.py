"""Servers that are hostile, overloaded or half dead, met by the whole engine: nothing lost, nothing doubled, nobody
else delayed."""

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.base.settings import Settings
from engine.delivery import mx_routes
from engine.store.resolver import Resolver
from mta.outbound.tls import policy
from mta.outbound.tls.report_mail import destinations
from ops.local.dns import DnsBehaviour
from ops.local.sink_session import SinkSession
from tests.harness.outbound import CountingSink, World
from tests.harness.patience import PATIENCE_S
from tests.mta.processes import process

LATER_S = (600.0,)  # a retry that no test waits for


class Crowded(CountingSink):
    """Refuses every connection beyond the first, by a reply or by closing."""

    says_why = True
    turned_away = 0

    def joined(self, conversation: SinkSession) -> bool:
        """Count, and turn away."""
        welcome = super().joined(conversation) and len(self._conversations) <= 1
        if not welcome:
            self.turned_away += 1
            if not self.says_why:
                conversation.hang_up()
        return welcome


async def stern(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Announces no SIZE, answers 552 as soon as it has read enough of a message, and hangs up."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        writer.write(b"220 mx.stern.test\r\n")
        await reader.readline()
        writer.write(b"250-mx.stern.test\r\n250 PIPELINING\r\n")
        while (line := await reader.readline()) not in (b"", b"QUIT\r\n"):
            if line != b"DATA\r\n":
                continue
            writer.write(b"250 ok\r\n250 ok\r\n354 go ahead\r\n")
            content = b""
            while not content.endswith(b"\r\n.\r\n") and len(content) < 100_000:
                content += await reader.read(65_536)
            if len(content) >= 100_000:
                writer.write(b"552 5.3.4 that is enough\r\n")
                await writer.drain()
                await asyncio.sleep(0.2)  # more of it is on its way: closing at once could overtake the reply
                break
            writer.write(b"250 2.0.0 ok\r\n")
    writer.close()


def copies(here: World) -> list[str]:
    """Who received something at the first sink, as often as it came."""
    return sorted(address for one in here.sink.messages for address in one.recipients)


# -- limits and moods ----------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize("says_why", [True, False], ids=["421", "closed"])
async def test_a_server_that_refuses_further_connections_gets_everything_over_those_it_takes(
    here: World, *, says_why: bool
) -> None:
    crowded = Crowded(name="mx.crowded.test")
    crowded.says_why = says_why
    await crowded.start("127.0.0.3", here.settings.sink_port)
    here._more.append(crowded)
    here.domain("crowded.test", "127.0.0.3")
    crowded.script(".", delay_s=0.2)
    messages = await here.send_many(20, lambda n: f"reader{n}@crowded.test")
    await here.mta()
    await here.until_idle()

    assert crowded.turned_away > 0
    assert crowded.count == 20
    assert {await here.status(message) for message in messages} == {"delivered"}


async def test_a_size_refused_at_mail_bounces_the_message_and_suppresses_nobody(here: World) -> None:
    here.sink.script("MAIL", "552 5.3.4 message too big")
    message = await here.send("ann@peer.test")
    await here.mta()
    await here.until_step(message, "bounced")

    detail = dict(await here.waybill(message))["bounced"]
    assert (detail["scope"], detail["suppressed"]) == ("message", False)
    assert await here.suppressed() == []


async def test_a_large_message_refused_half_way_bounces_once_and_its_successor_goes_through(here: World) -> None:
    """The server answers 552 while content is still coming and closes, as Exchange does."""
    server = await asyncio.start_server(stern, "127.0.0.3", here.settings.sink_port)
    here.domain("stern.test", "127.0.0.3")
    large = await here.send("ann@stern.test", text="x" * 3_000_000)
    small = await here.send("bob@stern.test")
    await here.mta()
    await here.until_step(large, "bounced")
    await here.until_step(small, "delivered")
    server.close()
    await server.wait_closed()

    assert (await here.steps(large)).count("attempted") == 1
    assert dict(await here.waybill(large))["bounced"]["smtp_code"] == 552
    assert await here.suppressed() == []


async def test_a_server_that_forgets_pipelined_commands_is_deferred_and_delays_nobody(here: World) -> None:
    async def forgetful(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(b"220 mx\r\n")
            await reader.readline()
            writer.write(b"250-mx\r\n250 PIPELINING\r\n")
            await reader.read(65_536)
            writer.write(b"250 ok\r\n")
            await reader.read()  # until the client gives up
        writer.close()

    server = await asyncio.start_server(forgetful, "127.0.0.3", here.settings.sink_port)
    here.domain("liar.test", "127.0.0.3")
    stuck, bystander = await here.send("ann@liar.test"), await here.send("ann@peer.test")
    await here.mta(retry_ladder_s=LATER_S, reply_timeout_s=0.5)
    await here.until_step(bystander, "delivered")
    await here.until_step(stuck, "deferred")
    server.close()
    await server.wait_closed()

    assert dict(await here.waybill(stuck))["deferred"]["class"] == "network"


async def test_a_server_that_trickles_every_reply_holds_a_bounded_number_of_connections(here: World) -> None:
    tarpit = await here.server("127.0.0.3")
    tarpit.script("MAIL", drip_s=0.2)
    here.domain("tarpit.test", "127.0.0.3")
    await here.mta(retry_ladder_s=LATER_S, site_connections=4, reply_timeout_s=1.0)
    stuck = await here.send_many(40, lambda n: f"reader{n}@tarpit.test")
    await here.until(lambda: tarpit.most_open >= 1)
    for number in range(20):
        bystander = await here.send(f"reader{number}@peer.test")
        await here.until_step(bystander, "delivered")
    async with asyncio.timeout(PATIENCE_S):  # its attempts end, in whatever order they came to be made
        while not any(["deferred" in await here.steps(message) for message in stuck]):
            await asyncio.sleep(0.05)

    assert tarpit.most_open <= 4


# -- addresses that don't answer -------------------------------------------------------------------


@contextlib.asynccontextmanager
async def black_hole(address: str, port: int) -> AsyncIterator[None]:
    """An address that takes no connection and refuses none: its queue of waiting ones is full."""
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(0)
        for _ in range(2):
            filler = opened.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect((address, port))
        await asyncio.sleep(0.05)
        yield


async def test_one_dead_address_of_three_costs_no_deferral(here: World) -> None:
    here.dns.set("three.test", "MX", ["10 mx.three.test."])
    here.dns.set("mx.three.test", "A", ["127.0.0.1", here.NOBODY, "127.0.0.3"])
    third = await here.server("127.0.0.3")
    messages = await here.send_many(30, lambda n: f"reader{n}@three.test")
    await here.mta()
    await here.until_idle()

    for message in messages:
        assert await here.steps(message) == ["accepted", "attempted", "delivered"]
    assert here.sink.count + third.count == 30


@pytest.mark.exhaustive
async def test_an_address_that_swallows_connections_is_tried_last_once_that_is_known(here: World) -> None:
    here.dns.set("hole.test", "MX", ["10 mx.hole.test."])
    here.dns.set("mx.hole.test", "A", ["127.0.0.1", "127.0.0.9"])
    async with black_hole("127.0.0.9", here.settings.sink_port):
        await here.mta(connect_timeout_s=3.0, messages_per_connection=1, site_connections=1)
        slow = []
        for number in range(12):
            began = time.monotonic()
            message = await here.send(f"reader{number}@hole.test")
            await here.until_step(message, "delivered")
            slow.append(time.monotonic() - began > 2.9)

    assert sum(slow) <= 1
    assert here.sink.count == 12


async def test_an_unreachable_ipv6_address_falls_back_to_the_next_server(here: World) -> None:
    here.dns.set("six.test", "MX", ["10 first.six.test.", "20 second.six.test."])
    here.dns.set("first.six.test", "AAAA", ["2001:db8::25", "100::25"])
    here.dns.set("first.six.test", "A", [])
    here.dns.set("second.six.test", "A", ["127.0.0.1"])
    message = await here.send("ann@six.test")
    await here.mta(connect_timeout_s=0.5)
    await here.until_idle()

    assert await here.steps(message) == ["accepted", "attempted", "delivered"]


async def test_an_ipv6_address_is_used_where_ipv4_is_dead(here: World) -> None:
    try:
        six = await here.server("::1")
    except OSError:
        pytest.skip("this machine has no IPv6 on loopback")
    here.dns.set("both.test", "MX", ["10 mx.both.test."])
    here.dns.set("mx.both.test", "A", [here.NOBODY])
    here.dns.set("mx.both.test", "AAAA", ["::1"])
    message = await here.send("ann@both.test")
    await here.mta()
    await here.until_step(message, "delivered")

    assert six.count == 1


# -- names ---------------------------------------------------------------------------------------


async def test_a_truncated_answer_and_a_chain_of_aliases_lead_to_the_server(here: World) -> None:
    here.dns.set("cut.test", "MX", [f"{n} mx{n}.cut.test." for n in range(200)])
    here.dns.behave("cut.test", DnsBehaviour(truncate=True), "MX")
    here.dns.set("mx0.cut.test", "CNAME", ["a.chain.test."])
    for one, following in zip("abcd", "bcde", strict=True):
        here.dns.set(f"{one}.chain.test", "CNAME", [f"{following}.chain.test."])
    here.dns.set("e.chain.test", "A", ["127.0.0.1"])
    message = await here.send("ann@cut.test")
    await here.mta()
    await here.until_step(message, "delivered")

    assert dict(await here.waybill(message))["delivered"]["mx"] == "mx0.cut.test"
    assert any(question.transport == "tcp" for question in here.dns.questions)


async def test_a_domain_that_names_loopback_or_private_servers_bounces_and_nobody_is_asked(here: World) -> None:
    here.domain("self.test")
    here.dns.set("inside.test", "MX", ["10 mx.inside.test."])
    here.dns.set("mx.inside.test", "A", ["10.0.0.7"])
    here.dns.set("literal.test", "MX", ["10 127.0.0.1."])
    messages = [await here.send(f"ann@{name}.test") for name in ("self", "inside", "literal")]
    await here.mta(delivery="live", smtp_port=here.settings.sink_port, allow_private_mx=False)
    await here.until_idle()

    for message in messages:
        assert await here.steps(message) == ["accepted", "bounced"]
        assert dict(await here.waybill(message))["bounced"]["enhanced_code"] == "5.4.4"
    assert here.sink.connections == 0


@pytest.mark.exhaustive
async def test_silent_name_servers_defer_one_domain_and_delay_no_other(here: World) -> None:
    here.dns.behave_under("mute.test", DnsBehaviour(drop=True))
    stuck = await here.send_many(20, lambda n: f"reader{n}@d{n}.mute.test")
    await here.mta(retry_ladder_s=LATER_S)
    bystander = await here.send("ann@peer.test")
    await here.until_step(bystander, "delivered")
    for message in stuck:
        await here.until_step(message, "deferred")
    assert dict(await here.waybill(stuck[0]))["deferred"]["class"] == "dns"


async def test_policy_records_of_any_size_and_number_hold_no_mail_back(here: World) -> None:
    """Three hundred records, and one of 60 KB, where a domain announces MTA-STS and asks for TLS reports."""
    text = "v=STSv1; id=1; " + "x" * 60_000
    here.dns.set("_mta-sts.many.test", "TXT", [f"v=STSv1; id={n}" for n in range(300)])
    here.dns.set("_mta-sts.giant.test", "TXT", [text])
    messages = []
    for name in ("many", "giant"):
        here.domain(f"{name}.test")
        messages.append(await here.send(f"ann@{name}.test"))
    await here.live(retry_ladder_s=LATER_S)
    for message in messages:
        await here.until_step(message, "delivered")
    assert destinations([text.encode()]).mailboxes == ()


async def test_mail_whose_only_server_is_ourselves_bounces_and_suppresses_nobody(here: World) -> None:
    """RFC 5321 5.1, for a service that takes no mail."""
    here.domain("name.test", mx=here.settings.mail_host)
    looping = await here.send("ann@name.test")
    await here.live(mx_workers=0, retry_ladder_s=LATER_S)
    await here.until_step(looping, "bounced")
    detail = dict(await here.waybill(looping))["bounced"]
    assert (detail["enhanced_code"], detail["class"], detail["suppressed"]) == ("5.4.6", "dns", False)

    assert here.sink.connections == 0
    assert await here.suppressed() == []


async def test_dns_for_one_message_takes_at_most_20_seconds(settings: Settings) -> None:
    resolver = Resolver.from_settings(settings)
    assert resolver._budget_s + mx_routes.HOSTS_WAIT_S + policy.LOOK_UP_S <= 20.0
    await resolver.close()


# -- a process that dies or ends in the middle -------------------------------------------------------


async def test_killed_before_the_reply_to_the_dot_the_message_goes_out_again_once(here: World, tmp_path: Path) -> None:
    here.sink.script(".", delay_s=1.0, times=1)
    message = await here.send("ann@peer.test")
    async with process(here, tmp_path, state=tmp_path) as mta:
        await here.until(lambda: "DATA" in here.sink.commands)
        await asyncio.sleep(0.2)
        await mta.kill()
        await mta.start()
        await here.until_step(message, "delivered")
        await here.until_idle()

    assert copies(here) == ["ann@peer.test"]
    assert await here.steps(message) == ["accepted", "attempted", "delivered"]


@pytest.mark.exhaustive
async def test_killed_between_the_remote_250_and_its_commit_one_more_copy_goes_out_and_no_third(
    here: World, tmp_path: Path
) -> None:
    message = await here.send("ann@peer.test")
    async with process(here, tmp_path, state=tmp_path) as mta:
        async with here.pool.acquire() as holder, holder.transaction():
            await holder.execute("LOCK TABLE account_heads IN ACCESS EXCLUSIVE MODE")
            await here.until(lambda: here.sink.count == 1)
            await asyncio.sleep(0.2)
            await mta.kill()
            # Its statement lies with the server, which would carry it out: the host died before it was sent.
            await holder.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE wait_event_type = 'Lock' AND application_name LIKE '%settling%'"
            )
        await mta.start()
        await here.until_step(message, "delivered")
        await asyncio.sleep(2.0)

    assert copies(here) == ["ann@peer.test"] * 2
    assert len({one.content.partition(b"Message-ID:")[2].splitlines()[0] for one in here.sink.messages}) == 1
    assert await here.steps(message) == ["accepted", "attempted", "delivered"]


async def test_told_to_end_the_process_finishes_the_transaction_on_the_wire(here: World, tmp_path: Path) -> None:
    here.sink.script(".", delay_s=1.5)
    messages = await here.send_many(6, lambda n: f"reader{n}@peer.test")
    async with process(here, tmp_path, state=tmp_path, site_connections=1) as mta:
        await here.until(lambda: "DATA" in here.sink.commands)
        mta.send(signal.SIGTERM)
        assert await mta.ended() == 0
    delivered = [message for message in messages if await here.status(message) == "delivered"]

    assert len(delivered) == here.sink.count >= 1
    assert await here.pool.fetchval("SELECT count(*) FROM shard_members") == 0  # nobody waits for its lease
    here.sink.scripts.clear()
    await here.mta("mta-2")
    await here.until_idle()
    assert copies(here) == sorted(f"reader{n}@peer.test" for n in range(6))


async def test_a_server_slower_than_the_grace_gets_at_most_one_more_copy(here: World, tmp_path: Path) -> None:
    here.sink.script(".", delay_s=4.0, times=1)
    message = await here.send("ann@peer.test")
    async with process(here, tmp_path, state=tmp_path, drain_s=0.3) as mta:
        await here.until(lambda: "DATA" in here.sink.commands)
        mta.send(signal.SIGTERM)
        assert await mta.ended() == 0
    assert await here.status(message) == "queued"
    await here.mta("mta-2")
    await here.until_step(message, "delivered")

    assert len(copies(here)) <= 2
