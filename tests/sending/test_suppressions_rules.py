"""Suppressions: precedence and effect of reasons, and cursors."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base import clock
from engine.base.errors import Refusal
from engine.sending.suppressions import rules
from engine.sending.suppressions.service import SuppressionChange, decide
from engine.sending.suppressions.types import Reason, SuppressionRow
from tests.mail.drafts import THOROUGH


@pytest.mark.parametrize("reason", list(Reason))
@pytest.mark.parametrize("stream", ["transactional", "news"])
def test_who_unsubscribed_still_gets_what_the_transactional_stream_carries(reason: Reason, stream: str) -> None:
    assert rules.blocks(reason, stream=stream, source="api") == (
        reason is not Reason.UNSUBSCRIBE or stream != "transactional"
    )


@pytest.mark.parametrize("reason", list(Reason))
@pytest.mark.parametrize("stream", ["transactional", "news"])
def test_a_broadcast_is_blocked_on_every_stream(reason: Reason, stream: str) -> None:
    assert rules.blocks(reason, stream=stream, source="broadcast")


NOW = clock.now()
ADDRESSES = st.sampled_from(["a@x.test", "b@x.test", "é@x.test"])
REASONS = st.sampled_from(list(Reason))


def row(address: str, reason: Reason) -> SuppressionRow:
    return SuppressionRow(address, reason.value, "why", None, NOW - timedelta(days=1))


@THOROUGH
@given(st.dictionaries(ADDRESSES, REASONS), st.lists(st.tuples(ADDRESSES, REASONS)))
def test_whatever_is_asked_the_strongest_reason_stands(
    standing: dict[str, Reason], wanted: list[tuple[str, Reason]]
) -> None:
    before = {address: row(address, reason) for address, reason in standing.items()}
    outcomes = decide(before, wanted, NOW)
    after = before | {one.row.address: one.row for one in outcomes}

    assert [one.row.address for one in outcomes] == [address for address, _ in wanted]
    for address, found in after.items():
        reasons = [reason for one, reason in [*standing.items(), *wanted] if one == address]
        assert found.reason == max(reasons, key=rules.STRENGTH.index)
        assert found.created_at == (before[address].created_at if address in before else NOW)
    added = [one.row.address for one in outcomes if one.change is SuppressionChange.ADDED]
    assert len(added) == len(set(added))
    assert set(added) == set(after) - set(before)


@THOROUGH
@given(st.datetimes(min_value=NOW.replace(tzinfo=None) - timedelta(days=20_000)), st.emails())
def test_a_cursor_reads_back(at: datetime, address: str) -> None:
    one = SuppressionRow(address, "manual", None, None, at.replace(tzinfo=UTC))
    found = rules.place(rules.cursor(one))

    assert (found.at, found.text) == (one.created_at, one.address)


@THOROUGH
@given(st.text() | st.text(max_size=40).map("sup_".__add__) | st.text("ABCabc019-_=", max_size=20).map("sup_".__add__))
def test_no_cursor_raises_anything_but_a_refusal(text: str) -> None:
    try:
        rules.place(text)
    except Refusal as refusal:
        assert refusal.fields["field"] == "before"  # noqa: PT017 - the other way out is no error
