"""List all drills: `ops drill` takes their names, their help and the contents of `all` from here.

To add a drill, write a function that takes a DrillOrder and returns a DrillReport (`loadtests.drill.report`), and add
an entry below. A drill starts and stops its own service and prints nothing.
"""

import importlib
import random
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from loadtests.drill.report import DrillReport
from loadtests.drill.requirements import LINUX, ROOT, Requirement, program


class DrillOrder(Struct, frozen=True, kw_only=True):
    """The parameters of one run of a drill."""

    messages: int
    rounds: int  # faults during the run; each drill defines a round
    rng: random.Random
    minutes: float | None = None  # for those that go by time; None: their own default
    options: Mapping[str, str | int] = {}  # those that only some drills take, as far as they are given


class Drill(Struct, frozen=True, kw_only=True):
    """A drill. `where` names its function as `module:function`, so that listing drills does not import them."""

    name: str
    about: str  # one sentence, from a capital to a full stop
    rows: tuple[int, ...]  # of the fault catalogue
    where: str
    requires: tuple[Requirement, ...] = (LINUX,)
    messages: int = 1_000  # minimum, unless the operator gives a number
    messages_each: int = 0  # a round, where rounds make the length
    rounds: int = 5
    in_all: bool = True  # False: too long for `all`
    options: tuple[str, ...] = ()  # of `ops drill`, beside those that all drills take

    def missing(self) -> str | None:
        """Return why the drill cannot run on this machine, or None if it can."""
        return next((why for need in self.requires if (why := need.missing()) is not None), None)

    def order(
        self,
        messages: int | None,
        rounds: int | None,
        rng: random.Random,
        minutes: float | None,
        options: Mapping[str, str | int] | None = None,
    ) -> DrillOrder:
        """Return the parameters of a run: the operator's values, and this drill's defaults for None."""
        times = rounds or self.rounds
        return DrillOrder(
            messages=messages or max(self.messages, self.messages_each * times),
            rounds=times,
            rng=rng,
            minutes=minutes,
            options=options or {},
        )

    def run(self, order: DrillOrder) -> DrillReport:
        """Run the drill; raises what prevents it from running."""
        module, _, function = self.where.partition(":")
        found: Callable[[DrillOrder], DrillReport] = getattr(importlib.import_module(module), function)
        return found(order)


