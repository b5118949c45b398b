"""Shaping end to end: rules as live data, push-backs, pauses, pace, and turns between accounts and priorities."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from engine.base import clock, ids
from engine.delivery import queue, sites_store
from engine.delivery.queue import BEFORE_ALL
from engine.delivery.routes import MailHost, Route
from engine.sending.emails.types import SendRequest
from engine.sending.preparation import Origin
from mta.outbound import deliver
from mta.outbound.sites import pacer as pacers
from mta.outbound.sites import site as sites
from mta.outbound.tls.policy import WITHOUT, TlsPolicy
from tests.harness.accounts import TestAccount, make_account
from tests.harness.outbound import World
from tests.harness.patience import PATIENCE_S
from tests.harness.sending import accept
from tests.harness.site_rules import set_rule

SLOW_ENOUGH_S = 2 * sites.SLOW_S  # for more than one connection to be worth it
LATER_S = (600.0,)  # a retry that no test waits for


async def rule(here: World, name: str, **fields: Any) -> None:
    await set_rule(here.pool, name, fields, "a test")


async def state(here: World, site: str) -> dict[str, Any]:
    """What the engine shows of a site, once it shows something."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await sites_store.states(here.pool, [site], clock.now() - timedelta(hours=1))):
            await asyncio.sleep(0.05)
    return dict(msgspec.json.decode(found[0].state))


# -- rules -------------------------------------------------------------------------------------


@pytest.mark.exhaustive
async def test_a_rule_is_in_force_within_a_second_and_without_a_restart(here: World) -> None:
    here.sink.script(".", delay_s=SLOW_ENOUGH_S)
    await here.mta(site_connections=6)
    await here.send_many(60, lambda n: f"reader{n}@peer.test")
    await here.until(lambda: here.sink.most_open >= 3)
    await rule(here, "peer.test", connections=1)
    await here.heard()
    here.sink.most_open = 0
    await here.send_many(12, lambda n: f"later{n}@peer.test")
    await asyncio.sleep(sites.IDLE_S / 10)
    here.sink.most_open = len(here.sink._conversations)
    await here.until_idle()

    assert here.sink.count == 72
    assert here.sink.most_open <= 1


async def test_a_backlog_gets_more_connections_though_every_reply_comes_in_time(here: World) -> None:
    here.sink.script(".", delay_s=0.02)
    await here.mta(site_connections=6)
    await here.send_many(400, lambda n: f"reader{n}@peer.test")
    await here.until(lambda: here.sink.most_open >= 4)


async def test_a_site_gets_no_more_recipients_at_once_than_its_rule_says(here: World) -> None:
    await rule(here, "mx.peer.test", recipients=2)
    here.sink.script("RCPT TO:<r3@", "550 5.1.1 no such user")
    message = await here.send(*[f"r{number}@peer.test" for number in range(5)])
    await here.mta()
    await here.until_idle()

    assert sorted(len(one.recipients) for one in here.sink.messages) == [1, 1, 2]
    assert set((await here.statuses(message)).values()) == {"delivered", "bounced"}
    assert (await here.steps(message)).count("attempted") == 1
    assert (await here.steps(message)).count("delivered") == 4
    assert await here.suppressed() == ["r3@peer.test"]


async def test_recipients_whose_turn_did_not_come_before_the_connection_ended_are_tried_again(here: World) -> None:
    await rule(here, "mx.peer.test", recipients=1)
    here.sink.script("MAIL", "421 4.3.2 shutting down", times=1)
    message = await here.send(*[f"r{number}@peer.test" for number in range(3)])
    await here.mta()
    await here.until_idle()

    assert set((await here.statuses(message)).values()) == {"delivered"}
    assert sorted(one.recipients for one in here.sink.messages) == [(f"r{number}@peer.test",) for number in range(3)]


async def test_a_sites_own_ladder_says_when_it_is_tried_again(here: World) -> None:
    await rule(here, "mx.peer.test", ladder_s=[600.0])
    message = await here.send("defer+1@peer.test")
    await here.mta()
    await here.until_step(message, "deferred")
    [row] = await here.queue(message)

    assert 500 < (row["due_at"] - clock.now()).total_seconds() < 700


async def test_a_site_that_may_be_reached_by_the_other_family_only_is_not_reached(here: World) -> None:
    await rule(here, "mx.peer.test", family="ipv6-only")
    message = await here.send("ann@peer.test")
    await here.mta(retry_ladder_s=LATER_S)
    await here.until_step(message, "deferred")

    assert here.sink.connections == 0


async def test_connections_end_after_as_many_messages_as_the_rule_says(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "IDLE_S", PATIENCE_S)  # a busy machine may pause for longer than a connection waits
    await rule(here, "mx.peer.test", messages_per_connection=5, connections=1)
    await here.send_many(20, lambda n: f"reader{n}@peer.test")
    await here.mta()
    await here.until_idle()

    assert here.sink.count == 20
    assert here.sink.connections == 4


