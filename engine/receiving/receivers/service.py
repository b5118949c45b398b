"""Tell accounts how receivers treat mail, and when an email will probably arrive.

One instance per process keeps the judgements for some seconds. A forecast reads nothing else, except the MX records of
a domain that is not a well-known one. No account sees figures made of the mail of one or two others.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct, structs

from engine.base import clock
from engine.base.settings import Settings
from engine.delivery.mx_routes import find_site, own_names
from engine.receiving.analytics.mailbox_providers import NAMES, MailboxProvider, provider_of
from engine.receiving.receivers import rules, store, wording
from engine.receiving.receivers.types import (
    DomainForecast,
    Forecast,
    ForecastBasis,
    ReceiverKey,
    ReceiverReport,
    ReceiverRow,
    ReceiverState,
)
from engine.store.resolver import Resolver
from engine.store.single_flight import SingleFlightCache

KEPT_S: Final = 10.0
STALE_S: Final = 120.0  # no worker judges: the figures tell nothing of the present
LOOKUP_S: Final = 1.5  # for the MX records of all recipients together; later ones are unknown
QUICK_LOOKUP_S: Final = 0.2  # of a message that waits: its reader may poll, and finds the answer in the cache next time
_SEVERITY: Final = (
    ReceiverState.UNKNOWN, ReceiverState.NORMAL, ReceiverState.SLOW, ReceiverState.DEFERRING, ReceiverState.REFUSING
)  # fmt: skip


class JudgedReceivers(Struct, frozen=True):
    """All judgements as read; `until` is monotonic time."""

    rows: Mapping[ReceiverKey, ReceiverRow]
    until: float


class ReceiverBoard:
    """The judgements that one process knows. `account` is None for a caller who must not see the figures of a whole
    account."""

    def __init__(self, pool: asyncpg.Pool, resolver: Resolver, settings: Settings) -> None:
        self._pool = pool
        self._resolver = resolver
        self._settings = settings
        takes_mail = settings.delivery == "local" or settings.mx_workers > 0
        self._own_names = frozenset[str]() if takes_mail else own_names(settings)  # as of the router
        self._known: SingleFlightCache[None, JudgedReceivers] = SingleFlightCache(self._read, 1, clock.monotonic)

    async def reports(self, account: UUID | None) -> list[ReceiverReport]:
        """Return all providers, and the sites of others that have figures for this account."""
        rows, at = (await self._known.get(None)).rows, clock.now()
        providers = [ReceiverKey(one) for one in MailboxProvider]
        sites = [one for one in sorted(rows) if one.site and self._visible(rows[one], account, at)]
        return [self._report(key, rows.get(key), account, at) for key in (*providers, *sites)]

    async def report(self, account: UUID | None, domain: str) -> ReceiverReport:
        """Return the receiver of a recipient domain."""
        rows = (await self._known.get(None)).rows
        key = (await self._receivers([domain], LOOKUP_S))[domain]
        return self._report(key, rows.get(key), account, clock.now())

    async def forecast(
        self, account: UUID | None, domains: Collection[str], *, deliver_by: datetime | None, waited_s: float = 0.0
    ) -> Forecast | None:
        """Return when an email to these domains will probably arrive; None without domains.

        `waited_s`: since its acceptance, of a message that waits. Raises DatabaseUnavailable.
        """
        if not domains:
            return None
        rows = (await self._known.get(None)).rows
        receivers = await self._receivers(sorted(domains), QUICK_LOOKUP_S if waited_s else LOOKUP_S)
        at = clock.now()
        found = [
            self._of_domain(domain, key, rows.get(key), account, at, waited_s) for domain, key in receivers.items()
        ]
        slowest = max(found, key=_lateness)
        left_s = None if deliver_by is None else (deliver_by - at).total_seconds()
        return Forecast(
            text=slowest.text,
            p90_s=slowest.p90_s,
            warning=None if left_s is None else self._warning(found, rows, receivers, waited_s, left_s),
            receivers=found,
        )

    def _of_domain(
        self,
        domain: str,
        key: ReceiverKey,
        row: ReceiverRow | None,
        account: UUID | None,
        at: datetime,
        waited_s: float,
    ) -> DomainForecast:
        report = self._report(key, row, account, at)
        found = DomainForecast(**structs.asdict(report), domain=domain)
        if row is None or found.sample is None or waited_s <= 0:
            return found
        found = structs.replace(found, **_quantiles(row, waited_s))
        return structs.replace(found, text=wording.waiting_text(found, row.since, at, waited_s))

    def _report(self, key: ReceiverKey, row: ReceiverRow | None, account: UUID | None, at: datetime) -> ReceiverReport:
        found = ReceiverReport(
            provider=key.provider,
            name=key.site or NAMES[key.provider],
            site=key.site or None,
            state=ReceiverState.UNKNOWN,
            since=None,
            basis=ForecastBasis.RECENT,
            first_attempt_share=None,
            p50_s=None,
            p90_s=None,
            p95_s=None,
            p99_s=None,
            sample=None,
            text="",
            updated_at=None if row is None else clock.iso(row.updated_at),
        )
        if row is not None and self._visible(row, account, at):
            share = row.first_share
            found = structs.replace(
                found,
                state=ReceiverState(row.state),
                since=clock.iso(row.since),
                basis=ForecastBasis(row.basis),
                first_attempt_share=None if share is None else round(share, 4),
                sample=row.sample,
                **_quantiles(row),
            )
        return structs.replace(found, text=wording.report_text(found, None if row is None else row.since, at))

    def _visible(self, row: ReceiverRow, account: UUID | None, at: datetime) -> bool:
        """Return True if an account may see the figures: they are of several accounts, or all of its own mail."""
        if not row.has_figures or (at - row.updated_at).total_seconds() > STALE_S:
            return False
        if rules.account_count(row.accounts) >= rules.MIN_ACCOUNTS:
            return True
        return (
            account is not None
            and bool(row.accounts)
            and all(store.is_digest_of(self._settings.pepper, account, one) for one in row.accounts)
        )

    def _warning(
        self,
        found: Sequence[DomainForecast],
        rows: Mapping[ReceiverKey, ReceiverRow],
        receivers: Mapping[str, ReceiverKey],
        waited_s: float,
        left_s: float,
    ) -> str | None:
        """Return a sentence for the receiver at which an email will most probably miss its `deliverBy`."""
        if left_s <= 0:
            return wording.missed_text(found[0], left_s, 0.0)
        unlikely = []
        for one in found:
            row = rows.get(receivers[one.domain])
            if row is not None and one.sample is not None:
                share = rules.share_within(row.survival, waited_s + left_s, waited_s=waited_s)
                if share is not None and share < rules.LIKELY:
                    unlikely.append((share, one.domain, one))
        if not unlikely:
            return None
        share, _, receiver = min(unlikely)
        return wording.missed_text(receiver, left_s, share)

    async def _receivers(self, domains: Sequence[str], timeout_s: float) -> dict[str, ReceiverKey]:
        """Return the receiver of each domain; a domain whose MX records are not found in time has an unknown one."""
        found = {one: ReceiverKey(provider_of(None, one)) for one in domains}
        asked = [one for one, key in found.items() if key.provider is MailboxProvider.OTHER]
        lookups = {one: asyncio.ensure_future(find_site(self._resolver, one, self._own_names)) for one in asked}
        if lookups:
            _, late = await asyncio.wait(lookups.values(), timeout=timeout_s)
            for one in late:
                one.cancel()
        for domain, lookup in lookups.items():
            site = lookup.result() if lookup.done() and not lookup.cancelled() else None
            found[domain] = ReceiverKey(MailboxProvider.OTHER, domain)  # a name that no site with figures has
            if site is not None:
                provider = provider_of(site[0], domain)
                found[domain] = ReceiverKey(provider, site[1] if provider is MailboxProvider.OTHER else "")
        return found

    async def _read(self, _: None) -> JudgedReceivers:
        rows = await store.LIST.fetch(self._pool)
        return JudgedReceivers({one.key: one for one in rows}, clock.monotonic() + KEPT_S)


def _quantiles(row: ReceiverRow, waited_s: float = 0.0) -> dict[str, float | None]:
    return {
        name: _rounded(rules.quantile_s(row.survival, share, waited_s=waited_s))
        for name, share in (("p50_s", 0.5), ("p90_s", 0.9), ("p95_s", 0.95), ("p99_s", 0.99))
    }


def _rounded(seconds: float | None) -> float | None:
    """Round to what the classes of time can tell."""
    return None if seconds is None else round(seconds, 2 if seconds < 10 else 0)


def _lateness(one: DomainForecast) -> tuple[float, int]:
    """Return a key that puts the latest forecast last; one without figures comes first."""
    if one.p90_s is not None:
        return one.p90_s, _SEVERITY.index(one.state)
    return (-1.0 if one.sample is None else float("inf")), _SEVERITY.index(one.state)
