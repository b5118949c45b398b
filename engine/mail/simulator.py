"""Recognise the recipients of the simulator, with which customers test the handling of each outcome.

The local part selects the behaviour: `delivered@`, `bounced@`, `deferred@`, `complained@` or `slow@` of
`simulator.<mail host>`. Their outcomes do not affect an account's reputation and suppress no address.
"""

from enum import StrEnum

_LABEL = "simulator"


class SimulatedOutcome(StrEnum):
    """The behaviour of a simulator recipient, named by its local part; `slow` is delivered late."""

    DELIVERED = "delivered"
    BOUNCED = "bounced"
    DEFERRED = "deferred"
    COMPLAINED = "complained"
    SLOW = "slow"


_OUTCOMES = {outcome.value: outcome for outcome in SimulatedOutcome}


def domain_of(mail_host: str) -> str:
    """Return the domain of the simulator's recipients, in lower case."""
    return f"{_LABEL}.{mail_host.lower()}"


def simulated_outcome(address: str) -> SimulatedOutcome | None:
    """Return the behaviour that the local part selects, in any case and with any plus tag; None if it selects none."""
    return _OUTCOMES.get(address.rpartition("@")[0].partition("+")[0].lower())
