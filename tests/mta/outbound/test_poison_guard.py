"""The record that a process leaves of the message it died of."""

from pathlib import Path
from uuid import UUID

import pytest

from engine.base import ids
from mta.outbound.poison_guard import PoisonGuard


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mta" / "mta-1.hand"


def messages(count: int) -> list[UUID]:
    return [ids.uuid7() for _ in range(count)]


def test_the_message_in_hand_at_the_end_is_told_once_with_its_deaths(file: Path) -> None:
    [message] = messages(1)
    for deaths in (1, 2, 3):
        PoisonGuard(file).begin(message)
        after = PoisonGuard(file)
        assert after.untold == {message}
        assert after.tell(message) == deaths
        assert after.tell(message) == 0


def test_deaths_of_the_processes_beside_count_too(file: Path) -> None:
    message, other = messages(2)
    beside = file.with_name("mta-2.hand")
    for _ in range(2):
        PoisonGuard(beside).begin(message)
    PoisonGuard(beside)
    file.with_name("mta-3.hand").write_bytes(b"cut off")
    PoisonGuard(file).begin(message)
    PoisonGuard(file).begin(other)

    box = PoisonGuard(file)

    assert (box.tell(message), box.tell(other)) == (3, 1)


def test_what_was_done_with_in_time_is_no_suspect(file: Path) -> None:
    first, second = messages(2)
    box = PoisonGuard(file)
    box.begin(first)
    box.end()
    with box.holding(second):
        pass
    assert PoisonGuard(file).untold == frozenset()


def test_bodies_on_their_way_are_marked_beside_the_one_at_work(file: Path) -> None:
    at_work, *coming = messages(9)
    box = PoisonGuard(file)
    holds = [box.holding(message) for message in coming]
    for hold in holds:
        hold.__enter__()
    box.begin(at_work)
    assert PoisonGuard(file).untold == {at_work, *coming}


def test_what_was_not_told_before_another_death_is_still_known(file: Path) -> None:
    first, second = messages(2)
    PoisonGuard(file).begin(first)
    PoisonGuard(file).begin(second)
    box = PoisonGuard(file)
    assert box.untold == {first, second}
    assert (box.tell(first), box.tell(second)) == (1, 1)


def test_the_oldest_are_forgotten_when_there_are_too_many(file: Path) -> None:
    many = messages(70)
    for message in many:
        PoisonGuard(file).begin(message)
    assert PoisonGuard(file).untold == set(many[6:])


@pytest.mark.parametrize("content", [b"", b"x" * 10, b"\xff" * 4_096, b"waybill hand v9\n" + b"\1" * 2_000])
def test_a_file_of_another_kind_is_begun_anew(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    [message] = messages(1)
    box = PoisonGuard(file)
    assert box.untold == frozenset()
    box.begin(message)
    assert PoisonGuard(file).untold == {message}


def test_without_a_place_to_write_delivery_goes_on(tmp_path: Path) -> None:
    (tmp_path / "mta").write_text("in the way")
    box = PoisonGuard(tmp_path / "mta" / "mta-1.hand")
    box.begin(ids.uuid7())
    box.end()
