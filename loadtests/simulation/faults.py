"""The faults of a run, all drawn from its seed: each kind is on in some seeds, so that both many and few meet."""

from typing import Final

from loadtests.simulation.database import StatementFault
from loadtests.simulation.world import START, World

FAULTS_S: Final = 6.5  # after the start, from which on nothing fails any more
_KINDS: Final = (
    "lost", "doubt", "delays", "kills", "freezes", "cuts", "stalls", "outage", "redis", "servers", "slow", "receivers",
)  # fmt: skip
_LOST: Final = 0.01  # of the statements; of those that write eight times as many
_DOUBTED: Final = ("accept", "settle", "record_posts", "COMMIT;")  # their replies are lost more often still
_DOUBT: Final = 0.2
_DELAYED: Final = 0.02
_DELAY_S: Final = (0.05, 2.5)
_FREEZE_S: Final = (1.0, 4.5)
_STALLED: Final = ("heartbeat", "settle")  # settling arrives when the lease has ended
_STALL_S: Final = (3.5, 6.0)
_CUT_S: Final = (3.0, 5.0)  # longer than a lease: meanwhile another process takes over


class Faults:
    """The faults of a run, drawn from its seed."""

    def __init__(self, world: World) -> None:
        self._world = world
        rng = self._rng = world.rng("faults")
        self.on = {kind for kind in _KINDS if rng.random() < 0.55}
        self.ends_at = START + FAULTS_S
        self._cut = self._drawn_cut()
        self._stall = self._drawn_stall()
        world.note("faults", ", ".join(sorted(self.on)) or "none")

    @property
    def over(self) -> bool:
        """Return True once nothing fails any more."""
        return self._world.now >= self.ends_at

    def statement(self, process: str, label: str, writes: bool) -> tuple[float, float, StatementFault | None]:  # noqa: FBT001
        """Return the delays before and after a statement, and its fault."""
        rng = self._rng
        if self.over or not process:
            return 0.0, 0.0, None
        if self.is_cut(process):
            return 0.0, 0.0, StatementFault.LOST_BEFORE
        if "doubt" in self.on and label in _DOUBTED and rng.random() < _DOUBT:
            return 0.0, 0.0, StatementFault.LOST_AFTER
        before_s = after_s = 0.0
        name, begins, ends = self._stall
        if process == name and label in _STALLED and begins <= self._world.now < ends:
            left_s = ends - self._world.now
            return left_s if label == "heartbeat" else rng.uniform(0.0, left_s), 0.0, None
        if "delays" in self.on and rng.random() < _DELAYED:
            before_s = rng.uniform(*_DELAY_S)
        if "delays" in self.on and rng.random() < _DELAYED:
            after_s = rng.uniform(*_DELAY_S)
        if "lost" in self.on and rng.random() < _LOST * (8 if writes else 1):
            return before_s, after_s, rng.choice((StatementFault.LOST_BEFORE, StatementFault.LOST_AFTER))
        return before_s, after_s, None

    def is_cut(self, process: str) -> bool:
        """Return True while a process does not reach PostgreSQL."""
        name, begins, ends = self._cut
        return process == name and begins <= self._world.now < ends

    def kill_at_turn(self, name: str) -> int:
        """Return the turn at which a new incarnation of a process is killed; 0: never."""
        if self.over or "kills" not in self.on or self._rng.random() < 0.35:
            return 0
        most = 400 if name.startswith("api") else 3_000 if name.startswith("mta") else 1_200
        return self._rng.randrange(1, most)

    def restart_after_s(self) -> float:
        """Return how long a killed process stays away; sometimes for longer than its lease."""
        return self._rng.choice((0.05, 0.3, 1.0, 3.5)) * self._rng.uniform(0.5, 1.5)

    def outages(self) -> list[tuple[float, float]]:
        """Return the times at which PostgreSQL goes down, and for how long."""
        return self._times("outage", 1, (0.1, 3.0))

    def redis_restarts(self) -> list[tuple[float, float]]:
        """Return the times at which Redis goes down, and for how long."""
        return self._times("redis", 2, (0.05, 2.0))

    def freezes(self) -> list[tuple[float, float, str]]:
        """Return the times at which a process stops, for how long, and which."""
        names = ("mta-1", "mta-2", "mta-1", "mta-2", "worker-1", "api-1")
        return [(at, seconds, self._rng.choice(names)) for at, seconds in self._times("freezes", 3, _FREEZE_S)]

    def _drawn_cut(self) -> tuple[str, float, float]:
        rng = self._rng
        begins = START + rng.uniform(0.8, 2.5)
        name = rng.choice(("mta-1", "mta-2", "mta-1", "mta-2", "api-1", "worker-1")) if "cuts" in self.on else ""
        return name, begins, min(begins + rng.uniform(*_CUT_S), self.ends_at)

    def _drawn_stall(self) -> tuple[str, float, float]:
        """Draw an mta process whose lease is not renewed for a time, while it delivers, and settles late."""
        rng = self._rng
        begins = START + rng.uniform(0.5, 2.0)
        name = rng.choice(("mta-1", "mta-2")) if "stalls" in self.on else ""
        return name, begins, begins + rng.uniform(*_STALL_S)

    def _times(self, kind: str, most: int, lasts_s: tuple[float, float]) -> list[tuple[float, float]]:
        rng = self._rng
        count = rng.randint(1, most) if kind in self.on else 0
        return [(START + rng.uniform(0.3, FAULTS_S - 0.5), rng.uniform(*lasts_s)) for _ in range(count)]
