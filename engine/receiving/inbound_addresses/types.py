"""Define the rows of the inbound addresses area."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct


class InboundAddressRow(Struct, frozen=True):
    """A claimed address; `canonical` is the form that recipients are compared with.

    `in_plan`: the plan counts the address and its mail.
    """

    id: UUID
    address: str
    canonical: str
    label: str | None
    enabled: bool
    created_at: datetime
    last_received_at: datetime | None
    in_plan: bool

    @property
    def domain(self) -> str:
        """Return the domain in lower-case A-labels."""
        return self.canonical.rpartition("@")[2]


class ClaimableDomain(Struct, frozen=True):
    """A domain of an account, for a claim."""

    id: UUID
    status: str


class ReceivingLabel(Struct, frozen=True):
    """The label of an account's managed receiving domain; `is_open`: its first mail has come."""

    account_id: UUID
    label: str
    is_open: bool
