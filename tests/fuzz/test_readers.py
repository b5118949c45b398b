"""No octets from outside make a reader raise anything but its refusals, or take long.

The inputs are the same in every run. `python3 -m tests.fuzz [TARGET …] --seconds 60` tries others.
"""

import zlib
from pathlib import Path

import pytest

from ops.host.process_specs import ROOT
from tests.fuzz.mutations import inputs
from tests.fuzz.reading import read
from tests.fuzz.targets import TARGETS, Target
from tests.harness import sampling

# Modules of the folders below that read nothing from outside, or only what another module has read.
WRITERS = frozenset({
    "authentication.arc_seal", "authentication.dkim_signing", "authentication.spam_rules", "mail.bounce_words",
    "mail.compose", "mail.encode", "mail.feedback_headers", "mail.headers", "mail.invisible", "mail.outgoing_reports",
    "mail.parts", "mail.replies", "mail.simulator", "mail.unsubscribe_links",
})  # fmt: skip


@pytest.mark.properties
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_reader_refuses_or_reads_whatever_it_is_given(target: Target) -> None:
    count = (1_200 if sampling.everything else 100) // target.costly
    for content in inputs(target.examples, target.words, zlib.crc32(target.name.encode()), count):
        read(target, content)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_its_examples_are_read(target: Target) -> None:
    if target.name == "solved challenge":
        pytest.skip("solutions expire")
    for example in target.examples:
        target.read(example)


def test_every_module_that_reads_is_tried() -> None:
    tried = {module for target in TARGETS for module in target.modules.split()}
    there = {
        f"{folder}.{path.stem}"
        for folder in ("authentication", "mail")
        for path in (Path(ROOT) / "engine" / folder).glob("[a-z]*.py")
    }

    assert there - tried == WRITERS
