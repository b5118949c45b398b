"""Judge receivers by their cohorts, and forecast when mail will arrive. Pure.

The times are estimated with a life table (Kaplan and Meier 1958, in the actuarial form for grouped times): of the
messages that waited at the begin of a class of time, the share that was delivered within it. Messages that still wait
count as long as they have waited, so that an outage shows while its mail waits. In each class, only messages that
passed it lately count: after a recovery, new mail is not judged by how early attempts went an hour ago.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from engine.receiving.receivers.time_classes import EDGES_S, class_of, part_below, time_in
from engine.receiving.receivers.types import (
    BUCKET,
    MIN_SAMPLE,
    Cohort,
    ForecastBasis,
    ReceiverFigures,
    ReceiverKey,
    ReceiverRow,
    ReceiverState,
)

MIN_ACCOUNTS: Final = 3  # whose figures an account sees, unless all of them are its own
ENOUGH: Final = 40  # messages with which a shorter window is preferred: it follows changes sooner
WINDOWS_S: Final = (600.0, 1200.0, 1800.0, 3600.0)
LIKELY: Final = 0.9  # the share that must arrive by `deliverBy`, below which a forecast warns
MIN_RATIO: Final = 0.25  # of the messages that would wait in a class at the present rates; fewer tell nothing about it
SETTLED: Final = 0.001  # so few are left that the rest of the curve does not matter
_BUCKET_S: Final = BUCKET.total_seconds()

# A state begins at the first number and ends at the second, so that it does not change with every few messages.
DEFERRING: Final = (0.25, 0.15)  # of first attempts
REFUSING: Final = (0.5, 0.3)
SLOWER: Final = (3.0, 2.0)  # times the 90th percentile of the same hour of the week
SLOW_S: Final = (60.0, 40.0)  # and at least so long
SLOW_ALONE_S: Final = (300.0, 200.0)  # without such an hour to compare with


def judged(
    key: ReceiverKey,
    recent: Sequence[Cohort],
    usual: ReceiverFigures | None,
    before: ReceiverRow | None,
    at: datetime,
) -> ReceiverRow:
    """Return the judgement of a receiver at `at` by its recent cohorts, the usual figures of the hour and the last
    judgement."""
    now = present_figures(recent, at)
    previous = ReceiverState.UNKNOWN if before is None else ReceiverState(before.state)
    state = _state(now, usual, previous)
    use_week = now is None and usual is not None
    shown = usual if use_week else now
    return ReceiverRow(
        provider=key.provider.value,
        site=key.site,
        state=state.value,
        since=at if before is None or before.state != state.value else before.since,
        basis=(ForecastBasis.WEEK if use_week else ForecastBasis.RECENT).value,
        sample=sum(one.telling for one in recent if _ago_s(one, at) < WINDOWS_S[-1]) if shown is None else shown.sample,
        first_share=None if shown is None else shown.first_share,
        survival=[] if shown is None else shown.survival,
        accounts=[] if shown is None else shown.accounts,
        updated_at=at,
    )


def present_figures(cohorts: Sequence[Cohort], at: datetime) -> ReceiverFigures | None:
    """Return the figures of the last minutes, of the shortest window with ENOUGH messages; None below MIN_SAMPLE."""
    for window_s in WINDOWS_S:
        inside = [one for one in cohorts if _ago_s(one, at) < window_s]
        sample = sum(one.telling for one in inside)
        if sample >= ENOUGH or (window_s == WINDOWS_S[-1] and sample >= MIN_SAMPLE):
            return _figures(inside, sample, survival(_of_shown_accounts(cohorts, inside), at, window_s))
    return None


def _of_shown_accounts(cohorts: Sequence[Cohort], inside: Sequence[Cohort]) -> Sequence[Cohort]:
    """Return the cohorts for the curve of a window. While its figures may be of one account alone, older mail of others
    is left out, whose late arrivals the curve would count."""
    accounts = set(_kept_accounts(inside))
    if account_count(accounts) >= MIN_ACCOUNTS:
        return cohorts
    return [one for one in cohorts if accounts.issuperset(one.accounts)]


def usual_figures(cohorts: Sequence[Cohort]) -> ReceiverFigures | None:
    """Return the figures of cohorts whose mail had days to arrive; None below MIN_SAMPLE."""
    sample = sum(one.telling for one in cohorts)
    if sample < MIN_SAMPLE:
        return None
    latest = max(one.bucket for one in cohorts) + timedelta(seconds=2 * EDGES_S[-1])
    return _figures(cohorts, sample, survival(cohorts, latest, math.inf))


def survival(cohorts: Sequence[Cohort], at: datetime, window_s: float) -> list[float]:
    """Return the share of messages that wait longer than the upper edge of each class, from what happened in the last
    `window_s`; the list ends where too few messages have waited so long."""
    tables = [_CohortTable(one, at) for one in cohorts]
    shares: list[float] = []
    share, first = 1.0, 0.0
    for place, edge_s in enumerate(EDGES_S):
        tables = [one for one in tables if one.left > 0]
        at_risk = delivered = 0.0
        for one in tables:
            if one.ended_ago_s - edge_s < window_s:
                waiting, arrived = one.counts(place)
                at_risk += waiting
                delivered += arrived
            one.left -= one.delivered(place)
        first = first or at_risk
        if at_risk <= 0 or at_risk < MIN_RATIO * share * first:
            break
        share *= 1 - min(1.0, delivered / at_risk)
        shares.append(round(share, 6))
        if share < SETTLED:
            break
    return shares


def quantile_s(shares: Sequence[float], wanted: float, *, waited_s: float = 0.0) -> float | None:
    """Return the seconds from acceptance within which the share `wanted` arrives of the messages that have waited for
    `waited_s`; None if that is longer than what is known."""
    left = _left_after(shares, waited_s)
    if left is None or left <= 0:
        return None
    target, before = left * (1 - wanted), 1.0
    for place, share in enumerate(shares):
        if share <= target:
            found = time_in(place, (before - target) / (before - share)) if before > share else EDGES_S[place]
            return max(found, waited_s)
        before = share
    return None


def share_within(shares: Sequence[float], seconds: float, *, waited_s: float = 0.0) -> float | None:
    """Return the share that arrives within `seconds` of acceptance, of the messages that have waited for `waited_s`;
    None if that is longer than what is known."""
    at_first, left = _left_after(shares, waited_s), _left_after(shares, seconds)
    return None if not at_first or left is None else 1 - left / at_first


def account_count(digests: Collection[str]) -> int:
    """Return of how many accounts digests `day:digest` are at least: the most of one day, as keys change every day."""
    days = [one.partition(":")[0] for one in set(digests)]
    return max((days.count(day) for day in set(days)), default=0)


def _left_after(shares: Sequence[float], seconds: float) -> float | None:
    """Return the share that waits longer than `seconds`; None if that is longer than what is known."""
    place = class_of(seconds)
    if place >= len(shares):
        return 0.0 if shares and shares[-1] < SETTLED else None
    before = shares[place - 1] if place else 1.0
    return before + (shares[place] - before) * part_below(place, max(0.0, seconds))


def _figures(cohorts: Sequence[Cohort], sample: int, shares: list[float]) -> ReceiverFigures:
    delivered = sum(one.first_delivered for one in cohorts)
    deferred = sum(one.first_deferred for one in cohorts)
    refused = sum(one.first_refused for one in cohorts)
    first = delivered + deferred + refused
    return ReceiverFigures(
        sample=sample,
        first_share=delivered / first if first else None,
        deferred_share=deferred / first if first else 0.0,
        refused_share=refused / first if first else 0.0,
        survival=shares,
        accounts=sorted(_kept_accounts(cohorts)),
    )


def _kept_accounts(cohorts: Sequence[Cohort]) -> Iterator[str]:
    """Yield the digests of each day, no more of one day than prove MIN_ACCOUNTS."""
    kept: dict[str, set[str]] = {}
    for one in cohorts:
        for account in one.accounts:
            of_day = kept.setdefault(account.partition(":")[0], set())
            if len(of_day) < MIN_ACCOUNTS and account not in of_day:
                of_day.add(account)
                yield account


def _state(now: ReceiverFigures | None, usual: ReceiverFigures | None, before: ReceiverState) -> ReceiverState:
    if now is None:
        return ReceiverState.UNKNOWN
    if now.refused_share >= REFUSING[before is ReceiverState.REFUSING]:
        return ReceiverState.REFUSING
    if now.deferred_share >= DEFERRING[before is ReceiverState.DEFERRING]:
        return ReceiverState.DEFERRING
    if _is_slow(now, usual, ended=before is ReceiverState.SLOW):
        return ReceiverState.SLOW
    return ReceiverState.NORMAL


def _is_slow(now: ReceiverFigures, usual: ReceiverFigures | None, *, ended: bool) -> bool:
    """Return True if mail takes long; `ended` takes the limits at which the state ends."""
    p90_s = quantile_s(now.survival, 0.9)
    usual_s = None if usual is None else quantile_s(usual.survival, 0.9)
    if p90_s is None:
        return True  # more than one in ten has waited longer than anything that arrived
    if usual_s is None:
        return p90_s >= SLOW_ALONE_S[ended]
    return p90_s >= max(SLOWER[ended] * usual_s, SLOW_S[ended])


def _ago_s(cohort: Cohort, at: datetime) -> float:
    """Return the seconds since the last message of a cohort may have been accepted, negative for the present one."""
    return (at - cohort.bucket).total_seconds() - _BUCKET_S


class _CohortTable:
    """The messages of a cohort that are left as the life table goes from class to class."""

    def __init__(self, cohort: Cohort, at: datetime) -> None:
        self._times = cohort.times
        arrived = sum(cohort.times)
        total = max(cohort.entered - cohort.ended, arrived)  # what a process that was killed did not count
        self._pending = total - arrived
        self.left = total  # that waited at the begin of the present class
        self.ended_ago_s = _ago_s(cohort, at)
        elapsed_s = self.ended_ago_s + _BUCKET_S
        # Which of them wait is not known: taken for the last ones accepted, as if first come, first served.
        self._youngest_s = max(0.0, self.ended_ago_s)
        self._span_s = min(_BUCKET_S, max(elapsed_s, 0.0)) * self._pending / total if total else 0.0

    def delivered(self, place: int) -> int:
        """Return how many arrived within a class."""
        return self._times[place] if place < len(self._times) else 0

    def counts(self, place: int) -> tuple[float, int]:
        """Return how many waited at the begin of a class and could be seen in it, and how many arrived within it."""
        middle_s = time_in(place, 0.5)
        seen = 1.0
        if middle_s > self._youngest_s:
            seen = max(0.0, 1 - (middle_s - self._youngest_s) / self._span_s) if self._span_s else 0.0
        return self.left - self._pending + self._pending * seen, self.delivered(place)
