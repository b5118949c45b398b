"""The sets of drills and benches that `ops proof` runs: the full one for a release, and the quick one of CI.

A part is one command. The full set holds every drill of the catalogue; `tests/loadtests/test_proof_sets.py` checks it.
Sizes are chosen for 45 and 8 minutes on two cores without other work.
"""

from enum import StrEnum
from typing import Final, Literal

from msgspec import Struct

from loadtests.bench import catalogue as benches
from loadtests.drill import catalogue as drills
from loadtests.proof.record import SetName

SMALL: Final = ("--profile", "small")


class Subject(StrEnum):
    """The kind of fault that a drill injects; published tables are grouped by it."""

    PROCESSES = "Processes are killed, stopped and replaced"
    STORES = "PostgreSQL and Valkey fail, hang and fail over"
    FINAL_DOT = "Faults at the moment of delivery"
    SERVERS = "Remote mail servers and DNS misbehave"
    RECEIVING = "Faults and attacks while email is received"
    MACHINE = "Disk, clock and network fail"
    CLIENTS = "Requests compete, are repeated, or crash a process"


class ProofPart(Struct, frozen=True, kw_only=True):
    """A drill or bench of a set, with the options of its command."""

    tool: Literal["drill", "bench"]
    target: str  # the drill or bench
    options: tuple[str, ...] = ()
    subject: Subject | None = None  # of a drill

    @property
    def name(self) -> str:
        """Return the name in the set: a bench may have the name of a drill, and a drill may run in both profiles."""
        small = "-small" if self.options[-2:] == SMALL else ""
        return f"bench-{self.target}" if self.tool == "bench" else self.target + small

    @property
    def about(self) -> str:
        """Return the sentence of its catalogue."""
        return (benches.named(self.target) if self.tool == "bench" else drills.named(self.target)).about

    def missing(self) -> str | None:
        """Return why the part cannot run on this machine, or None if it can."""
        if self.tool == "bench":
            return drills.LINUX.missing()
        profile: drills.Profile = "small" if self.options[-2:] == SMALL else "full"
        return drills.named(self.target).missing(profile)

    def words(self, seed: int | None = None) -> list[str]:
        """Return the words of the command behind `ops`; benches draw nothing, so they take no seed."""
        seeded = ["--seed", str(seed)] if self.tool == "drill" and seed is not None else []
        return [self.tool, self.target, *self.options, *seeded]


def _drill(subject: Subject, target: str, *options: str) -> ProofPart:
    return ProofPart(tool="drill", target=target, options=options, subject=subject)


def _bench(target: str, *options: str) -> ProofPart:
    return ProofPart(tool="bench", target=target, options=options)


