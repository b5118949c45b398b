"""How the sink answers out of the ordinary: by the recipient's local part, or by what a test scripted."""

from collections import OrderedDict
from enum import StrEnum
from typing import Final

from msgspec import Struct

_REMEMBERED: Final = 100_000  # recipients whose first try is kept in mind
_MAX_SECONDS: Final = 900.0


class SinkBehaviour(StrEnum):
    """The local part, before a plus tag, that draws a certain behaviour; see the docstring of `sink`."""

    BOUNCE = "bounce"
    BLOCK = "block"
    FULL = "full"
    DEFER = "defer"
    BUSY = "busy"
    TARPIT = "tarpit"
    SLOW = "slow"
    DROP = "drop"


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
    """`slow+3@any.test` draws Habit.SLOW; most addresses draw none."""
    local = address.partition("@")[0]
    return _HABITS.get(local.partition("+")[0].lower())


def seconds_of(address: str, default: float) -> float:
    """A number after the plus is seconds: `slow+3@…` 3.0; anything else is `default`."""
    tag = address.partition("@")[0].partition("+")[2]
    if tag.isascii() and tag.isdigit():
        return min(float(tag), _MAX_SECONDS)
    return default


class FirstTries:
    """Remembers which addresses have been tried; the oldest are forgotten when there are too many."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[SinkBehaviour, str], None] = OrderedDict()

    def first(self, habit: SinkBehaviour, address: str) -> bool:
        """True on the first call for this address, tag included."""
        key = (habit, address.lower())
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return True


class ScriptedReply(Struct):
    """One scripted behaviour. `command` is matched as a prefix, without regard to case.

    A reply of class 2 or 3 replaces only the words; one of class 4 or 5 is given instead of doing what was
    asked, and 421 also closes. `raw` is written as it is and nothing is done.
    """

    command: str
    reply: str | None = None
    delay_s: float = 0.0
    close: bool = False
    raw: bytes | None = None
    drip_s: float | None = None  # one octet of the reply per this many seconds
    times: int | None = None  # how often it applies; None: always


class ScriptedReplies:
    """The scripted behaviours of one sink; the newest match wins."""

    def __init__(self) -> None:
        self._scripts: list[ScriptedReply] = []

    def __bool__(self) -> bool:
        return bool(self._scripts)

    def add(self, script: ScriptedReply) -> None:
        """From now on `script` applies."""
        self._scripts.insert(0, script)

    def clear(self) -> None:
        """Back to the ordinary."""
        self._scripts.clear()

    def take(self, line: str) -> ScriptedReply | None:
        """The behaviour for `line`, counted as used."""
        for script in self._scripts:
            if line.upper().startswith(script.command.upper()):
                if script.times is not None:
                    script.times -= 1
                    if script.times <= 0:
                        self._scripts.remove(script)
                return script
        return None
