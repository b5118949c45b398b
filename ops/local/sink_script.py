"""Special replies of the sink: selected by the recipient's local part, or scripted by a test."""

from collections import OrderedDict
from enum import StrEnum
from typing import Final

from msgspec import Struct

_REMEMBERED: Final = 100_000  # recipients whose first try is remembered
_MAX_SECONDS: Final = 900.0


class SinkBehaviour(StrEnum):
    """Behaviours and the local parts that select them; see the docstring of `ops.local.sink`."""

    BOUNCE = "bounce"
    BLOCK = "block"
    FULL = "full"
    DEFER = "defer"
    BUSY = "busy"
    TARPIT = "tarpit"
    SLOW = "slow"
    DROP = "drop"
    LATE_BOUNCE = "latebounce"
    COMPLAIN = "complain"


REFUSALS: Final = {
    SinkBehaviour.BOUNCE: "550 5.1.1 no such user here",
    SinkBehaviour.BLOCK: "550 5.7.1 rejected by policy: this sender is blocked",
    SinkBehaviour.FULL: "452 4.2.2 mailbox full",
    SinkBehaviour.DEFER: "451 4.7.1 greylisted, try again later",
    SinkBehaviour.BUSY: "421 4.3.2 too busy, closing the connection",
}
_HABITS: Final = {habit.value: habit for habit in SinkBehaviour}
SLOW_S: Final = 2.0
TARPIT_S: Final = 10.0


def behaviour_of(address: str) -> SinkBehaviour | None:
    """Return the behaviour that the local part selects (`slow+3@any.test`: SLOW), or None."""
    local = address.partition("@")[0]
    return _HABITS.get(local.partition("+")[0].lower())


def seconds_of(address: str, default: float) -> float:
    """Return the number in the plus tag as seconds, at most 900 (`slow+3@any.test`: 3.0); `default` without one."""
    tag = address.partition("@")[0].partition("+")[2]
    if tag.isascii() and tag.isdigit():
        return min(float(tag), _MAX_SECONDS)
    return default


class FirstTries:
    """The addresses that have been tried, at most 100,000; the oldest are dropped."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[SinkBehaviour, str], None] = OrderedDict()

    def first(self, habit: SinkBehaviour, address: str) -> bool:
        """Record a try; return True if it is the first for this behaviour and address, tag included."""
        key = (habit, address.lower())
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return True


class ScriptedReply(Struct):
    """A scripted reply. `command` is matched as a prefix, ignoring case.

    A 2xx or 3xx reply replaces only the text of the reply; after a 4xx or 5xx reply the command is not executed, and
    421 also closes the connection. `raw` is written unchanged, and the command is not executed.
    """

    command: str
    reply: str | None = None
    delay_s: float = 0.0
    close: bool = False
    raw: bytes | None = None
    drip_s: float | None = None  # one octet of the reply per this many seconds
    times: int | None = None  # number of uses; None: unlimited


class ScriptedReplies:
    """The scripted replies of one sink; the newest match wins."""

    def __init__(self) -> None:
        self._scripts: list[ScriptedReply] = []

    def __bool__(self) -> bool:
        return bool(self._scripts)

    def add(self, script: ScriptedReply) -> None:
        """Add a scripted reply, which takes precedence over earlier ones."""
        self._scripts.insert(0, script)

    def clear(self) -> None:
        """Remove all scripted replies."""
        self._scripts.clear()

    def take(self, line: str) -> ScriptedReply | None:
        """Return the scripted reply for `line`, or None, and count its use."""
        for script in self._scripts:
            if line.upper().startswith(script.command.upper()):
                if script.times is not None:
                    script.times -= 1
                    if script.times <= 0:
                        self._scripts.remove(script)
                return script
        return None
