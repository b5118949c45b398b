"""Read and write blocklist checks: lists, targets that are due, and listings."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.sending.blocklists.rules import ZoneJudgement
from engine.sending.blocklists.types import (
    AccountListings,
    CheckedAddress,
    DomainListing,
    DueTarget,
    ListAnswer,
    ListedCounts,
    ListFamily,
    Listing,
    ListingChange,
    ListToAsk,
    ListVerdict,
    MeasuredState,
    OpenListing,
    TestedList,
)
from engine.store.queries import Queries, Source, columns

MAX_FORGOTTEN: Final = 1_000  # ended listings in one step

_SQL = Queries.beside(__file__)
_ADDRESS_LISTINGS = _SQL.rows("address_listings", Listing)
_DOMAIN_LISTINGS = _SQL.rows("domain_listings", DomainListing)
_ADDRESSES_MEASURED = _SQL.command("addresses_measured")
_ACCOUNTS_MEASURED = _SQL.command("accounts_measured")
_REPORT_ADDRESSES = _SQL.command("report_addresses")
_DUE_FAMILIES = _SQL.command("due_families")
_SAVE_ZONES = _SQL.command("save_zones")
_CLAIM_ADDRESSES = _SQL.rows("claim_addresses", DueTarget)
_CLAIM_DOMAINS = _SQL.rows("claim_domains", DueTarget)
_SAVE_LISTED = _SQL.rows("save_listed", ListingChange)
_SAVE_NOT_LISTED = _SQL.rows("save_not_listed", ListingChange)
_FINISH_ADDRESSES = _SQL.command("finish_addresses")
_FINISH_DOMAINS = _SQL.command("finish_domains")
_FORGET_ZONES = _SQL.command("forget_zones")
_FORGET_ADDRESSES = _SQL.command("forget_addresses")
_END_ORPHANS = _SQL.command("end_orphans")
_FORGET_UNVERIFIED = _SQL.command("forget_unverified")
_FORGET_ENDED = _SQL.command("forget_ended")
LISTS = _SQL.rows("list_zones", TestedList)
ADDRESSES = _SQL.rows("list_addresses", CheckedAddress)
LISTINGS = _SQL.rows("list_listings", OpenListing)
_COUNT_LISTED = _SQL.rows("count_listed", ListedCounts)
_MAKE_ADDRESSES_DUE = _SQL.command("make_addresses_due")
_MAKE_DOMAIN_DUE = _SQL.command("make_domain_due")
KEPT_ENDED: Final = timedelta(days=90)


class CheckedTarget(Struct, frozen=True):
    """A checked target, the time of its next check, and until when this one counts; None if no list answered."""

    target: DueTarget
    check_at: datetime
    measured_until: datetime | None


async def measured_state(db: Source, account_id: UUID, at: datetime) -> MeasuredState:
    """Return `unknown` if no recent check of the account's targets had an answer that can be trusted.

    The listings are then those of the last check that had one.
    """
    return "measured" if account_id in await measured_accounts(db, [account_id], at) else "unknown"


async def account_listings(db: Source, account_ids: Collection[UUID], at: datetime) -> dict[UUID, AccountListings]:
    """Return the listings of each account and whether they are measured, by a fixed number of statements."""
    found = await listings_of_many(db, account_ids)
    measured = await measured_accounts(db, account_ids, at)
    return {
        account: AccountListings(found[account], "measured" if account in measured else "unknown")
        for account in account_ids
    }


async def listings_of_many(db: Source, account_ids: Collection[UUID]) -> dict[UUID, tuple[Listing, ...]]:
    """Return the present listings that concern each of the accounts, those of source addresses first."""
    shared = tuple(await _ADDRESS_LISTINGS.fetch(db))
    own: dict[UUID, list[Listing]] = defaultdict(list)
    for one in await _DOMAIN_LISTINGS.fetch(db, list(account_ids)):
        own[one.account_id].append(one.listing)
    return {account: (*shared, *own.get(account, ())) for account in account_ids}


async def measured_accounts(db: Source, account_ids: Collection[UUID], at: datetime) -> set[UUID]:
    """Return the accounts for which a recent check had an answer that can be trusted.

    The check of a source address counts for all accounts.
    """
    if await _ADDRESSES_MEASURED.records(db, at):
        return set(account_ids)
    return {row["account_id"] for row in await _ACCOUNTS_MEASURED.records(db, list(account_ids), at)}


# -- the worker's checks -----------------------------------------------------------------------------


async def report_addresses(db: Source, ips: Sequence[str], until: datetime) -> None:
    """Store that mail leaves from these addresses; each is dropped unless it is reported again before `until`."""
    await _REPORT_ADDRESSES.execute(db, list(ips), until)


async def due_families(db: Source, at: datetime) -> set[ListFamily]:
    """Return the families of lists that a check due at `at` needs."""
    return {ListFamily(row["family"]) for row in await _DUE_FAMILIES.records(db, at)}


async def save_zones(
    db: Source, judged: Mapping[ListToAsk, ZoneJudgement], *, at: datetime, known_until: datetime
) -> None:
    """Store what the tests of lists found."""
    rows = [(one.name, one.family.value, found.trusted, found.detail) for one, found in judged.items()]
    await _SAVE_ZONES.execute(db, *columns(rows, 4), at, known_until)


async def claim(
    db: Source, families: Collection[ListFamily], *, at: datetime, limit: int, until: datetime
) -> list[DueTarget]:
    """Claim due targets of these families by postponing their checks to `until`; addresses come first."""
    versions = [version for family, version in _VERSIONS.items() if family in families]
    claimed = await _CLAIM_ADDRESSES.fetch(db, at, limit, until, versions) if versions else []
    if ListFamily.DOMAIN in families and len(claimed) < limit:
        claimed += await _CLAIM_DOMAINS.fetch(db, at, limit - len(claimed), until)
    return claimed


async def save_checks(
    pool: asyncpg.Pool, checked: Sequence[CheckedTarget], verdicts: Sequence[ListVerdict], at: datetime
) -> list[ListingChange]:
    """Store the verdicts and the times of the next checks in one transaction; return the listings that began or ended.

    Unknown verdicts change no listing.
    """
    listed = [(one.kind, one.target, one.zone, one.addresses) for one in _of(verdicts, ListAnswer.LISTED)]
    clear = [(one.kind, one.target, one.zone) for one in _of(verdicts, ListAnswer.NOT_LISTED)]
    addresses = [(one.target.target, one.check_at, one.measured_until) for one in checked if not one.target.domain_id]
    domains = [(one.target.domain_id, one.check_at, one.measured_until) for one in checked if one.target.domain_id]
    async with pool.acquire() as connection, connection.transaction():
        changes = await _SAVE_LISTED.fetch(connection, *columns(listed, 4), at)
        changes += await _SAVE_NOT_LISTED.fetch(connection, *columns(clear, 3), at)
        await _FINISH_ADDRESSES.execute(connection, *columns(addresses, 3), at)
        await _FINISH_DOMAINS.execute(connection, *columns(domains, 3))
    return changes


async def forget(db: Source, at: datetime, *, keep_addresses: bool) -> None:
    """End the listings of dropped lists and addresses; delete those of unverified domains and old ended ones."""
    await _FORGET_ZONES.execute(db, at)
    if not keep_addresses:
        await _FORGET_ADDRESSES.execute(db, at)
    await _END_ORPHANS.execute(db, at)
    await _FORGET_UNVERIFIED.execute(db)
    await _FORGET_ENDED.execute(db, at - KEPT_ENDED, MAX_FORGOTTEN)


# -- for the operator --------------------------------------------------------------------------------


async def count_listed(db: Source) -> ListedCounts:
    """Return the numbers of addresses and domains that are on a list now."""
    found = await _COUNT_LISTED.first(db)
    assert found is not None
    return found


async def make_due(db: Source, domain: str | None) -> bool:
    """Make the checks of all source addresses due, and that of a domain; return False if it is not verified."""
    await _MAKE_ADDRESSES_DUE.execute(db)
    return domain is None or bool(await _MAKE_DOMAIN_DUE.records(db, domain))


def _of(verdicts: Sequence[ListVerdict], answer: ListAnswer) -> list[ListVerdict]:
    return [one for one in verdicts if one.answer is answer]


_VERSIONS: Final = {ListFamily.IPV4: 4, ListFamily.IPV6: 6}
