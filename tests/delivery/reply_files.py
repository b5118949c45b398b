"""The labelled replies of `tests/data/bounces*.tsv`; each file explains its labels."""

import re
from pathlib import Path
from typing import NamedTuple

from engine.delivery.outcome import Outcome, classify
from engine.mail.replies import Answer, Phase, Reply

DATA = Path(__file__).parents[1] / "data"
_LINE = re.compile(r"(\d{3})[ -](?:([245]\.\d{1,3}\.\d{1,3}) )?(.*)", re.DOTALL)


class Bounce(NamedTuple):
    label: str
    phase: Phase
    text: str
    source: str

    @property
    def outcome(self) -> Outcome:
        match = _LINE.fullmatch(self.text)
        assert match is not None, self.text
        return classify(Answer(self.phase, Reply(int(match[1]), match[3], match[2])))


def read(name: str) -> list[Bounce]:
    lines = (DATA / name).read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return [Bounce(label, Phase(phase), text, source) for label, phase, text, source in rows]
