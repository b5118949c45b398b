"""Assigns a source address to each delivery, and limits how much a new address may send.

First the pool of its stream, of it the addresses that the servers can be reached from, in the order that the account
and the provider always have; then the first of them that the servers do not refuse and, while it is new, has quota left
for the day. A delivery without room waits for the next UTC day. Quota is reserved in Postgres before mail is sent and
given back where it was not used, so that all processes together never pass it; what a killed process had reserved stays
used. Without configured sources none of this runs.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import date, timedelta
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct

from engine.base import clock
from engine.base.settings import Settings
from engine.delivery import sources_store
from engine.delivery.routes import Route, preferring
from engine.delivery.sites import Family
from engine.delivery.sources import Pool, PoolMember, SourceBook, ordered
from engine.delivery.sources_store import MailKind, SourceBooks, Taken
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.source_ips.addresses import SourceAddress, sources_of
from mta.outbound.source_ips.health import SourceHealth
from mta.outbound.source_ips.unspent_quota import UnspentQuota

EXCHANGE_S = 2.0
FORGET_S = 3600.0
FULL_S = 2.0  # for which quota that was found used up is not asked for again
KEEP_COUNTS = timedelta(days=60)
KEEP_RESTS = timedelta(days=30)
_MAX_ORDERS = 50_000
_MAX_FULL = 10_000
_UNKNOWN = ("", "")

_log = structlog.get_logger("mta")

Shares = list[tuple[SourceAddress | None, list[ActiveDelivery]]]


class SourceAssignment(Struct):
    """Deliveries by the address they leave from (None: the system chooses), and those that found no quota today."""

    shares: Shares
    waiting: list[ActiveDelivery]


class SourceAddresses:
    """The source addresses of one process. False where none are configured."""

    def __init__(self, settings: Settings, pool: asyncpg.Pool, unspent: UnspentQuota) -> None:
        self._pool = pool
        self._configured = {source.ip: source for source in sources_of(settings)}
        self._all = Pool("", tuple(PoolMember(ip) for ip in self._configured))
        self._books = SourceBooks(pool)
        self.caches = (self._books.cache,)  # for the process's Stamps
        self.health = SourceHealth(pool)
        self._book = SourceBook()
        self._orders: dict[tuple[str, str, UUID, str], list[SourceAddress]] = {}
        self._unspent = unspent
        self._full: dict[Taken, float] = {}
        self._exchange_at = 0.0
        self._forget_at = 0.0

    def __len__(self) -> int:
        return len(self._configured)

    def __iter__(self) -> Iterator[SourceAddress]:
        return iter(self._configured.values())

    # -- choosing ------------------------------------------------------------------------------

    async def share_out(self, mail: Sequence[ActiveDelivery], reach: str, site: str) -> SourceAssignment:
        """Assign an address to each delivery. `reach` is what `reachable` returned, `site` the key of the servers'
        window.

        Raises DatabaseUnavailable; quota reserved by then comes back as the deliveries leave the active queue.
        """
        book = await self._refresh()
        done = SourceAssignment([], [])
        for (_, account), (pool, part) in (await self._by_pool(book, mail)).items():
            order = self._order(pool, site, account, reach)
            if not order:
                done.shares.append((None, part))
                continue
            shares, waiting = await self._place(part, order, site)
            done.shares += shares
            done.waiting += waiting
        done.shares = _joined(done.shares)
        return done

    async def _refresh(self) -> SourceBook:
        book = await self._books.book()
        if book is not self._book:
            self._book = book
            self._orders.clear()
            self._full.clear()
            for pool in book.pools.values():
                if not any(one.ip in self._configured for one in pool.members):
                    _log.warning("no address of a source pool is configured here; all are used", pool=pool.name)
        return book

    async def _by_pool(
        self, book: SourceBook, mail: Sequence[ActiveDelivery]
    ) -> dict[tuple[str, UUID], tuple[Pool, list[ActiveDelivery]]]:
        kinds: dict[UUID, MailKind] = {}
        if book.assignments:
            kinds = await sources_store.kinds(self._pool, {one.row.message_id for one in mail})
        found: dict[tuple[str, UUID], tuple[Pool, list[ActiveDelivery]]] = {}
        for one in mail:
            account = one.row.account_id
            kind = kinds.get(one.row.message_id)
            stream, source = (kind.stream, kind.source) if kind is not None else _UNKNOWN
            pool = (book.pool_of(account, stream, source) if book.assignments else None) or self._all
            found.setdefault((pool.name, account), (pool, []))[1].append(one)
        return found

    def _order(self, pool: Pool, site: str, account: UUID, reach: str) -> list[SourceAddress]:
        """Return the pool's addresses that reach the servers, the preferred family first, and within each family in the
        order that the account has with this provider. Empty if none reaches them."""
        key = (pool.name, site, account, reach)
        known = self._orders.get(key)
        if known is None:
            if len(self._orders) >= _MAX_ORDERS:
                self._orders.clear()
            here = [one for one in pool.members if one.ip in self._configured] or self._all.members
            chosen = [self._configured[ip] for ip in ordered(here, f"{site}\n{account}")]
            known = [source for source in chosen if source.family in reach]
            known.sort(key=lambda source: reach.index(source.family))
            self._orders[key] = known
        return known

    async def _place(
        self, mail: list[ActiveDelivery], order: list[SourceAddress], site: str
    ) -> tuple[Shares, list[ActiveDelivery]]:
        """Assign the deliveries of one account to the addresses in this order. Where the servers refuse all of them,
        deliveries go as if they refused none."""
        left, shares = mail, Shares()
        heed = not all(self.health.spared(source.ip, site) for source in order)
        short = False  # of quota
        for source in order:
            wanted = self.health.room(source.ip, site, len(left)) if heed else len(left)
            granted, left = await self._give(source, site, left, wanted, shares)
            short = short or granted < wanted
            if not left:
                return shares, []
        if not short:  # one message probes an address, and there is no other address for the rest
            _, left = await self._give(order[0], site, left, len(left), shares)
        return shares, left

    async def _give(
        self, source: SourceAddress, site: str, mail: list[ActiveDelivery], wanted: int, shares: Shares
    ) -> tuple[int, list[ActiveDelivery]]:
        """Assign up to `wanted` of the deliveries to this address; return how many, and the others."""
        granted, taken = await self._take(source.ip, site, wanted) if wanted else (0, None)
        if not granted:
            return 0, mail
        if granted < len(mail):
            mail = sorted(mail, key=lambda one: one.row.priority)  # a stable sort
        for one in mail[:granted]:
            one.taken = taken
        shares.append((source, mail[:granted]))
        return granted, mail[granted:]

    # -- warming up ----------------------------------------------------------------------------

    async def _take(self, ip: str, site: str, wanted: int) -> tuple[int, Taken | None]:
        """Reserve up to `wanted` messages of today's quota; a warm address grants all without a reservation."""
        warmup = self._book.warmups.get(ip)
        today = _today()
        allowed = None if warmup is None else warmup.allowance(today)
        if allowed is None:
            return wanted, None
        taken = Taken(today, ip, site)
        if not allowed or self._full.get(taken, 0.0) > clock.monotonic():
            return 0, None
        granted = await sources_store.reserve(self._pool, taken, wanted, allowed)
        if granted < wanted:
            if len(self._full) >= _MAX_FULL:
                self._full.clear()
            self._full[taken] = clock.monotonic() + FULL_S
        return granted, taken

    # -- upkeep --------------------------------------------------------------------------------

    async def tend(self) -> None:
        """Give back unused quota; every few seconds exchange what is known of refusals; every hour delete what is old.
        Raises DatabaseUnavailable."""
        if not self:
            return
        await self._give_back()
        now = clock.monotonic()
        if self.health.has_news or now >= self._exchange_at:
            self._exchange_at = now + EXCHANGE_S
            await self.health.exchange()
        if now >= self._forget_at:
            self._forget_at = now + FORGET_S
            await sources_store.forget(
                self._pool, days_before=_today() - KEEP_COUNTS, rests_before=clock.now() - KEEP_RESTS
            )

    async def close(self) -> None:
        """Give back unused quota and publish the last refusals before the process ends. Raises DatabaseUnavailable."""
        if self:
            await self._give_back()
            await self.health.exchange()

    async def _give_back(self) -> None:
        if not self._unspent:
            return
        unspent = self._unspent.take()
        for taken in unspent:
            self._full.pop(taken, None)
        try:
            await sources_store.give_back(self._pool, list(unspent.items()))
        except BaseException:
            self._unspent.put_back(unspent)
            raise


def reachable(route: Route, family: Family, last: Collection[str] = ()) -> str:
    """Return the families that the route's servers have addresses of, such as `46`: the preferred one first, those in
    `last` behind."""
    found = {"6" if ":" in ip else "4" for host in preferring(route, family).hosts for ip in host.addresses}
    ranked = sorted(found, reverse=family in (Family.IPV6, Family.IPV6_ONLY))
    return "".join(sorted(ranked, key=lambda one: one in last))


def _joined(shares: Shares) -> Shares:
    """Return one entry for each address."""
    found: dict[SourceAddress | None, list[ActiveDelivery]] = {}
    for source, mail in shares:
        found.setdefault(source, []).extend(mail)
    return list(found.items())


def _today() -> date:
    return clock.now().date()