QUICK: Final = (
    _drill(Subject.PROCESSES, "kill-api"),
    _drill(Subject.PROCESSES, "kill-mta"),
    _drill(Subject.PROCESSES, "kill-worker"),
    _drill(Subject.PROCESSES, "kill-relay"),
    _drill(Subject.STORES, "kill-valkey"),
    _drill(Subject.STORES, "kill-postgres"),
    _drill(Subject.STORES, "redis-failover"),
    _drill(Subject.STORES, "postgres-failover", "--rounds", "1"),
    _drill(Subject.FINAL_DOT, "held-reply"),
    _drill(Subject.FINAL_DOT, "unknown-outcome"),
    _drill(Subject.RECEIVING, "kill-mx", "--rounds", "5"),
    _drill(Subject.MACHINE, "disk-full"),
    _drill(Subject.CLIENTS, "lost-answer"),
    _bench("send", "--messages", "3000", "--no-paced"),
)
FULL: Final = (
    _drill(Subject.PROCESSES, "first-start", "--rounds", "10"),
    _drill(Subject.PROCESSES, "kill-api", "--rounds", "10"),
    _drill(Subject.PROCESSES, "kill-mta", "--rounds", "10"),
    _drill(Subject.PROCESSES, "kill-mta", "--messages", "300", "--rounds", "2", *SMALL),
    _drill(Subject.PROCESSES, "kill-worker", "--rounds", "10"),
    _drill(Subject.PROCESSES, "kill-relay", "--rounds", "10"),
    _drill(Subject.PROCESSES, "kill-relay", "--messages", "300", "--rounds", "2", *SMALL),
    _drill(Subject.PROCESSES, "pause-mta"),
    _drill(Subject.PROCESSES, "fence"),
    _drill(Subject.PROCESSES, "rolling", "--rounds", "3"),
    _drill(Subject.PROCESSES, "scale"),
    _drill(Subject.PROCESSES, "cells"),
    _drill(Subject.PROCESSES, "broadcast-kills"),
    _drill(Subject.PROCESSES, "alerts"),
    _drill(Subject.PROCESSES, "tails"),
    _drill(Subject.PROCESSES, "soak", "--minutes", "2"),
    _drill(Subject.STORES, "kill-valkey"),
    _drill(Subject.STORES, "valkey-hung"),
    _drill(Subject.STORES, "valkey-full"),
    _drill(Subject.STORES, "valkey-readonly"),
    _drill(Subject.STORES, "false-hints"),
    _drill(Subject.STORES, "redis-failover"),
    _drill(Subject.STORES, "redis-sentinel"),
    _drill(Subject.STORES, "redis-cluster"),
    _drill(Subject.STORES, "kill-postgres"),
    _drill(Subject.STORES, "kill-backend"),
    _drill(Subject.STORES, "postgres-locked"),
    _drill(Subject.STORES, "postgres-crowded"),
    _drill(Subject.STORES, "postgres-deadlock"),
    _drill(Subject.STORES, "postgres-failover"),
    _drill(Subject.STORES, "patroni"),
    _drill(Subject.FINAL_DOT, "before-dot"),
    _drill(Subject.FINAL_DOT, "held-reply"),
    _drill(Subject.FINAL_DOT, "postgres-after-reply"),
    _drill(Subject.FINAL_DOT, "kept-outcomes"),
    _drill(Subject.FINAL_DOT, "unknown-outcome"),
    _drill(Subject.SERVERS, "names"),
    _drill(Subject.SERVERS, "bystander"),
    _drill(Subject.SERVERS, "fairness"),
    _drill(Subject.SERVERS, "silent-sites", "--messages", "2000"),
    _drill(Subject.RECEIVING, "kill-mx", "--rounds", "10"),
    _drill(Subject.RECEIVING, "mx-postgres-away", "--rounds", "3"),
    _drill(Subject.RECEIVING, "mx-scanner-hung"),
    _drill(Subject.RECEIVING, "mx-hostile"),
    _drill(Subject.RECEIVING, "mx-report-flood"),
    _drill(Subject.RECEIVING, "mx-disk-full"),
    _drill(Subject.RECEIVING, "mx-restart", "--rounds", "3"),
    _drill(Subject.MACHINE, "disk-full"),
    _drill(Subject.MACHINE, "write-error"),
    _drill(Subject.MACHINE, "clock"),
    _drill(Subject.MACHINE, "hosts"),
    _drill(Subject.CLIENTS, "lost-answer"),
    _drill(Subject.CLIENTS, "poison"),
    _drill(Subject.CLIENTS, "races", "--rounds", "20"),
    _drill(Subject.CLIENTS, "codes"),
    _bench("send", "--messages", "5000"),
    _bench("relay", "--messages", "3000"),
    _bench("mx", "--messages", "1000"),
    _bench("webhooks", "--messages", "2000"),
    _bench("broadcast", "--contacts", "2000"),
)
SETS: Final[dict[SetName, tuple[ProofPart, ...]]] = {"full": FULL, "quick": QUICK}


def names() -> list[str]:
    """Return the names of the parts of all sets."""
    return list(dict.fromkeys(part.name for parts in SETS.values() for part in parts))


def subject_of(name: str) -> Subject | None:
    """Return the subject of a drill by its name in a set; None if no set has it any more."""
    return next((part.subject for parts in SETS.values() for part in parts if part.name == name), None)
