"""Compute what attempts add to the sums of waiting times. Pure."""

import re
from datetime import datetime
from typing import Final

import orjson
from msgspec import Struct, field

from engine.delivery.waits import WaitCause
from engine.receiving.analytics.histogram import bucket_of
from engine.receiving.analytics.types import CountedEvent

# At the beginning of the detail, before any text of a mail server. Payloads may be cut behind them.
_waits = re.compile(r'"waits":(\{[^{}]*\})').search
_fair_share = re.compile(r'"fair_share":([0-9.]+)').search
CAUSES: Final = tuple(cause.value for cause in WaitCause)

WaitKey = tuple[datetime, str, str, str]  # hour, provider, stream, from_domain


class WaitCounts(Struct):
    """The addition to the sums of an hour: attempts, milliseconds by cause, and fair shares.

    `samples`: attempts by bucket of the histogram of `other_accounts`; `times` is the stored histogram with them.
    """

    hour: datetime
    provider: str
    stream: str
    from_domain: str
    attempts: int = 0
    schedule: int = 0
    queue: int = 0
    site_limits: int = 0
    other_accounts: int = 0
    own_mail: int = 0
    connection: int = 0
    transaction: int = 0
    retry: int = 0
    fair_shares: float = 0.0
    samples: dict[int, int] = field(default_factory=dict)
    times: bytes = b""

    @property
    def key(self) -> WaitKey:
        """Return the columns that identify the sums."""
        return self.hour, self.provider, self.stream, self.from_domain


class WaitCounter:
    """Adds up the waiting times of attempts, by the hour in which they began."""

    def __init__(self) -> None:
        self._by_key: dict[WaitKey, WaitCounts] = {}

    def add(self, event: CountedEvent, provider: str, stream: str, from_domain: str) -> None:
        """Count an `attempted` event; one of a version that did not measure adds nothing."""
        found = _waits(event.payload)
        if found is None:
            return
        waits: dict[str, int] = orjson.loads(found[1])
        share = _fair_share(event.payload, found.end(), found.end() + 24)
        key = (event.occurred_at.replace(minute=0, second=0, microsecond=0), provider, stream, from_domain)
        sums = self._by_key.get(key)
        if sums is None:
            sums = self._by_key[key] = WaitCounts(*key)
        sums.attempts += 1
        sums.fair_shares += 1.0 if share is None else float(share[1])
        for cause in CAUSES:
            if cause in waits:
                setattr(sums, cause, getattr(sums, cause) + waits[cause])
        bucket = bucket_of(waits.get(WaitCause.OTHER_ACCOUNTS.value, 0))
        sums.samples[bucket] = sums.samples.get(bucket, 0) + 1

    def counts(self) -> list[WaitCounts]:
        """Return what the attempts added, in the order of their keys."""
        return [self._by_key[key] for key in sorted(self._by_key)]
