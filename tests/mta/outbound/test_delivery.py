"""Delivery end to end in one event loop, for each behaviour of mail servers."""

import asyncio

import pytest

from mta.outbound import deliver
from mta.outbound.sites import site
from ops.local.dns import DnsBehaviour
from tests.harness.outbound import World
from tests.harness.patience import PATIENCE_S

BARE = ("PIPELINING", "8BITMIME", "ENHANCEDSTATUSCODES")
SLOW_ENOUGH_S = 2 * site.SLOW_S  # for more than one connection to be worth it
LATER_S = (600.0,)  # a retry that no test waits for


async def test_a_message_is_queued_until_its_first_attempt_has_ended(here: World) -> None:
    here.sink.script("RCPT TO:<slow@peer.test>", delay_s=2 * PATIENCE_S)
    message = await here.send("slow@peer.test")
    await here.mta(reply_timeout_s=4 * PATIENCE_S)
    await here.until(lambda: here.sink.connections > 0)

    assert await here.status(message) == "queued"


# -- connections -------------------------------------------------------------------------------


async def test_one_connection_carries_many_messages(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliver, "IDLE_S", PATIENCE_S)  # a busy machine may pause for longer than a connection waits
    messages = await here.send_many(30, lambda n: f"reader{n}@peer.test")
    await here.mta(site_connections=1)
    await here.until_idle()

    assert {await here.status(message) for message in messages} == {"delivered"}
    assert here.sink.count == 30
    assert here.sink.connections == 1


async def test_a_connection_is_left_after_its_share_of_messages(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliver, "IDLE_S", PATIENCE_S)  # a busy machine may pause for longer than a connection waits
    await here.send_many(25, lambda n: f"reader{n}@peer.test")
    await here.mta(site_connections=1, messages_per_connection=10)
    await here.until_idle()

    assert here.sink.count == 25
    assert here.sink.connections == 3


async def test_a_site_never_sees_more_connections_than_its_limit(here: World) -> None:
    here.sink.script(".", delay_s=SLOW_ENOUGH_S)
    await here.send_many(60, lambda n: f"reader{n}@peer.test")
    await here.mta(site_connections=3)
    await here.until_idle()

    assert here.sink.count == 60
    assert here.sink.most_open == 3


async def test_domains_with_the_same_servers_share_one_window(here: World) -> None:
    for number in range(10):
        here.domain(f"d{number}.test", mx="mx.hoster.test")
    here.sink.script(".", delay_s=SLOW_ENOUGH_S)
    await here.send_many(40, lambda n: f"reader{n}@d{n % 10}.test")
    await here.mta(site_connections=2)
    await here.until_idle()

    assert here.sink.count == 40
    assert here.sink.most_open == 2


async def test_the_next_server_takes_over_from_a_dead_one(here: World) -> None:
    here.dns.set("two.test", "MX", ["10 first.two.test.", "20 second.two.test."])
    here.dns.set("first.two.test", "A", [here.NOBODY])
    here.dns.set("second.two.test", "A", ["127.0.0.1"])
    message = await here.send("ann@two.test")
    await here.mta()
    await here.until_idle()

    assert await here.steps(message) == ["accepted", "attempted", "delivered"]
    detail = dict(await here.waybill(message))["delivered"]
    assert detail["mx"] == "second.two.test"


