"""The reader of the sink's folder: order, positions, and what a crash or a rewrite leaves."""

import random
from pathlib import Path

import msgspec
import pytest

from engine.store import sink_folder
from engine.store.sink_folder import INDEX, SinkEntry

RUN = 0x19AB


def entry(run: int, number: int, **fields: object) -> SinkEntry:
    told = {
        "id": f"{run:x}-{number}", "at": f"2026-11-23T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}.000Z",
        "sender": f"b+{number}@b.test", "recipients": ("ann@people.test",), "helo": "h", "tls": None, "size": 1,
        "test_id": None, "file": None,
    }  # fmt: skip
    return SinkEntry(**(told | fields))  # type: ignore[arg-type]


def write(folder: Path, entries: list[SinkEntry]) -> None:
    (folder / INDEX).write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in entries))


@pytest.fixture
def entries(tmp_path: Path) -> list[SinkEntry]:
    """Entries of two runs of a sink, with lines of very different lengths, in the folder."""
    chance = random.Random(7)
    made = [
        entry(RUN + number // 300, number, helo="h" * chance.choice([1, 40, 3_000, 70_000 if number % 90 == 0 else 9]))
        for number in range(1, 600)
    ]
    write(tmp_path, made)
    return made


def test_entries_come_newest_first_from_any_position(tmp_path: Path, entries: list[SinkEntry]) -> None:
    assert sink_folder.newest_before(tmp_path, None, 10_000) == entries[::-1]
    for place in (0, 1, 2, 299, 300, 301, len(entries) - 1):
        position = sink_folder.position_of(entries[place].id)
        assert sink_folder.newest_before(tmp_path, position, 25) == entries[max(0, place - 25) : place][::-1]


def test_every_entry_is_found_by_its_id_and_no_other(tmp_path: Path, entries: list[SinkEntry]) -> None:
    for one in entries:
        assert sink_folder.find(tmp_path, sink_folder.position_of(one.id) or (0, 0)) == one
    for absent in ((RUN - 1, 5), (RUN, 0), (RUN, 10_000), (RUN + 9, 1)):
        assert sink_folder.find(tmp_path, absent) is None


def test_a_text_is_searched_from_a_time_on(tmp_path: Path, entries: list[SinkEntry]) -> None:
    text = b'"from":"b+1'
    wanted = [one for one in entries if one.sender.startswith("b+1")]

    assert sink_folder.with_text(tmp_path, text, since="2026", most=1_000) == wanted
    assert sink_folder.with_text(tmp_path, text, since=entries[120].at, most=1_000) == [
        one for one in wanted if one.at >= entries[120].at
    ]
    assert sink_folder.with_text(tmp_path, text, since="2026", most=3) == wanted[:3]
    assert sink_folder.with_text(tmp_path, text, since="2027", most=3) == []


def test_lines_cut_off_by_a_crash_are_skipped(tmp_path: Path) -> None:
    good = [entry(RUN, number) for number in (1, 2, 3)]
    lines = [msgspec.json.encode(one) for one in good]
    (tmp_path / INDEX).write_bytes(
        lines[0] + b"\n" + b'{"id": "19a\n\n' + lines[1] + b"\n" + lines[2] + b"\n" + b'{"id"'
    )

    assert sink_folder.newest_before(tmp_path, None, 10) == good[::-1]
    assert [sink_folder.find(tmp_path, (RUN, number)) for number in (1, 2, 3)] == good


def test_a_sink_that_never_ran_has_no_mail(tmp_path: Path) -> None:
    assert sink_folder.newest_before(tmp_path, None, 10) == []
    assert sink_folder.find(tmp_path, (1, 1)) is None
    assert sink_folder.with_text(tmp_path, b"x", since="", most=1) == []


@pytest.mark.parametrize(
    "file",
    ["../secret", "messages/../../secret", "/etc/passwd", "messages/0a/1-1.eml/../../../x", "messages/zz/1-1.eml"],
)
def test_no_file_outside_of_the_folder_is_read(tmp_path: Path, file: str) -> None:
    (tmp_path.parent / "secret").write_bytes(b"secret")

    assert sink_folder.content_of(tmp_path, entry(RUN, 1, file=file)) is None
