"""The options of `ops bench`."""

from typing import Final

from msgspec import Struct

DOMAINS: Final = {"a": 10, "b": 1, "c": 1_000}  # by scenario


class BenchOptions(Struct, frozen=True, kw_only=True):
    """The options of one measurement of acceptance and delivery."""

    scenario: str
    messages: int
    warm_up: int
    connections: int
    runs: int
    drain: int | None
    profile: bool
    paced: bool
    tls: bool
    rsa: bool = False  # one signature: the domain's Ed25519 key counts as not published
    batch: int = 1
    domains: int | None = None  # in place of the scenario's
    rate: float | None = None  # of the paced run, in place of half the measured rate; of queueing in a drain
    stored: int = 0  # messages of others that lie in the database before

    @property
    def recipients_domains(self) -> int:
        """Return the number of recipient domains."""
        return self.domains or DOMAINS[self.scenario]
