"""Chooses rows of shards that have more mail due than fits into memory. Pure."""

from collections.abc import Iterable

from engine.delivery.queue import DueKey

DEEP_ROWS = 64  # of a domain at once, where its shard has a backlog: keeps its connection busy
DEEP_KEYS = 512  # of such a shard at once; with mail for many domains, enough to find several for each


def together(found: Iterable[DueKey]) -> list[DueKey]:
    """Return rows shard by shard and domain by domain, the domain with the oldest row first, at most `DEEP_ROWS` of
    each: a busy domain delays others no longer than that. A single domain gets them all."""
    domains: dict[tuple[int, str], list[DueKey]] = {}
    for one in found:
        domains.setdefault((one.shard, one.domain), []).append(one)
    most = DEEP_ROWS if len(domains) > 1 else DEEP_KEYS
    return [one for rows in domains.values() for one in rows[:most]]


def depths_of(found: Iterable[DueKey]) -> dict[int, int]:
    """Return how many rows to look at in each shard next time, by the number of domains found. A look passes by what is
    in memory already, so many rows of a single domain cost little more than few."""
    domains: dict[int, set[str]] = {}
    for one in found:
        domains.setdefault(one.shard, set()).add(one.domain)
    if len(domains) == 1 and all(len(names) == 1 for names in domains.values()):
        return dict.fromkeys(domains, DEEP_KEYS)
    return {shard: min(DEEP_KEYS, DEEP_ROWS * len(names)) for shard, names in domains.items()}
