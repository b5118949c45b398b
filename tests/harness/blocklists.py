"""Blocklists for tests: a DNS server with lists, a database whose targets are all checked, and settings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import msgspec

from engine.base import clock
from engine.base.settings import BlocklistZone, HostPort, Settings, SourceIp
from engine.sending.blocklists import jobs, store
from engine.sending.blocklists.rules import TEST_POINTS, query_name
from engine.sending.blocklists.types import ListFamily
from ops.local.dns import Responder
from tests.harness.accounts import TestAccount

IP = "5.6.7.8"
A_LIST, OTHER_LIST, DOMAIN_LIST = "a.list.test", "b.list.test", "d.list.test"


class BlocklistWorld:
    """A database of its own, a DNS server with lists, and settings that name them."""

    def __init__(self, pool: asyncpg.Pool, zone: Responder, settings: Settings) -> None:
        self.pool = pool
        self.zone = zone
        self.settings = msgspec.structs.replace(
            settings,
            dns_servers=(HostPort(*zone.address),),
            source_ips=(SourceIp(IP),),
            blocklist_ip_zones=(BlocklistZone(A_LIST, A_LIST), BlocklistZone(f"key.{OTHER_LIST}", "other")),
            blocklist_domain_zones=(BlocklistZone(DOMAIN_LIST, "domains"),),
        )

    def publish(self, zone: str, family: ListFamily, *targets: str, answer: str = "127.0.0.2") -> None:
        """A list with right test points that names these targets."""
        for target in (TEST_POINTS[family][0], *targets):
            self.zone.set(query_name(target, family, zone), "A", [answer])

    async def check(self) -> list[tuple[str, str]]:
        """Check everything now; return the open listings."""
        await self.pool.execute("UPDATE blocklist_addresses SET check_at = '-infinity'")
        await self.pool.execute("UPDATE domains SET blocklist_check_at = '-infinity'")
        await jobs.check_due(self.pool, self.settings)
        return await self.listings()

    async def listings(self) -> list[tuple[str, str]]:
        rows = await self.pool.fetch(
            "SELECT target, zone FROM blocklist_listings WHERE ended_at IS NULL ORDER BY target, zone"
        )
        return [(row["target"], row["zone"]) for row in rows]

    async def state(self, account: TestAccount) -> str:
        return await store.measured_state(self.pool, account.id, clock.now())


@asynccontextmanager
async def blocklist_world(pool: asyncpg.Pool, settings: Settings) -> AsyncIterator[BlocklistWorld]:
    """A world without targets and with three empty lists; its database is for it alone: the job checks all there is."""
    for table in ("blocklist_listings", "blocklist_addresses", "blocklist_zones"):
        await pool.execute(f"DELETE FROM {table}")
    await pool.execute("UPDATE domains SET status = 'pending'")
    async with Responder() as zone:
        made = BlocklistWorld(pool, zone, settings)
        made.publish(A_LIST, ListFamily.IPV4)
        made.publish(f"key.{OTHER_LIST}", ListFamily.IPV4)
        made.publish(DOMAIN_LIST, ListFamily.DOMAIN)
        yield made
