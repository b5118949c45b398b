"""Name why a delivery waits, and why it ends untried: `reason` in the detail of `queued` and `rejected` events."""

from enum import StrEnum
from typing import Final


class QueuedReason(StrEnum):
    """Why a delivery waits: `reason` of a `queued` event, and `waiting` of a queue row."""

    OPERATOR_HOLD = "operator_hold"
    OPERATOR_RELEASE = "operator_release"
    OPERATOR_FLUSH = "operator_flush"
    WARM_UP = "warm_up"
    SOURCE_REFUSED = "source_refused"
    SITE_WINDOW = "site_window"
    SITE_OPENING = "site_opening"
    LOOKUP_SLOT = "lookup_slot"
    CONNECTION_SLOT = "connection_slot"
    SITE_RATE = "site_rate"
    SITE_PAUSED = "site_paused"


class UntriedReason(StrEnum):
    """Why a delivery ended without another attempt: `reason` of a `rejected` event, or of `failed` after an attempt."""

    DOMAIN_REMOVED = "domain_removed"
    DELIVER_BY_PASSED = "deliver_by_passed"
    OPERATOR = "operator"
    ADDRESS_ERASED = "address_erased"


# For people: each completes "the delivery waits because" or "the delivery ended because".
QUEUED_CLAUSES: Final = {
    QueuedReason.OPERATOR_HOLD: "the operator of this service holds it",
    QueuedReason.OPERATOR_RELEASE: "the operator ended the hold",
    QueuedReason.OPERATOR_FLUSH: "the operator asked for an early attempt",
    QueuedReason.WARM_UP: "the source addresses are in warm-up, and their limit for this provider today is used up",
    QueuedReason.SOURCE_REFUSED: "the receiving servers refuse one of our source addresses, so another one is used",
    QueuedReason.SITE_WINDOW: "all connections that we may open to the receiving servers are in use",
    QueuedReason.SITE_OPENING: "a connection to the receiving servers is being opened, and they have not greeted yet",
    QueuedReason.LOOKUP_SLOT: "many DNS look-ups wait for name servers that do not answer",
    QueuedReason.CONNECTION_SLOT: "many connections wait for servers that do not answer",
    QueuedReason.SITE_RATE: "the rate limit for the receiving servers is reached for now",
    QueuedReason.SITE_PAUSED: "the receiving servers asked us to slow down, so deliveries to them pause",
}
UNTRIED_CLAUSES: Final = {
    UntriedReason.DOMAIN_REMOVED: "the sending domain was removed from the account, so the message could not be signed",
    UntriedReason.DELIVER_BY_PASSED: "its `deliverBy` passed while it waited",
    UntriedReason.OPERATOR: "the operator of this service ended it",
    UntriedReason.ADDRESS_ERASED: "the data of the recipient's address was erased",
}
