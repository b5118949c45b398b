"""SMTP submission sessions: authentication, time limits, and their end."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import asyncpg
import pytest
from msgspec import structs

from engine.base import clock, ids, transfer_rate
from engine.base.settings import Settings
from engine.people.api_keys.key_auth import Keys
from engine.store.rate_limits import RateLimiter
from engine.store.redis import connect
from loadtests.kit.smtp_client import trusting_context as trusting
from mta.smtp.server import aiosmtpd_session, proxy_protocol, smtp_server
from mta.submission.auth import BURST_S, FAILURES_PER_S, LoginRefused, SubmissionAuth
from mta.submission.process import close_services
from ops.local import certificate
from tests.harness.accounts import PEPPER, TestAccount, add_key, make_account, revoke_key, set_status
from tests.harness.patience import PATIENCE_S, until
from tests.harness.submission import Client, TestRelay, message, relaying


async def until_sessions(relay: TestRelay, count: int, timeout_s: float = PATIENCE_S) -> None:
    """Wait until so many are open."""
    async with asyncio.timeout(timeout_s):
        while relay.services.server.sessions != count:
            await asyncio.sleep(0.02)


# -- logging in ------------------------------------------------------------------------------------------


async def test_every_cause_of_a_refused_login_looks_the_same(
    settings: Settings, account: TestAccount, pool: asyncpg.Pool, tmp_path: Path
) -> None:
    revoked = await add_key(pool, account.id)
    await revoke_key(pool, account.id, revoked)
    suspended = await make_account(pool)
    await set_status(pool, suspended.id, "suspended")
    await asyncio.sleep(0.6)
    passwords = {
        "unknown": "svc_live_" + "a" * 44,
        "malformed": "hunter2",
        "binary": "\xff\x01",
        "wrong secret": account.token[:-1] + ("a" if account.token[-1] != "a" else "b"),
        "revoked": revoked,
        "expired": await add_key(pool, account.id, expires_at=clock.now() - timedelta(minutes=1)),
        "suspended": suspended.token,
        "without the scope": await add_key(pool, account.id, scopes=["messages:read"]),
    }
    replies: set[str] = set()
    took: dict[str, list[float]] = {cause: [] for cause in passwords}
    async with relaying(settings, tmp_path, relay_login_delay_s=1.0) as relay:

        async def refuse(cause: str, password: str) -> None:
            client = await relay.secured()
            began = time.monotonic()
            replies.add(await client.log_in(password))
            took[cause].append(time.monotonic() - began)
            await client.close()

        for _ in range(2):
            await asyncio.gather(*(refuse(cause, password) for cause, password in passwords.items()))
    assert len(replies) == 1
    assert replies.pop().startswith("535 5.7.8 [unauthorized] ")
    fastest = [min(times) for times in took.values()]
    assert min(fastest) >= 0.99
    assert max(fastest) - min(fastest) < 0.8  # no cause waits twice


async def test_who_fails_too_often_is_slowed_and_sent_away_but_a_right_password_still_holds(
    settings: Settings, pool: asyncpg.Pool, tmp_path: Path
) -> None:
    account = await make_account(pool)
    async with relaying(settings, tmp_path, relay_login_delay_s=0.0) as relay:
        address = "127.0.0.77"
        replies = []
        for _ in range(int(BURST_S * FAILURES_PER_S) + 1):
            client = await relay.client(tls=True, source=address)
            await client.reply()
            await client.say("EHLO client.test")
            replies.append(await client.log_in("nope"))
            await client.close()
        assert all(reply.startswith("535 5.7.8 ") for reply in replies[:-1])
        assert replies[-1].startswith("421 4.7.0 [rate_limited] ")
        client = await relay.client(tls=True, source=address)
        await client.reply()
        await client.say("EHLO client.test")
        assert (await client.log_in(account.token)).startswith("235 ")
        await client.close()


async def test_the_addresses_of_one_ipv6_network_fail_together(settings: Settings, pool: asyncpg.Pool) -> None:
    assert settings.redis_url is not None
    client = connect(settings.redis_url, timeout_s=PATIENCE_S)
    own = structs.replace(settings, relay_login_delay_s=0.0)
    auth = SubmissionAuth(Keys(pool, PEPPER), RateLimiter(client), own)
    prefix = f"2001:db8:{ids.uuid7().int % 0xFFFF:x}:7"
    most = int(BURST_S * FAILURES_PER_S)
    often = []
    for number in range(2 * most):
        with pytest.raises(LoginRefused) as refused:
            await auth.log_in(b"nope", f"{prefix}::{number + 1:x}")
        often.append(refused.value.too_often)
    with pytest.raises(LoginRefused) as elsewhere:
        await auth.log_in(b"nope", f"{prefix}f::1")
    await client.aclose()

    assert not any(often[:most])
    assert any(often)
    assert not elsewhere.value.too_often


async def test_a_key_revoked_during_a_session_sends_no_more(
    relay: TestRelay, account: TestAccount, pool: asyncpg.Pool
) -> None:
    at_mail, in_data = await relay.logged_in(account), await relay.logged_in(account)
    assert (await at_mail.send(account, message(account))).startswith("250 ")
    await in_data.envelope(account)
    await revoke_key(pool, account.id, account.token)
    async with asyncio.timeout(PATIENCE_S):
        while (reply := await at_mail.say(f"MAIL FROM:<{account.sender}>")).startswith("250 "):
            await at_mail.say("RSET")
            await asyncio.sleep(0.05)
    assert reply.startswith("535 5.7.8 ")
    assert await at_mail.ended()
    await in_data.write(message(account) + b".\r\n")
    assert (await in_data.reply()).startswith("535 5.7.8 ")
    assert await in_data.ended()
    assert await pool.fetchval("SELECT count(*) FROM messages WHERE account_id = $1", account.id) == 1


async def test_the_last_use_of_a_key_is_kept(relay: TestRelay, account: TestAccount, pool: asyncpg.Pool) -> None:
    client = await relay.logged_in(account)
    await client.close()
    await relay.services.keys.write_last_uses()
    assert await pool.fetchval("SELECT last_used_at FROM api_keys WHERE account_id = $1", account.id) is not None


# -- TLS -------------------------------------------------------------------------------------------------


async def test_nothing_below_tls_1_2_is_spoken(relay: TestRelay) -> None:
    context = trusting()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _, writer = await asyncio.open_connection("127.0.0.1", relay.tls_port, ssl=context)
    assert writer.get_extra_info("ssl_object").version() in ("TLSv1.2", "TLSv1.3")
    writer.close()
    openssl = await asyncio.create_subprocess_exec(
        "openssl", "s_client", "-connect", f"127.0.0.1:{relay.tls_port}", "-tls1_1",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await openssl.communicate()
    assert b"Cipher is (NONE)" in said


async def test_no_session_tickets_are_sent(relay: TestRelay) -> None:
    client = await relay.client(tls=True)
    await client.reply()
    secure = client.writer.get_extra_info("ssl_object")
    assert (secure.version(), secure.session.has_ticket) == ("TLSv1.3", False)
    await client.close()


@pytest.mark.parametrize("tls", [False, True])
async def test_a_broken_handshake_gives_its_place_back(tls: bool, relay: TestRelay) -> None:
    before = relay.services.server.sessions
    client = await relay.client()
    if not tls:
        await client.reply()
        await client.say("EHLO client.test")
        await client.say("STARTTLS")
    else:
        await client.close()
        client = Client(*await asyncio.open_connection("127.0.0.1", relay.tls_port))
    await client.write(b"this is no handshake\r\n" * 10)
    await client.ended()
    await client.close()
    await until_sessions(relay, before)


async def test_a_changed_certificate_is_shown_without_a_restart(
    settings: Settings, pool: asyncpg.Pool, tmp_path: Path
) -> None:
    async with relaying(settings, tmp_path) as relay:
        old = await _shown(relay)
        fresh = certificate.ensure(tmp_path / "fresh", "other.test")
        certificates = relay.services.server._certificate
        fresh[0].replace(tmp_path / "certificate.pem")
        certificates.reload_if_changed()  # the key is not there yet
        assert await _shown(relay) == old
        fresh[1].replace(tmp_path / "certificate.key")
        certificates.reload_if_changed()
        assert await _shown(relay) != old


async def _shown(relay: TestRelay) -> bytes:
    client = await relay.client(tls=True)
    shown = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    await client.close()
    assert isinstance(shown, bytes)
    return shown


# -- time ------------------------------------------------------------------------------------------------


async def test_an_idle_client_is_sent_away(settings: Settings, pool: asyncpg.Pool, tmp_path: Path) -> None:
    account = await make_account(pool)
    async with relaying(settings, tmp_path, relay_idle_s=3.0) as relay:
        client = await relay.logged_in(account)
        await client.say("NOOP")
        assert (await client.reply()).startswith("421 4.4.2 ")
        assert await client.ended()


@pytest.mark.exhaustive
async def test_who_does_not_log_in_is_sent_away(settings: Settings, tmp_path: Path) -> None:
    async with relaying(settings, tmp_path, relay_login_s=3.0) as relay:
        client = await relay.secured()
        for _ in range(3):  # talking does not help
            assert (await client.say("NOOP")).startswith("250 ")
            await asyncio.sleep(0.1)
        assert (await client.reply()).startswith("421 4.4.2 ")
        silent = await relay.client()
        await silent.reply()
        assert (await silent.reply()).startswith("421 4.4.2 ")


async def test_a_long_session_ends_between_two_messages(
    settings: Settings, pool: asyncpg.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "mta.smtp.server.aiosmtpd_session.SOFT_END", 0.2
    )  # a busy machine needs room between the two ends
    account = await make_account(pool)
    async with relaying(settings, tmp_path, relay_session_s=5.0) as relay:
        client = await relay.logged_in(account)
        await client.envelope(account)
        await asyncio.sleep(1.1)
        await client.write(message(account) + b".\r\n")
        assert (await client.reply()).startswith("250 ")
        assert (await client.reply()).startswith("421 4.3.2 ")
        assert await client.ended()


async def test_a_drain_does_not_wait_for_handshakes(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smtp_server, "DRAIN_HANDSHAKE_S", 0.1)
    async with relaying(settings, tmp_path) as relay:
        silent = await Client.open(relay.tls_port)
        relay.clients.append(silent)
        await until_sessions(relay, 1)
        async with asyncio.timeout(PATIENCE_S):
            await relay.services.server.drain(10 * PATIENCE_S)
            assert await silent.ended()
        assert relay.services.server.sessions == 0


async def test_slow_content_is_cut_off(
    settings: Settings, pool: asyncpg.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer_rate, "WINDOW_S", 0.3)
    account = await make_account(pool)
    async with relaying(settings, tmp_path, body_min_bytes_per_s=5_000) as relay:
        client = await relay.logged_in(account)
        await client.envelope(account)
        with contextlib.suppress(ConnectionError):
            for octet in message(account, body="x\r\n" * 500):
                await client.write(bytes((octet,)))
                await asyncio.sleep(0.02)
        assert (await client.reply()).startswith("421 4.4.2 ")
        await until_sessions(relay, 0)
        assert relay.services.server.memory.held == 0


# -- numbers ---------------------------------------------------------------------------------------------


async def test_one_address_has_so_many_sessions_and_others_go_on(settings: Settings, tmp_path: Path) -> None:
    async with relaying(settings, tmp_path, relay_sessions_each=3, relay_sessions=5) as relay:
        first = [await relay.client(source="127.0.0.2") for _ in range(3)]
        for client in first:
            assert (await client.reply()).startswith("220 ")
        turned_away = await relay.client(source="127.0.0.2")
        assert (await turned_away.reply()).startswith("421 4.3.2 ")
        assert await turned_away.ended()
        others = [await relay.client(source="127.0.0.3") for _ in range(2)]
        for client in others:
            assert (await client.reply()).startswith("220 ")
        full = await relay.client(source="127.0.0.4")
        assert (await full.reply()).startswith("421 4.3.2 ")
        await first[0].close()
        await until_sessions(relay, 4)
        again = await relay.client(source="127.0.0.2")
        assert (await again.reply()).startswith("220 ")
        for client in (*first, *others, again, full, turned_away):
            await client.close()
        await until_sessions(relay, 0)


async def test_a_crowd_of_idle_sessions_leaves_nothing_behind(
    settings: Settings, pool: asyncpg.Pool, tmp_path: Path
) -> None:
    account = await make_account(pool)
    async with relaying(settings, tmp_path, relay_sessions=300, relay_sessions_each=20) as relay:
        client = await relay.logged_in(account)
        before = len(list(Path("/proc/self/fd").iterdir()))
        crowd = [
            socket.create_connection(("127.0.0.1", relay.port), source_address=(f"127.0.1.{n % 20}", 0))
            for n in range(600)
        ]
        assert (await client.send(account, message(account))).startswith("250 ")
        await until_sessions(relay, 300)
        for one in crowd:
            one.close()
        await until_sessions(relay, 1)
        await until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before + 2)
        await client.close()


async def test_content_of_all_sessions_is_bounded_together(
    settings: Settings, pool: asyncpg.Pool, tmp_path: Path
) -> None:
    account = await make_account(pool)
    async with relaying(settings, tmp_path, max_inflight_bytes=1024 * 1024) as relay:
        first, second = await relay.logged_in(account), await relay.logged_in(account)
        large = message(account, body=("x" * 98 + "\r\n") * 7_000)
        await first.envelope(account)
        await first.write(large)
        async with asyncio.timeout(PATIENCE_S):
            while relay.services.server.memory.held < 600_000:
                await asyncio.sleep(0.01)
        assert (await second.send(account, large)).startswith("452 4.3.1 [unavailable] ")
        await first.write(b".\r\n")
        assert (await first.reply()).startswith("250 ")
        assert (await second.send(account, large)).startswith("250 ")
        assert relay.services.server.memory.held == 0
        await first.close()
        await second.close()


async def test_a_client_that_leaves_in_the_middle_leaves_no_message(
    relay: TestRelay, account: TestAccount, pool: asyncpg.Pool
) -> None:
    before = relay.services.server.sessions
    client = await relay.logged_in(account)
    await client.envelope(account)
    await client.write(message(account) * 1_000)
    await client.close()
    await until_sessions(relay, before)
    assert relay.services.server.memory.held == 0
    assert await pool.fetchval("SELECT count(*) FROM messages WHERE account_id = $1", account.id) == 0


async def test_a_client_that_reads_no_replies_is_held_back_and_cut_off(
    settings: Settings, pool: asyncpg.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aiosmtpd_session, "MAX_IDLE_COMMANDS", 10**9)
    monkeypatch.setattr(aiosmtpd_session, "CLOSE_S", 0.5)
    account = await make_account(pool)
    async with relaying(settings, tmp_path, relay_idle_s=2.0) as relay:
        client = await relay.logged_in(account)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        flood = asyncio.create_task(client.write(b"HELP\r\n" * 3_000_000))
        await until_sessions(relay, 0)
        flood.cancel()
        await client.close()


# -- the end -----------------------------------------------------------------------------------------------


async def test_a_drain_lets_a_message_under_way_end_and_sends_the_idle_away(
    settings: Settings, pool: asyncpg.Pool, tmp_path: Path
) -> None:
    account = await make_account(pool)
    async with relaying(settings, tmp_path) as relay:
        idle, busy, stuck = [await relay.logged_in(account) for _ in range(3)]
        await busy.envelope(account)
        await busy.write(message(account))
        await stuck.envelope(account)
        draining = asyncio.create_task(relay.services.server.drain(2.0))
        assert (await idle.reply()).startswith("421 4.3.2 ")
        assert await idle.ended()
        with pytest.raises(OSError):
            await relay.client()
        await busy.write(b".\r\n")
        assert (await busy.reply()).startswith("250 2.0.0 queued as ")
        assert (await busy.reply()).startswith("421 4.3.2 ")
        assert await busy.ended()
        await draining
        assert await stuck.ended()
        assert await pool.fetchval("SELECT count(*) FROM messages WHERE account_id = $1", account.id) == 1


async def test_a_drain_with_nobody_there_is_short(settings: Settings, tmp_path: Path) -> None:
    async with relaying(settings, tmp_path) as relay:
        async with asyncio.timeout(PATIENCE_S):
            await relay.services.server.drain(600.0)
    await close_services(relay.services, 0)  # twice is once


# -- behind a load balancer --------------------------------------------------------------------------------


V1 = b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 587\r\n"
V2 = (
    proxy_protocol.SIGNATURE
    + b"\x21\x11\x00\x0f"
    + bytes((192, 0, 2, 7, 198, 51, 100, 1))
    + b"\x9c\x40\x02\x4b"
    + b"\x04\x00\x00"
)


@pytest.fixture(scope="module")
async def behind(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TestRelay]:
    networks = (ip_network("127.0.0.9/32"), ip_network("127.0.0.1/32"))
    folder = tmp_path_factory.mktemp("behind")
    async with relaying(settings, folder, proxy_networks=networks, relay_sessions_each=1) as running:
        yield running


@pytest.mark.parametrize("header", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize("together", [False, True])
async def test_a_proxy_header_names_the_client(header: bytes, together: bool, behind: TestRelay) -> None:
    """On both ports; on that with TLS from the first octet, the handshake may come in the header's own packet."""
    reader, writer = await asyncio.open_connection("127.0.0.1", behind.port)
    pieces = [header] if together else [header[:5], header[5:14], header[14:]]
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0.05)
    client = Client(reader, writer)
    assert (await client.reply()).startswith("220 ")
    assert dict(behind.services.server._listener.seats._by_client) == {"192.0.2.7": 1}
    second = Client(*await asyncio.open_connection("127.0.0.1", behind.port))
    await second.write(header)
    assert (await second.reply()).startswith("421 4.3.2 ")  # one session for that client, whoever carries it
    await second.close()
    await client.close()
    await until_sessions(behind, 0)
    sock = socket.create_connection(("127.0.0.1", behind.tls_port))
    said = await asyncio.to_thread(_greeting_behind, sock, header)
    assert said.startswith(b"220 ")
    await until_sessions(behind, 0)


