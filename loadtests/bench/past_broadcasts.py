"""Store what an account has that sends broadcasts for long: contacts, lists, ended broadcasts and what came of them."""

from typing import Final
from uuid import UUID

from engine.base import ids
from engine.store.queries import Queries
from loadtests.bench.service import SENDER, BenchService

DOMAINS: Final = 1_000
PAST_CONTACTS: Final = 10_000  # for each past broadcast, where a measurement has no number of contacts of its own
_CHUNK: Final = 20_000

_SQL = Queries.beside(__file__, "past_broadcasts.sql")
_CONTACTS = _SQL.command("store_contacts")
_PAST = _SQL.command("store_past")
_LINKS = _SQL.command("store_past_links")
_SUPPRESSIONS = _SQL.command("store_past_suppressions")
_VERIFICATIONS = _SQL.command("store_past_verifications")


async def store(service: BenchService, broadcasts: int, contacts: int = PAST_CONTACTS) -> None:
    """Store so many ended broadcasts, each to a list of `broadcasts` times as many contacts, of whom each tenth is
    suppressed now, with the unsubscribe links of all recipients; and as many ended verifications as contacts.
    """
    if not broadcasts:
        return
    account, people = service.access.account_id, broadcasts * contacts
    await store_contacts(service, ids.uuid7(), people, "before")
    for _ in range(broadcasts):
        await _PAST.execute(service.pool, account, [ids.uuid7()], [ids.uuid7()], people, SENDER)
    await _LINKS.execute(service.pool, account)
    await _SUPPRESSIONS.execute(service.pool, account)
    await _VERIFICATIONS.execute(service.pool, account, people, SENDER)
    await service.pool.execute("VACUUM ANALYZE")
    await service.pool.execute("CHECKPOINT")  # what is past was written to the data files long ago


async def store_contacts(service: BenchService, list_id: UUID, count: int, name: str) -> None:
    """Store contacts of DOMAINS domains on a list; their addresses begin with `name`."""
    account = service.access.account_id
    for first in range(0, count, _CHUNK):
        numbers = range(first, min(count, first + _CHUNK))
        addresses = [f"{name}{number}@bench-{number % DOMAINS}.test" for number in numbers]
        await _CONTACTS.execute(service.pool, account, list(ids.uuid7s(len(addresses))), addresses, list_id)
