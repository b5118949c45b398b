"""The simulator's recipients: addresses whose fate is known beforehand, for whoever tests what follows a send.

`delivered@`, `bounced@`, `deferred@`, `complained@`, `slow@` of `simulator.<mail host>`. What becomes of them says
nothing of an account's standing and suppresses nobody.
"""

from enum import StrEnum

_LABEL = "simulator"


class Part(StrEnum):
    """What an address is called is what becomes of it; `slow` is delivered late."""

    DELIVERED = "delivered"
    BOUNCED = "bounced"
    DEFERRED = "deferred"
    COMPLAINED = "complained"
    SLOW = "slow"


_PARTS = {part.value: part for part in Part}


def domain_of(mail_host: str) -> str:
    """The domain of the simulator's recipients, in lower case."""
    return f"{_LABEL}.{mail_host.lower()}"


def part_of(address: str) -> Part | None:
    """What an address of that domain stands for, in whatever case and with whatever plus-tag; None: for nothing."""
    return _PARTS.get(address.rpartition("@")[0].partition("+")[0].lower())
