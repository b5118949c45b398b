"""`ops source`: what the operator sets and sees of source addresses, and what is refused in words."""

import asyncio
import json
from datetime import date, timedelta

import msgspec
import pytest
from click.testing import CliRunner

from engine.base import clock, ids
from engine.base.settings import SourceIp, to_environ
from engine.delivery import sources_store
from engine.delivery.sources import SHIPPED
from ops.cli import cli
from ops.commands import source as sources
from tests.harness.outbound import World

A, B = "127.0.0.2", "127.0.0.3"
BOTH = (SourceIp(A, "mta-a.sources.test"), SourceIp(B))


async def test_the_list_has_sources_pools_and_what_is_assigned(here: World) -> None:
    settings = msgspec.structs.replace(here.settings, source_ips=BOTH)
    await sources.set_pool(here.pool, settings, "bulk", f"{B}*3,192.0.2.77")
    await sources.assign(here.pool, stream="broadcast", name="bulk", account=None)
    await sources.assign(here.pool, stream="news", name="bulk", account=here.account.public_id)
    await sources.warm_up(here.pool, B, clock.now().date(), None)
    found = await sources.listing(here.pool, settings)

    assert [(one["ip"], one["ehlo"], one["here"], one["pools"]) for one in found["sources"]] == [
        (A, "mta-a.sources.test", "yes", ""), (B, settings.mail_host, "yes", "bulk"),
        ("192.0.2.77", "", "not configured here", "bulk"),
    ]  # fmt: skip
    assert found["sources"][1]["warmUp"] == f"day 1 of {len(SHIPPED.plan)}: {SHIPPED.plan[0]} to each provider"
    assert found["pools"] == [{"pool": "bulk", "ips": f"{B}*3, 192.0.2.77"}]
    assert {(one["stream"], one["account"]) for one in found["assigned"]} == {
        ("broadcast", ""), ("news", here.account.public_id),
    }  # fmt: skip


async def test_a_pool_says_which_of_its_addresses_are_not_of_this_host(here: World) -> None:
    done = await sources.set_pool(here.pool, here.settings, "new", "192.0.2.77")
    assert "WAYBILL_SOURCE_IPS" in done["notHere"]


@pytest.mark.parametrize(("name", "ips"), [("No Name", A), ("", A), ("bulk", "host.test"), ("bulk", f"{A},{A}")])
async def test_what_is_no_pool_is_refused_in_words(here: World, name: str, ips: str) -> None:
    with pytest.raises(ValueError, match=r"pool|address|twice"):
        await sources.set_pool(here.pool, here.settings, name, ips)


async def test_mail_is_assigned_to_pools_and_accounts_that_there_are(here: World) -> None:
    await sources.set_pool(here.pool, here.settings, "bulk", A)
    with pytest.raises(ValueError, match="No pool 'other'"):
        await sources.assign(here.pool, stream="news", name="other", account=None)
    with pytest.raises(ValueError, match="No such account"):
        await sources.assign(
            here.pool, stream="news", name="bulk", account=ids.format_id(ids.Kind.ACCOUNT, ids.uuid7())
        )
    with pytest.raises(ValueError, match="not a stream"):
        await sources.assign(here.pool, stream="No Stream", name="bulk", account=None)


async def test_a_pool_in_use_stays_and_one_that_is_free_goes(here: World) -> None:
    await sources.set_pool(here.pool, here.settings, "bulk", A)
    await sources.assign(here.pool, stream="*", name="bulk", account=None)
    with pytest.raises(ValueError, match="assigned"):
        await sources.remove_pool(here.pool, "bulk")
    await sources.unassign(here.pool, stream="*", account=None)
    with pytest.raises(ValueError, match="No such assignment"):
        await sources.unassign(here.pool, stream="*", account=None)
    assert (await sources.remove_pool(here.pool, "bulk"))["removed"]