CATALOGUE: Final = (
    Drill(
        name="first-start",
        about="The first start of new state folders is killed at random moments; the start after it must be ready.",
        rows=(1, 2, 6, 9),
        where="loadtests.drill.first_start:run",
        messages=0,
        rounds=50,
        in_all=False,
    ),
    Drill(
        name="kill-api",
        about="API workers and the HTTP server are killed while mail is accepted.",
        rows=(1, 2),
        where="loadtests.drill.kill_drills:kill_api",
        messages_each=100,
    ),
    Drill(
        name="kill-mta",
        about="mta processes are killed while mail is delivered.",
        rows=(3, 4),
        where="loadtests.drill.kill_drills:kill_mta",
        messages_each=100,
    ),
    Drill(
        name="pause-mta",
        about="An mta process stops for twice its lease and then continues.",
        rows=(5,),
        where="loadtests.drill.kill_drills:pause_mta",
        rounds=3,
    ),
    Drill(
        name="fence",
        about="An mta process stops for twice its lease, each time with mail on the wire.",
        rows=(5,),
        where="loadtests.drill.fence:run",
        rounds=3,
    ),
    Drill(
        name="kill-worker",
        about="The background worker is killed.",
        rows=(1,),
        where="loadtests.drill.kill_drills:kill_worker",
        messages_each=100,
    ),
    Drill(
        name="alerts",
        about="The background worker is killed while alert rules cross their threshold and come back.",
        rows=(1,),
        where="loadtests.drill.alert_kills:run",
        messages=50,
    ),
    Drill(
        name="broadcast-kills",
        about="Worker, api, mta, PostgreSQL and Valkey are killed during one broadcast, which is paused and resumed.",
        rows=(1, 2, 3, 6, 9),
        where="loadtests.drill.broadcast_kills:run",
        messages_each=400,
        in_all=False,
    ),
    Drill(
        name="kill-relay",
        about="The SMTP submission process is killed while it accepts mail.",
        rows=(1, 2),
        where="loadtests.drill.kill_drills:kill_relay",
        messages_each=100,
    ),
    Drill(
        name="kill-mx",
        about="mx processes are killed while they receive mail.",
        rows=(1, 2),
        where="loadtests.drill.mx_drills:kill_mx",
        rounds=50,
    ),
    Drill(
        name="mx-postgres-away",
        about="PostgreSQL is killed or hangs while mail comes in.",
        rows=(9, 11),
        where="loadtests.drill.mx_drills:postgres_away",
        rounds=6,
    ),
    Drill(
        name="mx-scanner-hung",
        about="clamd and rspamd hang, answer garbage, close or are away while mail comes in.",
        rows=(22,),
        where="loadtests.drill.mx_scanners:run",
        rounds=1,
    ),
    Drill(
        name="mx-hostile",
        about="Hostile clients of the MX, while the times of other mail are compared.",
        rows=(19, 21),
        where="loadtests.drill.mx_hostile:run",
        rounds=1,
    ),
    Drill(
        name="mx-report-flood",
        about="Strangers send large mails to report addresses; the disk must not grow with them.",
        rows=(12, 19),
        where="loadtests.drill.mx_flood:run",
        rounds=1,
    ),
    Drill(
        name="mx-disk-full",
        about="The disks of the database and the logs are full for a while, while mail comes in.",
        rows=(12,),
        where="loadtests.drill.mx_drills:disk_full",
        requires=(LINUX, ROOT, program("mount")),
        rounds=1,
    ),
    Drill(
        name="mx-restart",
        about="mx processes are replaced while mail comes in.",
        rows=(18,),
        where="loadtests.drill.mx_drills:restart",
        rounds=10,
    ),
    Drill(
        name="kill-valkey",
        about="Valkey is emptied and killed.",
        rows=(1, 6),
        where="loadtests.drill.kill_drills:kill_valkey",
        messages_each=100,
    ),
    Drill(
        name="kill-postgres",
        about="The postmaster is killed, as in a power cut.",
        rows=(9,),
        where="loadtests.drill.kill_drills:kill_postgres",
        messages_each=100,
    ),
    Drill(
        name="kill-backend",
        about="A PostgreSQL backend of the service is killed, which ends all others too.",
        rows=(9,),
        where="loadtests.drill.kill_drills:kill_backend",
        messages_each=100,
    ),
    Drill(
        name="before-dot",
        about="mta processes are killed while a mail server still reads the content.",
        rows=(3,),
        where="loadtests.drill.final_dot:before_dot",
        rounds=3,
    ),
    Drill(
        name="held-reply",
        about="mta processes are killed between a mail server's 250 and its commit.",
        rows=(4,),
        where="loadtests.drill.final_dot:held_reply",
        messages=600,
    ),
    Drill(
        name="postgres-after-reply",
        about="PostgreSQL is killed while a mail server's 250 is on its way.",
        rows=(10,),
        where="loadtests.drill.final_dot:postgres_after_reply",
        messages=600,
    ),
    Drill(
        name="kept-outcomes",
        about="All mta processes are killed twice while PostgreSQL is away or hangs, with outcomes in memory.",
        rows=(4, 9, 10),
        where="loadtests.drill.kept_outcomes:run",
        messages=5_000,
        rounds=2,
    ),
    Drill(
        name="unknown-outcome",
        about="Mail servers close the connection after the final dot, or answer late.",
        rows=(22,),
        where="loadtests.drill.final_dot:unknown_outcome",
        messages=600,
    ),
    Drill(
        name="valkey-hung",
        about="Valkey hangs for half a minute.",
        rows=(8,),
        where="loadtests.drill.stalls:valkey_hung",
        rounds=1,
    ),
    Drill(
        name="valkey-full",
        about="Valkey is out of memory and evicts nothing.",
        rows=(8,),
        where="loadtests.drill.stalls:valkey_full",
        rounds=1,
    ),
    Drill(
        name="valkey-readonly",
        about="Valkey becomes a read-only replica.",
        rows=(8,),
        where="loadtests.drill.stalls:valkey_readonly",
        rounds=1,
    ),
    Drill(
        name="postgres-locked",
        about="Another session locks the table of messages for 20 seconds.",
        rows=(11,),
        where="loadtests.drill.stalls:postgres_locked",
        rounds=1,
    ),
    Drill(
        name="postgres-crowded",
        about="PostgreSQL has no connection left.",
        rows=(11,),
        where="loadtests.drill.stalls:postgres_crowded",
        rounds=1,
    ),
    Drill(
        name="postgres-deadlock",
        about="Another session takes the service's locks in the opposite order.",
        rows=(11,),
        where="loadtests.drill.stalls:postgres_deadlock",
        rounds=5,
    ),
    Drill(
        name="lost-answer",
        about="Clients repeat sends whose answer was lost, while API workers are killed.",
        rows=(2,),
        where="loadtests.drill.lost_answer:run",
        messages_each=100,
    ),
    Drill(
        name="false-hints",
        about="Hint streams contain duplicated and invented entries, and lack deleted ones.",
        rows=(15,),
        where="loadtests.drill.false_hints:run",
        messages=2_000,
    ),
    Drill(
        name="names",
        about="The recipients' DNS fails in different ways.",
        rows=(26,),
        where="loadtests.drill.dns_failures:run",
        rounds=1,
    ),
    Drill(
        name="poison",
        about="Messages crash or fail their process on every attempt.",
        rows=(16,),
        where="loadtests.drill.poison:run",
        messages=600,
    ),
    Drill(
        name="races",
        about="Concurrent requests compete for one resource; counts must be exact.",
        rows=(39,),
        where="loadtests.drill.races:run",
        rounds=100,
    ),
    Drill(
        name="soak",
        about="Mail flows at half of the peak rate for --minutes (default 10), with a fault every few minutes.",
        rows=(42,),
        where="loadtests.drill.soak:run",
        in_all=False,
    ),
    Drill(
        name="disk-full",
        about="The disks of the database and the logs are full for a while.",
        rows=(12,),
        where="loadtests.drill.disk_faults:disk_full",
        requires=(LINUX, ROOT, program("mount")),
        rounds=1,
    ),
    Drill(
        name="write-error",
        about="The disk fails when PostgreSQL syncs its WAL.",
        rows=(13,),
        where="loadtests.drill.disk_faults:write_error",
        requires=(LINUX, ROOT, program("strace")),
        rounds=1,
    ),
    Drill(
        name="clock",
        about="The clock of the hosts jumps: two hours ahead, an hour back, over midnight, over the end of the month.",
        rows=(14,),
        where="loadtests.drill.moved_clock:run",
        requires=(LINUX, program("cc", "gcc")),
        rounds=1,
    ),
    Drill(
        name="redis-failover",
        about="A Redis replica that lags behind replaces its dead primary.",
        rows=(7,),
        where="loadtests.drill.stores:redis_failover",
        rounds=2,
    ),
    Drill(
        name="redis-cluster",
        about="Primaries of a Redis Cluster are killed and restarted, slots move, a replica is elected.",
        rows=(7,),
        where="loadtests.drill.stores:redis_cluster",
        rounds=3,
    ),
    Drill(
        name="postgres-failover",
        about="A PostgreSQL primary is killed, its replica is promoted, and the old primary restarts.",
        rows=(9,),
        where="loadtests.drill.stores:postgres_failover",
        rounds=2,
    ),
    Drill(
        name="tails",
        about="Live tails follow an account's log while API workers are killed; every event is counted.",
        rows=(1,),
        where="loadtests.drill.tails:run",
        messages=5_000,
    ),
    Drill(
        name="rolling",
        about="Every process is replaced repeatedly while mail flows over HTTP and SMTP.",
        rows=(18,),
        where="loadtests.drill.rolling:run",
        rounds=20,
    ),
    Drill(
        name="scale",
        about="The number of mta processes changes while thousands of messages wait and a domain is split.",
        rows=(17,),
        where="loadtests.drill.scale:run",
        messages=10_000,  # MESSAGES there
        rounds=2,
    ),
    Drill(
        name="hosts",
        about="mta hosts and api hosts lose their network and get it back.",
        rows=(3, 5, 17),
        where="loadtests.drill.hosts:run",
        requires=(LINUX, ROOT, program("ip", "iproute2")),
        rounds=2,
        in_all=False,
    ),
    Drill(
        name="bystander",
        about="One site of ten misbehaves, and the delivery times of the other nine are compared.",
        rows=(19, 20, 22),
        where="loadtests.drill.bystander:run",
    ),
    Drill(
        name="codes",
        about="Codes and addresses of settled verifications are looked for in all that the service keeps and sends.",
        rows=(43,),
        where="loadtests.drill.codes:run",
        messages=100,
    ),
    Drill(
        name="silent-sites",
        about="One tenant mails thousands of servers that never answer; other mail must not wait.",
        rows=(19, 26),
        where="loadtests.drill.silent_sites:run",
        messages=10_000,  # one to each domain
        rounds=1,
        options=("kind", "stage", "accounts", "addresses"),
    ),
)


def named(name: str) -> Drill:
    """Return the drill of this name; raises KeyError."""
    return {drill.name: drill for drill in CATALOGUE}[name]


def names() -> list[str]:
    """Return the names of all drills, in the order in which `all` runs them."""
    return [drill.name for drill in CATALOGUE]
