"""Transcripts of SMTP conversations for the waybill: one small dict per step, limited in size, no content.

Steps are kept as structs and become dicts only when a transcript is read.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from engine.mail.replies import Break, Phase, Reply

# A waybill event holds at most 4 KB of JSON per conversation; the rest is for the caller's own keys.
MAX_OCTETS: Final = 3_550
_OPENING_TEXT: Final = 160  # octets of greeting, EHLO and STARTTLS replies
_OPENING_MAX_OCTETS: Final = 1_600
_STEP_TEXT: Final = 300
_STEP_OVERHEAD: Final = 64  # octets of a step around its text: keys, quotes, phase, milliseconds
_ADDRESS: Final = 100
_OMITTED: Final = 40
_USUAL_STEPS: Final = 5  # steps: MAIL, RCPT, DATA, the dot, and one to spare; 5 x (300 + 64) fit beside any opening

Json = dict[str, Any]


class TlsDetails(Struct, frozen=True):
    """The result of a TLS handshake; `certificate` is a verdict such as `unverified: self-signed`."""

    version: str
    cipher: str
    certificate: str
    resumed: bool = False  # an earlier session was resumed

    @property
    def shown(self) -> Json:
        """Return the details as JSON for the waybill."""
        shown: Json = {"version": self.version, "cipher": self.cipher, "certificate": self.certificate}
        return shown | {"resumed": True} if self.resumed else shown


class TranscriptStep(Struct, frozen=True, gc=False):
    """A step: the reply or break, the seconds until it came, and for RCPT the index of the recipient."""

    phase: Phase
    outcome: Reply | Break
    seconds: float
    recipient: int | None = None


def opening(steps: Sequence[TranscriptStep | Json]) -> tuple[Json, ...]:
    """Return the steps that opened the session as dicts, within their share of the size limit."""
    return opening_with_size(steps)[0]


def opening_with_size(steps: Sequence[TranscriptStep | Json]) -> tuple[tuple[Json, ...], int]:
    """Return `opening` and its size (`json_octets`); computed once per session."""
    shown: list[Json] = []
    size = 0
    for step in steps:
        as_json = step if isinstance(step, dict) else _step_json(step, _OPENING_TEXT)
        octets = json_octets((as_json,))
        if size + octets > _OPENING_MAX_OCTETS:
            break
        size += octets
        shown.append(as_json)
    return tuple(shown), size


def json_octets(opened: Sequence[Json]) -> int:
    """Return the octets of the opening steps in the JSON of a conversation."""
    return sum(len(json.dumps(step)) + 2 for step in opened)


def conversation(
    opened: Sequence[Json],
    steps: Sequence[TranscriptStep],
    recipients: Sequence[str],
    *,
    opened_octets: int | None = None,
) -> list[Json]:
    """Return the conversation as dicts, at most `MAX_OCTETS` octets of JSON.

    `opened_octets` is `json_octets(opened)` if the caller knows it. If there are too many recipients, the first ones
    are shown and `{"step": "rcpt", "omitted": n}` counts the rest.
    """
    octets_left = MAX_OCTETS - (json_octets(opened) if opened_octets is None else opened_octets) - _OMITTED
    with_address = len(recipients) > 1
    octets_per_step = octets_left // max(1, len(steps))
    text_octets = min(
        _STEP_TEXT, max(_STEP_TEXT // 4, octets_per_step - _STEP_OVERHEAD - (_ADDRESS if with_address else 0))
    )
    if not with_address and len(steps) <= _USUAL_STEPS:  # the usual message: all steps fit with texts of any length
        return [*opened, *[_step_json(step, text_octets) for step in steps]]
    shown: list[Json] = []
    omitted = 0
    # Reserve octets for the steps other than RCPT first; there are at most four.
    octets_left -= sum(
        _max_step_octets(step, text_octets, with_address=False) for step in steps if step.recipient is None
    )
    for step in steps:
        if step.recipient is None:
            shown.append(_step_json(step, text_octets))
            continue
        octets_left -= _max_step_octets(step, text_octets, with_address=with_address)
        if octets_left < 0:
            omitted += 1
        else:
            to = recipients[step.recipient] if with_address else None
            shown.append(_step_json(step, text_octets, to))
    if omitted:
        shown.insert(_after_rcpt(shown), {"step": Phase.RCPT.value, "omitted": omitted})
    return [*opened, *shown]


def outcome_text(outcome: Reply | Break) -> str:
    """Return a reply as the server sent it, or how the connection broke."""
    if isinstance(outcome, Reply):
        return f"{outcome.code} {outcome.text}" if outcome.text else str(outcome.code)
    return f"{outcome.kind.value}: {outcome.detail}"


def _step_json(step: TranscriptStep, text_octets: int, to: str | None = None) -> Json:
    shown: Json = {"step": step.phase.value}
    if to is not None:
        shown["to"] = _truncate(to, _ADDRESS - 10)
    key = "reply" if isinstance(step.outcome, Reply) else "break"
    shown[key] = _truncate(outcome_text(step.outcome), text_octets)
    shown["ms"] = round(step.seconds * 1_000, 1)
    return shown


def _max_step_octets(step: TranscriptStep, text_octets: int, *, with_address: bool) -> int:
    """Return the largest size of the step in octets."""
    return (
        min(text_octets, _text_octets(outcome_text(step.outcome))) + _STEP_OVERHEAD + (_ADDRESS if with_address else 0)
    )


def _after_rcpt(shown: Sequence[Json]) -> int:
    places = [index for index, step in enumerate(shown) if step["step"] in (Phase.MAIL, Phase.RCPT)]
    return places[-1] + 1 if places else 0


def _text_octets(text: str) -> int:
    """Return the octets of `text` in JSON with non-ASCII characters as \\uXXXX, the longest encoding."""
    if text.isascii() and '"' not in text and "\\" not in text:
        return len(text)
    return len(json.dumps(text)) - 2


def _truncate(text: str, octets_left: int) -> str:
    """Return `text` in at most `octets_left` octets of JSON, shortened with `...` if necessary."""
    octets = _text_octets(text)
    if octets <= octets_left:
        return text
    while octets > octets_left - 3:
        text = text[: max(0, min(len(text) - 1, len(text) * (octets_left - 3) // octets))]
        octets = _text_octets(text)
    return text + "..."
