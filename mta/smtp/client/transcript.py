"""What a conversation looked like, step by step, as small dicts for the waybill; bounded, no content.

Steps are kept as tuples while mail flows and turned into dicts only when somebody asks.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from engine.mail.replies import Break, Phase, Reply

# The waybill shows a conversation in at most 4 KB of JSON; the rest is room for the caller's own keys.
LIMIT: Final = 3_550
_OPENING_TEXT: Final = 160  # octets of greeting, EHLO and STARTTLS replies
_OPENING_LIMIT: Final = 1_600
_STEP_TEXT: Final = 300
_STEP_FRAME: Final = 64  # octets of a step around its text: keys, quotes, phase, milliseconds
_ADDRESS: Final = 100
_OMITTED: Final = 40
_FEW: Final = 5  # steps: MAIL, RCPT, DATA, the dot, and one to spare; 5 x (300 + 64) fit beside any opening

Json = dict[str, Any]


class TlsDetails(Struct, frozen=True):
    """What a handshake agreed on; `certificate` is a verdict such as `unverified: self-signed`."""

    version: str
    cipher: str
    certificate: str
    resumed: bool = False  # a session of before was taken up

    @property
    def shown(self) -> Json:
        """For the waybill."""
        shown: Json = {"version": self.version, "cipher": self.cipher, "certificate": self.certificate}
        return shown | {"resumed": True} if self.resumed else shown


class TranscriptStep(Struct, frozen=True, gc=False):
    """One step: what came back, after how many seconds, and for RCPT the recipient's place."""

    phase: Phase
    outcome: Reply | Break
    seconds: float
    recipient: int | None = None


def opening(steps: Sequence[TranscriptStep | Json]) -> tuple[Json, ...]:
    """Steps of the session itself (ready dicts pass as they are), within their share of the bound."""
    return weighed(steps)[0]


def weighed(steps: Sequence[TranscriptStep | Json]) -> tuple[tuple[Json, ...], int]:
    """`opening`, and the octets that it takes (`weight_of`): reckoned once a session."""
    shown: list[Json] = []
    size = 0
    for one in steps:
        step = one if isinstance(one, dict) else _shown(one, _OPENING_TEXT)
        weight = weight_of((step,))
        if size + weight > _OPENING_LIMIT:
            break
        size += weight
        shown.append(step)
    return tuple(shown), size


def weight_of(opened: Sequence[Json]) -> int:
    """Octets that opening steps take in the JSON of a conversation; the same for all mail of a session."""
    return sum(len(json.dumps(step)) + 2 for step in opened)


def conversation(
    opened: Sequence[Json],
    steps: Sequence[TranscriptStep],
    recipients: Sequence[str],
    *,
    only: int | None = None,
    opened_octets: int | None = None,
) -> list[Json]:
    """The whole conversation, at most `LIMIT` octets of JSON; `only` leaves the RCPT of one recipient.

    `opened_octets` is `weight_of(opened)` where the caller knows it.

    When there are too many recipients to show, the first ones stand and `{"step": "rcpt", "omitted": n}`
    counts the rest.
    """
    kept = [step for step in steps if only is None or step.recipient is None or step.recipient == only]
    room = LIMIT - (weight_of(opened) if opened_octets is None else opened_octets) - _OMITTED
    named = len(recipients) > 1
    each = room // max(1, len(kept))
    text_room = min(_STEP_TEXT, max(_STEP_TEXT // 4, each - _STEP_FRAME - (_ADDRESS if named else 0)))
    if not named and len(kept) <= _FEW:  # the usual mail: every step fits, whatever its text
        return [*opened, *[_shown(step, text_room) for step in kept]]
    shown: list[Json] = []
    omitted = 0
    # Everything but RCPT is at most four steps: they are paid for first.
    room -= sum(_price(step, text_room, named=False) for step in kept if step.recipient is None)
    for step in kept:
        if step.recipient is None:
            shown.append(_shown(step, text_room))
            continue
        room -= _price(step, text_room, named=named)
        if room < 0:
            omitted += 1
        else:
            to = recipients[step.recipient] if named else None
            shown.append(_shown(step, text_room, to))
    if omitted:
        shown.insert(_after_rcpt(shown), {"step": Phase.RCPT.value, "omitted": omitted})
    return [*opened, *shown]


def outcome_text(outcome: Reply | Break) -> str:
    """A reply as the server wrote it, or how the conversation broke."""
    if isinstance(outcome, Reply):
        return f"{outcome.code} {outcome.text}" if outcome.text else str(outcome.code)
    return f"{outcome.kind.value}: {outcome.detail}"


def _shown(step: TranscriptStep, text_room: int, to: str | None = None) -> Json:
    shown: Json = {"step": step.phase.value}
    if to is not None:
        shown["to"] = _cut(to, _ADDRESS - 10)
    key = "reply" if isinstance(step.outcome, Reply) else "break"
    shown[key] = _cut(outcome_text(step.outcome), text_room)
    shown["ms"] = round(step.seconds * 1_000, 1)
    return shown


def _price(step: TranscriptStep, text_room: int, *, named: bool) -> int:
    """The most octets the step can take."""
    return min(text_room, _weight(outcome_text(step.outcome))) + _STEP_FRAME + (_ADDRESS if named else 0)


def _after_rcpt(shown: Sequence[Json]) -> int:
    places = [index for index, step in enumerate(shown) if step["step"] in (Phase.MAIL, Phase.RCPT)]
    return places[-1] + 1 if places else 0


def _weight(text: str) -> int:
    """Octets of `text` in JSON, by the most wasteful encoder: non-ASCII as \\uXXXX."""
    if text.isascii() and '"' not in text and "\\" not in text:
        return len(text)
    return len(json.dumps(text)) - 2


def _cut(text: str, room: int) -> str:
    """`text`, shortened with `...` until it weighs at most `room`."""
    weight = _weight(text)
    if weight <= room:
        return text
    while weight > room - 3:
        text = text[: max(0, min(len(text) - 1, len(text) * (room - 3) // weight))]
        weight = _weight(text)
    return text + "..."