async def test_an_assignment_is_replaced_not_doubled(here: World) -> None:
    for name in ("one", "two"):
        await sources.set_pool(here.pool, here.settings, name, A)
        await sources.assign(here.pool, stream="news", name=name, account=None)
    assert (await sources_store.read(here.pool)).assignments == {("news", None): "two"}


async def test_a_warm_up_may_begin_later_and_end_early(here: World) -> None:
    begins = clock.now().date() + timedelta(days=3)
    done = await sources.warm_up(here.pool, A, begins, [50, 100])
    assert (done["warmUp"], done["source"]) == (f"begins on {begins}", "yours")
    assert (await sources.details(here.pool, here.settings, A))["allowed"] == 0
    assert (await sources.end_warm_up(here.pool, A))["warmUp"] == "warm"
    with pytest.raises(ValueError, match="has no warm-up"):
        await sources.end_warm_up(here.pool, A)


async def test_the_shipped_plan_comes_with_its_source(here: World) -> None:
    done = await sources.warm_up(here.pool, A, date(2026, 1, 1), None)
    assert done["plan"] == list(SHIPPED.plan)
    assert "https://" in done["source"]


async def test_a_refused_address_is_shown_until_the_operator_trusts_it(here: World) -> None:
    now = clock.now()
    rest = sources_store.Rest(A, "mx.peer.test", now + timedelta(hours=1), 1, "554 5.7.1 blocked", now)
    await sources_store.write_rests(here.pool, [rest])
    shown = await sources.details(here.pool, here.settings, A)
    assert shown["refused"] == [{"site": "mx.peer.test", "until": clock.iso(rest.until), "said": "554 5.7.1 blocked"}]

    with pytest.raises(ValueError, match="does not refuse"):
        await sources.trust(here.pool, A, "mx.other.test")
    assert (await sources.trust(here.pool, A, None))["usedAgainAt"] == ["mx.peer.test"]
    assert (await sources.details(here.pool, here.settings, A))["refused"] == []
    with pytest.raises(ValueError, match="No site refuses"):
        await sources.trust(here.pool, A, None)


async def test_the_commands_say_in_words_and_in_json_what_was_done(here: World) -> None:
    settings = msgspec.structs.replace(here.settings, source_ips=BOTH)
    variables = to_environ(settings) | {"WAYBILL_KEY_PEPPER": str(settings.pepper)}

    async def run(words: str, status: int = 0) -> str:
        done = await asyncio.to_thread(CliRunner().invoke, cli, ["source", *words.split()], env=variables)
        assert done.exit_code == status, done.output
        return str(done.output if status else done.stdout)  # stderr may have lines of the log of this process

    today = clock.now().date()
    assert "3, 10" in await run(f"warmup {A} --start {today} --plan 3,10")
    await run(f"pool set bulk --ips {A}*2,{B}")
    await run("assign --stream news --pool bulk")
    assert "day 1 of 2: 3 to each provider" in await run("list")
    shown = json.loads(await run(f"show {A} --json"))
    assert (shown["plan"], shown["allowed"], shown["pools"]) == ([3, 10], 3, ["bulk"])
    assert "day 1 of 2" in await run(f"show {A}")
    assert "whole numbers" in await run(f"warmup {A} --start {today} --plan 3,0", 1)
    assert "either --start" in await run(f"warmup {A}", 1)
    assert "either --start" in await run(f"warmup {A} --off --start {today}", 1)
    assert "assigned" in await run("pool remove bulk", 1)
    await run("unassign --stream news")
    await run("pool remove bulk")
    await run(f"warmup {A} --off")
    assert "No site refuses" in await run(f"trust {A}", 1)


async def test_without_sources_the_list_says_that_the_system_chooses(here: World) -> None:
    variables = to_environ(here.settings) | {"WAYBILL_KEY_PEPPER": str(here.settings.pepper)}
    done = await asyncio.to_thread(CliRunner().invoke, cli, ["source", "list"], env=variables)

    assert "the system chooses" in done.output
