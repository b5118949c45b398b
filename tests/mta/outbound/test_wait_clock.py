"""The clock of a site's waiting times against a reference that adds up every interval for every account."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from mta.outbound.wait_clock import AccountShare, FirstOpening, SiteWait, WaitClock, WaitMark

ACCOUNTS = [UUID(int=number) for number in range(1, 5)]


class Step(Struct, frozen=True):
    """A change after some time: of `kind`, for an account where that matters."""

    after_s: float
    kind: str
    account: UUID


STEPS = st.lists(
    st.builds(
        Step,
        st.floats(0, 1e4),
        st.sampled_from(["wait", "leave", "begin", "end", "hire", "dismiss", "open", "opened", "pace", "paced"]),
        st.sampled_from(ACCOUNTS),
    ),
    max_size=60,
)


class Reference:
    """A model of a site: its state, and the waits that each waiting delivery adds up for itself in every interval."""

    def __init__(self) -> None:
        self.transactions: Counter[UUID] = Counter()
        self.workers = self.opening = self.pacing = 0
        self.waiting: list[tuple[UUID, WaitMark, dict[str, float]]] = []

    def passes(self, seconds: float) -> None:
        """Add an interval without changes to all that wait."""
        present = {account for account, _, _ in self.waiting} | set(+self.transactions)
        busy = self.transactions.total()
        for account, _, waits in self.waiting:
            waits["fair"] += seconds / len(present)
            if self.pacing:
                waits["limited"] += seconds
            elif busy:
                waits["own"] += seconds * self.transactions[account] / busy
                waits["others"] += seconds * (busy - self.transactions[account]) / busy
            elif self.opening:
                waits["opening"] += seconds
            else:
                waits["free" if self.workers else "limited"] += seconds


@given(STEPS)
def test_waits_are_those_of_a_sum_over_every_interval(steps: list[Step]) -> None:
    """The growth of a few sums equals what each delivery would add up for itself, and sums to the time that passed."""
    now = 0.0
    tested, reference, opening = WaitClock(now), Reference(), FirstOpening()
    shares: list[tuple[UUID, AccountShare]] = []
    began: dict[int, float] = {}
    for step in steps:
        now += step.after_s
        reference.passes(step.after_s)
        match step.kind:
            case "wait":
                mark = tested.mark(step.account, opening, now)
                reference.waiting.append((step.account, mark, dict.fromkeys(SiteWait.__struct_fields__, 0.0)))
                began[id(mark)] = now
            case "leave" if reference.waiting:
                account, mark, waits = reference.waiting.pop(0)
                compare(mark.passed(now), waits, now - began[id(mark)])
                del mark
            case "begin":
                shares.append((step.account, tested.begin(step.account, now)))
                reference.transactions[step.account] += 1
            case "end" if shares:
                account, share = shares.pop(0)
                tested.end(share, now)
                del share
                reference.transactions[account] -= 1
            case "hire":
                tested.change(now, workers=1)
                reference.workers += 1
            case "dismiss" if reference.workers:
                tested.change(now, workers=-1)
                reference.workers -= 1
            case "open":
                tested.change(now, opening=1)
                reference.opening += 1
            case "opened" if reference.opening:
                tested.change(now, opening=-1)
                reference.opening -= 1
            case "pace":
                tested.change(now, pacing=1)
                reference.pacing += 1
            case "paced" if reference.pacing:
                tested.change(now, pacing=-1)
                reference.pacing -= 1
    for _, mark, waits in reference.waiting:
        compare(mark.passed(now), waits, now - began[id(mark)])


def compare(found: SiteWait, expected: dict[str, float], passed: float) -> None:
    assert found.seconds == pytest.approx(passed, abs=1e-6)
    for name, seconds in expected.items():
        assert getattr(found, name) == pytest.approx(seconds, abs=1e-6), name


def test_the_first_connection_of_a_site_counts_as_opening_while_others_of_the_group_are_busy() -> None:
    tested, opening, other = WaitClock(0.0), FirstOpening(), ACCOUNTS[1]
    tested.change(0.0, workers=1)
    busy = tested.begin(other, 0.0)
    mark = tested.mark(ACCOUNTS[0], opening, 0.0)
    opening.goes_on(1.0, opening=True)
    opening.goes_on(3.0, opening=False)
    tested.end(busy, 4.0)
    assert mark.passed(4.0) == SiteWait(0.0, 0.0, 2.0, 2.0, 0.0, 2.0)


def test_an_account_is_forgotten_with_its_last_delivery() -> None:
    tested = WaitClock(0.0)
    mark = tested.mark(ACCOUNTS[0], FirstOpening(), 0.0)
    other = tested.mark(ACCOUNTS[1], FirstOpening(), 0.0)
    assert other.passed(1.0).fair == pytest.approx(0.5)
    del mark
    assert other.passed(2.0).fair == pytest.approx(1.5)