async def test_mail_goes_no_faster_than_the_rule_says(here: World) -> None:
    await rule(here, "mx.peer.test", per_second=10.0)
    await here.mta()
    began = time.monotonic()
    await here.send_many(20, lambda n: f"reader{n}@peer.test")
    await here.until_idle()

    assert here.sink.count == 20
    assert time.monotonic() - began > 1.2


# -- one window --------------------------------------------------------------------------------


async def test_two_processes_share_the_connections_of_a_site(here: World) -> None:
    for number in range(12):
        here.domain(f"d{number}.test", mx="mx.hoster.test")
    here.sink.script(".", delay_s=SLOW_ENOUGH_S)
    first = await here.mta("mta-1", site_connections=4)
    second = await here.mta("mta-2", site_connections=4)
    await here.until(lambda: len(first.member.owned) == len(second.member.owned) == 8)
    await here.send_many(120, lambda n: f"reader{n}@d{n % 12}.test")
    await here.until_idle()

    assert here.sink.count == 120
    assert 3 <= here.sink.most_open <= 5  # a busy server may see a new connection before the end of an old one


@pytest.mark.exhaustive
async def test_without_valkey_two_processes_keep_to_their_parts_and_deliver(here: World) -> None:
    for number in range(12):
        here.domain(f"d{number}.test", mx="mx.hoster.test")
    here.sink.script(".", delay_s=SLOW_ENOUGH_S)
    deaf: dict[str, Any] = {"site_connections": 4, "redis_url": "unix:///nonexistent/valkey.sock"}
    first = await here.mta("mta-1", **deaf)
    second = await here.mta("mta-2", **deaf)
    await here.until(lambda: len(first.member.owned) == len(second.member.owned) == 8)
    await here.send_many(40, lambda n: f"reader{n}@d{n % 12}.test")
    await here.until_idle()

    assert here.sink.count == 40
    assert here.sink.most_open <= 4


async def test_tls_policies_towards_the_same_servers_share_one_window(here: World) -> None:
    mta = await here.mta()
    route = Route("mx.peer.test", (MailHost("mx.peer.test", ("127.0.0.1",)),), 25)
    plain = mta.outbound.table.of(route, WITHOUT)
    verified = mta.outbound.table.of(route, TlsPolicy("+verified", 0.0, {}))

    assert plain is not verified
    assert plain.pacer is verified.pacer


async def test_a_site_without_a_place_gets_one_although_another_of_its_group_has_mail_for_ever(here: World) -> None:
    await rule(here, "hoster.test", together=True, connections=1)
    for number in range(3):
        here.domain(f"d{number}.test", mx=f"mx{number}.hoster.test")
    here.sink.script(".", delay_s=0.01)
    await here.mta()
    await here.send_many(300, lambda n: f"reader{n}@d0.test")
    await here.until(lambda: here.sink.count > 10)
    message = await here.send("ann@d1.test")
    await here.until_step(message, "delivered")

    taken = [one.recipients[0] for one in here.sink.messages]
    assert taken.index("ann@d1.test") < 250
    assert here.sink.most_open == 1


# -- push-backs --------------------------------------------------------------------------------


@pytest.mark.exhaustive
async def test_servers_that_push_back_are_left_alone_and_the_answer_is_shown(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacers, "PAUSE_S", 2.0)
    here.sink.script("MAIL", "421 4.7.0 too much mail from you", times=4)
    messages = await here.send_many(60, lambda n: f"reader{n}@peer.test")
    await here.mta(retry_ladder_s=(0.3,), site_connections=2)
    async with asyncio.timeout(PATIENCE_S):
        while (shown := await state(here, "mx.peer.test"))["phase"] != "paused":
            await asyncio.sleep(0.05)
    asked = here.sink.connections
    assert shown["movedBy"]["said"].startswith("421 4.7.0 too much mail")
    assert "left alone" in shown["movedBy"]["effect"]
    assert shown["nextProbe"] is not None
    assert shown["recent"]
    assert asked < 30
    await here.until_idle()

    assert {await here.status(message) for message in messages} == {"delivered"}
    untried = [message for message in messages if "deferred" not in await here.steps(message)]
    assert len(untried) > 30  # waiting for the pause to end is no attempt


async def test_words_of_a_rule_count_as_a_push_back_whatever_the_code(here: World) -> None:
    await rule(here, "mx.peer.test", back_off=["you are sending too fast"])
    here.sink.script("RCPT", "550 5.1.1 You are sending too fast", times=1)
    message = await here.send("ann@peer.test")
    await here.mta()
    await here.until_step(message, "bounced")

    shown = await state(here, "mx.peer.test")
    assert "too fast" in shown["movedBy"]["said"]


