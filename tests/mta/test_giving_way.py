"""A delivering process ranks below those who accept, and takes nobody else along."""

import subprocess
import sys
from pathlib import Path

import pytest

from mta.process import NICENESS

_SHOW = """
import os
from pathlib import Path
from mta.process import give_way
group = Path("/proc/self/autogroup")
give_way()
print(os.nice(0), group.read_text().split()[-1] if group.exists() else "-")
"""


@pytest.mark.parametrize("alone", [True, False])
def test_a_delivering_process_gives_way_and_renices_no_session_but_its_own(alone: bool) -> None:
    group = Path("/proc/self/autogroup")
    before = group.read_text().split()[-1] if group.exists() else "-"
    done = subprocess.run(
        [sys.executable, "-c", _SHOW], capture_output=True, text=True, check=True, timeout=30, start_new_session=alone
    )
    own, shared = done.stdout.split()

    assert int(own) == NICENESS
    assert shared == before or (alone and shared == str(NICENESS))  # not every machine lets a process rank its group
