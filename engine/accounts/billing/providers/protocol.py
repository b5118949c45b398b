"""Define what billing needs of a payment provider.

A provider shows a checkout page, charges renewals on request, and reports by signed events. It never decides amounts:
the service computes them and compares each payment with what it asked for.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from engine.accounts.billing.types import ProviderEvent


class BadSignature(Exception):  # noqa: N818 - named for what is bad
    """The event is not signed, or not with a secret of this installation, or its signature is too old."""


class UnusableEvent(Exception):  # noqa: N818 - named for what it is about
    """The event is signed, but its content can't be used; the text says why. `event` is its id, `kind` its type."""

    def __init__(self, why: str, *, event: str = "", kind: str = "") -> None:
        super().__init__(why)
        self.event = event
        self.kind = kind


class PaymentProviderUnavailable(Exception):  # noqa: N818 - a state of the provider, which may end
    """The provider did not answer, or failed temporarily."""


class PaymentOrder(Struct, frozen=True, kw_only=True):
    """A sum to be paid: a checkout, or the renewal of a period. `amount` includes tax, in minor units.

    `id` makes the request idempotent. `reference` is the provider's name for the payer, for renewals.
    """

    id: UUID
    account: UUID
    description: str
    amount: int
    currency: str
    email: str | None = None
    period_start: datetime | None = None
    expires_at: datetime | None = None
    reference: str | None = None


class PaymentProvider(Protocol):
    """A payment provider. Requests are idempotent by the order's id; they raise PaymentProviderUnavailable."""

    name: str

    async def open_checkout(self, order: PaymentOrder) -> str:
        """Return the URL of the page on which the order can be paid."""
        ...

    async def charge(self, order: PaymentOrder) -> None:
        """Ask for the payment of a renewal; its result comes as an event."""
        ...

    def read_event(self, headers: Mapping[str, str], body: bytes, at: datetime) -> ProviderEvent:
        """Verify and read an event; header names are in lower case. Raises BadSignature and UnusableEvent."""
        ...
