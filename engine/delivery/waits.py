"""Divide the waiting time of a delivery into its causes. Pure.

Each attempt answers for the time since the outcome before it, the first one for the time since the message was created.
The mta process measures the causes while it holds the delivery; the time before is known from the queue row. What it
cannot measure is the difference to the whole, so that the parts always sum to the time between two events.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct

from engine.base import clock, ids
from engine.delivery.queue import Row
from engine.delivery.wait_reasons import QueuedReason


class WaitCause(StrEnum):
    """The cause of a part of the time that a delivery takes."""

    SCHEDULE = "schedule"  # until the message's own `scheduledAt`
    QUEUE = "queue"  # due, or loaded and free to go, and not taken up by the process yet
    SITE_LIMITS = "site_limits"  # a pause, a pace or the connection limit of the receiving servers
    OTHER_ACCOUNTS = "other_accounts"  # the share of the busy connections that carried mail of other accounts
    OWN_MAIL = "own_mail"  # the share of the busy connections that carried the account's own mail
    CONNECTION = "connection"  # looking up and opening: DNS, TCP, TLS, EHLO
    TRANSACTION = "transaction"  # the SMTP transaction, from MAIL to the last reply
    RETRY = "retry"  # between a deferral and the time of the next attempt


# For people: each completes "of which 0.4 s …".
WAIT_CLAUSES: Final = {
    WaitCause.SCHEDULE: "until its `scheduledAt`",
    WaitCause.QUEUE: "in the queue",
    WaitCause.SITE_LIMITS: "for limits of the receiving servers",
    WaitCause.OTHER_ACCOUNTS: "for other accounts",
    WaitCause.OWN_MAIL: "for own mail",
    WaitCause.CONNECTION: "for the connection",
    WaitCause.TRANSACTION: "for the SMTP transaction",
    WaitCause.RETRY: "until the retry",
}

_OPERATOR: Final = frozenset({QueuedReason.OPERATOR_HOLD, QueuedReason.OPERATOR_RELEASE, QueuedReason.OPERATOR_FLUSH})


class DividedWait(Struct, frozen=True):
    """The waiting time of a queue row up to `since` (Unix ms) by cause, and the causes of the time until it is due, by
    their share of it. Stored in the row as JSON."""

    since: int
    ms: dict[WaitCause, int] = {}
    then: dict[WaitCause, float] = {}


_DECODER = msgspec.json.Decoder(DividedWait)


def partition(whole_ms: int, parts_ms: Mapping[WaitCause, float], rest: WaitCause) -> dict[WaitCause, int]:
    """Return whole milliseconds that sum to `whole_ms`: each part within 1 ms, and the rest of the time for `rest`.

    Parts that exceed the whole, as clocks of two hosts may make them, are shortened in proportion. A negative whole
    counts as 0. Causes without time are left out.
    """
    whole_ms = max(0, whole_ms)
    known = sum(parts_ms.values())
    scale = 1.0 if known <= whole_ms else whole_ms / known
    found: dict[WaitCause, int] = {}
    exact, given = 0.0, 0
    for cause, part in parts_ms.items():
        exact += part * scale
        upto = min(whole_ms, round(exact))  # of the sum, so that errors do not add up
        _add(found, cause, upto - given)
        given = upto
    _add(found, rest, whole_ms - given)
    return found


def divided(row: Row, now_ms: int, held_ms: float, parts_ms: Mapping[WaitCause, float]) -> dict[WaitCause, int]:
    """Return the time of a row since its last outcome, or its creation, up to `now_ms` (Unix) by cause.

    The process holds it since `held_ms`, of which `parts_ms` are measured; the rest is for the queue.
    """
    past = past_of(row)
    if past.then:
        due_ms = max(past.since, min(clock.milliseconds(row.due_at), now_ms - round(held_ms)))
        parts = {cause: share * (due_ms - past.since) for cause, share in past.then.items()}
        for cause, part in parts_ms.items():
            parts[cause] = parts.get(cause, 0.0) + part
        parts_ms = parts
    found = partition(now_ms - past.since, parts_ms, WaitCause.QUEUE)
    for cause, ms in past.ms.items():
        _add(found, cause, ms)
    return found


def past_of(row: Row) -> DividedWait:
    """Return what a row says about its waiting time; a fresh row waits in the queue since its acceptance."""
    if row.waits is not None:
        past = _DECODER.decode(row.waits)
        # An operator has moved its due time since.
        return msgspec.structs.replace(past, then={}) if row.waiting in _OPERATOR else past
    if row.attempts:  # tried by a version that did not measure
        return DividedWait(clock.milliseconds(row.due_at))
    created_ms = ids.milliseconds_of(row.message_id)
    if row.released_at is None:
        return DividedWait(created_ms)
    released_ms = clock.milliseconds(row.released_at)
    return DividedWait(released_ms, partition(released_ms - created_ms, {}, WaitCause.SCHEDULE))


def stored(since: datetime, ms: Mapping[WaitCause, int], then: Mapping[WaitCause, float]) -> str:
    """Return the text that a row keeps: the time by cause up to `since`, and the causes of the time until it is due."""
    return msgspec.json.encode(DividedWait(clock.milliseconds(since), dict(ms), dict(then))).decode()


def in_words(waits: Mapping[WaitCause, int]) -> str:
    """Return a sentence: the whole time and its largest causes, as "Took 0.4 s, of which 0.3 s for the connection."."""
    whole = sum(waits.values())
    largest = sorted(waits.items(), key=lambda one: -one[1])[:2]
    named = [(cause, ms) for cause, ms in largest if ms * 20 >= whole and ms > 0]
    others = waits.get(WaitCause.OTHER_ACCOUNTS, 0)
    if others and all(cause is not WaitCause.OTHER_ACCOUNTS for cause, _ in named):
        named.append((WaitCause.OTHER_ACCOUNTS, others))
    parts = [f"{duration(ms)} {WAIT_CLAUSES[cause]}" for cause, ms in named]
    if not parts:
        return f"Took {duration(whole)}."
    return f"Took {duration(whole)}, of which {' and '.join(parts) if len(parts) < 3 else _listed(parts)}."


def duration(ms: int) -> str:
    """Return a duration for people, such as `8 ms`, `0.4 s`, `3 min` or `2.5 h`."""
    for unit, size, below in (("ms", 1, 100), ("s", 1_000, 120_000), ("min", 60_000, 7_200_000)):
        if ms < below:
            return f"{ms / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{ms / 3_600_000:.1f}".removesuffix(".0") + " h"


def _listed(parts: list[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _add(found: dict[WaitCause, int], cause: WaitCause, ms: int) -> None:
    if ms:
        found[cause] = found.get(cause, 0) + ms
