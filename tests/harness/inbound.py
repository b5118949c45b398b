"""The server for incoming mail inside the test's own loop, on real sockets, with its own DNS zone."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from engine.base.settings import HostPort, Settings
from engine.receiving.inbound_addresses import service
from loadtests.ports import reserve_port
from mta.inbound.process import InboundServices, close_services, open_services
from ops.local import certificate
from ops.local.dns import Responder
from tests.harness.accounts import TestAccount
from tests.harness.submission import Client


class TestMx:
    """A running server for incoming mail; `zone` answers its DNS questions."""

    __test__ = False

    def __init__(self, settings: Settings, services: InboundServices, zone: Responder) -> None:
        self.settings = settings
        self.services = services
        self.zone = zone
        self.clients: list[Client] = []

    async def client(self, *, source: str | None = None) -> Client:
        """Open a connection without sending anything; it closes with the server at the latest.

        Without `source` it comes from a network of its own, so that limits by network count for no other test.
        """
        opened = await Client.open(self.settings.mx_port, source=source or new_source())
        self.clients.append(opened)
        return opened

    async def greeted(self, *, tls: bool = False, source: str | None = None, name: str = "client.test") -> Client:
        """Open a connection and send EHLO with a name, over TLS if wanted."""
        client = await self.client(source=source)
        assert (await client.reply()).startswith("220 ")
        if tls:
            await client.say(f"EHLO {name}")
            assert (await client.say("STARTTLS")).startswith("220 ")
            await client.start_tls()
        assert (await client.say(f"EHLO {name}")).startswith("250")
        return client

    async def claim(self, account: TestAccount, local: str = "support") -> str:
        """Claim an address under the account's domain; return it."""
        address = f"{local}@{account.domain}"
        pool = self.services.pool
        await service.claim(pool, account.id, address, label=None, mail_host=self.settings.mail_host)
        return address

    async def stored(self, account: TestAccount) -> list[asyncpg.Record]:
        """Return the received messages of an account with their bytes, oldest first."""
        query = (
            "SELECT m.*, b.bytes FROM inbound_messages m JOIN inbound_bytes b ON b.id = m.raw_id"
            " WHERE account_id = $1 ORDER BY m.id"
        )
        return list(await self.services.pool.fetch(query, account.id))


def new_source() -> str:
    """Return a random loopback address."""
    return f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(256)}.{secrets.randbelow(254) + 1}"


@contextlib.asynccontextmanager
async def receiving(settings: Settings, folder: Path, **changes: Any) -> AsyncIterator[TestMx]:
    """Serve on a free port; `changes` are settings."""
    async with Responder() as zone:
        ours = {"mx_port": reserve_port(), "drain_s": 1.0, "dns_servers": (HostPort(*zone.address),)}
        own = msgspec.structs.replace(settings, **(ours | changes))
        services = await open_services(own, *certificate.ensure(folder, own.mail_host))
        stamps = asyncio.create_task(services.stamps.run())
        services.server.start()
        running = TestMx(own, services, zone)
        try:
            yield running
        finally:
            stamps.cancel()
            for client in running.clients:
                await client.close()
            await close_services(services, 0)


async def envelope(client: Client, *to: str, sender: str = "ann@sender.test") -> None:
    """MAIL and RCPT, all accepted, and DATA, answered 354."""
    assert (await client.say(f"MAIL FROM:<{sender}>")) == "250 2.1.0 ok"
    for address in to:
        assert (await client.say(f"RCPT TO:<{address}>")) == "250 2.1.5 ok", address
    assert (await client.say("DATA")).startswith("354 ")


async def deliver(client: Client, content: bytes, *to: str, sender: str = "ann@sender.test") -> str:
    """Perform a complete transaction; `content` is sent as given, without the final dot. Return the last reply."""
    await envelope(client, *to, sender=sender)
    await client.write(content + b".\r\n")
    return await client.reply()


def mail(to: str, *, head: str = "", body: str = "Hello!\r\n", subject: str = "Hello") -> bytes:
    """Return a small message; `head` are further fields, each with its CRLF."""
    return (
        f"From: Ann <ann@sender.test>\r\nTo: {to}\r\nSubject: {subject}\r\nDate: Sun, 22 Nov 2026 12:00:00 +0000\r\n"
        f"Message-ID: <{UUID(int=abs(hash((to, subject, body, head))))}@sender.test>\r\n{head}\r\n{body}"
    ).encode()