def _greeting_behind(sock: socket.socket, header: bytes) -> bytes:
    """The header and the ClientHello in one packet."""
    sock.settimeout(10)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusting().wrap_bio(incoming, outgoing)
    first = header
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            sock.sendall(first + outgoing.read())
            first = b""
            incoming.write(sock.recv(65_536))
    sock.sendall(outgoing.read())
    while True:
        try:
            said = tls.read()
            break
        except ssl.SSLWantReadError:
            incoming.write(sock.recv(65_536))
    sock.close()
    return said


@pytest.mark.parametrize("said", [b"EHLO client.test\r\n", b"PROXY nonsense\r\n", b"PROXY TCP4 1.2.3.4\r\n"])
async def test_a_balancer_that_sends_no_header_is_not_served(said: bytes, behind: TestRelay) -> None:
    client = Client(*await asyncio.open_connection("127.0.0.1", behind.port))
    await client.write(said)
    assert await client.ended()
    await client.close()


async def test_strangers_can_not_name_another_client(behind: TestRelay) -> None:
    client = await behind.client(source="127.0.0.5")
    await client.write(V1)
    assert (await client.reply()).startswith(("554 5.5.1 ", "220 "))
    assert "192.0.2.7" not in behind.services.server._listener.seats._by_client
    await client.close()
    await until_sessions(behind, 0)
