"""Sending without TLS and login in local mode: from this machine alone, for the account of the first run."""

import asyncio
import socket
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from engine.base.local_mode import FIRST_RUN, sends_without_login
from engine.base.settings import BadSetting, Settings, load
from engine.people.api_keys import service as api_keys
from engine.people.api_keys import store as keys
from loadtests.ports import reserve_port
from mta.smtp.server.seats import is_on_loopback
from tests.harness.accounts import TestAccount, make_account
from tests.harness.submission import Client, TestRelay, message, relaying
from tests.mta.submission.stored import count

LOGIN_NEEDED = "530 5.7.0 Say STARTTLS first"
OPEN: dict[str, Any] = {"submission_open": None}


@pytest.fixture
def state(settings: Settings, account: TestAccount, tmp_path: Path) -> Settings:
    """The settings of a state folder whose first run made the account."""
    (tmp_path / FIRST_RUN).write_bytes(msgspec.json.encode({"apiKey": account.token, "domain": account.domain}))
    return msgspec.structs.replace(settings, state=tmp_path)


@pytest.fixture
async def relay(state: Settings, tmp_path: Path) -> AsyncIterator[TestRelay]:
    async with relaying(state, tmp_path / "relay", **OPEN) as running:
        yield running


async def greeted(client: Client) -> str:
    """Read the greeting; return the reply to EHLO."""
    await client.reply()
    return await client.say("EHLO client.test")


async def test_a_program_on_this_machine_sends_without_tls_and_login(
    relay: TestRelay, pool: asyncpg.Pool, account: TestAccount
) -> None:
    client = await relay.client()
    offered = await greeted(client)
    reply = await client.send(account, message(account))

    assert reply.startswith("250 2.0.0 queued as msg_")
    assert await count(pool, account) == 1
    assert "STARTTLS" not in offered  # clients that use it unasked refuse the self-signed certificate
    assert "AUTH PLAIN LOGIN" in offered


async def test_an_api_key_is_taken_there_too_and_sends_for_its_account(relay: TestRelay, pool: asyncpg.Pool) -> None:
    other = await make_account(pool)
    client = await relay.client()
    await greeted(client)

    assert (await client.log_in("svc_live_wrong")).startswith("535 ")
    assert (await client.log_in(other.token)).startswith("235 ")
    assert (await client.send(other, message(other))).startswith("250 ")
    assert await count(pool, other) == 1


async def test_the_domains_of_the_account_are_checked_as_ever(relay: TestRelay, account: TestAccount) -> None:
    client = await relay.client()
    await greeted(client)
    foreign = message(account).replace(account.domain.encode(), b"stranger.test")

    assert (await client.send(account, foreign)).startswith("550 5.7.1 [domain_not_verified]")


async def test_a_revoked_key_of_the_first_run_closes_the_port(
    relay: TestRelay, pool: asyncpg.Pool, account: TestAccount
) -> None:
    before = await relay.client()
    await greeted(before)
    assert (await before.send(account, message(account))).startswith("250 ")
    (key,) = await keys.LIST.fetch(pool, account.id, None, 10)
    await api_keys.revoke_key(pool, account.id, key.id, actor="operator")
    await relay.services.stamps.check()

    refused = await before.say(f"MAIL FROM:<{account.sender}>")
    assert refused.startswith("535 5.7.8 [unauthorized]")
    after = await relay.client()
    await greeted(after)
    assert (await after.say(f"MAIL FROM:<{account.sender}>")).startswith("530 5.7.0 [unauthorized] Without a login")


async def test_a_state_folder_without_a_first_run_has_no_such_account(
    settings: Settings, account: TestAccount, tmp_path: Path
) -> None:
    bare = msgspec.structs.replace(settings, state=tmp_path)
    async with relaying(bare, tmp_path / "relay", **OPEN) as running:
        client = await running.client()
        await greeted(client)
        assert (await client.say(f"MAIL FROM:<{account.sender}>")).startswith("530 5.7.0 [unauthorized] Without")


@pytest.mark.parametrize(
    "changes",
    [
        {"delivery": "live"},
        {"submission_open": False},
        # Connections of a load balancer on this machine are those of strangers, if they name their clients or not.
        {"proxy_networks": (ip_network("10.0.0.0/8"),)},
    ],
    ids=["live mode", "switched off", "behind a load balancer"],
)
async def test_the_port_needs_tls_and_a_login_otherwise(
    state: Settings, account: TestAccount, tmp_path: Path, changes: dict[str, Any]
) -> None:
    async with relaying(state, tmp_path / "relay", **(OPEN | changes)) as running:
        client = await running.client()
        assert "STARTTLS" in await greeted(client)
        assert await client.say(f"MAIL FROM:<{account.sender}>") == LOGIN_NEEDED


async def test_other_machines_need_tls_and_a_login_whatever_the_port_is_bound_to(
    state: Settings, account: TestAccount, tmp_path: Path
) -> None:
    address = _own_address()
    async with relaying(state, tmp_path / "relay", **(OPEN | {"submission_host": "0.0.0.0"})) as running:
        with socket.create_connection((address, running.port)) as outside:
            client = Client(*await asyncio.open_connection(sock=outside))
            assert "STARTTLS" in await greeted(client)
            assert await client.say(f"MAIL FROM:<{account.sender}>") == LOGIN_NEEDED
            await client.close()
        inside = await running.client()
        await greeted(inside)
        assert (await inside.send(account, message(account))).startswith("250 ")


def test_a_connection_is_local_only_if_both_its_ends_are() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            accepted, _ = server.accept()
            with accepted:
                assert is_on_loopback(accepted)
        gone = socket.socket()
        gone.close()
        assert not is_on_loopback(gone)
        assert not is_on_loopback(client)


async def test_a_web_page_cant_send_through_the_port(
    relay: TestRelay, pool: asyncpg.Pool, account: TestAccount
) -> None:
    """A browser may post any text to a port of its own machine; the lines of it must not run as commands."""
    commands = b"EHLO x\r\nMAIL FROM:<%b>\r\nRCPT TO:<ann@people.test>\r\nDATA\r\n" % account.sender.encode()
    for posted in (b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + commands + message(account) + b".\r\n",):
        early = await relay.client()
        await early.write(posted)
        assert (await early.reply()).startswith("554 5.5.1 The server speaks first")
        late = await relay.client()
        await late.reply()
        await late.write(posted)
        assert (await late.reply()).startswith("554 5.5.1 This is a mail server")
        assert await late.ended()
    assert await count(pool, account) == 0


def test_live_mode_refuses_the_setting() -> None:
    given = {"WAYBILL_DELIVERY": "live", "WAYBILL_SUBMISSION_OPEN": "true"}
    with pytest.raises(BadSetting, match="WAYBILL_SUBMISSION_OPEN is true, but live mode"):
        load(given)
    assert not sends_without_login(load({"WAYBILL_DELIVERY": "live"}).settings)
    assert sends_without_login(load({}).settings)


def _own_address() -> str:
    """Return an address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", reserve_port()))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address besides loopback")
        return str(probe.getsockname()[0])
