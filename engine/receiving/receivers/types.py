"""Define what is counted of receiving mail servers, and what follows from the counts."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Struct

from engine.receiving.analytics.mailbox_providers import MailboxProvider

BUCKET: Final = timedelta(minutes=5)
MAX_ACCOUNTS: Final = 3  # digests kept of a cohort: enough to know that the figures are of several accounts
MIN_SAMPLE: Final = 20  # recipients; fewer give no figures
KEPT: Final = timedelta(days=8)  # cohorts


class ReceiverState(StrEnum):
    """How a receiver treats mail at present."""

    NORMAL = "normal"
    SLOW = "slow"  # mail arrives much later than usual
    DEFERRING = "deferring"  # many first attempts are deferred
    REFUSING = "refusing"  # the servers reject most mail, whoever it is for
    UNKNOWN = "unknown"  # too few messages lately


class ForecastBasis(StrEnum):
    """Which mail a forecast is computed from."""

    RECENT = "recent"  # of the last hour, or of fewer minutes
    WEEK = "week"  # of the same hour on the last seven days, because there was too little mail lately


class ReceiverKey(NamedTuple):
    """A receiver of mail: a provider of mailboxes, or the mail servers of one site at `other`."""

    provider: MailboxProvider
    site: str = ""  # "": all of the provider


class Cohort(Struct, frozen=True):
    """The messages of BUCKET for one receiver, by the time of their acceptance; each recipient counts.

    `entered` counts those that reached delivery, `ended` those that were neither delivered nor wait any more, and
    `times` the delivered ones by class of time. `accounts` are at most MAX_ACCOUNTS digests.
    """

    bucket: datetime
    provider: str
    site: str
    entered: int
    ended: int
    first_delivered: int
    first_deferred: int
    first_refused: int
    times: list[int]
    accounts: list[str]

    @property
    def telling(self) -> int:
        """Return the recipients whose mail tells about the receiver: all but rejected addresses and messages."""
        return max(0, self.entered - self.ended + self.first_refused)


class ReceiverFigures(Struct, frozen=True, kw_only=True):
    """The figures of a receiver. `survival` is the share that still waits at the upper edge of each class; it
    ends where nothing is known of longer times."""

    sample: int
    first_share: float | None  # of first attempts: delivered
    deferred_share: float
    refused_share: float
    survival: list[float]
    accounts: list[str]


class ReceiverRow(Struct, frozen=True):
    """The stored judgement of a receiver."""

    provider: str
    site: str
    state: str
    since: datetime
    basis: str
    sample: int
    first_share: float | None
    survival: list[float]
    accounts: list[str]
    updated_at: datetime

    @property
    def has_figures(self) -> bool:
        """Return True if there was enough mail."""
        return self.sample >= MIN_SAMPLE

    @property
    def key(self) -> ReceiverKey:
        """Return the receiver."""
        return ReceiverKey(MailboxProvider(self.provider), self.site)


class ReceiverReport(Struct, rename="camel", kw_only=True):
    """How a receiver treats the mail of all accounts, and the seconds from acceptance to delivery.

    Figures are null with fewer than 20 messages or 3 accounts, unless all messages are the caller's own. A percentile
    is also null where more messages wait than it leaves out. Broadcasts do not count.
    """

    provider: MailboxProvider
    name: str
    site: Annotated[str | None, Meta(description="The mail servers at `other`; null: all of the provider")]
    state: ReceiverState
    since: str | None
    basis: ForecastBasis
    first_attempt_share: Annotated[float, Meta(ge=0, le=1)] | None
    p50_s: float | None
    p90_s: float | None
    p95_s: float | None
    p99_s: float | None
    sample: int | None
    text: str
    updated_at: str | None


class DomainForecast(ReceiverReport, kw_only=True):
    """When emails to a recipient domain will probably arrive. Of an email that waits, the percentiles are those of
    emails that have waited as long, from acceptance."""

    domain: str


class Forecast(Struct, rename="camel", kw_only=True):
    """When an email will probably arrive, by recipient domain; `text` and `p90S` are those of the slowest one.

    `warning`: it will probably miss its `deliverBy`.
    """

    text: str
    p90_s: float | None
    warning: str | None
    receivers: list[DomainForecast]
