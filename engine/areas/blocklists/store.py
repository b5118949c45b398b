"""Read and write blocklist checks: lists, targets that are due, and listings."""

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from engine.areas.blocklists.types import AccountListings, DomainListing, Listing, MeasuredState
from engine.store.queries import Queries, Source

_SQL = Queries.beside(__file__)
_ADDRESS_LISTINGS = _SQL.rows("address_listings", Listing)
_DOMAIN_LISTINGS = _SQL.rows("domain_listings", DomainListing)
_ADDRESSES_MEASURED = _SQL.command("addresses_measured")
_ACCOUNTS_MEASURED = _SQL.command("accounts_measured")


async def listings_of(db: Source, account_id: UUID) -> list[Listing]:
    """Return the present listings of the service's source addresses and of the account's verified domains."""
    found = await listings_of_many(db, [account_id])
    return list(found[account_id])


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
