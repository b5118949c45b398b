"""Mail flows beside servers that accept connections and say nothing, with limits that a few of them would use up."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Self

import pytest

from mta.outbound.sites import site, slots
from tests.harness.accounts import make_account
from tests.harness.outbound import World
from tests.harness.patience import PATIENCE_S

LATER_S = (60.0,)  # a retry that no test waits for


class SilentServers:
    """Servers that never greet, each on an address of its own."""

    def __init__(self, here: World, count: int) -> None:
        self._here = here
        self.addresses = [f"127.0.1.{number + 1}" for number in range(count)]
        self.connections: list[str] = []  # the address of each that came
        self.open = 0
        self.most_open = 0
        self._listeners: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        for number, address in enumerate(self.addresses):
            self._listeners.append(await asyncio.start_server(self._joined, address, self._here.settings.sink_port))
            self._here.domain(f"silent{number}.test", address)
        return self

    async def __aexit__(self, *_: object) -> None:
        for listener in self._listeners:
            listener.close()
        for writer in list(self._writers):
            writer.close()

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections.append(writer.get_extra_info("sockname")[0])
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        with contextlib.suppress(OSError):
            await reader.read()
        self.open -= 1
        self._writers.discard(writer)
        writer.close()


@pytest.fixture
async def silent(here: World) -> AsyncIterator[SilentServers]:
    async with SilentServers(here, 20) as servers:
        yield servers


async def test_thousands_of_silent_servers_delay_neither_others_nor_the_same_accounts_other_mail(
    here: World, silent: SilentServers
) -> None:
    here.domain("own.test")
    other = await make_account(here.pool)
    await here.live(mta_connections=8, mta_active_limit=16, retry_ladder_s=LATER_S, reply_timeout_s=300.0)
    for message in (await here.send("ann@own.test"), await here.send("bob@peer.test", account=other)):
        await here.until_step(message, "delivered")
    stuck = await here.send_many(60, lambda n: f"reader{n}@silent{n % 20}.test")
    await here.until(lambda: silent.open > 0)
    for number in range(10):
        await here.until_step(await here.send(f"ann{number}@own.test"), "delivered")
        await here.until_step(await here.send(f"bob{number}@peer.test", account=other), "delivered")

    assert silent.most_open <= 4  # half of the slots
    for message in stuck:
        assert "failed" not in await here.steps(message)


async def test_an_account_that_never_sent_before_gets_its_turn_beside_silent_servers(
    here: World, silent: SilentServers
) -> None:
    await here.live(mta_connections=8, mta_active_limit=16, retry_ladder_s=LATER_S, reply_timeout_s=300.0)
    await here.send_many(60, lambda n: f"reader{n}@silent{n % 20}.test")
    await here.until(lambda: silent.open > 0)
    other = await make_account(here.pool)
    await here.until_step(await here.send("bob@peer.test", account=other), "delivered")


async def test_one_message_opens_one_connection_to_a_silent_server(
    here: World, silent: SilentServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "PATIENCE_S", 0.05)  # an opening that hangs for so long is not waited for alone
    await here.live(reply_timeout_s=300.0)
    stuck = [await here.send("ann@silent0.test"), *await here.send_many(10, lambda n: f"reader{n}@silent1.test")]
    await here.until(lambda: silent.open == 2)
    for number in range(10):  # each is a look at what waits
        await here.until_step(await here.send(f"bob{number}@peer.test"), "delivered")

    assert sorted(silent.connections) == silent.addresses[:2]
    assert [await here.status(message) for message in stuck] == ["queued"] * 11


async def test_an_opening_ends_early_for_others_that_wait_and_the_waybill_says_so(
    here: World, silent: SilentServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "STRESSED_S", 0.3)
    await here.live(mta_connections=4, retry_ladder_s=LATER_S, reply_timeout_s=300.0)
    stuck = await here.send_many(8, lambda n: f"reader{n}@silent{n}.test")
    said: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(said) < 6:  # nobody waits for the places of the last
            found = [dict(await here.waybill(message)).get("deferred") for message in stuck]
            said = [detail["diagnostic"] for detail in found if detail is not None]

    assert all("cut short because other mail waited for a connection" in words for words in said)
    assert silent.most_open <= 2


async def test_many_names_on_one_silent_address_are_one_host(here: World, silent: SilentServers) -> None:
    for number in range(30):
        here.domain(f"name{number}.test", silent.addresses[0])
    await here.live(retry_ladder_s=LATER_S, reply_timeout_s=0.5)
    stuck = await here.send_many(30, lambda n: f"reader@name{n}.test")
    for message in stuck:
        await here.until_step(message, "deferred")

    assert silent.most_open == 1
    assert len(silent.connections) < 10  # their rest is over before a slow test is
    shown = [dict(await here.waybill(message))["attempted"] for message in stuck]
    assert sum("spoke for this one" in str(detail) for detail in shown) >= 20


async def test_a_stop_does_not_wait_for_servers_that_say_nothing(here: World, silent: SilentServers) -> None:
    mta = await here.live(mta_connections=4, reply_timeout_s=300.0)
    await here.send_many(8, lambda n: f"reader{n}@silent{n}.test")
    await here.until(lambda: silent.open > 0)
    here.mtas.remove(mta)
    async with asyncio.timeout(PATIENCE_S):
        await mta.stop(grace_s=10 * PATIENCE_S)
