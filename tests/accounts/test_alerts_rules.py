"""The state machine of alert rules against a slow model, and the limits of their fields. No I/O."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from engine.accounts.alerts import mail, rules
from engine.accounts.alerts.types import TERMS, AlertEvent, AlertKind, FiringState, UnknownReason
from engine.base import ids
from engine.base.errors import ErrorType, Refusal

START = datetime(2026, 11, 22, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Told(NamedTuple):
    """List the places in a row of measurements at which alerts begin, are told, and end."""

    begins: list[int]
    notices: list[int]
    ends: list[int]


def slowly(values: list[tuple[float | None, float]], cooldown: int) -> Told:
    """Look at the whole history anew for each measurement: (value, threshold) each minute, None for unknown."""
    told = Told([], [], [])
    for now, (value, threshold) in enumerate(values):
        if value is None:
            continue
        firing = len(told.begins) > len(told.ends)
        if value >= threshold:
            if not firing:
                told.begins.append(now)
            quiet = not told.notices or now >= told.notices[-1] + cooldown
            was_told = any(one >= told.begins[-1] for one in told.notices)
            if quiet and not was_told:
                told.notices.append(now)
        elif firing:
            known = [v < t for v, t in values[told.begins[-1] : now + 1] if v is not None]
            if len(known) >= 2 and known[-2:] == [True, True]:
                told.ends.append(now)
    return told


def stepwise(values: list[tuple[float | None, float]], cooldown: int) -> Told:
    state, told = FiringState(), Told([], [], [])
    for now, (value, threshold) in enumerate(values):
        step = rules.step(state, value, threshold, cooldown * MINUTE, START + now * MINUTE)
        state = step.state
        for happens, times in zip((step.begins, step.notifies, step.ends), told, strict=True):
            if happens:
                times.append(now)
    return told


@given(
    st.lists(st.tuples(st.sampled_from([None, 0.0, 1.0, 2.0]), st.sampled_from([1.0, 2.0])), max_size=40),
    st.integers(5, 12),
)
def test_the_state_machine_tells_what_a_look_at_the_whole_history_tells(
    values: list[tuple[float | None, float]], cooldown: int
) -> None:
    assert stepwise(values, cooldown) == slowly(values, cooldown)


def history(text: str, cooldown: int) -> Told:
    """`+` reaches the threshold, `-` does not, `?` is unknown."""
    shown: dict[str, float | None] = {"+": 1.0, "-": 0.0, "?": None}
    return stepwise([(shown[one], 1.0) for one in text], cooldown)


@pytest.mark.parametrize(
    ("text", "cooldown", "expected"),
    [
        ("-+++", 5, Told([1], [1], [])),
        ("+-+-+-", 5, Told([0], [0], [])),  # one below does not end it
        ("+--", 5, Told([0], [0], [2])),
        ("+-?-", 5, Told([0], [0], [3])),  # unknown between two below
        ("?+??????", 5, Told([1], [1], [])),  # unknown neither fires nor ends
        ("+--+--", 9, Told([0, 3], [0], [2, 5])),  # ended within the cooldown: never told
        ("+--+++++++++++", 9, Told([0, 3], [0, 9], [2])),  # still firing at its end: told then, once
        ("+--++++++-++", 9, Told([0, 3], [0, 10], [2])),  # not with a measurement below
    ],
)
def test_a_firing_is_told_once_and_waits_for_the_cooldown(text: str, cooldown: int, expected: Told) -> None:
    assert history(text, cooldown) == expected


@pytest.mark.parametrize("kind", AlertKind)
def test_thresholds_reach_from_above_0_to_the_largest(kind: AlertKind) -> None:
    most = TERMS[kind].maximum
    fields = rules.defaults(kind)
    rules.check(kind, fields)
    rules.check(kind, structs.replace(fields, threshold=most))
    for wrong in (0.0, -1.0, most * 1.01, float("inf"), float("nan")):
        with pytest.raises(Refusal) as found:
            rules.check(kind, structs.replace(fields, threshold=wrong))
        rate = kind in {AlertKind.BOUNCE_RATE, AlertKind.COMPLAINT_RATE} and 0 < wrong < 1
        assert found.value.kind is (ErrorType.THRESHOLD_REFUSED if rate else ErrorType.INVALID_REQUEST)


@pytest.mark.parametrize(
    ("field", "values"),
    [("window_days", (0, 31)), ("cooldown_minutes", (4, 43_201))],
)
def test_windows_and_cooldowns_have_bounds(field: str, values: tuple[int, int]) -> None:
    low, high = values
    good = rules.defaults(AlertKind.BOUNCE_RATE)
    for value in (low + 1, high - 1):
        rules.check(AlertKind.BOUNCE_RATE, structs.replace(good, **{field: value}))
    for value in values:
        with pytest.raises(Refusal):
            rules.check(AlertKind.BOUNCE_RATE, structs.replace(good, **{field: value}))


def test_a_rate_needs_50_settled_recipients() -> None:
    assert rules.rate(AlertKind.BOUNCE_RATE, 49, 49, 0).why is UnknownReason.FEW_SETTLED
    assert rules.rate(AlertKind.BOUNCE_RATE, 50, 5, 1).value == 0.1
    assert rules.rate(AlertKind.COMPLAINT_RATE, 50, 5, 1).value == 0.02


@pytest.mark.parametrize(
    ("drifted", "unanswered", "threshold", "value"),
    [(0, 0, 1, 0), (1, 0, 1, 1), (0, 1, 1, None), (1, 5, 1, 1), (1, 1, 2, None), (1, 1, 3, 1)],
)
def test_records_without_an_answer_make_drift_unknown_only_if_they_decide(
    drifted: int, unanswered: int, threshold: float, value: float | None
) -> None:
    assert rules.drift(drifted, unanswered, threshold).value == value


@pytest.mark.parametrize(
    ("kind", "value", "detail", "words"),
    [
        (AlertKind.BOUNCE_RATE, 0.1, '{"settled":100,"bounced":10}', "10 of 100 recipients"),
        (AlertKind.COMPLAINT_RATE, 0.02, '{"settled":50,"complained":1}', "1 of 50"),
        (AlertKind.QUOTA_USAGE, 0.8, '{"sent":80,"limit":100,"month":"2026-11"}', "80 of the 100 emails"),
        (AlertKind.DNS_DRIFT, 1.0, '{"domains":[]}', "no longer are"),
        (AlertKind.BLOCKLIST, 2.0, '{"listings":[]}', "Blocklists name"),
    ],
)
def test_the_mail_says_what_crossed_since_when_and_what_to_look_at(
    kind: AlertKind, value: float, detail: str, words: str
) -> None:
    event = AlertEvent(ids.uuid7(), ids.uuid7(), ids.uuid7(), kind, value, value, 1, [], detail, START, None)
    values = mail.values_of(event, "Shop", test=False)

    assert words in values["what"]
    assert values["since"] == "22 November 2026, 12:00 UTC"
    assert values["advice"]
    assert mail.values_of(event, "Shop", test=True)["summary"].startswith("[Test] ")
