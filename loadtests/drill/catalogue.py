"""List all drills: `ops drill` takes their names, their help and the contents of `all` from here.

To add a drill, write a function that takes a DrillOrder and returns a DrillReport (`loadtests.drill.report`), and add
an entry below. A drill starts and stops its own service and prints nothing.
"""

import importlib
import os
import random
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal, get_args

from msgspec import Struct

from loadtests.drill.report import DrillReport

Profile = Literal["full", "small"]
PROFILES: Final[tuple[Profile, ...]] = get_args(Profile)


class DrillOrder(Struct, frozen=True, kw_only=True):
    """The parameters of one run of a drill."""

    name: str = ""  # of the drill, for functions that run several
    messages: int
    rounds: int  # faults during the run; each drill defines a round
    rng: random.Random
    minutes: float | None = None  # for those that go by time; None: their own default
    options: Mapping[str, str | int] = {}  # those that only some drills take, as far as they are given
    profile: Profile = "full"  # of the services that it starts

    def settings(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the settings of a service (names without prefix): the drill's own, and the profile."""
        return {**(more or {}), "PROFILE": self.profile}


class Requirement(Struct, frozen=True):
    """A requirement of a drill on the machine."""

    name: str  # in the list: "root", "mount"
    missing: Callable[[], str | None]  # what is missing, for people; None when it is there


def program(name: str, package: str = "") -> Requirement:
    """Require a program on the PATH; `package` names its package if that differs."""
    hint = f" (package {package})" if package else ""
    return Requirement(name, lambda: None if shutil.which(name) else f"the program {name} is not installed{hint}")


LINUX: Final = Requirement(
    "Linux", lambda: None if sys.platform == "linux" else "it needs Linux: it finds processes through /proc"
)
PATRONI_PACKAGES: Final = Path(__file__).parents[2] / ".patroni"  # apart from those that the service runs with
_INSTALL_PATRONI: Final = "python3 -m pip install --target .patroni 'patroni[etcd3]>=4,<5' 'psycopg[binary]'"
PATRONI: Final = Requirement(
    "Patroni",
    lambda: None if (PATRONI_PACKAGES / "patroni").is_dir() else f"Patroni is not installed ({_INSTALL_PATRONI})",
)
ROOT: Final = Requirement("root", lambda: None if os.geteuid() == 0 else "it must be run by root")


class Drill(Struct, frozen=True):
    """A drill. `where` names its function as `module:function`, so that listing drills does not import them."""

    name: str
    about: str  # one sentence, from a capital to a full stop
    where: str
    requires: tuple[Requirement, ...] = (LINUX,)
    messages: int = 1_000  # minimum, unless the operator gives a number
    messages_each: int = 0  # a round, where rounds make the length
    rounds: int = 5
    in_all: bool = True  # False: too long for `all`
    options: tuple[str, ...] = ()  # of `ops drill`, beside those that all drills take
    needs_full: str = ""  # why it can't run in the small profile; "": it can

    def missing(self, profile: Profile = "full") -> str | None:
        """Return why the drill cannot run on this machine in this profile, or None if it can."""
        if profile == "small" and self.needs_full:
            return f"it can't run in the small profile, because {self.needs_full}; leave out --profile small"
        return next((why for need in self.requires if (why := need.missing()) is not None), None)

    def order(
        self,
        messages: int | None,
        rounds: int | None,
        rng: random.Random,
        minutes: float | None,
        options: Mapping[str, str | int] | None = None,
        profile: Profile = "full",
    ) -> DrillOrder:
        """Return the parameters of a run: the operator's values, and this drill's defaults for None."""
        times = rounds or self.rounds
        return DrillOrder(
            name=self.name, messages=messages or max(self.messages, self.messages_each * times), rounds=times, rng=rng,
            minutes=minutes, options=options or {}, profile=profile,
        )  # fmt: skip

    def function(self) -> Callable[[DrillOrder], DrillReport]:
        """Import and return the function that runs the drill."""
        module, _, name = self.where.partition(":")
        found: Callable[[DrillOrder], DrillReport] = getattr(importlib.import_module(f"loadtests.drill.{module}"), name)
        return found

    def run(self, order: DrillOrder) -> DrillReport:
        """Run the drill; raises what prevents it from running."""
        return self.function()(order)


_SEVERAL_MTAS: Final = "it needs several mta processes"
_DIES_ALONE: Final = "it counts what the death of a single part causes"
_OWN_MEMORY: Final = "it measures the memory of single parts, which share a process there"
CATALOGUE: Final = (
    Drill("first-start", "The first start of new state folders is killed at random moments; the start after it must be"
          " ready.", "first_start:run", messages=0, rounds=50, in_all=False),
    Drill("kill-api", "API workers and the HTTP server are killed while mail is accepted.",
          "kills:run", messages_each=100),
    Drill("kill-mta", "mta processes are killed while mail is delivered.", "kills:run", messages_each=100),
    Drill("pause-mta", "An mta process stops for twice its lease and then continues.",
          "process_stops:pause_mta", rounds=3, needs_full=_SEVERAL_MTAS),
    Drill("fence", "An mta process stops for twice its lease, each time with mail on the wire.",
          "process_stops:fence", rounds=3, needs_full=_SEVERAL_MTAS),
    Drill("kill-worker", "The background worker is killed.", "kills:run", messages_each=100),
    Drill("alerts", "The background worker is killed while alert rules cross their threshold and come back.",
          "alert_kills:run", messages=50, needs_full=_DIES_ALONE),
    Drill("broadcast-kills", "Worker, api, mta, PostgreSQL and Valkey are killed during one broadcast, which is paused"
          " and resumed.", "broadcast_kills:run", messages_each=400, in_all=False),
    Drill("kill-relay", "The SMTP submission process is killed while it accepts mail.",
          "kills:kill_relay", messages_each=100),
    Drill("kill-mx", "mx processes are killed while they receive mail.", "mx_drills:kill_mx", rounds=50),
    Drill("mx-postgres-away", "PostgreSQL is killed or hangs while mail comes in.",
          "mx_drills:postgres_away", rounds=6),
    Drill("mx-scanner-hung", "clamd and rspamd hang, answer garbage, close or are away while mail comes in.",
          "mx_scanners:run", rounds=1),
    Drill("mx-hostile", "Hostile clients of the MX, while the times of other mail are compared.",
          "mx_hostile:run", rounds=1, needs_full=_OWN_MEMORY),
    Drill("mx-report-flood", "Strangers send large mails to report addresses; the disk must not grow with them.",
          "mx_flood:run", rounds=1),
    Drill("mx-disk-full", "The disks of the database and the logs are full for a while, while mail comes in.",
          "mx_drills:disk_full", requires=(LINUX, ROOT, program("mount")), rounds=1),
    Drill("mx-restart", "mx processes are replaced while mail comes in.", "mx_drills:restart", rounds=10),
    Drill("kill-valkey", "Valkey is emptied and killed.", "kills:run", messages_each=100),
    Drill("kill-postgres", "The postmaster is killed, as in a power cut.", "kills:run", messages_each=100),
    Drill("kill-backend", "A PostgreSQL backend of the service is killed, which ends all others too.",
          "kills:run", messages_each=100),
    Drill("before-dot", "mta processes are killed while a mail server still reads the content.",
          "final_dot:before_dot", rounds=3),
    Drill("held-reply", "mta processes are killed between a mail server's 250 and its commit.",
          "final_dot:held_reply", messages=600),
    Drill("postgres-after-reply", "PostgreSQL is killed while a mail server's 250 is on its way.",
          "final_dot:postgres_after_reply", messages=600),
    Drill("kept-outcomes", "All mta processes are killed twice while PostgreSQL is away or hangs, with outcomes in"
          " memory.", "kept_outcomes:run", messages=5_000, rounds=2),
    Drill("unknown-outcome", "Mail servers close the connection after the final dot, or answer late.",
          "final_dot:unknown_outcome", messages=600),
    Drill("valkey-hung", "Valkey hangs for half a minute.", "stalls:run", rounds=1),
    Drill("valkey-full", "Valkey is out of memory and evicts nothing.", "stalls:run", rounds=1),
    Drill("valkey-readonly", "Valkey becomes a read-only replica.", "stalls:run", rounds=1),
    Drill("postgres-locked", "Another session locks the table of messages for 20 seconds.", "stalls:run", rounds=1),
    Drill("postgres-crowded", "PostgreSQL has no connection left.", "stalls:run", rounds=1),
    Drill("postgres-deadlock", "Another session takes the service's locks in the opposite order.",
          "stalls:run", rounds=5),
    Drill("lost-answer", "Clients repeat sends whose answer was lost, while API workers are killed.",
          "lost_answer:run", messages_each=100),
    Drill("false-hints", "Hint streams contain duplicated and invented entries, and lack deleted ones.",
          "false_hints:run", messages=2_000),
    Drill("names", "The recipients' DNS fails in different ways.", "dns_failures:run", rounds=1),
    Drill("poison", "Messages crash or fail their process on every attempt.", "poison:run", messages=600,
          needs_full=_DIES_ALONE),
    Drill("races", "Concurrent requests compete for one resource; counts must be exact.", "races:run", rounds=100),
    Drill("soak", "Mail flows at half of the peak rate for --minutes (default 10), with a fault every few minutes.",
          "soak:run", in_all=False, needs_full=_OWN_MEMORY),
    Drill("disk-full", "The disks of the database and the logs are full for a while.",
          "disk_faults:disk_full", requires=(LINUX, ROOT, program("mount")), rounds=1),
    Drill("write-error", "The disk fails when PostgreSQL syncs its WAL.",
          "disk_faults:write_error", requires=(LINUX, ROOT, program("strace")), rounds=1),
    Drill("clock", "The clock of the hosts jumps: two hours ahead, an hour back, over midnight, over the end of the"
          " month.", "moved_clock:run", requires=(LINUX, program("cc", "gcc")), rounds=1),
    Drill("redis-failover", "A Redis replica that lags behind replaces its dead primary.",
          "stores:redis_failover", rounds=2),
    Drill("redis-sentinel", "Redis Sentinel replaces a primary that is killed, that freezes, that an operator retires.",
          "stores:redis_sentinel", rounds=3),
    Drill("redis-cluster", "Primaries of a Redis Cluster are killed and restarted, slots move, a replica is elected.",
          "stores:redis_cluster", rounds=3),
    Drill("postgres-failover", "A PostgreSQL primary is killed, its replica is promoted, and the old primary restarts.",
          "stores:postgres_failover", rounds=2),
    Drill("patroni", "PostgreSQL under Patroni: a switchover, crashed, lost, frozen and forked primaries, etcd away.",
          "patroni:run", requires=(LINUX, PATRONI, program("etcd", "etcd-server")), rounds=7, in_all=False,
          options=("postgres",)),
    Drill("tails", "Live tails follow an account's log while API workers are killed; every event is counted.",
          "tails:run", messages=5_000, needs_full="it needs several API workers"),
    Drill("rolling", "Every process is replaced repeatedly while mail flows over HTTP and SMTP.",
          "rolling:run", rounds=20),
    Drill("scale", "The number of mta processes changes while thousands of messages wait and a domain is split.",
          "scale:run", messages=10_000, rounds=2, needs_full=_SEVERAL_MTAS),  # `scale.MESSAGES`
    Drill("hosts", "mta hosts and api hosts lose their network and get it back.",
          "hosts:run", requires=(LINUX, ROOT, program("ip", "iproute2")), rounds=2, in_all=False,
          needs_full="its hosts run different parts"),
    Drill("cells", "An account moves between three cells behind two fronts; the mover is killed after each of its"
          " steps, then each front and a cell.", "cells:run", messages=400, rounds=2, in_all=False),
    Drill("bystander", "One site of ten misbehaves, and the delivery times of the other nine are compared.",
          "bystander:run"),
    Drill("fairness", "One account floods a slow site; the waiting times of another one there must add up and stay"
          " within its turn.", "fairness:run", messages=0),
    Drill("codes", "Codes and addresses of settled verifications are looked for in all that the service keeps and"
          " sends.", "codes:run", messages=100),
    Drill("silent-sites", "One tenant mails thousands of servers that never answer; other mail must not wait.",
          "silent_sites:run", messages=10_000, rounds=1,
          options=("kind", "stage", "accounts", "addresses"), needs_full=_OWN_MEMORY),  # one message to each domain
)  # fmt: skip


def named(name: str) -> Drill:
    """Return the drill of this name; raises KeyError."""
    return {drill.name: drill for drill in CATALOGUE}[name]


def names() -> list[str]:
    """Return the names of all drills, in the order in which `all` runs them."""
    return [drill.name for drill in CATALOGUE]
