"""Domains for tests: each on its own account, in a zone that the test writes, with the events of its account log."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import orjson

from engine.base import ids
from engine.base.settings import HostPort, Settings
from engine.sending.domains import records, store
from engine.sending.domains.service import add_domain, identity
from engine.sending.domains.types import CheckedRecord, DomainKeyRow, DomainRow, WantedRecord
from engine.sending.domains.verification import Verified, verify_now
from ops.local.dns import Responder
from tests.harness.accounts import TestAccount, make_account

RETURN_PATH = "domain.return_path"


class Place:
    """A pool, settings that use the DNS server of `zone`, and the zone, for adding and checking domains."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings, zone: Responder) -> None:
        self.pool = pool
        self.zone = zone
        self.settings = msgspec.structs.replace(settings, dns_servers=(HostPort(*zone.address),))

    async def account(self) -> TestAccount:
        """Another account."""
        return await make_account(self.pool)

    async def add(self, account: TestAccount, name: str) -> DomainRow:
        """A pending domain."""
        made = await add_domain(self.pool, self.settings, account.id, name)
        return await self.row(account, made.id)

    async def row(self, account: TestAccount, domain: UUID) -> DomainRow:
        """Return the current row of the domain."""
        row = await store.FIND.first(self.pool, account.id, domain)
        assert row is not None
        return row

    async def keys(self, domain: DomainRow) -> dict[str, DomainKeyRow]:
        """Its keys by selector."""
        return {key.selector: key for key in await store.PUBLISHED.fetch(self.pool, domain.id)}

    async def wanted(self, domain: DomainRow) -> list[WantedRecord]:
        """Its records."""
        keys = (await self.keys(domain)).values()
        return records.wanted_of(domain, keys, identity(self.settings))

    async def publish(self, domain: DomainRow, *selectors: str) -> None:
        """Put the records of these selectors (none named: all records) where DNS finds them."""
        publish(self.zone, [one for one in await self.wanted(domain) if not selectors or one.selector in selectors])

    async def withdraw(self, domain: DomainRow, *selectors: str) -> None:
        """Take the key records of these selectors out of DNS."""
        for selector in selectors:
            self.zone.set(f"{selector}._domainkey.{domain.name}", "TXT", [])

    async def verify(self, account: TestAccount, domain: DomainRow) -> Verified:
        """Run one check of the domain."""
        return await verify_now(self.pool, self.settings, account.id, domain.id)

    async def verified(self, account: TestAccount, name: str) -> DomainRow:
        """A domain that DNS vouches for."""
        domain = await self.add(account, name)
        await self.publish(domain)
        checked = await self.verify(account, domain)
        assert checked.domain.status == "verified"
        return checked.domain

    async def events(self, account: TestAccount, prefix: str = "domain.") -> list[tuple[str, dict[str, Any]]]:
        """(type, detail) of the account's events of that kind, in order; those of return paths only if named."""
        rows = await self.pool.fetch("SELECT type, payload FROM events WHERE account_id = $1 ORDER BY seq", account.id)
        found = [
            (row["type"], orjson.loads(row["payload"])["detail"]) for row in rows if row["type"].startswith(prefix)
        ]
        return [one for one in found if prefix.startswith(RETURN_PATH) or not one[0].startswith(RETURN_PATH)]

    async def kinds(self, account: TestAccount, prefix: str = "domain.") -> list[str]:
        """The types alone."""
        return [kind for kind, _ in await self.events(account, prefix)]


def publish(zone: Responder, wanted: Iterable[WantedRecord]) -> None:
    """Records as a zone holds them."""
    for one in wanted:
        zone.set(one.host, one.type, [one.value if one.type == "TXT" else f"{one.value}."])


def finding(checks: Iterable[CheckedRecord], kind: str, host: str) -> tuple[str, tuple[str, ...], str | None]:
    """(status, found, problem) of the record at a place."""
    found = next(one.finding for one in checks if one.wanted.place == (kind, host))
    return found.status, found.found, found.problem


def new_name() -> str:
    """Return a domain name that no test has."""
    return f"{ids.encode(ids.uuid7())}.test"
