"""Decides which deliveries one process may hold in memory: by shares of accounts, and a bound on mail that may stay
long.

Mail for domains whose servers answered lately ("proven") leaves memory within seconds. Mail for any other may wait for
an answer that never comes, so it has half of the active queue, and the rest returns to the queue in Postgres. Pure.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from engine.delivery.queue import Outline
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.sites.proven_domains import ProvenDomains

SHARED: Final = 0.25  # of the active queue, divided among accounts: for hinted mail in a busy process
MIN_SHARE: Final = 16  # deliveries that every account may have in memory in any case
UNPROVEN: Final = 0.5  # of the active queue, for mail to unproven domains
MAX_PUT_BACK: Final = 100  # at once: one transaction that locks their accounts
MAX_UNPROVEN: Final = 0.65  # the same including the first delivery of each account, which always has a chance

HeldCounts = Mapping[tuple[str, UUID, int], int]  # deliveries in memory by domain, account and priority


def within_shares(
    rows: Sequence[Outline], held: HeldCounts, limit: int, proven: ProvenDomains
) -> dict[tuple[int, UUID], None]:
    """Return (shard, message) of the hinted rows to load now, in this order; due times find the others. `held` counts
    the deliveries in memory, of `limit` that fit. Mail for proven domains does not compete with mail for others, not
    even within one account; of the places for others an account may have as many as are left free."""
    # An account's broadcasts and its other mail have a share each, so that the first never use up that of the others.
    sure, unsure = Counter[tuple[UUID, int]](), Counter[tuple[UUID, int]]()
    for (domain, account, priority), count in held.items():
        (sure if domain in proven else unsure)[account, priority] += count
    share = max(MIN_SHARE, int(SHARED * limit) // max(1, len(sure)))
    unproven = unsure.total()
    chosen: dict[tuple[int, UUID], None] = {}
    for row in sorted(rows, key=lambda row: (row.domain not in proven, row.priority)):
        own_share = (row.account_id, row.priority)
        if row.domain in proven:
            if sure[own_share] >= share:
                continue
            sure[own_share] += 1
        else:
            own = unsure[own_share]
            if unproven >= MAX_UNPROVEN * limit or own >= max(1, UNPROVEN * limit - unproven):
                continue
            unsure[own_share] += 1
            unproven += 1
        chosen[row.shard, row.message_id] = None
    return chosen


def unproven_room(held: HeldCounts, most: int, proven: ProvenDomains) -> int:
    """Return how many deliveries for unproven domains are missing to `most`; below zero, how many are too many."""
    return most - sum([count for (domain, _, _), count in held.items() if domain not in proven])


def overflow(
    held: Iterable[ActiveDelivery], limit: int, proven: ProvenDomains, keep: Container[ActiveDelivery | None]
) -> list[ActiveDelivery]:
    """Return the deliveries to put back into the queue because more than `MAX_UNPROVEN` of `limit` are for domains that
    are not proven: the oldest of the accounts that have most. Those in `keep`, and those that no longer wait, stay."""
    unproven = [one for one in held if one.row.domain not in proven]
    excess = len(unproven) - int(MAX_UNPROVEN * limit)
    if excess <= 0:
        return []
    places: Counter[UUID] = Counter()
    ranked: list[tuple[int, int, ActiveDelivery]] = []
    for number, one in enumerate(sorted(unproven, key=lambda one: -one.taken_at)):
        places[one.row.account_id] += 1
        if one.waits and not one.settling and one not in keep:
            ranked.append((places[one.row.account_id], number, one))
    ranked.sort(key=lambda entry: entry[:2], reverse=True)
    return [one for _, _, one in ranked[: min(excess, MAX_PUT_BACK)]]