async def test_a_process_whose_outcomes_wait_for_their_commit_begins_no_more_deliveries(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill would leave them all to be sent again."""
    monkeypatch.setattr("mta.outbound.complete.MAX_UNSETTLED", 5)
    await here.send_many(40, lambda n: f"reader{n}@peer.test")
    async with here.pool.acquire() as blocker, blocker.transaction():
        await blocker.execute("SELECT 1 FROM account_heads WHERE account_id = $1 FOR UPDATE", here.account.id)
        await here.mta(site_connections=3)
        await here.until(lambda: here.sink.count >= 5)
        await asyncio.sleep(0.3)
        assert here.sink.count <= 5 + 2 * 3  # on each connection one delivery, and one pipelined behind it
    await here.until_idle()

    assert here.sink.count == 40


# -- hostile and dead sites --------------------------------------------------------------------


async def test_a_dead_and_a_silent_site_delay_nobody_else(here: World) -> None:
    tarpit = await here.server("127.0.0.3")
    tarpit.script("CONNECT", delay_s=600)
    slow = await here.server("127.0.0.4")
    slow.script("RCPT", drip_s=1.0)
    for name, address in (("dead", here.NOBODY), ("tarpit", "127.0.0.3"), ("slow", "127.0.0.4")):
        here.domain(f"{name}.test", address)
    await here.mta(retry_ladder_s=LATER_S, reply_timeout_s=300.0)
    stuck = await here.send_many(50, lambda n: f"reader{n}@{('dead', 'tarpit', 'slow')[n % 3]}.test")
    await here.until(lambda: slow.connections > 0 and tarpit.connections > 0)
    bystander = await here.send("ann@peer.test")
    await here.until_step(bystander, "delivered")

    assert here.mtas[0].outbound.in_hand > 0
    dead = [message for number, message in enumerate(stuck) if number % 3 == 0]
    for message in dead:
        await here.until_step(message, "deferred")
        assert await here.status(message) == "sending"


async def test_a_dead_site_is_not_asked_for_every_message(here: World) -> None:
    refusing = await here.server("127.0.0.3")
    refusing.script("CONNECT", "421 4.3.2 come back later")
    here.domain("dead.test", "127.0.0.3")
    messages = await here.send_many(40, lambda n: f"reader{n}@dead.test")
    await here.mta(retry_ladder_s=LATER_S)
    await here.until_idle()

    for message in messages:
        assert "deferred" in await here.steps(message)
    assert refusing.connections <= 5


async def test_mail_flows_again_after_a_dead_site_came_back(here: World) -> None:
    here.domain("dead.test", "127.0.0.3")
    messages = await here.send_many(5, lambda n: f"reader{n}@dead.test")
    await here.mta()
    for message in messages:
        await here.until_step(message, "deferred")
    back = await here.server("127.0.0.3")
    await here.until_idle()

    assert back.count == 5
    assert {await here.status(message) for message in messages} == {"delivered"}


@pytest.mark.parametrize("at", ["CONNECT", "EHLO", "MAIL", "RCPT", "DATA", "."])
async def test_a_421_at_any_position_loses_and_doubles_nothing(here: World, at: str) -> None:
    here.sink.script(at, "421 4.3.2 shutting down", times=1)
    messages = await here.send_many(5, lambda n: f"reader{n}@peer.test")
    await here.mta(site_connections=1)
    await here.until_idle()

    for message in messages:
        assert await here.status(message) == "delivered"
    assert here.sink.count == 5
    assert sorted(one.recipients for one in here.sink.messages) == [(f"reader{n}@peer.test",) for n in range(5)]


async def test_a_connection_lost_after_the_final_dot_repeats_the_same_message(here: World) -> None:
    message = await here.send("drop+1@peer.test")
    await here.mta()
    await here.until_idle()

    assert await here.steps(message) == ["accepted", "attempted", "deferred", "attempted", "delivered"]
    detail = dict((await here.waybill(message))[:3])["deferred"]
    assert detail["class"] == "unknown_after_dot"
    assert here.sink.count == 1


async def test_broken_tls_falls_back_to_plaintext_once_and_is_remembered(here: World) -> None:
    broken = await here.server("127.0.0.3", extensions=("PIPELINING", "STARTTLS"))
    broken.script("STARTTLS", raw=b"220 2.0.0 go\r\n500 this is no handshake\r\n")
    here.domain("broken.test", "127.0.0.3")
    await here.mta()
    first = await here.send("ann@broken.test")
    await here.until_idle()
    assert broken.connections == 2
    assert broken.messages[0].tls is None
    here.domain("other.test", mx="mx.broken.test", address="127.0.0.3")
    await here.send("bob@other.test")
    await here.until_idle()

    assert await here.status(first) == "delivered"
    assert broken.count == 2
    assert [line for line in broken.commands if line.startswith("STARTTLS")] == ["STARTTLS"]


# -- outcomes ----------------------------------------------------------------------------------


async def test_one_transaction_settles_each_recipient_by_its_own_reply_once(here: World) -> None:
    here.sink.script("RCPT TO:<bob@", "450 4.2.2 mailbox full")
    here.sink.script("RCPT TO:<cem@", "550 5.1.1 no such user")
    message = await here.send("ann@peer.test", "bob@peer.test", "cem@peer.test")
    await here.mta(retry_ladder_s=LATER_S)
    await here.until_step(message, "bounced")
    await here.until_idle()

    assert await here.statuses(message) == {
        "ann@peer.test": "delivered", "bob@peer.test": "sending", "cem@peer.test": "bounced",
    }  # fmt: skip
    assert await here.steps(message) == ["accepted", "attempted", "delivered", "deferred", "bounced"]
    assert await here.suppressed() == ["cem@peer.test"]
    assert await here.status(message) == "sending"
    [row] = await here.queue(message)
    assert (row["recipients"], row["attempts"]) == ('[[1, "bob@peer.test"]]', 1)
    assert [one.recipients for one in here.sink.messages] == [("ann@peer.test",)]


async def test_a_retry_goes_to_the_deferred_recipient_alone(here: World) -> None:
    here.sink.script("RCPT TO:<bob@", "450 4.2.2 mailbox full", times=1)
    message = await here.send("ann@peer.test", "bob@peer.test")
    await here.mta()
    await here.until_step(message, "delivered", times=2)

    assert [one.recipients for one in here.sink.messages] == [("ann@peer.test",), ("bob@peer.test",)]
    assert await here.status(message) == "delivered"


async def test_greylisted_mail_arrives_on_the_retry_with_the_same_signature(here: World) -> None:
    message = await here.send("defer+1@peer.test")
    await here.mta(retry_ladder_s=(1.0,))
    await here.until_step(message, "deferred")
    [row] = await here.queue(message)
    await here.until_idle()

    assert await here.steps(message) == ["accepted", "attempted", "deferred", "attempted", "delivered"]
    assert row["signature"].startswith(b"DKIM-Signature:")
    assert here.sink.messages[0].content.startswith(row["signature"])


@pytest.mark.exhaustive
async def test_retries_end_in_failed_when_the_time_is_over(here: World) -> None:
    message = await here.send("full+1@peer.test")
    await here.mta(give_up_s=4.0)
    await here.until_step(message, "failed")

    steps = await here.steps(message)
    assert steps[0] == "accepted"
    assert steps[-1] == "failed"
    assert steps.count("failed") == 1
    assert steps.count("deferred") >= 2
    assert await here.statuses(message) == {"full+1@peer.test": "failed"}
    assert await here.queue(message) == []
    assert await here.suppressed() == []


async def test_an_address_that_needs_smtputf8_bounces_where_the_server_lacks_it(here: World) -> None:
    await here.server("127.0.0.3", extensions=BARE)
    here.domain("old.test", "127.0.0.3")
    message = await here.send("jürgen@old.test")
    await here.mta()
    await here.until_step(message, "bounced")

    detail = dict(await here.waybill(message))["bounced"]
    assert (detail["enhanced_code"], detail["suppressed"]) == ("5.6.7", False)


async def test_domains_that_take_no_mail_bounce_at_once(here: World) -> None:
    here.dns.null_mx("nullmx.test")
    here.dns.behave("gone.test", DnsBehaviour(rcode="NXDOMAIN"))
    null, gone = await here.send("ann@nullmx.test"), await here.send("ann@gone.test")
    await here.mta()
    await here.until_idle()

    assert await here.steps(null) == ["accepted", "bounced"]
    assert await here.steps(gone) == ["accepted", "bounced"]
    assert dict(await here.waybill(null))["bounced"]["enhanced_code"] == "5.1.10"
    assert await here.suppressed() == ["ann@nullmx.test"]


async def test_a_failing_name_server_defers(here: World) -> None:
    here.dns.behave("lame.test", DnsBehaviour(rcode="SERVFAIL"))
    message = await here.send("ann@lame.test")
    await here.mta(retry_ladder_s=LATER_S)
    await here.until_step(message, "deferred")

    assert dict(await here.waybill(message))["deferred"]["class"] == "dns"


@pytest.mark.parametrize(
    "reply",
    [
        b"550 5.1.1 nobody\x00 here \xff\xfe\xe9 \x1b[31m\r\n",
        b"550-5.1.1 " + b"x" * 300 + b"\r\n550 5.1.1 " + b"y" * 300 + b"\r\n",
    ],
    ids=["nul and 8 bit", "long"],
)
async def test_what_a_server_says_is_stored_printable_and_short(here: World, reply: bytes) -> None:
    here.sink.script("RCPT", raw=reply)
    message = await here.send("ann@peer.test")
    await here.mta()
    await here.until_step(message, "bounced")

    said = dict(await here.waybill(message))["bounced"]["diagnostic"]
    assert said.isprintable()
    assert len(said) <= 1_010


@pytest.mark.parametrize(
    "raw", [b"250-" + b"x" * 100_000 + b"\r\n", b"250-go on\r\n" * 20_000, b"\x16\x03\x01\x02\x00" * 50 + b"\r\n"],
    ids=["endless line", "endless reply", "no SMTP"],
)  # fmt: skip
async def test_a_server_that_speaks_nonsense_defers_and_delays_nobody(here: World, raw: bytes) -> None:
    odd = await here.server("127.0.0.3")
    odd.script("EHLO", raw=raw)
    here.domain("odd.test", "127.0.0.3")
    await here.mta(retry_ladder_s=LATER_S)
    message, bystander = await here.send("ann@odd.test"), await here.send("ann@peer.test")
    await here.until_step(message, "deferred")
    await here.until_step(bystander, "delivered")

    assert len(str((await here.waybill(message))[1][1])) < 5_000
