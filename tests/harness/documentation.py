"""Commands in the documentation, found by reading it: fenced shell blocks, and inline code that calls `ops`."""

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from ops.host.process_specs import ROOT

_FENCE = re.compile(r"^```(?:sh|bash|shell|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ANY_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
_CALL = re.compile(r"(?:\bpython3? -m ops|(?:^|\$\()(?:\w+=\S+ )*(?:(?:\S*/)?waybill|ops))((?:[ \t].*)?)$", re.DOTALL)
_OPERATOR = re.compile(r"^(?:\d?[<>|;&].*|\))$")


class Command(Struct, frozen=True):
    """A command of the documentation: its place, and its text without comments."""

    file: str
    text: str
    fenced: bool

    def __str__(self) -> str:
        return f"{self.file}: {' '.join(self.text.split())}"

    @property
    def calls(self) -> list[list[str]]:
        """The words after `ops` of each call in it; alternatives (`list|show`) are spelt out."""
        found = []
        for part in re.split(r"\s(?:&&|\|\||;)\s|\n", self.text.replace("\\\n", " ")):
            call = _CALL.search(part)
            if call is not None:
                found += _variants(_words(call[1]))
        return found


def documents() -> list[Path]:
    """README, runbooks, deploy notes and whatever else of that kind there is; decisions and the changelog tell of the
    past."""
    kept = [*ROOT.glob("*.md"), *(ROOT / "ops").rglob("*.md")]
    return sorted(one for one in kept if one.name != "CHANGELOG.md" and "decisions" not in one.parts)


def commands(file: Path) -> list[Command]:
    """Every command of a document, in order; of inline code only what calls `ops`."""
    text, name = file.read_text("utf-8"), str(file.relative_to(ROOT))
    fenced = [Command(name, line, True) for block in _FENCE.findall(text) for line in _lines(block)]
    spans = [" ".join(span.replace(r"\|", "|").split()) for span in _CODE.findall(_ANY_FENCE.sub("", text))]
    inline = [Command(name, span, False) for span in spans if re.match(r"(\w+=\S+ )*(python3? -m ops|ops) ", span)]
    return [*fenced, *inline]


def _lines(block: str) -> Iterator[str]:
    """Logical lines: continued by a backslash or an open quote; comments are taken off."""
    pending = ""
    for line in block.splitlines():
        pending = f"{pending}\n{line}" if pending else line
        if pending.endswith("\\"):
            continue
        try:
            shlex.split(pending, comments=True)
        except ValueError:
            continue
        command = re.sub(r"(?:^|\s+)# .*$", "", pending).strip()
        if command:
            yield command
        pending = ""
    assert not pending, f"an open quote: {pending}"


def _words(text: str) -> list[str]:
    words = shlex.split(text.rstrip(')"') if text.count('"') % 2 else text.rstrip(")"), comments=True)
    return list(itertools.takewhile(lambda word: not _OPERATOR.match(word), words))


def _variants(words: list[str]) -> list[list[str]]:
    choices = [word.split("|") if re.fullmatch(r"[\w-]+(\|[\w-]+)+", word) else [word] for word in words]
    return [list(one) for one in itertools.product(*choices)]
