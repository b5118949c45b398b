"""The moments of a delivery, of which its spans are made."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import astuple

from mta.outbound.spans import DeliveryMoments

AT = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("told", "ordered"),
    [
        ((0, 1, 2, 3, 4), (0, 1, 2, 3, 4)),
        ((10, 5, 6, 12, 14), (10, 10, 10, 12, 14)),
        ((0, 9, 3, 4, 5), (0, 5, 5, 5, 5)),
        ((7, 1, 2, 3, 5), (5, 5, 5, 5, 5)),
    ],
)
def test_no_moment_is_before_an_earlier_one(told: tuple[int, ...], ordered: tuple[int, ...]) -> None:
    found = DeliveryMoments.in_order(*[AT + timedelta(milliseconds=one) for one in told])

    assert [(one - AT) // timedelta(milliseconds=1) for one in astuple(found)] == list(ordered)
