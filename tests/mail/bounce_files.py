"""The labelled bounces of `tests/data/bounces/`.

Each archive holds messages, each behind a line `%%% name | dialect | language | address=label …`. Labels of recipients:

- `dead`: the address does not exist or takes no mail any more; a permanent failure that suppresses it;
- `hard`: a permanent failure that does not (full mailbox, policy, size, content);
- `soft`: given up after temporary failures;
- `delay`: the server goes on trying.

`kind=…` instead of recipients labels what is no bounce. All texts are written for this collection in the shapes that
the servers use; all addresses are at example domains.
"""

from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parents[1] / "data" / "bounces"
_MARK = b"\n%%% "


class BounceFile(NamedTuple):
    name: str
    dialect: str
    language: str
    labels: dict[str, str]
    raw: bytes  # with LF line ends

    @property
    def crlf(self) -> bytes:
        return self.raw.replace(b"\n", b"\r\n")

    @property
    def kind(self) -> str | None:
        return self.labels.get("kind")


def read_archive(path: Path) -> list[BounceFile]:
    return [_file(one) for one in (b"\n" + path.read_bytes()).split(_MARK)[1:]]


def _file(text: bytes) -> BounceFile:
    line, _, raw = text.partition(b"\n")
    name, dialect, language, labels = (one.strip() for one in line.decode().split("|"))
    pairs = dict(one.rsplit("=", 1) for one in labels.split())
    return BounceFile(name, dialect.partition("/")[0], language, pairs, raw)


FILES = [one for path in sorted(DATA.glob("*.txt")) for one in read_archive(path)]