async def test_a_wait_for_a_pause_of_more_than_half_a_minute_stands_on_the_waybill(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacers, "PAUSE_S", 120.0)
    message = await here.send("ann@peer.test")
    mta = await here.mta()
    route = Route("mx.peer.test", (MailHost("mx.peer.test", ("127.0.0.1",)),), 25)
    other = await here.send("bob@peer.test")
    for one in (message, other):
        await here.until_step(one, "delivered")
    mta.outbound.table.of(route, WITHOUT).pacer.pause(time.monotonic(), "421 4.7.0 slow down")
    late = await here.send("cem@peer.test")
    await here.until_step(late, "queued")
    detail = dict(await here.waybill(late))["queued"]
    [row] = await here.queue(late)

    assert detail["reason"] == "site_paused"
    assert abs(clock.parse_iso(detail["until"]) - row["due_at"]) < timedelta(seconds=1)
    assert row["waiting"] == "site_paused"
    assert await here.steps(late) == ["accepted", "queued"]


# -- turns -------------------------------------------------------------------------------------


async def many_from(here: World, account: TestAccount, count: int, domain: str, **fields: object) -> None:
    async def one(number: int) -> None:
        request = msgspec.convert(account.email(to=[f"reader{number}@{domain}"], **fields), SendRequest)
        await accept(here.acceptor, request, Origin(account.id, "api"))

    for start in range(0, count, 200):
        await asyncio.gather(*[one(number) for number in range(start, min(count, start + 200))])


async def test_one_code_overtakes_another_accounts_mail_for_the_same_slow_site(here: World) -> None:
    here.sink.script(".", delay_s=0.02)
    await here.mta(site_connections=2, mta_active_limit=200)
    await many_from(here, here.account, 1_000, "peer.test")
    small = await make_account(here.pool)
    code = await here.send("ann@peer.test", account=small)
    await here.until_step(code, "delivered")

    taken = [one.recipients[0] for one in here.sink.messages]
    assert taken.index("ann@peer.test") < 900


async def test_a_few_due_rows_are_found_behind_another_accounts_backlog(here: World) -> None:
    await many_from(here, here.account, 1_500, "peer.test")
    small = await make_account(here.pool)
    messages = [await here.send(f"ann{number}@peer.test", account=small) for number in range(3)]
    await here.flush_hints()
    await here.pool.execute(
        "UPDATE queue SET due_at = now() - interval '1 hour' WHERE account_id = $1", here.account.id
    )
    await here.pool.execute("UPDATE queue SET due_at = now() WHERE account_id = $1", small.id)
    here.sink.script(".", delay_s=0.01)
    await here.mta(site_connections=2, mta_active_limit=100)
    for message in messages:
        await here.until_step(message, "delivered")

    assert here.sink.count < 1_200


async def test_the_walk_over_accounts_goes_on_where_it_stopped_and_misses_nobody(here: World) -> None:
    accounts = [await make_account(here.pool) for _ in range(5)]
    for account in accounts:
        for number in range(3):
            await here.send(f"ann{number}@peer.test", account=account)
    [shard] = {row["shard"] for row in await here.pool.fetch("SELECT DISTINCT shard FROM queue")}
    await here.pool.execute("UPDATE queue SET due_at = now() - interval '1 second' WHERE shard = $1", shard)
    seen, behind = [], BEFORE_ALL
    for _ in range(4):
        found = await queue.due_fairly(here.pool, {shard: behind}, holders=2, max_each=2, exclude=[])
        seen += [row.account_id for row in found]
        if found:
            behind = queue.Holder(found[-1].priority, found[-1].account_id)

    assert {account.id for account in accounts} == set(seen)
    assert all(seen.count(account.id) == 2 for account in accounts)


@pytest.mark.parametrize(
    ("source", "stream", "priority"),
    [
        ("verification", "transactional", 0), ("api", "transactional", 1), ("smtp", "transactional", 1),
        ("api", "news", 2), ("broadcast", "transactional", 3), ("broadcast", "announcements", 3),
    ],
)  # fmt: skip
async def test_what_kind_of_mail_it_is_decides_its_priority(
    here: World, source: str, stream: str, priority: int
) -> None:
    assert await here.pool.fetchval("SELECT mail_priority($1, $2)", source, stream) == priority


async def test_mail_of_other_streams_is_queued_behind_transactional_mail(here: World) -> None:
    await here.pool.execute("INSERT INTO streams (account_id, slug, name) VALUES ($1, 'news', 'News')", here.account.id)
    plain, news = await here.send("ann@peer.test"), await here.send("bob@peer.test", stream="news")
    [first], [second] = await here.queue(plain), await here.queue(news)

    assert (first["priority"], second["priority"]) == (1, 2)


async def test_the_queue_names_every_account_of_a_message_by_shard(here: World) -> None:
    here.domain("other.test")
    message = await here.send("ann@peer.test", "bob@other.test")
    shards = {row["shard"] for row in await here.queue(message)}
    found = await queue.outline(here.pool, [message, ids.uuid7()], shards)

    assert {(row.message_id, row.account_id, row.priority) for row in found} == {(message, here.account.id, 1)}
    assert {row.shard for row in found} == shards
